//! The compared servers, each a separate process on the core of the servers.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::folder;

/// Folder of nginx modules on Debian.
const NGINX_MODULES: &str = "/usr/lib/nginx/modules";

const START_PATIENCE: Duration = Duration::from_secs(20);

/// A kind of server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bare hyper server that reads a body and returns fixed bytes.
    Limit,
    Holdfast {
        name: String,
        binary: PathBuf,
    },
    NginxLua,
    NginxCache,
}

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Flags of `holdfast serve`.
    pub flags: Vec<String>,
    /// Environment variables of `holdfast serve`.
    pub environment: Vec<(&'static str, String)>,
    /// Size of the shared memory of the nginx script.
    pub dict: Option<&'static str>,
    /// Answer of the limit.
    pub body: Bytes,
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub pid: u32,
    pub core: usize,
    address: SocketAddr,
    /// Address of the admin listener.
    admin: Option<SocketAddr>,
    child: Child,
}

// === impl Kind ===

impl Kind {
    pub fn name(&self) -> &str {
        match self {
            Self::Limit => "limit (bare hyper)",
            Self::Holdfast { name, .. } => name,
            Self::NginxLua => "nginx + lua",
            Self::NginxCache => "nginx proxy_cache",
        }
    }

    /// Returns whether the server is installed.
    pub fn is_there(&self) -> bool {
        match self {
            Self::Limit | Self::Holdfast { .. } => true,
            Self::NginxCache => nginx().is_some(),
            Self::NginxLua => {
                nginx().is_some() && Path::new(NGINX_MODULES).join("ngx_http_lua_module.so").exists()
            }
        }
    }

    pub fn is_holdfast(&self) -> bool {
        matches!(self, Self::Holdfast { .. })
    }

    /// Starts the server on `core` and waits until it is ready.
    pub fn start(&self, node: SocketAddr, core: usize, settings: &Settings) -> Server {
        let (address, admin) = (free_address(), free_address());
        let folder = folder().join(self.name().replace([' ', '(', ')', '+'], "-"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]);
        match self {
            Self::Limit => {
                let body = folder.join("body");
                fs::write(&body, &settings.body).unwrap();
                command.arg(std::env::current_exe().unwrap());
                command.args(["--limit", &address.to_string()]).arg("--body").arg(body);
            }
            Self::Holdfast { binary, .. } => {
                command.arg(binary).args(["serve", "--listen", &address.to_string()]);
                command.args(["--admin", &admin.to_string(), "--upstream", &format!("http://{node}")]);
                command.args(&settings.flags);
                command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
            }
            Self::NginxCache | Self::NginxLua => {
                let config = folder.join("nginx.conf");
                fs::write(&config, self.nginx_config(&folder, address, node, settings)).unwrap();
                command.arg(nginx().unwrap()).arg("-p").arg(&folder).arg("-c").arg(config);
            }
        }
        let log = File::create(folder.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let admin = self.is_holdfast().then_some(admin);
        // taskset executes the program in its own process, so the process id is that of the program.
        let server = Server { kind: self.clone(), pid: child.id(), core, address, admin, child };
        server.wait();
        server
    }

    fn nginx_config(
        &self,
        folder: &Path,
        listen: SocketAddr,
        node: SocketAddr,
        settings: &Settings,
    ) -> String {
        let template = match self {
            Self::NginxLua => include_str!("nginx-lua.conf"),
            _ => include_str!("nginx-cache.conf"),
        };
        template
            .replace("@FOLDER@", folder.to_str().unwrap())
            .replace("@MODULES@", NGINX_MODULES)
            .replace("@LISTEN@", &listen.to_string())
            .replace("@NODE@", &node.to_string())
            .replace("@DICT@", settings.dict.unwrap_or("256m"))
            .replace("@SCRIPT@", concat!(env!("CARGO_MANIFEST_DIR"), "/benches/e2e/cache.lua"))
    }
}

fn nginx() -> Option<PathBuf> {
    ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"]
        .into_iter()
        .map(PathBuf::from)
        .find(|it| it.exists())
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// === impl Server ===

impl Server {
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn wait(&self) {
        let mut patience = START_PATIENCE;
        let ready = || match self.admin {
            Some(admin) => get(admin, "/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")),
            None => TcpStream::connect(self.address).is_ok(),
        };
        while !ready() {
            let pause = Duration::from_millis(20);
            patience =
                patience.checked_sub(pause).unwrap_or_else(|| panic!("{} does not start", self.kind.name()));
            thread::sleep(pause);
        }
    }

    /// Opens a connection for sequential requests.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Returns the number of calls that Holdfast has counted.
    pub fn calls(&self) -> f64 {
        let text = self.admin.and_then(|admin| get(admin, "/metrics")).unwrap_or_default();
        let samples = text.lines().filter(|line| line.starts_with("holdfast_calls_total"));
        samples.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()).sum()
    }

    /// Returns the number of entries and bytes in the cache of Holdfast.
    pub fn cached(&self) -> (u64, u64) {
        // The cache updates its counts with a delay.
        thread::sleep(Duration::from_secs(1));
        let answer = self.admin.and_then(|admin| get(admin, "/status")).unwrap_or_default();
        let status: Value = answer
            .split_once("\r\n\r\n")
            .and_then(|(_, body)| serde_json::from_str(body).ok())
            .unwrap_or_default();
        let count = |name: &str| status["cache"][name].as_u64().unwrap_or(0);
        (count("entries"), count("bytes"))
    }

    /// Opens connections and sends one request on each.
    pub fn idle_connections(&self, count: usize) -> Vec<Connection> {
        let connection = || {
            let mut connection = self.connect();
            connection.post(br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#);
            connection
        };
        std::iter::repeat_with(connection).take(count).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    head: String,
}

// === impl Connection ===

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new(), head: String::new() }
    }

    /// Returns the head of the last answer, in lower case.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Sends a body and returns the body of the answer.
    pub fn post(&mut self, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let end = self.read_until(|read| find(read, b"\r\n\r\n").map(|at| at + 4));
        self.head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        self.read.drain(..end);
        let length = self.head.lines().find_map(|line| line.strip_prefix("content-length:"));
        match length.map(|length| length.trim().parse().unwrap()) {
            Some(length) => {
                let length: usize = length;
                self.read_until(|read| (read.len() >= length).then_some(length));
                self.read.drain(..length).collect()
            }
            None => self.chunks(),
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = self.read_until(|read| find(read, b"\r\n").map(|at| at + 2));
            let size = String::from_utf8_lossy(&self.read[..end - 2]).into_owned();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            self.read.drain(..end);
            self.read_until(|read| (read.len() >= size + 2).then_some(0));
            body.extend(self.read.drain(..size));
            self.read.drain(..2);
            if size == 0 {
                return body;
            }
        }
    }

    fn read_until(&mut self, mut done: impl FnMut(&[u8]) -> Option<usize>) -> usize {
        let mut piece = [0; 65536];
        loop {
            if let Some(at) = done(&self.read) {
                return at;
            }
            let count = self.stream.read(&mut piece).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.read.extend_from_slice(&piece[..count]);
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Runs the limit for ever: hyper's example server, which reads the request body and returns a fixed one.
pub fn serve_limit(address: SocketAddr, body: &Path) {
    let body = Bytes::from(fs::read(body).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build().unwrap();
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            let body = body.clone();
            let service = service_fn(move |request| answer(request, body.clone()));
            tokio::spawn(async move {
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

async fn answer(request: Request<Incoming>, body: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(body));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
