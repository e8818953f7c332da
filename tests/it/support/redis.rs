//! A real Redis.

use std::{path::PathBuf, process::Command, time::Duration};

use holdfast::cache::redis::{Redis as Tier, RedisConfig};
use redis::{FromRedisValue, aio::MultiplexedConnection};
use rustix::process::Signal;

use super::{
    authority::{Authority, Pair},
    eventually,
    program::{Program, file, port},
    tools,
};

/// Timeout of a command. It is longer than a busy machine stalls. The tier still notices a closed connection at once.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A redis-server on its own loopback port. Killed when dropped.
pub struct Redis {
    binary: PathBuf,
    arguments: Vec<String>,
    port: u16,
    password: Option<String>,
    program: Option<Program>,
    secure: Option<(u16, String)>,
}

/// Returns a Redis that is not started yet. Returns `None`, and reports that the test is skipped, if there is no
/// redis-server.
pub fn redis(test: &str) -> Option<Redis> {
    let binary = tools::redis_server(test)?;
    let folder = file("redis", "");
    let folder = folder.parent().unwrap().to_str().unwrap().to_owned();
    let arguments = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", &folder]
        .map(str::to_owned)
        .into();
    Some(Redis { binary, arguments, port: port(), password: None, program: None, secure: None })
}

// === impl Redis ===

impl Redis {
    /// Adds a setting.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Makes the server a node of a cluster, without slots.
    pub fn in_cluster(self) -> Self {
        self.with("cluster-enabled", "yes").with("cluster-port", &port().to_string())
    }

    pub fn password(self, password: &str) -> Self {
        Self { password: Some(password.to_owned()), ..self.with("requirepass", password) }
    }

    /// Listens on another port for TLS as well, with a certificate of this authority.
    pub fn secure(self, authority: &Authority) -> Self {
        let (port, Pair { cert, key }) = (port(), authority.pair());
        let redis = self
            .with("tls-port", &port.to_string())
            .with("tls-cert-file", cert.to_str().unwrap())
            .with("tls-key-file", key.to_str().unwrap())
            .with("tls-ca-cert-file", authority.file())
            .with("tls-auth-clients", "no");
        Self { secure: Some((port, authority.file().to_owned())), ..redis }
    }

    /// Starts the server and waits until it answers.
    pub async fn run(mut self) -> Self {
        self.start().await;
        self
    }

    pub async fn start(&mut self) {
        let mut command = Command::new(&self.binary);
        command.args(["--port", &self.port.to_string()]).args(&self.arguments);
        let program = Program::start(command);
        program.says("Ready to accept connections").await;
        self.program = Some(program);
    }

    /// Kills the server without a clean shutdown.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Suspends the server; its connections stay open.
    pub fn freeze(&self) {
        self.program.as_ref().unwrap().signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.program.as_ref().unwrap().signal(Signal::CONT);
    }

    pub fn url(&self) -> String {
        let user = self.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis://{user}127.0.0.1:{}", self.port)
    }

    /// Returns the configuration of a tier that connects over TLS.
    pub fn secure_config(&self) -> RedisConfig {
        let (port, ca) = self.secure.as_ref().unwrap();
        let url = format!("rediss://127.0.0.1:{port}");
        RedisConfig { ca: Some(ca.into()), timeout: TIMEOUT, ..RedisConfig::at(url) }
    }

    /// Returns a tier on this server, with a long timeout.
    pub fn tier(&self) -> Tier {
        Tier::try_new(&self.config()).unwrap()
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig { timeout: TIMEOUT, ..RedisConfig::at(self.url()) }
    }

    /// Opens a connection for arbitrary commands.
    pub async fn raw(&self) -> Raw {
        let client = redis::Client::open(self.url()).unwrap();
        let config =
            redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Raw(client.get_multiplexed_async_connection_with_config(&config).await.unwrap())
    }

    /// Waits until this tier is connected again.
    pub async fn is_back(&self, tier: &Tier) {
        use holdfast::cache::tier::Tier as _;
        let chain = holdfast::cache::tier::ChainKey { id: 0, genesis: Default::default() };
        eventually("the connection of the tier", || async {
            tier.hints(chain, holdfast::eth::BlockNumber(0), 1).await.is_ok()
        })
        .await;
    }
}

/// A connection of the test itself.
pub struct Raw(MultiplexedConnection);

// === impl Raw ===

impl Raw {
    pub async fn ask<T: FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.0).await.unwrap()
    }

    pub async fn keys(&mut self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.ask(&[b"KEYS", b"*"]).await;
        keys.sort();
        keys
    }

    /// Returns a number from `INFO`.
    pub async fn info(&mut self, section: &str, name: &str) -> u64 {
        let info: String = self.ask(&[b"INFO", section.as_bytes()]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {info}")).parse().unwrap()
    }
}
