//! What nodes and providers say in an error object that is not about the call.

use std::time::Duration;

use serde::Deserialize;

use super::Call;
use crate::eth::is_write;

/// No provider is left alone for longer, whatever it says.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Codes that say that there were too many calls: Infura, QuickNode, others; Alchemy puts HTTP's into a body.
const RATE_CODES: [i64; 4] = [-32005, -32007, -32029, 429];

/// What messages say where codes do not.
const RATE_WORDS: [&str; 6] = [
    "rate limit",
    "limit exceeded",
    "too many requests",
    "requests per second",
    "exceeded its compute units",
    "request limit reached",
];

/// Under the same codes and words some say that an answer would be too large, which another node would say too.
const SIZE_WORDS: [&str; 7] = [
    "limit exceeded",
    "query returned",
    "query exceeds",
    "block range",
    "response size",
    "more than",
    "max results",
];

/// What nobody says of an answer's size.
const RATE_ONLY_WORDS: [&str; 7] = [
    "rate limit",
    "request rate",
    "per second",
    "/second",
    "too many requests",
    "request count",
    "request limit",
];

/// What a contract or a pool of transactions says, in words that a client has chosen or may.
const OWN_WORDS: [&str; 4] = ["revert", "vm exception", "vm execution", "account limit"];

/// A revert; the same in OpenEthereum's and Nethermind's numbers.
const EXECUTION_CODES: [i64; 2] = [3, -32015];

/// No such method, and params that are none: any other node would say so too.
const CALL_CODES: [i64; 2] = [-32601, -32602];

/// The node has failed in itself; or there is a Holdfast in between that has nobody to ask, or too much to do.
const INTERNAL_CODES: [i64; 3] = [-32603, -32010, -32013];

/// EIP-4444: history that is gone.
const PRUNED_CODE: i64 = 4444;
const PRUNED_WORDS: [&str; 3] = ["pruned history", "history unavailable", "missing trie node"];

/// What is not there: EIP-1474's number for it, and what messages say of a block that a node has not got, or not for this
/// client.
const ABSENT_CODE: i64 = -32001;
const ABSENT_WORDS: [&str; 5] = ["header not found", "block not found", "unknown block", "archive", "pruned"];

/// What nodes say of a block that they have not got, or not yet.
const UNKNOWN_BLOCK_WORDS: [&str; 4] =
    ["header not found", "block not found", "unknown block", "beyond current head"];

/// Under which nodes speak of what was asked for: a server error, a resource that is not there, a transaction that is
/// refused. Under -32603 they speak of themselves.
const NODE_CODES: [i64; 4] = [-32000, ABSENT_CODE, -32003, PRUNED_CODE];

/// What only a node says, and of the call: nothing that stands before it knows of such things.
const NODE_WORDS: [&str; 20] = [
    "header not found",
    "block not found",
    "transaction not found",
    "filter not found",
    "unknown block",
    "missing trie node",
    "pruned",
    "nonce too",
    "insufficient funds for gas",
    "insufficient funds for transfer",
    "already known",
    "known transaction",
    "underpriced",
    "intrinsic gas",
    "exceeds block gas limit",
    "less than block base fee",
    "out of gas",
    "invalid opcode",
    "invalid jump",
    "stack underflow",
];

/// What matters of an error object.
#[derive(Deserialize)]
struct NodeErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Does the node say that it was asked too often?
///
/// That leaves it alone for all clients, so nothing that one of them can have it say may look like it.
pub fn is_rate_limit(call: &Call, error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        let by_words = !is_write(call.method.as_str()) && object.mentions(&RATE_WORDS);
        let limits = (RATE_CODES.contains(&object.code) || by_words) && !object.is_of_execution();
        let is_size =
            call.has_unbounded_answer() && object.mentions(&SIZE_WORDS) && !object.mentions(&RATE_ONLY_WORDS);
        limits && !is_size
    })
}

/// Does the node say that it has forgotten?
pub(super) fn is_pruned(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        (object.code == PRUNED_CODE || object.mentions(&PRUNED_WORDS)) && !object.is_of_execution()
    })
}

/// Does it speak of the call, and of nothing else?
pub(super) fn is_about_the_call(error: &[u8]) -> bool {
    read(error).is_some_and(|object| CALL_CODES.contains(&object.code) || object.is_of_execution())
}

/// Does a node speak, and of the call, whatever HTTP makes of that?
pub(super) fn is_of_a_node(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        NODE_CODES.contains(&object.code) && object.mentions(&NODE_WORDS) && !object.is_of_rate()
    })
}

/// Does it say for good that a block is not to be had from it? Not if it only cannot tell just now.
pub fn is_absence(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        let is_absent = [ABSENT_CODE, PRUNED_CODE].contains(&object.code)
            || CALL_CODES.contains(&object.code)
            || object.mentions(&ABSENT_WORDS)
            || object.mentions(&PRUNED_WORDS);
        is_absent && !INTERNAL_CODES.contains(&object.code) && !object.is_of_rate()
    })
}

/// Does the node say that it has not got a block? Not what a contract says.
pub fn is_unknown_block(error: &[u8]) -> bool {
    read(error).is_some_and(|object| object.mentions(&UNKNOWN_BLOCK_WORDS) && !object.is_of_execution())
}

