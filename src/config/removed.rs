//! Keys of earlier versions that no longer exist.

/// Removed keys and sections, each with advice on its replacement.
const REMOVED: [(&str, &str); 19] = [
    (
        "cache.redis.timeout",
        "delete it; a read ends after 100 ms, so place the Redis near Holdfast or use cache.disk",
    ),
    ("chain.follow_interval", "delete it; to learn of heads within a second, set ws on an endpoint"),
    ("chain.lag_patience", CONSTANT),
    ("chain.orphans", "delete it; orphaned blocks are always served by hash"),
    ("chain.refresh_ahead", "use chain.follow = \"heads\""),
    ("chain.rollback_after", CONSTANT),
    ("connections.first_byte_timeout", CONSTANT),
    ("connections.head_timeout", CONSTANT),
    ("connections.stall_timeout", CONSTANT),
    (
        "http.batch_concurrency",
        "delete it; set upstream.max_per_client, or the rate of an endpoint, for fewer calls at a time",
    ),
    ("http.batch_timeout", CONSTANT),
    ("http.body_timeout", CONSTANT),
    ("http.max_batch_answer", "delete it; send smaller batches if their answers exceed 64 MiB"),
    (
        "plan",
        "delete the section; blocks are fetched whole, and chain.follow = \"full\" fetches them ahead of clients",
    ),
    ("upstream.batch", "delete it; connections are reused, and over HTTPS calls share one"),
    ("upstream.connect_timeout", CONSTANT),
    (
        "upstream.max_wait",
        "delete it; if calls fail with -32005, raise the rate of an endpoint or add an endpoint",
    ),
    ("verify.audit", "delete it; compare answers with another node to check fields that no hash covers"),
    ("verify.patience", CONSTANT),
];

const CONSTANT: &str = "delete it; its former default is always used";

/// Returns the advice for this key if it was removed.
pub(super) fn advice(key: &str) -> Option<&'static str> {
    REMOVED.iter().find(|(removed, _)| *removed == key).map(|(_, advice)| *advice)
}
