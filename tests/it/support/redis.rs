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

/// For one answer: longer than a busy machine ever stands still. One that is gone is noticed at once all the same.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A redis-server on loopback, on a port of its own. Killed when dropped.
pub struct Redis {
    binary: PathBuf,
    arguments: Vec<String>,
    port: u16,
    password: Option<String>,
    program: Option<Program>,
    secure: Option<(u16, String)>,
}

/// To be started; `None`, and said so, where there is no Redis.
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
    /// With one more setting.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// As a node of a cluster; it has no slots yet.
    pub fn in_cluster(self) -> Self {
        self.with("cluster-enabled", "yes").with("cluster-port", &port().to_string())
    }

    pub fn password(self, password: &str) -> Self {
        Self { password: Some(password.to_owned()), ..self.with("requirepass", password) }
    }

    /// On another port over TLS as well, with a certificate of this authority.
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

    /// Returns when it answers.
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

    /// Without a word to anybody.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Does nothing from here on, and keeps its connections.
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

    /// How it is reached over TLS.
    pub fn secure_config(&self) -> RedisConfig {
        let (port, ca) = self.secure.as_ref().unwrap();
        let url = format!("rediss://127.0.0.1:{port}");
        RedisConfig { ca: Some(ca.into()), timeout: TIMEOUT, ..RedisConfig::at(url) }
    }

    /// A tier there, with time enough for a machine that has others to serve.
    pub fn tier(&self) -> Tier {
        Tier::try_new(&self.config()).unwrap()
    }

    pub fn config(&self) -> RedisConfig {
        RedisConfig { timeout: TIMEOUT, ..RedisConfig::at(self.url()) }
    }

    /// A connection on which anything can be asked.
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
        eventually("the tier's connection", || async { tier.finalized(chain).await.is_ok() }).await;
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

    /// A number out of `INFO`.
    pub async fn info(&mut self, section: &str, name: &str) -> u64 {
        let info: String = self.ask(&[b"INFO", section.as_bytes()]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {info}")).parse().unwrap()
    }
}
