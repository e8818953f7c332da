//! Classifies the error objects of nodes and providers.

use std::time::Duration;

use serde::Deserialize;

use super::Call;
use crate::eth::is_write;

/// Maximum pause after a rate limit, even if the provider asks for a longer one.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Codes of rate limits at Infura, QuickNode and others. Alchemy uses the HTTP status as the code.
const RATE_CODES: [i64; 4] = [-32005, -32007, -32029, 429];

/// Phrases in messages about rate limits that have other codes.
const RATE_WORDS: [&str; 6] = [
    "rate limit",
    "limit exceeded",
    "too many requests",
    "requests per second",
    "exceeded its compute units",
    "request limit reached",
];

/// Phrases in messages about the size of an answer. Some providers report such errors with the codes and phrases of
/// rate limits, but a retry elsewhere does not help: another node would refuse the call, too.
const SIZE_WORDS: [&str; 7] = [
    "limit exceeded",
    "query returned",
    "query exceeds",
    "block range",
    "response size",
    "more than",
    "max results",
];

/// Further phrases with which providers, such as Infura, QuickNode and dRPC, refuse to search logs because of the number
/// of blocks or logs.
const SEARCH_WORDS: [&str; 7] = [
    "limited to a",
    "exceeds limit",
    "exceed limit",
    "ranges over",
    "blocks range",
    "range is too",
    "too many logs",
];

/// Phrases in errors about a search that is wrong, or that the node cannot make yet.
const WRONG_SEARCH_WORDS: [&str; 2] = ["invalid", "params"];

/// Phrases that occur in messages about rate limits, never in messages about the size of an answer.
const RATE_ONLY_WORDS: [&str; 7] = [
    "rate limit",
    "request rate",
    "per second",
    "/second",
    "too many requests",
    "request count",
    "request limit",
];

/// Phrases in errors of contracts and transaction pools, whose text a client may have chosen.
const OWN_WORDS: [&str; 4] = ["revert", "vm exception", "vm execution", "account limit"];

/// Codes of execution reverts; the second code is that of OpenEthereum and Nethermind.
const EXECUTION_CODES: [i64; 2] = [3, -32015];

/// Codes of an unknown method and of invalid params: any other node would return the same error.
const CALL_CODES: [i64; 2] = [-32601, -32602];

/// Codes of an unknown method and, in EIP-1474, of a method that the node does not support; and phrases about them.
const METHOD_CODES: [i64; 2] = [-32601, -32004];
const METHOD_WORDS: [&str; 4] =
    ["method not found", "method not supported", "unsupported method", "does not exist/is not available"];

/// Codes of internal errors of the node, or of another Holdfast in front of it that has no upstream or too much load.
const INTERNAL_CODES: [i64; 3] = [-32603, -32010, -32013];

/// Code of EIP-4444 for pruned history, and phrases in messages with other codes.
const PRUNED_CODE: i64 = 4444;
const PRUNED_WORDS: [&str; 3] = ["pruned history", "history unavailable", "missing trie node"];

/// Code of EIP-1474 for absent data, and phrases about a block that the node does not have, or does not serve to this
/// customer.
const ABSENT_CODE: i64 = -32001;
const ABSENT_WORDS: [&str; 5] = ["header not found", "block not found", "unknown block", "archive", "pruned"];

/// Phrases about a block that the node does not have, or not yet.
const UNKNOWN_BLOCK_WORDS: [&str; 4] =
    ["header not found", "block not found", "unknown block", "beyond current head"];

/// Codes for errors about the request: server error, resource not found, transaction rejected, pruned history. -32603
/// is not among them, because a node uses it for its own failures.
const NODE_CODES: [i64; 4] = [-32000, ABSENT_CODE, -32003, PRUNED_CODE];

/// Phrases that only a node uses, and only about the call. Proxies in front of a node do not use these terms.
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

/// The relevant members of an error object.
#[derive(Deserialize)]
struct NodeErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Returns whether the node reports too many calls.
///
/// A rate limit pauses the endpoint for all clients, so this must not match an error that a client can provoke.
pub fn is_rate_limit(call: &Call, error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        let by_words = !is_write(call.method.as_str()) && object.mentions(&RATE_WORDS);
        let limits = (RATE_CODES.contains(&object.code) || by_words) && !object.is_of_execution();
        let is_size =
            call.has_unbounded_answer() && object.mentions(&SIZE_WORDS) && !object.mentions(&RATE_ONLY_WORDS);
        limits && !is_size
    })
}

