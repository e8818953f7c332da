//! The binary, and other programs, as child processes.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::File,
    io::Read,
    net::{SocketAddr, TcpListener},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::eventually;

/// A running child process. Killed when dropped.
pub struct Program {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

/// Returns the command `holdfast` without the `HOLDFAST_` variables of this environment.
pub fn holdfast(arguments: &[&str]) -> Command {
    on_its_own(Command::new(env!("CARGO_BIN_EXE_holdfast")), arguments)
}

/// Same as [`holdfast`], but with a limit on open files. `ulimit` has the arguments of the shell's `ulimit`.
pub fn holdfast_under(ulimit: &str, arguments: &[&str]) -> Command {
    holdfast_in_shell(&format!(r#"ulimit {ulimit} && exec "$0" "$@""#), arguments)
}

/// Same as [`holdfast`], but in a shell script, in which `"$0" "$@"` is the command.
pub fn holdfast_in_shell(script: &str, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_holdfast")]);
    on_its_own(shell, arguments)
}

fn on_its_own(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
pub async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs a command that must succeed, and prints its output.
pub async fn succeed(command: Command) {
    let ran = output(command).await;
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    print!("{}", text(&ran.stdout));
}

/// Runs a probe until it succeeds, and returns its output. A single probe may time out on a busy machine.
pub async fn success(probe: impl Fn() -> Command) -> String {
    let said = RefCell::new(String::new());
    eventually("the success of a probe", async || {
        let ran = output(probe()).await;
        said.replace(text(&ran.stdout) + &text(&ran.stderr));
        ran.status.success()
    })
    .await;
    said.into_inner()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a temporary file and returns its path.
pub fn file(name: &str, content: &str) -> PathBuf {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{}-{}",
        std::process::id(),
        FILES.fetch_add(1, Relaxed)
    ));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Returns a free port, outside the range of ephemeral ports.
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = 10_000 + std::process::id() % 20_000;
    loop {
        let port = u16::try_from(10_000 + (first + NEXT.fetch_add(1, Relaxed)) % 22_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the address in the field `url` of a log line, text or JSON.
fn address_in(line: &str) -> SocketAddr {
    let json: Result<serde_json::Value, _> = serde_json::from_str(line);
    let url = match &json {
        Ok(line) => line["url"].as_str(),
        Err(_) => line.split_whitespace().find_map(|word| word.strip_prefix("url=")),
    };
    let address = url.and_then(|url| url.split_once("://")?.1.parse().ok());
    address.unwrap_or_else(|| panic!("no address in {line}"))
}

// === impl Program ===

impl Program {
    /// Starts the command and collects the output of both streams.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        Self::read(child, streams)
    }

    /// Starts the command on a pseudo-terminal with this number of columns, and collects the output.
    pub fn on_terminal(mut command: Command, columns: u16) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let no_control = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
        let end = File::options()
            .read(true)
            .write(true)
            .custom_flags(no_control)
            .open(OsStr::from_bytes(name.to_bytes()))
            .unwrap();
        let [input, output] = [(); 2].map(|()| end.try_clone().unwrap());
        let child = command.stdin(input).stdout(output).stderr(end).spawn().unwrap();
        // The command has our copies of its end of the terminal, without which reading ends with the child.
        drop(command);
        Self::read(child, [Box::new(File::from(terminal)) as Box<dyn Read + Send>])
    }

    fn read(child: Child, streams: impl IntoIterator<Item = Box<dyn Read + Send>>) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let readers = streams.into_iter().map(|mut stream| {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    said.lock().unwrap().extend_from_slice(&piece[..count]);
                }
            })
        });
        Self { child, readers: readers.collect(), said }
    }

    pub fn said(&self) -> String {
        text(&self.said.lock().unwrap())
    }

    pub async fn says(&self, text: &str) {
        eventually(text, || async { self.said().contains(text) }).await;
    }

    /// Waits for a complete line that contains `text`.
    pub async fn line(&self, text: &str) -> String {
        let mut line = None;
        eventually(&format!("a line with {text:?}"), || {
            let said = self.said();
            let mut lines = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            line = lines.find(|line| line.contains(text)).map(str::to_owned);
            std::future::ready(line.is_some())
        })
        .await;
        line.unwrap_or_default()
    }

    /// Waits until the program serves clients, and returns the address.
    pub async fn rpc_address(&self) -> SocketAddr {
        address_in(&self.line("serves clients").await)
    }

    /// Waits until the program serves operators, and returns the address.
    pub async fn admin_address(&self) -> SocketAddr {
        address_in(&self.line("status page is up").await)
    }

    pub fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.id(), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the program has exited and all its output is read.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let mut code = None;
        eventually("the end of the program", || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            let heard = self.readers.iter().all(JoinHandle::is_finished);
            async move { status.is_some() && heard }
        })
        .await;
        code
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