/// Does the node, or what stands before it, speak of a failure in itself?
pub fn is_internal(error: &[u8]) -> bool {
    read(error).is_some_and(|object| INTERNAL_CODES.contains(&object.code) && !object.is_of_execution())
}

fn read(error: &[u8]) -> Option<NodeErrorObject> {
    serde_json::from_slice(error).ok()
}

// === impl Said ===

impl NodeErrorObject {
    /// Is it what the client's own code, or its own transaction, led to?
    fn is_of_execution(&self) -> bool {
        EXECUTION_CODES.contains(&self.code) || self.mentions(&OWN_WORDS)
    }

    /// Does it speak of how often it was asked, whatever else it says?
    fn is_of_rate(&self) -> bool {
        RATE_CODES.contains(&self.code) || self.mentions(&RATE_WORDS) || self.mentions(&RATE_ONLY_WORDS)
    }

    fn mentions(&self, words: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        words.iter().any(|words| message.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Params;

    fn limits(method: &'static str, error: &str) -> bool {
        is_rate_limit(&Call::new(method, Params::EMPTY), error.as_bytes())
    }

    #[test]
    fn what_providers_say_of_their_rate_is_understood() {
        for error in [
            // Infura
            r#"{"code":-32005,"message":"daily request count exceeded, request rate limited"}"#,
            r#"{"code":-32005,"message":"project ID request rate exceeded"}"#,
            // QuickNode
            r#"{"code":-32007,"message":"50/second request limit reached - reduce calls per second"}"#,
            // Alchemy
            r#"{"code":429,"message":"Your app has exceeded its compute units per second capacity"}"#,
            r#"{"code":429,"message":"more than 10 requests per second"}"#,
            // Others
            r#"{"code":-32000,"message":"Rate limit exceeded"}"#,
            r#"{"code":-32016,"message":"over rate limit"}"#,
            r#"{"code":-32029,"message":"Too Many Requests"}"#,
            r#"{"code":-32097,"message":"more than 10 requests per second are not allowed"}"#,
        ] {
            for method in ["eth_getBalance", "eth_call", "eth_getLogs"] {
                assert!(limits(method, error), "{method} {error}");
            }
        }
        let request_limit = r#"{"code":-32005,"message":"limit exceeded"}"#;
        assert!(limits("eth_getBalance", request_limit), "it has no size to speak of");
    }

    #[test]
    fn what_a_client_can_have_a_node_say_is_no_rate() {
        for (method, error) in [
            ("eth_call", r#"{"code":3,"message":"execution reverted: rate limit exceeded"}"#),
            ("eth_call", r#"{"code":3,"message":"too many requests"}"#),
            ("eth_call", r#"{"code":-32000,"message":"execution reverted: rate limit"}"#),
            ("eth_call", r#"{"code":-32603,"message":"VM Exception while processing: too many requests"}"#),
            ("eth_call", r#"{"code":-32015,"message":"rate limit"}"#),
            ("eth_call", r#"{"code":-32005,"message":"execution reverted"}"#),
            ("eth_estimateGas", r#"{"code":-32000,"message":"gas limit is too low"}"#),
            ("eth_sendRawTransaction", r#"{"code":-32000,"message":"account limit exceeded"}"#),
            ("eth_sendRawTransaction", r#"{"code":-32000,"message":"in-flight transaction limit exceeded"}"#),
            ("eth_getLogs", r#"{"code":-32005,"message":"query returned more than 10000 results"}"#),
            ("eth_getLogs", r#"{"code":-32005,"message":"limit exceeded"}"#),
            ("eth_getLogs", r#"{"code":-32005,"message":"block range limit exceeded"}"#),
            ("eth_getFilterLogs", r#"{"code":-32005,"message":"query returned more than 10000 results"}"#),
            ("trace_filter", r#"{"code":-32005,"message":"response size should not be greater than 1"}"#),
            ("eth_getBalance", r#"{"code":"x"}"#),
            ("eth_getBalance", "[]"),
        ] {
            assert!(!limits(method, error), "{method} {error}");
        }
        assert!(
            limits("eth_sendRawTransaction", r#"{"code":429,"message":"too many requests"}"#),
            "by its code"
        );
    }

    #[test]
    fn what_is_gone_and_what_failed_is_not_what_a_contract_says() {
        assert!(is_pruned(br#"{"code":4444,"message":"pruned history unavailable"}"#));
        assert!(is_pruned(br#"{"code":-32000,"message":"missing trie node 00"}"#));
        assert!(!is_pruned(br#"{"code":-32000,"message":"header not found"}"#));
        assert!(!is_pruned(br#"{"code":3,"message":"execution reverted: missing trie node"}"#));
        assert!(is_internal(br#"{"code":-32603,"message":"internal error"}"#));
        assert!(is_internal(br#"{"code":-32010,"message":"no upstream could answer"}"#));
        assert!(!is_internal(br#"{"code":-32603,"message":"reverted with reason string 'x'"}"#));
        assert!(!is_internal(br#"{"code":-32000,"message":"header not found"}"#));
    }
}