/// Returns whether the node refuses a search for logs because of the number of blocks or logs.
pub fn is_about_size(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        let is_wrong = object.mentions(&WRONG_SEARCH_WORDS) || object.mentions(&UNKNOWN_BLOCK_WORDS);
        let is_size = object.mentions(&SIZE_WORDS) || object.mentions(&SEARCH_WORDS);
        is_size && !is_wrong && !object.mentions(&RATE_ONLY_WORDS)
    })
}

/// Returns whether the node reports that it has pruned the requested data.
pub(super) fn is_pruned(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        (object.code == PRUNED_CODE || object.mentions(&PRUNED_WORDS)) && !object.is_of_execution()
    })
}

/// Returns whether the error is about the call and nothing else.
pub(super) fn is_about_the_call(error: &[u8]) -> bool {
    read(error).is_some_and(|object| CALL_CODES.contains(&object.code) || object.is_of_execution())
}

/// Returns whether the error comes from a node and is about the call, despite an HTTP error.
pub(super) fn is_of_a_node(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        NODE_CODES.contains(&object.code) && object.mentions(&NODE_WORDS) && !object.is_of_rate()
    })
}

/// Returns whether the node definitely does not have the block, rather than being unable to tell right now.
pub fn is_absence(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        let is_absent = [ABSENT_CODE, PRUNED_CODE].contains(&object.code)
            || CALL_CODES.contains(&object.code)
            || object.mentions(&ABSENT_WORDS)
            || object.mentions(&PRUNED_WORDS);
        is_absent && !INTERNAL_CODES.contains(&object.code) && !object.is_of_rate()
    })
}

/// Returns whether the node reports that it does not have the method.
pub fn is_unknown_method(error: &[u8]) -> bool {
    read(error).is_some_and(|object| {
        (METHOD_CODES.contains(&object.code) || object.mentions(&METHOD_WORDS)) && !object.is_of_rate()
    })
}

/// Returns whether the node reports that it does not have a block. Ignores messages of contracts.
pub fn is_unknown_block(error: &[u8]) -> bool {
    read(error).is_some_and(|object| object.mentions(&UNKNOWN_BLOCK_WORDS) && !object.is_of_execution())
}

/// Returns whether the node, or a proxy in front of it, reports an internal failure.
pub fn is_internal(error: &[u8]) -> bool {
    read(error).is_some_and(|object| INTERNAL_CODES.contains(&object.code) && !object.is_of_execution())
}

fn read(error: &[u8]) -> Option<NodeErrorObject> {
    serde_json::from_slice(error).ok()
}

// === impl NodeErrorObject ===

impl NodeErrorObject {
    /// Returns whether the client's own code or transaction caused the error.
    fn is_of_execution(&self) -> bool {
        EXECUTION_CODES.contains(&self.code) || self.mentions(&OWN_WORDS)
    }

    /// Returns whether the error mentions a rate limit, even if it mentions something else, too.
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
    fn refusals_of_large_searches_are_recognized() {
        let refuses = |message: &str| {
            let error = format!(r#"{{"code":-32000,"message":"{message}"}}"#);
            is_about_size(error.as_bytes())
        };
        for message in [
            "query returned more than 10000 results",
            "eth_getLogs is limited to a 10,000 range",
            "range 1000000 exceeds limit of 10000",
            "ranges over 10000 blocks are not supported on freetier",
            "query exceeds max block range 10",
            "block range is too wide",
            "too wide blocks range, the limit is 1000",
            "logs matched by query exceeds limit of 10000",
            "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range",
        ] {
            assert!(refuses(message), "{message}");
        }
        for message in [
            "block range extends beyond current head block",
            "invalid block range params",
            "Rate limit exceeded",
            "more than 10 requests per second",
            "the method eth_getLogs does not exist/is not available",
            "header not found",
        ] {
            assert!(!refuses(message), "{message}");
        }
    }

    #[test]
    fn rate_limit_errors_of_providers_are_recognized() {
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
        assert!(limits("eth_getBalance", request_limit), "its answer is never too large");
    }

    #[test]
    fn errors_that_a_client_can_provoke_are_no_rate_limit() {
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
            "recognized by its code"
        );
    }

    #[test]
    fn reverts_are_neither_pruned_nor_internal_errors() {
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
