//! The one connection that all calls share, and its return.
//!
//! Calls do not wait for each other: what is asked at the same moment is sent together, and answers come in order. So one
//! connection is enough, and no call waits for a free one.

use std::{
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError as ClientError, TlsCertificates, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{info, warn};

use super::{config::ConfigError, url::RedisUrl};
use crate::{backoff::Backoff, cache::tier::TierError, display::Time};

/// To connect, with TLS and password. Longer than a lost packet takes to be sent again.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// From one attempt to the next: doubled each time, and never more than the last.
const WAITS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// So many calls in a row without an answer, and the connection is taken for dead: the other end may be gone without a
/// word, and the system would find out only in a quarter of an hour. Or it sends without end, which nobody reads any more
/// once a tier is left alone: it must not be more than it takes for that.
const SILENT: u32 = 3;

/// No more is shown of what the other end says.
const SHOWN: usize = 300;

/// Where certificates are, there is one of these.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    client: Client,
    url: RedisUrl,
    state: watch::Sender<State>,
    /// Calls without an answer since the last one.
    silent: AtomicU32,
}

enum State {
    /// Nobody has asked yet.
    New,
    /// The first attempt is under way. Calls wait for it, as long as they can.
    Connecting,
    /// The last attempt failed, so. The next is made in the background; calls do not wait.
    Down(TierError),
    /// Connected.
    Up(Arc<MultiplexedConnection>),
}

// === impl Link ===

impl Link {
    pub(super) fn try_new(url: RedisUrl, ca: Option<(PathBuf, Vec<u8>)>) -> Result<Self, ConfigError> {
        // As for upstreams; fails if it is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = url.connection().map_err(ConfigError::Url)?;
        let client = match ca {
            None => Client::open(connection).map_err(|_| ConfigError::Url(super::RedisUrlError::Host))?,
            Some((path, pem)) => {
                let is_some = pem.windows(BEGIN.len()).any(|part| part == BEGIN);
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
                let built = Client::build_with_tls(connection, certificates).ok().filter(|_| is_some);
                built.ok_or(ConfigError::CaContent { path })?
            }
        };
        let state = watch::Sender::new(State::New);
        Ok(Self(Arc::new(Inner { client, url, state, silent: AtomicU32::new(0) })))
    }

    pub(super) fn url(&self) -> &RedisUrl {
        &self.0.url
    }

    /// Sends these together, and returns what came for each.
    pub(super) async fn ask<const N: usize>(
        &self,
        commands: [Cmd; N],
        patience: Duration,
    ) -> Result<[Value; N], TierError> {
        let mut pipeline = Pipeline::with_capacity(N);
        for command in commands {
            pipeline.add_command(command);
        }
        let values = self.ask_all(&pipeline, patience).await?;
        let count = values.len();
        values.try_into().map_err(|_| self.0.failed(&format_args!("{count} answers to {N} commands")))
    }

    /// Sends these together, and returns what came for each. Fails if one of them does; the others are done all the same.
    pub(super) async fn ask_all(
        &self,
        pipeline: &Pipeline,
        patience: Duration,
    ) -> Result<Vec<Value>, TierError> {
        let until = Instant::now() + patience;
        let late = |_| TierError::TimedOut(patience);
        let connection = timeout_at(until, self.connection()).await.map_err(late)??;
        let mut own = MultiplexedConnection::clone(&connection);
        let answered = timeout_at(until, own.send_packed_commands(pipeline, 0, pipeline.len())).await;
        let Ok(answered) = answered else {
            if self.0.silent.fetch_add(1, Relaxed) + 1 >= SILENT {
                self.lost(&connection);
            }
            return Err(TierError::TimedOut(patience));
        };
        self.0.silent.store(0, Relaxed);
        let failed = match answered {
            Ok(values) => match values.iter().find_map(refusal) {
                None => return Ok(values),
                Some(error) => error,
            },
            Err(error) => error,
        };
        // One that has become a replica says so to each write: the name may stand for another by now.
        if failed.is_unrecoverable_error() || failed.is_io_error() || failed.code() == Some("READONLY") {
            self.lost(&connection);
        }
        Err(self.0.failed(&failed))
    }

    async fn connection(&self) -> Result<Arc<MultiplexedConnection>, TierError> {
        let is_first = self.0.state.send_if_modified(|state| {
            let is_new = matches!(state, State::New);
            if is_new {
                *state = State::Connecting;
            }
            is_new
        });
        if is_first {
            tokio::spawn(connect(Arc::downgrade(&self.0)));
        }
        let mut states = self.0.state.subscribe();
        loop {
            match &*states.borrow_and_update() {
                State::New | State::Connecting => {}
                State::Down(error) => return Err(error.clone()),
                State::Up(connection) => return Ok(connection.clone()),
            }
            // Cannot fail: the sender is ours.
            let _ = states.changed().await;
        }
    }

    /// This connection is no good any more; if it is still the one, another is made.
    fn lost(&self, lost: &Arc<MultiplexedConnection>) {
        let was_it = self.0.state.send_if_modified(|state| {
            let is_it = matches!(state, State::Up(connection) if Arc::ptr_eq(connection, lost));
            if is_it {
                *state = State::Connecting;
            }
            is_it
        });
        if was_it {
            self.0.silent.store(0, Relaxed);
            tokio::spawn(connect(Arc::downgrade(&self.0)));
        }
    }
}

/// Tries until it is connected, or nobody is left who would ask.
async fn connect(link: Weak<Inner>) {
    let mut backoff = WAITS;
    let mut is_down = false;
    loop {
        let Some(inner) = link.upgrade() else { return };
        // Calls have a time of their own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let attempt = inner.client.get_multiplexed_async_connection_with_config(&config);
        let error = match timeout(CONNECT, attempt).await {
            Ok(Ok(connection)) => {
                inner.state.send_replace(State::Up(Arc::new(connection)));
                if is_down {
                    info!(redis = %inner.url, "redis is there again");
                }
                return;
            }
            Ok(Err(error)) => inner.failed(&format_args!("cannot connect: {error}")),
            Err(_) => inner.failed(&format_args!("cannot connect within {}", Time(CONNECT))),
        };
        if !is_down {
            warn!(%error, "redis is not there");
        }
        is_down = true;
        inner.state.send_replace(State::Down(error));
        drop(inner);
        // Not all of a fleet at once.
        sleep(backoff.next_pause().mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

/// What Redis refused.
fn refusal(value: &Value) -> Option<ClientError> {
    match value {
        Value::ServerError(error) => Some(error.clone().into()),
        _ => None,
    }
}

// === impl Inner ===

impl Inner {
    /// Says what failed, and where; never the password, whatever the other end repeats.
    fn failed(&self, what: &impl std::fmt::Display) -> TierError {
        let mut text = what.to_string();
        let password = self.client.get_connection_info().redis_settings().password();
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            text = text.replace(password, "…");
        }
        // It may be anything, and must not look like lines of ours.
        let shown = text.chars().take(SHOWN).map(|char| if char.is_control() { '\u{fffd}' } else { char });
        std::io::Error::other(format!("{}: {}", self.url, shown.collect::<String>())).into()
    }
}
