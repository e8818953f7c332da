//! The program in front of a development chain.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, SystemTime},
};

use tokio::{
    sync::mpsc,
    time::{self, MissedTickBehavior},
};

use super::{
    client::{Client, DemoError, Exchange},
    story::{self, StagedReorg},
    traffic,
};
use crate::{
    app::{error::StartError, start::App},
    config::Config,
    devchain::{self, DevChain, DevNode},
    upstream::EndpointConfig,
};

const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Number of blocks mined before the start, so that clients find blocks to read, some of them finalized.
const FIRST_BLOCKS: usize = 32;

/// A finalized block that the demo's traffic does not read, for the first miss.
const QUIET_BLOCK: u64 = 10;

/// Numbers of transactions in the blocks, in turn.
const SIZES: [usize; 7] = [5, 3, 8, 0, 6, 4, 7];

/// The program in front of a development chain.
#[derive(Debug)]
pub struct Demo {
    chain: DevChain,
    node: DevNode,
    app: App,
    /// Number of blocks between two reorgs; 0 for no reorgs.
    reorg_every: u64,
}

/// The counts of the program since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Number of the newest block that the program has seen.
    pub head: Option<u64>,
    /// Client calls.
    pub calls: u64,
    /// Calls answered from the cache.
    pub hits: u64,
    /// Upstream calls saved, as on the status page; negative if the upkeep needed more calls than the hits saved.
    pub saved: i64,
    /// Median time of the program for an answer from the cache.
    pub hit_time: Option<Duration>,
    /// Median time of the program for an answer from the node.
    pub miss_time: Option<Duration>,
}

// === impl Demo ===

impl Demo {
    /// Time between two blocks.
    pub const BLOCK_TIME: Duration = BLOCK_TIME;

    /// A finalized block that the demo itself never reads, so that a visitor's first call for it is a miss.
    pub const UNREAD_BLOCK: u64 = QUIET_BLOCK + 1;

    /// Starts the chain, and the program with `config` in front of it. Returns when the program can answer calls. Every
    /// `reorg_every` blocks, [`run`](Self::run) stages a reorg; never if it is 0.
    ///
    /// # Errors
    /// If an address cannot be bound, or the program cannot start for another reason.
    pub async fn start(mut config: Config, reorg_every: u64) -> Result<Self, StartError> {
        let chain = chain();
        let node = DevNode::start(chain.clone(), SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let node = node.map_err(StartError::Node)?;
        config.upstream.endpoints =
            vec![EndpointConfig { consistent: true, ..EndpointConfig::at(node.url()) }];
        let app = App::builder().config(config).start().await?;
        app.ready().await;
        Ok(Self { chain, node, app, reorg_every })
    }

    /// Returns the address at which clients on this machine connect.
    pub fn rpc_address(&self) -> SocketAddr {
        from_here(self.app.rpc_address())
    }

    /// Returns the address at which operators on this machine connect.
    pub fn admin_address(&self) -> SocketAddr {
        from_here(self.app.admin_address())
    }

    /// Returns the URL of the development chain's own node.
    pub fn node_url(&self) -> String {
        self.node.url()
    }

    /// Returns the chain id.
    pub fn chain_id(&self) -> u64 {
        self.chain.config().chain_id
    }

    /// Returns the counts of the program since its start.
    pub fn score(&self) -> Score {
        let counts = self.app.counts();
        let [hits, joined, upkeep] =
            [counts.hits, counts.joined, counts.upkeep].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        Score {
            head: counts.head,
            calls: counts.calls,
            hits: counts.hits,
            saved: hits.saturating_add(joined) - upkeep,
            hit_time: counts.memory_seconds.quantile(0.5),
            miss_time: counts.upstream_seconds.quantile(0.5),
        }
    }

    /// Asks for a block twice: a miss, and a hit.
    ///
    /// # Errors
    /// If a call has no result.
    pub async fn miss_and_hit(&self) -> Result<[Exchange; 2], DemoError> {
        story::miss_and_hit(&mut self.client(), QUIET_BLOCK).await
    }

    /// Replaces the newest blocks, and asks for them before and after. Must not run at the same time as
    /// [`run`](Self::run), which mines blocks.
    ///
    /// # Errors
    /// If a call has no result.
    pub async fn reorg(&self) -> Result<StagedReorg, DemoError> {
        story::reorg(&self.chain, &mut self.client()).await
    }

    /// Mines blocks, stages reorgs and sends calls, for ever. Sends each reorg to `reorgs`, unless the channel is full
    /// or closed.
    pub async fn run(&self, reorgs: mpsc::Sender<StagedReorg>) {
        let account = self.chain.accounts().first().map(|account| format!("{:#x}", account.address()));
        tokio::select! {
            () = self.mine(reorgs) => {}
            () = traffic::send(self.rpc_address(), account.unwrap_or_default()) => {}
        }
    }

    async fn mine(&self, reorgs: mpsc::Sender<StagedReorg>) {
        let mut slots = time::interval_at(time::Instant::now() + BLOCK_TIME, BLOCK_TIME);
        slots.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (slot, size) in (1..).zip(SIZES.into_iter().cycle()) {
            slots.tick().await;
            // A reorg adds one block, so it takes the place of a mined one and the chain keeps to its slots.
            if self.reorg_every == 0 || slot % self.reorg_every != 0 {
                self.chain.mine(size);
            } else if let Ok(reorg) = self.reorg().await {
                let _ = reorgs.try_send(reorg);
            }
        }
    }

    fn client(&self) -> Client {
        Client::new(self.rpc_address())
    }

    /// Stops the program, and then the node.
    pub async fn stop(self) {
        self.app.stop().await;
    }
}

/// Creates a chain whose newest block has the current time.
fn chain() -> DevChain {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let slot_seconds = BLOCK_TIME.as_secs();
    let genesis_time = now.saturating_sub(FIRST_BLOCKS as u64 * slot_seconds);
    // `keep_calls` is 0 because the demo does not read the record of calls.
    let config =
        devchain::Config { genesis_time, slot_seconds, keep_calls: 0, ..devchain::Config::default() };
    let chain = DevChain::new(config);
    chain.mine_many(FIRST_BLOCKS, 5);
    chain
}

/// Replaces an unspecified address (all interfaces, as in a container) by loopback, to which local clients can
/// connect.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}
