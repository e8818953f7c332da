//! `holdfast check`

mod lines;
mod tiers;

use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Deserialize;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

use self::lines::{fail, line};
use super::serve::Settings;
use crate::cli::{failure::Failure, output::say, runtime::run};
use crate::{
    app::{self, StartError},
    budget::ByteBudget,
    config::{Config, LogConfig, Problem, toml},
    eth::{BlockHash, Query, Tag},
    jsonrpc::{Answer, Params},
    upstream::{
        Call, EndpointAddress, EndpointConfig, EndpointParts, HttpTransport, Metrics, Upstream,
        UpstreamError, is_unknown_method,
    },
};

/// Methods that the report covers besides the six read operations, because they matter to a cache in front of the node.
const USEFUL: [&str; 3] = ["eth_getBlockReceipts", "eth_feeHistory", "eth_getLogs"];

/// Check the configuration and the node: whether it is up, and which methods it has.
///
/// Reads all files that `serve` would read, certificate and key included, and calls each node, and Redis if configured.
/// Changes nothing, and can run beside a running instance. Exits with 0 if all checks pass, with 1 if a node, the cache
/// directory or Redis fails a check, and with 64 if the configuration is wrong.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct CheckArgs {
    /// Settings that the file can contain, too.
    #[command(flatten)]
    settings: Settings,

    /// Only check the configuration, and neither nodes nor the cache directory nor Redis; for use before a start or a
    /// reload
    #[arg(long)]
    offline: bool,

    /// Print the configuration in force as TOML, from the file, the environment and flags, and check nothing else.
    /// Secrets are masked
    #[arg(long)]
    print: bool,
}

const EXAMPLES: &str = "\
Examples:
  holdfast check --upstream http://127.0.0.1:8545    check a node
  holdfast check --config holdfast.toml              check the file and its nodes
  holdfast check --config holdfast.toml --offline    check only the file, before a start or a reload
  holdfast check --config holdfast.toml --print      show the configuration that serve would use";

/// A node's answer, as far as this command reads it.
enum NodeAnswer {
    Result(serde_json::Value),
    Error { lacks_method: bool, message: String },
}

#[derive(Deserialize)]
struct NodeHead {
    hash: Option<String>,
    number: Option<String>,
    timestamp: Option<String>,
}

// === impl CheckArgs ===

impl CheckArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        let config = self.settings.sources().load()?;
        if self.print {
            return print(&config);
        }
        // The log is off, because the report already names each failure.
        let quiet = LogConfig { level: "off".to_owned(), ..LogConfig::default() };
        run(&quiet, check(config, self.offline))
    }
}

fn print(config: &Config) -> Result<(), Failure> {
    app::check(config)?;
    for warning in config.warnings() {
        say(format_args!("# warning: {warning}"))?;
    }
    say(toml(config))
}

async fn check(config: Config, offline: bool) -> Result<(), Failure> {
    app::check(&config)?;
    line("configuration", "ok")?;
    for doubt in config.warnings() {
        line("warning", doubt.to_string())?;
    }
    if offline {
        return Ok(());
    }
    let endpoints = &config.upstream.endpoints;
    let mut outcome = Ok(());
    for (at, endpoint) in endpoints.iter().enumerate() {
        let checked = check_endpoint(&config, at, endpoint).await;
        // All endpoints are checked before the command fails.
        if let Err(failure) = checked {
            outcome = Err(failure);
        }
    }
    outcome.and(tiers::check(&config.cache).await)
}

async fn check_endpoint(config: &Config, at: usize, endpoint: &EndpointConfig) -> Result<(), Failure> {
    let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), None);
    let problem = |error| StartError::Config(Problem::new(format!("upstream.endpoints.{at}"), error));
    let address = EndpointAddress::resolve(endpoint).map_err(problem)?;
    let transport = HttpTransport::try_new(&address, &config.upstream, budget).map_err(problem)?;
    let url = address.url().to_string();
    line("upstream", endpoint.name.as_ref().map_or(url.clone(), |name| format!("{name}, {url}")))?;
    let parts = EndpointParts {
        name: url.into(),
        address: Some(address),
        transport: BoxCloneSyncService::new(transport),
        config: endpoint.clone(),
    };
    let upstream = Upstream::single(parts, &config.upstream, &Metrics::default());

    let begun = Instant::now();
    let chain_id = match ask(&upstream, "eth_chainId", "[]").await {
        Ok(said) => said,
        Err(error) => return fail("reachable", format!("no: {error}")),
    };
    line("reachable", format!("yes, in {:.1} ms", begun.elapsed().as_secs_f64() * 1000.0))?;
    if let Ok(NodeAnswer::Result(serde_json::Value::String(client))) =
        ask(&upstream, "web3_clientVersion", "[]").await
    {
        line("client", client)?;
    }
    // As in `serve`: a node that has one of the two methods can say which chain it serves.
    let lacks_id = lacks_method(&chain_id)
        && ask(&upstream, "net_version", "[]").await.is_ok_and(|said| lacks_method(&said));
    match (quantity(&chain_id), config.chain_id) {
        (None, Some(wanted)) if lacks_id => {
            line("chain id", format!("{wanted}, as configured: the node does not say it"))?;
        }
        (None, None) if lacks_id && config.upstream.endpoints.len() > 1 => {
            let told = "unknown, so no pool can use this node. Name the chain with --chain-id";
            return fail("chain id", told.to_owned());
        }
        (None, None) if lacks_id => {
            line("chain id", "unknown: the node does not say it. Name the chain with --chain-id")?;
        }
        (None, _) => return fail("chain id", does_not_say(&chain_id)),
        (Some(got), Some(wanted)) if got != wanted => {
            return fail("chain id", format!("{got}, but chain_id is {wanted}"));
        }
        (Some(got), _) => line("chain id", got.to_string())?,
    }
    let latest = match ask(&upstream, "eth_getBlockByNumber", r#"["latest",false]"#).await {
        Ok(said) => said,
        Err(error) => return fail("head", format!("no answer: {error}")),
    };
    let Some((head, told)) = head(&latest) else {
        return fail("head", does_not_say(&latest));
    };
    line("head", told)?;
    tags(&upstream).await?;
    methods(&upstream, &head).await
}

