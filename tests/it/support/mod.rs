//! Helpers of the tests, above all `upstream`, `proxy` and `client`.

pub mod anvil;
pub mod authority;
pub mod chains;
pub mod client;
pub mod consumers;
pub mod data;
pub mod doubles;
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

use std::{
    env,
    future::Future,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

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

/// Returns how often a slow test repeats: `gate` times in the gate, `all` times in `tests/run --all`.
pub fn times(gate: u32, all: u32) -> u32 {
    if env::var_os("HOLDFAST_ALL").is_some() { all } else { gate }
}

/// Returns the configuration of a slow property test; see [`times`].
pub fn cases(gate: u32, all: u32) -> ProptestConfig {
    ProptestConfig::with_cases(times(gate, all))
}

/// Returns the seed of random tests: `HOLDFAST_SEED`, or a drawn one.
pub fn seed() -> u64 {
    variable("HOLDFAST_SEED").unwrap_or_else(|| RandomState::new().hash_one(std::process::id()))
}

/// Returns the number in this environment variable.
pub fn variable(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number, such as {name}=1234")))
}
