//! The program in front of a development chain, with some traffic.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, SystemTime},
};

use tokio::time;
use tower::util::BoxCloneSyncService;

use super::{error::StartError, start::App};
use crate::{
    budget::ByteBudget,
    config::Config,
    devchain::{self, BlockRef, DevChain, DevNode},
    jsonrpc::Params,
    upstream::{
        self, Call, EndpointAddress, EndpointConfig, EndpointParts, HttpTransport, Metrics, Upstream,
    },
};

const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Number of blocks mined before the start, so that clients find blocks to read, some of them finalized.
const FIRST_BLOCKS: usize = 32;

/// Time between two rounds of traffic.
const ROUND: Duration = Duration::from_millis(500);

/// The program in front of a development chain.
#[derive(Debug)]
pub struct Demo {
    chain: DevChain,
    node: DevNode,
    app: App,
}

/// A block that the demo has mined.
#[derive(Clone, Debug)]
pub struct MinedBlock {
    /// The number.
    pub number: u64,
    /// The hash, in hex.
    pub hash: String,
    /// The number of its transactions.
    pub transactions: usize,
}

// === impl Demo ===

impl Demo {
    /// Time between two blocks.
    pub const BLOCK_TIME: Duration = BLOCK_TIME;

    /// Starts the chain, and the program with `config` in front of it. Returns when the program can answer calls.
    ///
    /// # Errors
    /// If an address cannot be bound, or the program cannot start for another reason.
    pub async fn start(mut config: Config) -> Result<Self, StartError> {
        let chain = chain();
        let node = DevNode::start(chain.clone(), SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let node = node.map_err(StartError::Bind)?;
        config.upstream.endpoints =
            vec![EndpointConfig { consistent: true, ..EndpointConfig::at(node.url()) }];
        let app = App::builder().config(config).start().await?;
        app.ready().await;
        Ok(Self { chain, node, app })
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

    /// Returns one call of each operation, about a real block and its first transaction.
    pub fn example_calls(&self) -> Vec<String> {
        let block = self.chain.block_ref(self.chain.head().number - 1);
        block.map_or_else(Vec::new, |block| six_calls(&self.chain, block))
    }

    /// Mines blocks and sends calls, for ever.
    pub async fn run(&self) {
        let mut sizes = [5, 3, 8, 0, 6, 4, 7].into_iter().cycle();
        let mining = self.chain.clone().mine_every(BLOCK_TIME, move || sizes.next().unwrap_or_default());
        tokio::select! {
            () = mining => {}
            () = traffic(&self.chain, self.rpc_address()) => {}
        }
    }

    /// Waits for the next block.
    pub async fn mined(&self) -> MinedBlock {
        let block = self.chain.mined().await;
        let transactions = self.chain.transactions_of(block.hash).len();
        MinedBlock { number: block.number, hash: format!("{:#x}", block.hash), transactions }
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

/// Returns one call of each operation, about `block` and its first transaction.
fn six_calls(chain: &DevChain, block: BlockRef) -> Vec<String> {
    let (hash, number) = (block.hash, block.number);
    let transaction = chain.transactions_of(hash).first().copied().unwrap_or_default();
    [
        ("eth_getBlockByNumber", r#"["latest",false]"#.to_owned()),
        ("eth_getBlockByHash", format!(r#"["{hash:#x}",true]"#)),
        ("eth_getTransactionByHash", format!(r#"["{transaction:#x}"]"#)),
        ("eth_getTransactionReceipt", format!(r#"["{transaction:#x}"]"#)),
        ("eth_getTransactionByBlockHashAndIndex", format!(r#"["{hash:#x}",0]"#)),
        ("eth_getTransactionByBlockNumberAndIndex", format!(r#"["{number:#x}","0x0"]"#)),
    ]
    .into_iter()
    .enumerate()
    .map(|(id, (method, params))| {
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#, id + 1)
    })
    .collect()
}

/// Sends the calls of a small dapp: the head, and its transactions with their receipts.
async fn traffic(chain: &DevChain, proxy: SocketAddr) {
    let config = upstream::Config::default();
    let endpoint = EndpointConfig::at(format!("http://{proxy}"));
    let budget = ByteBudget::new(config.max_answer.as_u64(), None);
    let Ok(address) = EndpointAddress::resolve(&endpoint) else { return };
    let Ok(transport) = HttpTransport::try_new(&address, &config, budget) else { return };
    let transport = BoxCloneSyncService::new(transport);
    let parts = EndpointParts { name: "demo".into(), address: Some(address), transport, config: endpoint };
    let dapp = Upstream::single(parts, &config, &Metrics::default());
    loop {
        time::sleep(ROUND).await;
        let mut calls = vec![Call::new("eth_getBlockByNumber", Params::from_own(r#"["latest",true]"#))];
        for transaction in chain.transactions_of(chain.head().hash) {
            let params = Params::from_own(format!(r#"["{transaction:#x}"]"#));
            calls.push(Call::new("eth_getTransactionByHash", params.clone()));
            calls.push(Call::new("eth_getTransactionReceipt", params));
        }
        // Ignores errors, because the upstream has logged them and the next round tries again.
        let _ = dapp.call_all(calls).await;
    }
}
