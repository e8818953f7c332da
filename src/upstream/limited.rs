//! What nodes and providers say in an error object that is not about the call.

use std::time::Duration;

use serde::Deserialize;

/// No provider is left alone for longer, whatever it says.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// Codes that say that there were too many calls: Infura, QuickNode, others; Alchemy puts HTTP's into a body.
const RATE_CODES: [i64; 4] = [-32005, -32007, -32029, 429];

/// What messages say where codes do not.
const RATE_WORDS: [&str; 5] = [
    "rate limit",
    "limit exceeded",
    "too many requests",
    "exceeded its compute units",
    "request limit reached",
];

/// Under the same codes some say that an answer would be too large, which another node would say too.
const SIZE_WORDS: [&str; 4] = ["query returned", "block range", "response size", "more than"];

/// EIP-4444: history that is gone.
const PRUNED_CODE: i64 = 4444;
const PRUNED_WORDS: [&str; 3] = ["pruned history", "history unavailable", "missing trie node"];

/// What matters of an error object.
#[derive(Deserialize)]
struct Said {
    code: i64,
    #[serde(default)]
    message: String,
}

/// Does the node say that it was asked too often?
pub(super) fn is_rate_limit(error: &[u8]) -> bool {
    read(error).is_some_and(|said| {
        let limits = RATE_CODES.contains(&said.code) || said.mentions(&RATE_WORDS);
        limits && !said.mentions(&SIZE_WORDS)
    })
}

/// Does the node say that it has forgotten?
pub(super) fn is_pruned(error: &[u8]) -> bool {
    read(error).is_some_and(|said| said.code == PRUNED_CODE || said.mentions(&PRUNED_WORDS))
}

fn read(error: &[u8]) -> Option<Said> {
    serde_json::from_slice(error).ok()
}

// === impl Said ===

impl Said {
    fn mentions(&self, words: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        words.iter().any(|words| message.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_providers_say_is_understood() {
        for error in [
            r#"{"code":-32005,"message":"daily request count exceeded"}"#,
            r#"{"code":-32007,"message":"50/second request limit reached"}"#,
            r#"{"code":429,"message":"Your app has exceeded its compute units per second capacity"}"#,
            r#"{"code":-32000,"message":"Rate limit exceeded"}"#,
        ] {
            assert!(is_rate_limit(error.as_bytes()), "{error}");
        }
        for error in [
            r#"{"code":3,"message":"execution reverted"}"#,
            r#"{"code":-32000,"message":"gas limit is too low"}"#,
            r#"{"code":-32005,"message":"query returned more than 10000 results"}"#,
            r#"{"code":"x"}"#,
            "[]",
        ] {
            assert!(!is_rate_limit(error.as_bytes()), "{error}");
        }
        assert!(is_pruned(br#"{"code":4444,"message":"pruned history unavailable"}"#));
        assert!(!is_pruned(br#"{"code":-32000,"message":"header not found"}"#));
    }
}
