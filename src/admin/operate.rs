//! Operations on the cache: look-up and purge.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task;

use super::{
    body::Body,
    response::{plain, typed},
};
use crate::{
    blocking,
    cache::{Held, tier::TierKind},
    eth::BlockNumber,
    proxy::{Inspected, InspectedBlock, InspectedTransaction, Inspector, Subject},
};

/// Length of the longest query that is parsed. Valid queries are shorter.
const LONGEST_QUERY: usize = 256;

/// Executes the operations.
#[derive(Clone, Debug)]
pub struct Operator {
    inspector: Inspector,
}

/// The query of a URL.
struct UrlQuery<'a>(&'a str);

// === impl Operator ===

impl Operator {
    /// Creates an operator that looks up and purges with `inspector`.
    pub fn new(inspector: Inspector) -> Self {
        Self { inspector }
    }

    /// Handles `GET /lookup?q=`.
    pub(super) async fn look_up(self, query: String) -> Response<Body> {
        let subject = match UrlQuery(&query).subject() {
            Ok(subject) => subject,
            Err(why) => return bad(&format!("{why}; as in /lookup?q=19000000")),
        };
        let found = apart(move || self.inspector.inspect(subject)).await;
        found.map_or_else(died, |found| told(StatusCode::OK, &inspected(subject, &found)))
    }

    /// Handles `POST /purge?q=`.
    pub(super) async fn purge(self, query: String) -> Response<Body> {
        let hash = match UrlQuery(&query).subject() {
            Ok(Subject::Hash(hash)) => hash,
            Ok(Subject::Number(number)) => {
                let number = number.0;
                return bad(&format!(
                    "expected the hash of a block or a transaction; \
                     /lookup?q={number} lists the hashes of blocks at {number}"
                ));
            }
            Err(why) => return bad(&why),
        };
        // The purge runs in a task of its own, so that it completes even if the client disconnects.
        let purging = task::spawn(async move {
            let left_in = self.inspector.purge_tiers(hash).await;
            Some((apart(move || self.inspector.purge(hash)).await?, left_in))
        });
        let Some((purged, left_in)) = purging.await.ok().flatten() else { return died() };
        let left_in: Vec<_> = left_in.into_iter().map(TierKind::as_str).collect();
        let bytes: u64 = purged.iter().map(|held| held.bytes).sum();
        let entries = purged.len();
        tracing::info!(hash = %format_args!("{hash:#x}"), entries, bytes, ?left_in, "operator purged cached entries");
        let purged: Vec<_> = purged.iter().map(held).collect();
        let query = format!("{hash:#x}");
        told(StatusCode::OK, &json!({ "query": query, "purged": purged, "bytes": bytes, "left_in": left_in }))
    }
}

/// Runs `work`, which may take a while, on a thread that answers no clients. Returns `None` if `work` panicked.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    blocking::run(work).await.ok()
}

fn died() -> Response<Body> {
    plain(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal error: the operation panicked; this is a bug\n".to_owned(),
    )
}

fn bad(why: &str) -> Response<Body> {
    told(StatusCode::BAD_REQUEST, &json!({ "error": why }))
}

fn told(status: StatusCode, value: &Value) -> Response<Body> {
    typed(status, "application/json", format!("{value:#}\n"))
}

// ## As JSON

fn inspected(subject: Subject, found: &Inspected) -> Value {
    let query = match subject {
        Subject::Hash(hash) => json!(format!("{hash:#x}")),
        Subject::Number(number) => json!(number.0),
    };
    json!({
        "query": query,
        "blocks": found.blocks.iter().map(block).collect::<Vec<_>>(),
        "transactions": found.transactions.iter().map(transaction).collect::<Vec<_>>(),
        "head": found.head.map(|BlockNumber(head)| head),
    })
}

fn block(block: &InspectedBlock) -> Value {
    json!({
        "hash": block.hash.to_string(),
        "number": block.number.map(|BlockNumber(number)| number),
        "canonicity": block.standing.as_str(),
        "timestamp": block.timestamp,
        "transactions": block.transactions,
        "entries": block.held.iter().map(held).collect::<Vec<_>>(),
        "bytes": block.held.iter().map(|held| held.bytes).sum::<u64>(),
    })
}

fn transaction(transaction: &InspectedTransaction) -> Value {
    json!({
        "hash": transaction.hash.to_string(),
        "block": transaction.home.block.to_string(),
        "number": transaction.home.number.0,
        "index": transaction.index.0,
        "canonicity": transaction.standing.as_str(),
        "entries": transaction.held.iter().map(held).collect::<Vec<_>>(),
    })
}

fn held(held: &Held) -> Value {
    let age = held.origin.as_ref().and_then(|origin| origin.time.elapsed().ok());
    json!({
        "kind": held.kind(),
        "bytes": held.bytes,
        "verified": held.level.map(|level| level.as_str()),
        "endpoint": held.origin.as_ref().map(|origin| &*origin.endpoint),
        "age_seconds": age.map(|age| age.as_secs()),
        "transaction": held.transaction.map(|(hash, _)| hash.to_string()),
        "index": held.transaction.map(|(_, index)| index.0),
    })
}

// === impl UrlQuery ===

impl<'a> UrlQuery<'a> {
    /// Returns the value of the parameter `name`. Does not unescape the value, because valid values contain no
    /// escapes.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    fn subject(&self) -> Result<Subject, String> {
        if self.0.len() > LONGEST_QUERY {
            return Err("the query is longer than any hash or number".to_owned());
        }
        self.get("q")
            .unwrap_or_default()
            .parse()
            .map_err(|error: crate::proxy::SubjectError| error.to_string())
    }
}
