//! Reads the chain identity of a node.

use bytes::Bytes;
use serde::Deserialize;

use super::super::{Call, UpstreamError, node_error, transport::Secrets};
use crate::{
    eth::BlockHash,
    jsonrpc::{Answer, Params},
};

/// The chain that an upstream reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainIdentity {
    /// The chain id, or [`UNKNOWN`](Self::UNKNOWN).
    pub chain_id: u64,
    /// The hash of block 0, if the node has it.
    pub genesis: Option<BlockHash>,
    /// The node's own answers, which Holdfast returns to clients.
    pub(super) chain_id_answer: Option<Bytes>,
    pub(super) net_version_answer: Option<Bytes>,
}

/// Fetches genesis, chain id and network id, one after the other, so that an endpoint that fails or limits the rate gets
/// one request. Asks for the genesis block first, because providers that limit the rate may still tell the chain id. If
/// the node has no method for its chain id, `name` names the chain, or returns `None` if the endpoint cannot be used.
pub(super) async fn fetch_identity<F>(
    ask: &impl Fn(Call) -> F,
    secrets: &Secrets,
    name: impl FnOnce(ChainIdentity) -> Option<ChainIdentity>,
) -> Result<ChainIdentity, UpstreamError>
where
    F: Future<Output = Result<Answer, UpstreamError>>,
{
    let ask = async |method: &'static str, params: &'static str| {
        let call = Call::new(method, Params::from_own(params));
        match ask(call.clone()).await {
            Ok(Answer::Error(error)) if node_error::is_rate_limit(&call, &error) => {
                Err(UpstreamError::rate_limit(&error))
            }
            answer => answer,
        }
    };
    let genesis =
        ask("eth_getBlockByNumber", r#"["0x0",false]"#).await.or_else(UpstreamError::into_answer)?;
    let chain_id = ask("eth_chainId", "[]").await;
    let lacks_chain_id = lacks_method(&chain_id);
    let chain_id = chain_id.or_else(UpstreamError::into_answer)?;
    let net_version = ask("net_version", "[]").await;
    let has_no_id = lacks_chain_id && lacks_method(&net_version);
    if let Answer::Error(error) = &chain_id
        && !has_no_id
    {
        // A node that is still starting answers with an error, and so does a provider that rejects the key.
        return Err(UpstreamError::node_error(error));
    }
    let net_version_answer = match net_version.or_else(UpstreamError::into_answer)? {
        Answer::Result(answer) => Some(answer),
        Answer::Error(_) => None,
    };
    // If the node says for certain that it has no genesis block, the identity has none. Any other error fails the
    // whole identity, so that the caller checks again.
    let genesis = match genesis {
        answer if answer.is_null() => None,
        Answer::Result(block) => Some(block_hash(&block).ok_or_else(|| {
            UpstreamError::malformed("eth_getBlockByNumber", "a block with its hash", &secrets.redact(&block))
        })?),
        Answer::Error(error) if node_error::is_absence(&error) => None,
        Answer::Error(error) => return Err(UpstreamError::node_error(&error)),
    };
    match chain_id {
        Answer::Result(answer) => {
            let chain_id = serde_json::from_slice::<String>(&answer)
                .ok()
                .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
                .ok_or_else(|| {
                    let expected = "a quantity such as \"0x1\"";
                    UpstreamError::malformed("eth_chainId", expected, &secrets.redact(&answer))
                })?;
            Ok(ChainIdentity { chain_id, genesis, chain_id_answer: Some(answer), net_version_answer })
        }
        Answer::Error(error) => {
            let (chain_id, chain_id_answer) = (ChainIdentity::UNKNOWN, None);
            name(ChainIdentity { chain_id, genesis, chain_id_answer, net_version_answer }).ok_or_else(|| {
                let expected = "a chain id; name the chain with --chain-id (beside other endpoints, the node must \
                                also show the same genesis block)";
                UpstreamError::malformed("eth_chainId", expected, &secrets.redact(&error))
            })
        }
    }
}

/// Returns whether the node answered that it does not have the method. Errors of HTTP say nothing about methods.
fn lacks_method(answer: &Result<Answer, UpstreamError>) -> bool {
    matches!(answer, Ok(Answer::Error(error)) if node_error::is_unknown_method(error))
}

fn block_hash(block: &[u8]) -> Option<BlockHash> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: String,
    }
    serde_json::from_slice::<Hashed>(block).ok()?.hash.parse().ok()
}

// === impl ChainIdentity ===

impl ChainIdentity {
    /// Id of a chain whose node does not say its id. EIP-155 gives it to no chain.
    pub const UNKNOWN: u64 = 0;

    /// Returns whether the node does not say its chain id, and neither does the operator.
    pub fn is_unknown(&self) -> bool {
        self.chain_id == Self::UNKNOWN
    }

    /// Returns the identity with the id that the operator gave.
    pub(super) fn named(self, chain_id: u64) -> Self {
        Self { chain_id, chain_id_answer: Some(format!("\"{chain_id:#x}\"").into()), ..self }
    }

