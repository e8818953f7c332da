//! Helpers of the tests, above all `upstream`, `proxy` and `client`.

pub mod anvil;
pub mod authority;
pub mod client;
pub mod consumers;
pub mod data;
pub mod emitter;
pub mod in_memory;
pub mod method;
pub mod mounted;
pub mod mutate;
pub mod nodes;
pub mod offers;
pub mod one_node;
pub mod process;
pub mod program;
pub mod proxy;
pub mod redis;
pub mod relay;
pub mod server;
pub mod tiers;
pub mod tools;
pub mod upstream;
pub mod vectors;

use std::{env, future::Future, time::Duration};

use proptest::test_runner::Config as ProptestConfig;
use tokio::time::Instant;

/// Waits until `condition` holds. Panics after a minute and names `what` it waited for.
pub async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let patience = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(Instant::now() < patience, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the configuration of a slow property test: `cases` cases in the gate, and ten times as many in
/// `tests/run --all`.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if env::var_os("HOLDFAST_ALL").is_some() { 10 * cases } else { cases })
}
