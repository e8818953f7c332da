//! One of the proxies that share a Redis.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    budget::ByteBudget,
    cache::{
        Disk, DiskConfig, Tiers,
        redis::{Redis as RedisTier, RedisConfig},
        tier::Tier,
    },
    config::Config,
    upstream::{EndpointParts, IdentityState},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::Instant,
};

use super::Seen;
use crate::{
    model::{address::Address, world::World},
    support::in_memory::{self, InMemory},
};

/// Timeout of tiers. It is long enough that a busy machine does not exceed it.
pub const PATIENCE: Duration = Duration::from_secs(2);

pub struct Instance {
    pub program: InMemory,
    /// Runs all tasks of the proxy; shutting it down kills the proxy.
    runtime: Option<Runtime>,
    pub directory: PathBuf,
    /// Addresses at which the proxy reaches the nodes.
    pub addresses: Vec<Address>,
    /// Number of alarms when a reorg last replaced finalized blocks. `None` if the proxy has noticed the reorg, or if
    /// there was none since its start.
    pub replaced: Option<u64>,
    /// Whether faults were in force at any time since the start of the proxy.
    pub troubled: bool,
    /// For each node, the state at the last write or at the start. No later answer may be of an older state.
    pub written: Vec<usize>,
    /// For each node, the state at the last `debug_setHead`: the proxy may not show heads from before it.
    pub reset: Vec<usize>,
    /// With a single node, the newest state whose head the proxy has shown. No later answer may be of an older state.
    pub shown: usize,
}

// === impl Instance ===

impl Instance {
    pub fn start(worlds: &[World], config: &Config, directory: &Path, redis: Option<&RedisConfig>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let addresses: Vec<_> = worlds.iter().map(|world| Address::of(&world.chain)).collect();
        let endpoints =
            addresses.iter().zip(&config.upstream.endpoints).zip(0..).map(|((address, config), at)| {
                let name = format!("devchain {at}");
                EndpointParts {
                    address: Some(in_memory::address(&name)),
                    name: name.into(),
                    transport: address.transport(),
                    config: config.clone(),
                }
            });
        let open = |metrics| {
            let mut tiers: Vec<(Arc<dyn Tier>, Duration)> = Vec::new();
            // If there is a Redis, the second proxy has no disk tier.
            if redis.is_none() || !directory.ends_with("data-1") {
                tiers.push((Arc::new(disk(directory)), PATIENCE));
            }
            if let Some(redis) = redis {
                tiers.push((Arc::new(RedisTier::try_new(redis).unwrap()), PATIENCE));
            }
            Tiers::new(tiers, ByteBudget::new(1 << 30, None), metrics)
        };
        let program = {
            let _within = runtime.enter();
            in_memory::program_with(endpoints.collect(), config, open)
        };
        Self {
            program,
            runtime: Some(runtime),
            directory: directory.to_owned(),
            addresses,
            replaced: None,
            troubled: false,
            // All answers of nodes, and all confirmations of tiers, are from after the start.
            written: worlds.iter().map(World::last).collect(),
            reset: vec![0; worlds.len()],
            shown: 0,
        }
    }

    pub fn begin_to_send(&self, body: String) -> JoinHandle<Bytes> {
        let program = self.program.clone();
        self.runtime.as_ref().unwrap().spawn(async move { program.send(body).await.1 })
    }

    pub async fn send(&self, body: String) -> Bytes {
        self.begin_to_send(body).await.unwrap()
    }

    pub fn alarms(&self) -> u64 {
        self.program.metric("finality_alarms_total")
    }

    /// Returns whether the proxy knows that this node serves the right chain.
    pub fn knows(&self, node: usize) -> bool {
        matches!(self.program.upstream.status().0[node].identity, Some(IdentityState::Known(_)))
    }

    /// Kills the proxy.
    pub fn end(&mut self, seen: &Seen) {
        let hits = |tier| self.program.metric(&format!(r#"tier_reads_total{{tier="{tier}",outcome="hit"}}"#));
        seen.disk.fetch_add(hits("disk"), Relaxed);
        seen.redis.fetch_add(hits("redis"), Relaxed);
        seen.alarms.fetch_add(self.alarms(), Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens the directory, after the previous proxy has released its lock.
fn disk(directory: &Path) -> Disk {
    let begun = Instant::now();
    loop {
        match Disk::open(&DiskConfig::new(directory)) {
            Ok(disk) => return disk,
            Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
