//! `holdfast demo`

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, SystemTime},
};

use clap::Args;
use tokio::time;
use tower::util::BoxCloneSyncService;

use super::{
    Early, Failure, address, log, say,
    signal::{ReloadSignal, StopSignals},
};
use crate::{
    app::{App, StartError},
    budget::ByteBudget,
    config::{Config, Sources},
    devchain::{self, BlockRef, DevChain, DevNode},
    jsonrpc::Params,
    upstream::{
        self, Call, EndpointAddress, EndpointConfig, EndpointParts, HttpTransport, Metrics, Upstream,
    },
};

const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Blocks that are there from the start, so that there is something to ask for, final ones included.
const FIRST_BLOCKS: usize = 32;

/// Between two rounds of the little traffic.
const ROUND: Duration = Duration::from_millis(500);

/// Show it working: a development chain, the proxy in front of it, and calls to try.
///
/// Needs no node and no network, reads no file, and of the environment only where to listen. Ends with ctrl-c.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Demo {
    /// Where clients connect
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:8555", env = "HOLDFAST_LISTEN")]
    listen: SocketAddr,

    /// Where operators connect
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:8556", env = "HOLDFAST_ADMIN")]
    admin: SocketAddr,

    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: String,
}

const EXAMPLES: &str = "\
Examples:
  holdfast demo                                                   then open http://127.0.0.1:8556
  holdfast demo --listen 127.0.0.1:9555 --admin 127.0.0.1:9556    the usual ports are taken";

// === impl Demo ===

impl Demo {
    pub(super) fn run(self, early: Early) -> Result<(), Failure> {
        let sources = Sources::none()
            .with_flag("listen", Some(self.listen))
            .with_flag("admin", Some(self.admin))
            .with_flag("log.level", Some(self.log_level));
        let config = sources.load()?;
        log::start(&config.log, None);
        early.block_on(|hangup| demo(config, hangup))
    }
}

async fn demo(mut config: Config, mut hangup: ReloadSignal) -> Result<(), Failure> {
    let mut signals =
        StopSignals::listen().map_err(|error| Failure::Other(format!("cannot take signals: {error}")))?;
    let chain = chain();
    let node = DevNode::start(chain.clone(), SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let node = node.map_err(StartError::Bind)?;
    config.upstream.endpoints = vec![EndpointConfig { consistent: true, ..EndpointConfig::at(node.url()) }];
    let app = App::builder().config(config).start().await?;
    app.ready().await;
    introduce(&app, &node, &chain)?;

    let mut sizes = [5, 3, 8, 0, 6, 4, 7].into_iter().cycle();
    let mining = chain.clone().mine_every(BLOCK_TIME, move || sizes.next().unwrap_or_default());
    let told = tokio::select! {
        () = mining => Ok(()),
        () = traffic(&chain, from_here(app.rpc_address())) => Ok(()),
        told = tell(&chain) => told,
        () = signals.next() => Ok(()),
        // There is nothing to read again; whoever watched has closed the terminal.
        () = hangup.next() => Ok(()),
    };
    signals.or_again(app.stop()).await;
    told
}

/// A chain whose newest block is of now.
fn chain() -> DevChain {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let slot_seconds = BLOCK_TIME.as_secs();
    let genesis_time = now.saturating_sub(FIRST_BLOCKS as u64 * slot_seconds);
    // Nobody looks at what this node was asked.
    let config =
        devchain::Config { genesis_time, slot_seconds, keep_calls: 0, ..devchain::Config::default() };
    let chain = DevChain::new(config);
    chain.mine_many(FIRST_BLOCKS, 5);
    chain
}

fn introduce(app: &App, node: &DevNode, chain: &DevChain) -> Result<(), Failure> {
    let (rpc, admin) = (from_here(app.rpc_address()), from_here(app.admin_address()));
    say(format_args!(
        "A development chain with a block every {} s, and Holdfast in front of it.\n",
        BLOCK_TIME.as_secs()
    ))?;
    say(format_args!("  proxy   http://{rpc}   point a wallet here (chain id {})", chain.config().chain_id))?;
    say(format_args!("  admin   http://{admin}   open it in a browser; /status, /metrics, /ready"))?;
    say(format_args!("  node    {}   the chain itself, to compare\n", node.url()))?;
    say(format_args!("Try, in another terminal:\n"))?;
    let Some(block) = chain.block_ref(chain.head().number - 1) else { return Ok(()) };
    for call in six_calls(chain, block) {
        say(format_args!("  curl -s http://{rpc} -H 'content-type: application/json' -d '{call}'\n"))?;
    }
    say(format_args!("It goes on until ctrl-c.\n"))
}

/// Where this machine finds a listener that is on all interfaces, as in a container.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// One call of each operation, about a real block and its first transaction.
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

/// What a small dapp would ask: the head, and the newest transactions with their receipts.
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
        // Whatever goes wrong is in the log already, and the next round tries again.
        let _ = dapp.call_all(calls).await;
    }
}

/// A line for each block.
async fn tell(chain: &DevChain) -> Result<(), Failure> {
    loop {
        let block = chain.mined().await;
        let transactions = chain.transactions_of(block.hash).len();
        say(format_args!("block {:<6} {:#x}  {transactions} transactions", block.number, block.hash))?;
    }
}
