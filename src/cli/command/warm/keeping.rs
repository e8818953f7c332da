//! What the instance says about its cache and its tiers.

use std::time::Duration;

use serde_json::Value;

use crate::cli::admin::AdminTarget;

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where the instance stores the blocks that it fetched.
#[derive(Default)]
pub(super) struct Keeping {
    /// Size of the cache in memory, if no tier stores the blocks.
    pub(super) memory: Option<u64>,
    /// Tiers whose writes fail.
    pub(super) unwritten: Vec<String>,
    /// Tiers that do not store blocks of this chain.
    pub(super) unused: Vec<String>,
    /// Number of writes to tiers that the instance has dropped so far.
    pub(super) dropped: u64,
}

// === impl Keeping ===

impl Keeping {
    pub(super) async fn of(target: &AdminTarget) -> Self {
        let read = async {
            let client = target.client(TIMEOUT).ok()?;
            let status = client.get("/status").await.ok()?.value("/status").ok()?;
            Some((status, client.get("/metrics").await.ok()?.text))
        };
        let Some((status, metrics)) = read.await else { return Self::default() };
        let tiers = status["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = |is_one: &dyn Fn(&Value) -> bool| {
            let some = tiers.iter().filter(|tier| is_one(tier)).filter_map(|tier| tier["tier"].as_str());
            some.map(str::to_owned).collect::<Vec<_>>()
        };
        let unwritten = names(&|tier| tier["writing"] == false);
        let unused = names(&|tier| tier["writing"] == true && tier["stores"] == false);
        let is_all = unwritten.len() + unused.len() == tiers.len();
        let memory = status["cache"]["capacity"].as_u64().filter(|_| is_all);
        let is_dropped = |line: &&str| {
            line.starts_with("holdfast_tier_writes_total{") && line.contains(r#"outcome="dropped""#)
        };
        let dropped = metrics
            .lines()
            .filter(is_dropped)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Self { memory, unwritten, unused, dropped: dropped.sum() }
    }
}
