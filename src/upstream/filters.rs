//! Filters: what a client installs at a node and then polls.
//!
//! A filter lives at the node that made it. With one endpoint ids pass as they are. With several, ids of
//! different nodes collide, so clients get ids of our own, and a call that names one goes to its node and to
//! no other, under the id that the node gave it. Polling takes what it tells of out of the filter: it is sent
//! once, whatever comes of it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use moka::{policy::EvictionPolicy, sync::Cache};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Call, EndpointId, UpstreamError, endpoint::Accepted, pool::Pool};
use crate::jsonrpc::{Answer, Params};

/// Filters that are known at a time, all clients together: a call does not say here whose it is. One client that makes
/// more than these has the others' forgotten that were polled longest ago; what is forgotten can be made again, and
/// clients do so. Where clients are strangers to each other, a limit on the rate of their calls bounds it.
pub(super) const MOST: u64 = 10_000;

/// A filter that nobody polls is forgotten. Nodes forget it sooner: geth after 5 minutes.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// In geth's words, which clients know: they make the filter again.
const NOT_FOUND: &[u8] = br#"{"code":-32000,"message":"filter not found"}"#;

/// What a call has to do with filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterCall {
    /// Makes one.
    Create,
    /// Asks one what it has.
    Poll,
    /// Ends one.
    Uninstall,
}

/// Which filter lives where.
#[derive(Debug)]
pub(super) struct Filters {
    known: Cache<String, Filter>,
    ids: Ids,
}

/// A filter of a node.
#[derive(Clone, Debug)]
struct Filter {
    home: EndpointId,
    /// Its id there, as JSON.
    id: Bytes,
    /// One call at a time, in the order in which they came: one takes what the next would have told, or ends it.
    turn: Arc<Mutex<()>>,
}

/// Ids that nobody can guess from others: a count under two keys that are not told.
#[derive(Debug, Default)]
struct Ids {
    keys: [RandomState; 2],
    given: AtomicU64,
}

// === impl FilterCall ===

impl FilterCall {
    /// `None` for a method that has nothing to do with filters.
    pub(super) fn of(method: &str) -> Option<Self> {
        match method {
            "eth_newFilter" | "eth_newBlockFilter" | "eth_newPendingTransactionFilter" => Some(Self::Create),
            "eth_getFilterChanges" | "eth_getFilterLogs" => Some(Self::Poll),
            "eth_uninstallFilter" => Some(Self::Uninstall),
            _ => None,
        }
    }
}

// === impl Filters ===

impl Filters {
    pub(super) fn new() -> Self {
        let known = Cache::builder()
            // Not by frequency: a newcomer would not be let in while the old ones are busy.
            .eviction_policy(EvictionPolicy::lru())
            .max_capacity(MOST)
            .time_to_idle(IDLE)
            .build();
        Self { known, ids: Ids::default() }
    }

    /// Waits for the turn of a call that names a filter, which lasts until what is returned is dropped. To be had
    /// before anything that others could use meanwhile: those who wait for one filter hold nothing but their places.
    pub(super) async fn turn(&self, call: &Call) -> Option<OwnedMutexGuard<()>> {
        let (FilterCall::Poll | FilterCall::Uninstall) = call.filter()? else { return None };
        let named = text(call.params.elements().next()?.as_bytes())?;
        let turn = self.known.get(&named)?.turn;
        Some(turn.lock_owned().await)
    }

    /// Sends a call that has to do with filters where it belongs. It must have its [turn](Self::turn).
    pub(super) async fn call(
        &self,
        pool: &Pool,
        call: Call,
        kind: FilterCall,
    ) -> Result<Answer, UpstreamError> {
        match kind {
            FilterCall::Create => self.create(pool, call).await,
            FilterCall::Poll | FilterCall::Uninstall => self.ask(pool, call, kind).await,
        }
    }

    async fn create(&self, pool: &Pool, call: Call) -> Result<Answer, UpstreamError> {
        let (answer, by) = match pool.send_one(call).await {
            Ok(Accepted { answer, by, .. }) => (answer, by),
            Err(error) => return error.into_answer(),
        };
        let Answer::Result(id) = answer else { return Ok(answer) };
        let Some(given) = text(&id) else { return Ok(Answer::Result(id)) };
        let filter = Filter { home: by, id: id.clone(), turn: Arc::default() };
        if pool.is_single() {
            self.known.insert(given, filter);
            return Ok(Answer::Result(id));
        }
        let own = self.ids.next();
        let answer = Answer::Result(format!("\"{own}\"").into());
        self.known.insert(own, filter);
        Ok(answer)
    }

    async fn ask(&self, pool: &Pool, call: Call, kind: FilterCall) -> Result<Answer, UpstreamError> {
        let Some(named) = call.params.elements().next().map(|id| text(id.as_bytes())) else {
            // Whoever is asked says what is missing.
            return send(pool, call).await;
        };
        let found = named.and_then(|named| Some((self.known.get(&named)?, named)));
        let answer = match found {
            // Alone, a node knows what it has, from before our time too.
            None if pool.is_single() => send(pool, call).await?,
            None => not_found(),
            Some((filter, named)) => {
                let answer = filter.ask(pool, call, &named).await?;
                if answer == not_found() || (kind == FilterCall::Uninstall && is_true(&answer)) {
                    self.known.invalidate(&named);
                }
                answer
            }
        };
        Ok(answer)
    }
}

// === impl Filter ===

impl Filter {
    /// Asks its home, and nobody else. A home that is lost has lost its filters.
    async fn ask(&self, pool: &Pool, call: Call, named: &str) -> Result<Answer, UpstreamError> {
        if pool.get(self.home).is_none() {
            return Ok(not_found());
        }
        let call = if text(&self.id).as_deref() == Some(named) { call } else { self.translate(call) };
        if pool.is_single() {
            return send(pool, call).await;
        }
        match pool.send_to(self.home, call).await {
            Some(Ok(accepted)) => Ok(accepted.answer),
            None => Ok(not_found()),
            Some(Err(error)) => match error.into_answer() {
                Err(UpstreamError::Connect(_) | UpstreamError::Stranger(_)) => Ok(not_found()),
                // It may be there still, and have what was asked for.
                other => other,
            },
        }
    }

    /// The same call under the id that its home knows.
    fn translate(&self, call: Call) -> Call {
        let mut params = format!("[{}", String::from_utf8_lossy(&self.id));
        for rest in call.params.elements().skip(1) {
            params.push(',');
            params.push_str(rest);
        }
        params.push(']');
        Call { params: Params::from_own(params), ..call }
    }
}

async fn send(pool: &Pool, call: Call) -> Result<Answer, UpstreamError> {
    let outcome = pool.send_one(call).await;
    outcome.map(|accepted| accepted.answer).or_else(UpstreamError::into_answer)
}

fn is_true(answer: &Answer) -> bool {
    matches!(answer, Answer::Result(result) if result == "true")
}

fn not_found() -> Answer {
    Answer::Error(Bytes::from_static(NOT_FOUND))
}

/// An id as text; `None` if it is none.
fn text(id: &[u8]) -> Option<String> {
    serde_json::from_slice(id).ok()
}

// === impl Ids ===

impl Ids {
    /// 128 bits, as geth's.
    fn next(&self) -> String {
        let count = self.given.fetch_add(1, Relaxed);
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(count));
        format!("0x{high:016x}{low:016x}")
    }
}