/// Returns the hash of the head and its description.
fn head(latest: &NodeAnswer) -> Option<(BlockHash, String)> {
    let NodeAnswer::Result(block) = latest else { return None };
    let head = NodeHead::deserialize(block).ok()?;
    let number = hex(head.number.as_deref()?)?;
    let hash = head.hash?.parse().ok()?;
    let age = head.timestamp.as_deref().and_then(hex).and_then(age);
    let age = age.map_or_else(String::new, |age| format!(", {} s old", age.as_secs()));
    Some((hash, format!("block {number}{age}")))
}

async fn tags(upstream: &Upstream) -> Result<(), Failure> {
    let mut known = Vec::new();
    for tag in Tag::ALL {
        let params = format!(r#"["{}",false]"#, tag.as_str());
        let block = match ask(upstream, "eth_getBlockByNumber", params).await {
            Ok(NodeAnswer::Result(block)) => serde_json::from_value::<NodeHead>(block).ok(),
            Ok(NodeAnswer::Error { .. }) | Err(_) => None,
        };
        let number = block.and_then(|block| hex(block.number.as_deref()?));
        known.push(
            number.map_or_else(|| format!("{} unknown", tag.as_str()), |n| format!("{} {n}", tag.as_str())),
        );
    }
    line("tags", known.join(", "))
}

async fn methods(upstream: &Upstream, head: &BlockHash) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for method in Query::METHODS {
        if !has(upstream, method, head).await? {
            missing.push(*method);
        }
    }
    let mut useful = Vec::new();
    for method in USEFUL {
        let has = has(upstream, method, head).await?;
        useful.push(format!("{method} {}", if has { "yes" } else { "no" }));
    }
    line("also", useful.join(", "))?;
    if missing.is_empty() {
        return line("operations", "all six");
    }
    fail("operations", format!("the node lacks {}", missing.join(", ")))
}

/// Returns whether the node has the method. Any answer except "no such method" shows that it has.
async fn has(upstream: &Upstream, method: &'static str, head: &BlockHash) -> Result<bool, Failure> {
    let params = match method {
        "eth_getBlockByHash" => format!(r#"["{head}",false]"#),
        "eth_getBlockByNumber" => r#"["latest",false]"#.to_owned(),
        "eth_getTransactionByBlockHashAndIndex" => format!(r#"["{head}","0x0"]"#),
        "eth_getTransactionByBlockNumberAndIndex" => r#"["latest","0x0"]"#.to_owned(),
        "eth_getBlockReceipts" => r#"["latest"]"#.to_owned(),
        "eth_feeHistory" => r#"["0x1","latest",[]]"#.to_owned(),
        "eth_getLogs" => format!(r#"[{{"blockHash":"{head}"}}]"#),
        // The other methods take a transaction hash. No transaction has the hash zero, but the answer `null` shows
        // that the method exists.
        _ => format!(r#"["0x{}"]"#, "0".repeat(64)),
    };
    match ask(upstream, method, params).await {
        Ok(NodeAnswer::Result(_)) => Ok(true),
        Ok(NodeAnswer::Error { lacks_method, message }) => {
            Ok(!lacks_method && !message.contains("does not exist") && !message.contains("not supported"))
        }
        Err(error) => fail(method, format!("no answer: {error}")).map(|()| false),
    }
}

async fn ask(
    upstream: &Upstream,
    method: &'static str,
    params: impl Into<bytestring::ByteString>,
) -> Result<NodeAnswer, UpstreamError> {
    #[derive(Default, Deserialize)]
    struct NodeError {
        #[serde(default)]
        message: String,
    }
    Ok(match upstream.call(Call::new(method, Params::from_own(params))).await?.answer {
        Answer::Result(result) => NodeAnswer::Result(serde_json::from_slice(&result).unwrap_or_default()),
        Answer::Error(error) => {
            let NodeError { message } = serde_json::from_slice(&error).unwrap_or_default();
            NodeAnswer::Error { lacks_method: is_unknown_method(&error), message }
        }
    })
}

fn quantity(said: &NodeAnswer) -> Option<u64> {
    match said {
        NodeAnswer::Result(value) => hex(value.as_str()?),
        NodeAnswer::Error { .. } => None,
    }
}

fn lacks_method(said: &NodeAnswer) -> bool {
    matches!(said, NodeAnswer::Error { lacks_method: true, .. })
}

fn does_not_say(said: &NodeAnswer) -> String {
    match said {
        NodeAnswer::Result(_) => "no valid answer".to_owned(),
        NodeAnswer::Error { message, .. } => format!("no valid answer: {message}"),
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn age(timestamp: u64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    now.checked_sub(Duration::from_secs(timestamp))
}
