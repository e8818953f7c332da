//! The program under test as its operators start it: a process of its own.

use std::{
    fs,
    net::SocketAddr,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time,
};

use super::{
    client::{self, Client, PATIENCE},
    eventually,
    upstream::Node,
};

/// `holdfast serve`, to be started.
pub struct Builder {
    upstream: String,
    settings: Vec<(String, String)>,
    ulimit: Option<&'static str>,
}

/// A running `holdfast serve`. It is killed when dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    rpc: SocketAddr,
    admin: SocketAddr,
}

/// In front of this node.
pub fn serve(node: &Node) -> Builder {
    Builder { upstream: node.url(), settings: Vec::new(), ulimit: None }
}

// === impl Builder ===

impl Builder {
    /// Sets a key of the configuration, by its environment variable without the prefix.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((format!("HOLDFAST_{key}"), value.to_owned()));
        self
    }

    /// Starts under a limit on open files: the arguments of the shell's `ulimit`.
    pub fn ulimit(self, limit: &'static str) -> Self {
        Self { ulimit: Some(limit), ..self }
    }

    /// Returns when it can answer calls.
    pub async fn run(self) -> Process {
        let ulimit = self.ulimit.map(|limit| format!("ulimit {limit} && ")).unwrap_or_default();
        let mut child = Command::new("sh")
            .args(["-c", &format!(r#"{ulimit}exec "$0" "$@""#), env!("CARGO_BIN_EXE_holdfast")])
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--upstream", &self.upstream])
            .envs(self.settings)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        tokio::spawn({
            let log = log.clone();
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    log.lock().unwrap().push(line);
                }
            }
        });

        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Process { child, log, rpc: nowhere, admin: nowhere };
        process.says("is listening").await;
        process.rpc = process.said("listen");
        process.admin = process.said("admin");
        let ready = format!("{}/ready", process.admin_url());
        eventually("ready", async || process.client().get(&ready).await.status == 200).await;
        process
    }
}

// === impl Process ===

impl Process {
    pub fn address(&self) -> SocketAddr {
        self.rpc
    }

    pub fn client(&self) -> Client {
        client::at(&format!("http://{}", self.rpc))
    }

    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// One sample of `/metrics`.
    pub async fn metric(&self, sample: &str) -> u64 {
        client::metric(&self.admin_url(), sample).await
    }

    pub fn pid(&self) -> Pid {
        let pid = self.child.id().expect("it runs");
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = time::timeout(PATIENCE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).unwrap()
    }

    /// How many files it has open.
    pub fn open_files(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero())).unwrap().count() as u64
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits for a line of the log.
    pub async fn says(&self, text: &str) {
        eventually(&format!("{text:?} in the log"), async || self.log().contains(text)).await;
    }

    /// The value of a field in the log.
    fn said<T: std::str::FromStr>(&self, field: &str) -> T {
        let log = self.log();
        let value = log.split_whitespace().find_map(|word| word.strip_prefix(field)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {log}"))
    }
}
