//! `holdfast serve` as a separate process.

use std::{
    fs,
    net::SocketAddr,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use super::{
    client::{self, Client},
    eventually,
    program::{Program, holdfast, holdfast_under},
    upstream::Node,
};

/// Builder of a [`Process`].
pub struct Builder {
    upstreams: Vec<String>,
    environment: Vec<(String, String)>,
    ulimit: Option<&'static str>,
    file: Option<PathBuf>,
    wait_until_ready: bool,
}

/// A running `holdfast serve`. Dereferences to [`Program`].
pub struct Process {
    program: Program,
    rpc: SocketAddr,
    admin: SocketAddr,
}

/// Configures a proxy in front of this node.
pub fn serve(node: &Node) -> Builder {
    serve_url(&node.url())
}

/// Configures a proxy in front of this URL.
pub fn serve_url(upstream: &str) -> Builder {
    serve_all(vec![upstream.to_owned()])
}

/// Configures a proxy with this configuration file only.
pub fn serve_file(file: &Path) -> Builder {
    serve_all(Vec::new()).file(file)
}

fn serve_all(upstreams: Vec<String>) -> Builder {
    Builder { upstreams, environment: Vec::new(), ulimit: None, file: None, wait_until_ready: true }
}

/// Writes another configuration, reloads it with SIGHUP, and returns the log lines about it.
pub async fn reload(process: &Process, path: &Path, toml: &str) -> String {
    fs::write(path, toml).unwrap();
    reread(process).await
}

/// Reloads the configuration with SIGHUP and returns the log lines about it.
pub async fn reread(process: &Process) -> String {
    let before = process.said().len();
    process.signal(Signal::HUP);
    let mut said = String::new();
    eventually("a log line about the configuration", || {
        said = process.said()[before..].to_owned();
        let heard = said.split_inclusive('\n').filter(|line| line.ends_with('\n')).any(|line| {
            line.contains("configuration reloaded") || line.contains("configuration reload refused")
        });
        async move { heard }
    })
    .await;
    said
}

// === impl Builder ===

impl Builder {
    /// Sets a key of the configuration, by its environment variable without the prefix.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.env(&format!("HOLDFAST_{key}"), value)
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds this node as an upstream.
    pub fn also(mut self, node: &Node) -> Self {
        self.upstreams.push(node.url());
        self
    }

    /// Sets the configuration file.
    pub fn file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }

    /// Limits the number of open files, with these arguments of the shell's `ulimit`.
    pub fn ulimit(self, limit: &'static str) -> Self {
        Self { ulimit: Some(limit), ..self }
    }

    /// Does not wait until the proxy is ready.
    pub fn though_not_ready(self) -> Self {
        Self { wait_until_ready: false, ..self }
    }

    /// Starts the process. Waits until it listens and, unless told otherwise, until it is ready.
    pub async fn run(self) -> Process {
        let nowhere = "127.0.0.1:0";
        let mut arguments = vec!["serve", "--listen", nowhere, "--admin", nowhere];
        for upstream in &self.upstreams {
            arguments.extend(["--upstream", upstream]);
        }
        if let Some(file) = &self.file {
            arguments.extend(["--config", file.to_str().unwrap()]);
        }
        let mut command =
            self.ulimit.map_or_else(|| holdfast(&arguments), |limit| holdfast_under(limit, &arguments));
        command.envs(self.environment);
        let program = Program::start(command);
        let process =
            Process { rpc: program.rpc_address().await, admin: program.admin_address().await, program };
        if self.wait_until_ready {
            let ready = format!("{}/ready", process.admin_url());
            eventually("ready", async || process.client().get(&ready).await.status == 200).await;
        }
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

    /// Returns a sample of `/metrics`.
    pub async fn metric(&self, sample: &str) -> u64 {
        client::metric(&self.admin_url(), sample).await
    }

    /// Returns the number of open files of the process.
    pub fn open_files(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.id().as_raw_nonzero())).unwrap().count() as u64
    }
}

impl Deref for Process {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
