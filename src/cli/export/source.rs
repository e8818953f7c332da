//! Whom blocks are read from.

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time;
use tower::util::BoxCloneSyncService;

use crate::{
    app::StartError,
    budget::{ByteBudget, FairBytes},
    cache::tier::ChainKey,
    cli::Failure,
    config::{Config, Problem},
    eth::{BlockHash, BlockNumber},
    jsonrpc::{Answer, Code, Params},
    upstream::{
        Call, EndpointConfig, EndpointParts, HttpLeaf, Metrics, Reach, Retry, Upstream, UpstreamError,
    },
    verify::{AskedBlock, thin_block},
};

/// What fails for a moment is tried so often in all …
const ATTEMPTS: u32 = 5;

/// … the second time after this, and each time after twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Whoever limits the rate is not waited for longer than this at a time.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Errors of an instance that pass: its node does not answer, or too much is asked.
const PASSING: [Code; 5] = [
    Code::RateLimited,
    Code::UpstreamFailed,
    Code::UpstreamTimeout,
    Code::UpstreamMismatch,
    Code::Overloaded,
];

/// An instance, or a node.
pub(super) struct Source {
    upstream: Upstream,
    /// Its URL without what is secret in it.
    name: String,
}

// === impl Source ===

impl Source {
    /// Asks nobody yet.
    pub(super) fn try_new(url: &str) -> Result<Self, Failure> {
        let config = Config::default();
        let problem = |error| StartError::Config(Problem::new("--url", error));
        let endpoint = EndpointConfig::at(url);
        let reach = Reach::resolve(&endpoint).map_err(problem)?;
        let budget = FairBytes::new(ByteBudget::new(config.max_bytes_in_flight.as_u64()));
        let leaf = HttpLeaf::try_new(&reach, &config.upstream, budget).map_err(problem)?;
        let name = reach.url().to_string();
        let parts = EndpointParts {
            name: name.clone().into(),
            reach: Some(reach),
            leaf: BoxCloneSyncService::new(leaf),
            config: endpoint,
        };
        Ok(Self { upstream: Upstream::of_one(parts, &config.upstream, &Metrics::default()), name })
    }

    /// Whose blocks it has.
    pub(super) async fn chain(&self) -> Result<ChainKey, Failure> {
        let id =
            self.ask("eth_chainId", "[]".to_owned()).await.map_err(|why| self.says_not("its chain", why))?;
        let id = serde_json::from_slice::<String>(&id).ok();
        let id = id.and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        let id = id.ok_or_else(|| self.says_not("its chain", "eth_chainId is no number"))?;
        let (_, genesis) = self.named("0x0", AskedBlock::ByNumber(BlockNumber(0)), "its block 0").await?;
        Ok(ChainKey { id, genesis: genesis.0 })
    }

    /// The highest final block.
    pub(super) async fn finalized(&self) -> Result<(BlockNumber, BlockHash), Failure> {
        self.named("finalized", AskedBlock::ByTag, "what is final").await
    }

    async fn named(
        &self,
        block: &str,
        asked: AskedBlock,
        what: &str,
    ) -> Result<(BlockNumber, BlockHash), Failure> {
        let params = format!(r#"["{block}",false]"#);
        let told = self.ask("eth_getBlockByNumber", params).await.map_err(|why| self.says_not(what, why))?;
        let read = thin_block(&told, asked).map_err(|failure| self.says_not(what, failure))?;
        Ok((read.header().number, read.hash()))
    }

    /// The text of a block, whatever it says.
    pub(super) async fn block(&self, number: BlockNumber) -> Result<Bytes, Failure> {
        let asked = self.ask("eth_getBlockByNumber", format!(r#"["{number}",true]"#)).await;
        asked.map_err(|why| self.failed(number, why))
    }

    /// The text of a block's receipts.
    pub(super) async fn receipts(&self, number: BlockNumber) -> Result<Bytes, Failure> {
        let asked = self.ask("eth_getBlockReceipts", format!(r#"["{number}"]"#)).await;
        asked.map_err(|why| self.failed(number, format_args!("its receipts: {why}")))
    }

    /// Nothing comes of this block.
    pub(super) fn failed(&self, number: BlockNumber, why: impl fmt::Display) -> Failure {
        shown(format!("{}: block {}: {why}", self.name, number.0))
    }

    fn says_not(&self, what: &str, why: impl fmt::Display) -> Failure {
        shown(format!("{} does not say {what}: {why}", self.name))
    }

    /// A result that is not null, after a few attempts if need be.
    async fn ask(&self, method: &'static str, params: String) -> Result<Bytes, String> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let (why, wait) =
                match self.upstream.call(Call::new(method, Params::from_own(params.clone()))).await {
                    Ok(Answer::Result(result)) if result == "null" => {
                        return Err("the node does not have it".to_owned());
                    }
                    Ok(Answer::Result(result)) => return Ok(result),
                    Ok(Answer::Error(error)) => {
                        (UpstreamError::node_error(&error).to_string(), passes(&error).then_some(pause))
                    }
                    Err(error) => match error.retry() {
                        Retry::After(wait) => (error.to_string(), Some(wait.min(LONGEST_PAUSE))),
                        Retry::Elsewhere => (error.to_string(), Some(pause)),
                        Retry::Never => (error.to_string(), None),
                    },
                };
            match wait {
                Some(wait) if attempt < ATTEMPTS => time::sleep(wait).await,
                _ => return Err(why),
            }
            pause *= 2;
        }
        Err(String::new())
    }
}

/// May the same call be answered in a moment?
fn passes(error: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Coded {
        code: i32,
    }
    let code = serde_json::from_slice(error).ok().map(|Coded { code }| code);
    PASSING.iter().any(|passing| Some(passing.number()) == code)
}

/// Much of it is a node's own text, which must not steer a terminal.
fn shown(message: String) -> Failure {
    Failure::Other(message.replace(char::is_control, "\u{fffd}"))
}
