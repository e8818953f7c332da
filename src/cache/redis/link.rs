//! The connection to Redis, which all calls share. If it breaks, a background task reconnects.
//!
//! The connection is pipelined: it sends commands without waiting for the replies to earlier ones. So one connection is
//! enough, and no call waits for a free connection.

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
use crate::{
    backoff::Backoff,
    cache::tier::TierError,
    display::{Time, seconds},
};

/// Timeout of a connection attempt, including the TLS handshake and authentication. The time is long enough for TCP to
/// retransmit a lost packet.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// Backoff between attempts to connect.
const WAITS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// Number of consecutive timeouts after which Holdfast reconnects. The server may be gone, which TCP would notice only
/// after a quarter of an hour, or it may send an endless reply. This number must not exceed the number of failures that
/// open the tier's circuit breaker, because no call reaches the server while the breaker is open.
const SILENT: u32 = 3;

/// Longest error text of the server to show, in characters.
const SHOWN: usize = 300;

/// Line at the beginning of each certificate in a PEM file.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    client: Client,
    url: RedisUrl,
    state: watch::Sender<State>,
    /// Number of timeouts since the last reply.
    silent: AtomicU32,
}

enum State {
    /// No call has needed the connection yet.
    New,
    /// The first attempt to connect or reconnect is under way. Calls wait for its result, but not longer than their
    /// timeouts.
    Connecting,
    /// The last attempt to connect failed with this error. A background task tries again; meanwhile, calls fail at
    /// once.
    Down(TierError),
    /// Connected.
    Up(Arc<MultiplexedConnection>),
}

// === impl Link ===

impl Link {
    pub(super) fn try_new(url: RedisUrl, ca: Option<(PathBuf, Vec<u8>)>) -> Result<Self, ConfigError> {
        // Use the same TLS provider as for upstreams. The installation fails if the process has already installed a
        // provider.
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

    /// Sends these commands together and returns the reply to each.
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
        values.try_into().map_err(|_| self.0.failed(&format_args!("{count} replies to {N} commands")))
    }

    /// Sends these commands together and returns the reply to each. If Redis refuses one command, the call fails, but
    /// the other commands take effect.
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
        // Reconnect also if the server has become a replica, which refuses every write: the host name may now lead to
        // the new primary.
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
            // `changed` cannot fail, because `self` owns the sender.
            let _ = states.changed().await;
        }
    }

    /// Reconnects in place of the broken connection `lost`, unless another call has already done so.
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

/// Tries to connect until an attempt succeeds or the link is dropped.
async fn connect(link: Weak<Inner>) {
    let mut backoff = WAITS;
    let begun = Instant::now();
    let mut is_down = false;
    loop {
        let Some(inner) = link.upgrade() else { return };
        // Set no timeouts here: `CONNECT` limits the attempt, and each call has its own timeout.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let attempt = inner.client.get_multiplexed_async_connection_with_config(&config);
        let error = match timeout(CONNECT, attempt).await {
            Ok(Ok(connection)) => {
                inner.state.send_replace(State::Up(Arc::new(connection)));
                if is_down {
                    let outage_seconds = seconds(begun.elapsed());
                    info!(redis = %inner.url, outage_seconds, "redis reconnected");
                }
                return;
            }
            Ok(Err(error)) => inner.disconnected(&format_args!("cannot connect: {error}")),
            Err(_) => inner.disconnected(&format_args!("cannot connect within {}", Time(CONNECT))),
        };
        if !is_down {
            warn!(%error, "redis unreachable; continuing without it and reconnecting");
        }
        is_down = true;
        inner.state.send_replace(State::Down(error));
        drop(inner);
        // Add jitter, so that the instances of a fleet do not all connect at once.
        sleep(backoff.next_pause().mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

/// Returns the error if Redis refused the command.
fn refusal(value: &Value) -> Option<ClientError> {
    match value {
        Value::ServerError(error) => Some(error.clone().into()),
        _ => None,
    }
}

// === impl Inner ===

impl Inner {
    fn failed(&self, error: &impl std::fmt::Display) -> TierError {
        std::io::Error::other(self.message(error)).into()
    }

    fn disconnected(&self, error: &impl std::fmt::Display) -> TierError {
        TierError::Disconnected(self.message(error).into())
    }

    /// Returns a message that names the server. Removes the password from the text, in case the server repeats it.
    fn message(&self, error: &impl std::fmt::Display) -> String {
        let mut text = error.to_string();
        let password = self.client.get_connection_info().redis_settings().password();
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            text = text.replace(password, "…");
        }
        // Replace line breaks and other control characters in the server's text, so that it cannot imitate a log line
        // of Holdfast.
        let shown = text.chars().take(SHOWN).map(|char| if char.is_control() { '\u{fffd}' } else { char });
        format!("{}: {}", self.url, shown.collect::<String>())
    }
}