    /// Fills missing members from `before`, if the chain id is the same. A node may omit them because it is busy or
    /// has pruned its genesis block.
    pub(super) fn completed(self, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.chain_id == self.chain_id);
        Self {
            genesis: self.genesis.or(before.and_then(|before| before.genesis)),
            net_version_answer: self
                .net_version_answer
                .or_else(|| before.and_then(|before| before.net_version_answer.clone())),
            ..self
        }
    }

    /// Returns whether both are the same chain, as far as is known.
    pub fn is_same_chain(&self, other: &Self) -> bool {
        let same_genesis = match (self.genesis, other.genesis) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        self.chain_id == other.chain_id && same_genesis
    }

    /// Returns the node's own answer to `method`, if that answer cannot change.
    pub fn answer(&self, method: &str) -> Option<Bytes> {
        match method {
            "eth_chainId" => self.chain_id_answer.clone(),
            "net_version" => self.net_version_answer.clone(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_definite_answer_means_no_genesis() {
        let says = |block: Result<Answer, UpstreamError>| async move {
            let ask = |call: Call| {
                let answer = match call.method.as_str() {
                    "eth_getBlockByNumber" => block.clone(),
                    _ => Ok(Answer::Result(Bytes::from_static(b"\"0x1\""))),
                };
                std::future::ready(answer)
            };
            fetch_identity(&ask, &Secrets::default(), Some).await.map(|identity| identity.genesis)
        };
        let error = |code, message| Bytes::from(format!(r#"{{"code":{code},"message":"{message}"}}"#));
        let refused = |status, error| {
            Err(UpstreamError::Refused { status: http::StatusCode::from_u16(status).unwrap(), error })
        };
        for none in [
            Ok(Answer::Result(Bytes::from_static(b"null"))),
            Ok(Answer::Error(error(4444, "pruned history unavailable"))),
            Ok(Answer::Error(error(-32601, "the method does not exist"))),
            Ok(Answer::Error(error(-32602, "block number out of range"))),
            Ok(Answer::Error(error(-32000, "header not found"))),
            Ok(Answer::Error(error(-32001, "resource not found"))),
            Ok(Answer::Error(error(-32000, "unknown block"))),
            refused(403, error(-32000, "archive data is not available on this plan")),
        ] {
            assert!(matches!(says(none.clone()).await, Ok(None)), "{none:?}");
        }
        for unclear in [
            Ok(Answer::Error(error(-32005, "daily request count exceeded, request rate limited"))),
            Ok(Answer::Error(error(-32000, "rate limit exceeded: block not found"))),
            Ok(Answer::Error(error(-32603, "internal error"))),
            Ok(Answer::Error(error(-32000, "request timed out"))),
            Ok(Answer::Result(Bytes::from_static(b"{}"))),
            refused(500, error(-32603, "internal error")),
            refused(401, error(-32600, "Must be authenticated!")),
            Err(UpstreamError::Status { status: http::StatusCode::BAD_GATEWAY, words: None }),
        ] {
            assert!(says(unclear.clone()).await.is_err(), "{unclear:?}");
        }
    }

    #[tokio::test]
    async fn only_unknown_methods_make_a_chain_unknown() {
        let is_unknown = |chain_id: Result<Answer, UpstreamError>,
                          net_version: Result<Answer, UpstreamError>| async {
            let ask = move |call: Call| {
                let answer = match call.method.as_str() {
                    "eth_chainId" => chain_id.clone(),
                    "net_version" => net_version.clone(),
                    _ => Ok(Answer::Result(Bytes::from_static(b"null"))),
                };
                std::future::ready(answer)
            };
            fetch_identity(&ask, &Secrets::default(), Some).await.is_ok_and(|identity| identity.is_unknown())
        };
        let error = |code, message| Bytes::from(format!(r#"{{"code":{code},"message":"{message}"}}"#));
        let lacking = Ok(Answer::Error(error(-32601, "the method does not exist/is not available")));
        let unsupported = Ok(Answer::Error(error(-32000, "Method not supported")));
        assert!(is_unknown(lacking.clone(), lacking.clone()).await);
        assert!(is_unknown(unsupported, lacking.clone()).await);
        let refused = |status| {
            let status = http::StatusCode::from_u16(status).unwrap();
            Err(UpstreamError::Refused { status, error: error(-32601, "method not found") })
        };
        for other in [
            Ok(Answer::Result(Bytes::from_static(b"\"1\""))),
            Ok(Answer::Error(error(-32005, "rate limit: method not found"))),
            Ok(Answer::Error(error(-32603, "internal error"))),
            Err(UpstreamError::TimedOut { after: std::time::Duration::from_secs(1) }),
            Err(UpstreamError::Status { status: http::StatusCode::BAD_GATEWAY, words: None }),
            refused(401),
            refused(403),
            refused(429),
            refused(500),
        ] {
            assert!(!is_unknown(lacking.clone(), other.clone()).await, "{other:?}");
            assert!(!is_unknown(other.clone(), lacking.clone()).await, "{other:?}");
        }
    }

    #[tokio::test]
    async fn error_about_a_malformed_answer_shows_no_key() {
        let url = "http://node.test/v3/SECRET-PATH".parse().unwrap();
        let secrets = Secrets::of(&url, &http::HeaderMap::new());
        let ask =
            |_| std::future::ready(Ok(Answer::Result(Bytes::from_static(b"\"no access for SECRET-PATH\""))));
        let error = fetch_identity(&ask, &secrets, Some).await.unwrap_err().to_string();
        assert!(error.ends_with(r#": "no access for …""#), "{error}");
    }
}
