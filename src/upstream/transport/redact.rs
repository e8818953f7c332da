//! Removes an endpoint's secrets from its answers.
//!
//! A node, or a proxy in front of it, may repeat the URL or a header of the request in an error: "invalid key
//! abc…". Errors go to the log, to the status page and to clients, none of which may show the operator's key.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use memchr::{memchr_iter, memchr2_iter};
use serde::de::IgnoredAny;

use super::{
    super::{UpstreamError, Words},
    EndpointAddress, EndpointUrl,
};
use crate::{eth::Query, jsonrpc::Answer};

/// Minimum length of a key in a path or query. Shorter parts, such as `v3`, `rpc` or `mainnet`, are not keys.
const SHORTEST_PART: usize = 8;

/// Minimum length of a value that is secret because of its place, such as a password. Shorter values would match
/// ordinary words.
const SHORTEST_SECRET: usize = 4;

/// Minimum length of a secret that is found anywhere in a text. Shorter secrets match only as whole words, because a
/// few digits occur in the middle of any number.
const LONG_SECRET: usize = 16;

/// The text that replaces a secret.
const REPLACEMENT: &str = "…";

/// Words of JSON and of error objects. Holdfast never redacts them: even if one of them is a password, showing it in
/// an error does not reveal that it is one.
const COMMON: [&str; 7] = ["null", "true", "false", "code", "data", "error", "message"];

/// A header whose name contains one of these words is a credential, whatever its value looks like.
const CREDENTIALS: [&str; 8] = ["auth", "cookie", "key", "token", "secret", "pass", "credential", "sign"];

/// Values that must not be repeated, the longest first. `Debug` output shows none of them.
#[derive(Clone, Default)]
pub(in crate::upstream) struct Secrets(Vec<String>);

/// One character of a JSON text, decoded.
#[derive(Clone, Copy)]
struct JsonChar {
    decoded: char,
    /// Number of bytes that the character takes in the text, including its escape.
    bytes: usize,
}

// === impl Secrets ===

impl Secrets {
    /// Collects the values of a URL and of headers that are secret, or may be.
    pub(in crate::upstream) fn of(url: &EndpointUrl, headers: &HeaderMap) -> Self {
        let url = url.as_url();
        let segments = url.path_segments().into_iter().flatten();
        let queried = url.query().into_iter().flat_map(|query| query.split('&'));
        // A key may come without a parameter name.
        let queried = queried.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let parts = segments.chain(queried).flat_map(forms).filter(|part| !is_plain(part));
        // A user name is secret even if it is a plain word.
        let parts = parts.chain(forms(url.username())).filter(|part| part.len() >= SHORTEST_PART);
        let passwords = url.password().into_iter().flat_map(forms);
        let mut secrets = Self::default();
        secrets.add(parts.chain(passwords));
        secrets.add_headers(headers);
        secrets
    }

    /// Adds the secret values of these headers.
    pub(in crate::upstream) fn add_headers(&mut self, headers: &HeaderMap) {
        for (name, value) in headers.iter().filter(|(_, value)| value.is_sensitive()) {
            let Ok(value) = value.to_str() else { continue };
            let is_credential = CREDENTIALS.iter().any(|part| name.as_str().contains(part));
            let whole = Some(value).filter(|value| is_credential || !is_plain(value));
            // A node may omit the scheme, such as `Bearer`, or write it differently.
            let words =
                value.split_whitespace().filter(|word| word.len() >= SHORTEST_PART && !is_plain(word));
            self.add(whole.into_iter().chain(words).map(str::to_owned));
        }
    }

    fn add(&mut self, secrets: impl Iterator<Item = String>) {
        let is_common = |secret: &str| COMMON.iter().any(|common| secret.eq_ignore_ascii_case(common));
        self.0.extend(secrets.filter(|secret| secret.len() >= SHORTEST_SECRET && !is_common(secret)));
        self.0.sort_by(|one, two| two.len().cmp(&one.len()).then_with(|| one.cmp(two)));
        self.0.dedup();
    }

    /// Returns an answer without secrets. Chain content stays as it is, because hashes cover it. Any other result
    /// loses only [long](LONG_SECRET) secrets, because a short one may well be part of its data.
    pub(in crate::upstream) fn redact_answer(&self, method: &str, answer: Answer) -> Answer {
        match answer {
            Answer::Error(error) => Answer::Error(self.redact(&error)),
            // A string is not chain content, whatever the method.
            Answer::Result(result)
                if (is_content(method) && !result.starts_with(b"\"")) || !self.may_be_in(&result) =>
            {
                Answer::Result(result)
            }
            Answer::Result(result) => {
                let long = Self(self.long().cloned().collect());
                long.redact_json(&result).map_or_else(Answer::Error, Answer::Result)
            }
        }
    }

    /// Returns the same error without secrets.
    pub(super) fn redact_error(&self, error: UpstreamError) -> UpstreamError {
        match error {
            UpstreamError::Refused { status, error } => {
                UpstreamError::Refused { status, error: self.redact(&error) }
            }
            UpstreamError::Status { status, words } => {
                UpstreamError::Status { status, words: self.redact_words(words) }
            }
            UpstreamError::RateLimited { retry_after, words } => {
                UpstreamError::RateLimited { retry_after, words: self.redact_words(words) }
            }
            error => error,
        }
    }

    fn redact_words(&self, words: Words) -> Words {
        let redacted = |words: Arc<str>| self.redact_text(&words).map_or(words, Into::into);
        words.map(|words| UpstreamError::shortened(&redacted(words)))
    }

    /// Returns the same JSON without secrets: the same bytes, if it has none.
    pub(in crate::upstream) fn redact(&self, json: &Bytes) -> Bytes {
        self.redact_json(json).unwrap_or_else(|error| error)
    }

    /// Returns the same JSON without secrets.
    ///
    /// # Errors
    /// If the rest is not JSON, for example because a secret was part of a number. The error value is a JSON-RPC error
    /// object.
    fn redact_json(&self, json: &Bytes) -> Result<Bytes, Bytes> {
        let Some(redacted) = std::str::from_utf8(json).ok().and_then(|text| self.redact_text(text)) else {
            return Ok(json.clone());
        };
        if serde_json::from_str::<IgnoredAny>(&redacted).is_ok() {
            return Ok(redacted.into());
        }
        Err(Bytes::from_static(br#"{"code":-32000,"message":"the answer repeats a secret"}"#))
    }

    fn long(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|secret| secret.len() >= LONG_SECRET)
    }

    /// Returns whether there is a long secret, for which results are searched.
    pub(in crate::upstream) fn has_long(&self) -> bool {
        self.long().next().is_some()
    }

    /// Returns whether a long secret may be in this result. Searches only for the secret itself and for escapes that
    /// can stand for one of its characters. This is faster than the full search, and hardly any result contains
    /// either.
    fn may_be_in(&self, result: &[u8]) -> bool {
        let is_letter = |at: usize| matches!(result.get(at + 1), Some(b'u' | b'/'));
        let is_escaped = |secret: &String| secret.contains(['"', '\\']);
        self.has_long()
            && (memchr_iter(b'\\', result).any(is_letter)
                || self.long().any(|secret| is_escaped(secret) || contains_ignore_case(secret, result)))
    }

    /// Returns the text without secrets, in any letter case and with any escapes; `None` if it contains none.
    fn redact_text(&self, text: &str) -> Option<String> {
        let mut redacted = None::<String>;
        let (mut at, mut before) = (0, '"');
        while let Some(unit) = unit(&text[at..]) {
            let found = self.0.iter().find_map(|secret| match_len(secret, &text[at..], before));
            if let Some(bytes) = found {
                redacted.get_or_insert_with(|| text[..at].to_owned()).push_str(REPLACEMENT);
                (at, before) = (at + bytes, '…');
                continue;
            }
            if let Some(redacted) = &mut redacted {
                redacted.push_str(&text[at..at + unit.bytes]);
            }
            (at, before) = (at + unit.bytes, unit.decoded);
        }
        redacted
    }
}

/// Returns whether the cache stores answers of this method: blocks, transactions and receipts.
pub(in crate::upstream) fn is_content(method: &str) -> bool {
    Query::METHODS.contains(&method) || method == "eth_getBlockReceipts"
}

/// Returns whether these bytes contain the secret, in any letter case.
fn contains_ignore_case(secret: &str, bytes: &[u8]) -> bool {
    let secret = secret.as_bytes();
    // Searches for a character of the secret that hex data does not have, if there is one.
    let at = secret.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(0);
    let Some(byte) = secret.get(at) else { return false };
    memchr2_iter(byte.to_ascii_lowercase(), byte.to_ascii_uppercase(), bytes).any(|found| {
        let part = found.checked_sub(at).and_then(|begin| bytes.get(begin..begin + secret.len()));
        part.is_some_and(|part| part.eq_ignore_ascii_case(secret))
    })
}

/// Returns the number of bytes of the secret in the text, if the text begins with it; `before` precedes the text.
fn match_len(secret: &str, text: &str, before: char) -> Option<usize> {
    let is_short = secret.len() < LONG_SECRET;
    let begins_word = |secret: &str| secret.starts_with(|first: char| first.is_alphanumeric());
    if is_short && before.is_alphanumeric() && begins_word(secret) {
        return None;
    }
    let (mut at, mut last) = (0, before);
    for wanted in secret.chars() {
        let unit = unit(&text[at..])?;
        if !unit.decoded.eq_ignore_ascii_case(&wanted) {
            return None;
        }
        (at, last) = (at + unit.bytes, unit.decoded);
    }
    let goes_on = unit(&text[at..]).is_some_and(|unit| unit.decoded.is_alphanumeric());
    (!(is_short && goes_on && last.is_alphanumeric())).then_some(at)
}

/// Decodes the first character of a JSON text, with its escape.
fn unit(text: &str) -> Option<JsonChar> {
    let first = text.chars().next()?;
    let plain = JsonChar { decoded: first, bytes: first.len_utf8() };
    if first != '\\' {
        return Some(plain);
    }
    let decoded = match text.as_bytes().get(1)? {
        b'u' => {
            let code = text.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            // Half of a surrogate pair is not a character, and no key contains one.
            let decoded = code.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            return Some(decoded.map_or(plain, |decoded| JsonChar { decoded, bytes: 6 }));
        }
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        escaped if escaped.is_ascii() => char::from(*escaped),
        _ => return Some(plain),
    };
    Some(JsonChar { decoded, bytes: 2 })
}

/// Returns whether the value is a word or number too short and plain to be a key: `ethereum`, `us-east`, `0000`.
fn is_plain(value: &str) -> bool {
    let is_word = value.chars().all(|letter| letter.is_ascii_lowercase() || "-_.".contains(letter));
    value.len() < LONG_SECRET && (is_word || value.chars().all(|digit| digit.is_ascii_digit()))
}

impl From<&EndpointAddress> for Secrets {
    fn from(address: &EndpointAddress) -> Self {
        Self::of(address.url(), address.headers())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} secrets)", self.0.len())
    }
}

/// Returns a part of a URL as written, and percent-decoded.
fn forms(part: &str) -> [String; 2] {
    let digit = |at: usize| part.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut decoded, mut at) = (Vec::with_capacity(part.len()), 0);
    while let Some(byte) = part.as_bytes().get(at) {
        match digit(at + 1).filter(|_| *byte == b'%') {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    [part.to_owned(), String::from_utf8_lossy(&decoded).into_owned()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;
    use crate::{secret::Secret, upstream::EndpointConfig};

    fn secrets(url: &str, header: &str) -> Secrets {
        let headers = [("authorization".to_owned(), Secret::Plain(header.to_owned()))].into();
        Secrets::from(
            &EndpointAddress::resolve(&EndpointConfig { headers, ..EndpointConfig::at(url) }).unwrap(),
        )
    }

    #[test]
    fn request_secrets_are_redacted_from_errors() {
        let secrets = secrets("https://x.test/v3/SECRET-PATH/eth?key=SECRET%2FQUERY&a", "Bearer SECRET\"H");
        for (said, shown) in [
            (r#"{"message":"no key SECRET-PATH, or secret-path"}"#, r#"{"message":"no key …, or …"}"#),
            (r#"{"message":"/v3/SECRET-PATH/eth?key=SECRET%2FQUERY"}"#, r#"{"message":"/v3/…/eth?key=…"}"#),
            (r#"{"message":"key SECRET/QUERY"}"#, r#"{"message":"key …"}"#),
            (r#"{"data":["Bearer SECRET\"H","SECRET\"H"]}"#, r#"{"data":["…","…"]}"#),
            (r#"{"message":"eth_call to v3, Bearer"}"#, r#"{"message":"eth_call to v3, Bearer"}"#),
        ] {
            assert_eq!(secrets.redact(&Bytes::from(said)), shown);
        }
        assert!(!format!("{secrets:?}").contains("SECRET"));
    }

    #[test]
    fn long_secrets_are_redacted_from_results() {
        let secrets = secrets("https://x.test/v3/deadbeefdeadbeef", "Bearer short-Key1");
        for (method, said, shown) in [
            ("web3_clientVersion", r#""n/DEADbeefdeadbeef""#, r#""n/…""#),
            ("eth_call", r#"{"a":"\u0064eadbeefdeadbeef"}"#, r#"{"a":"…"}"#),
            ("eth_call", r#""0xdeadbeefdeadbee""#, r#""0xdeadbeefdeadbee""#),
            ("eth_call", r#""short-Key1""#, r#""short-Key1""#),
            // Chain content stays as it is; text is not chain content.
            ("eth_getBlockByHash", r#"{"hash":"deadbeefdeadbeef"}"#, r#"{"hash":"deadbeefdeadbeef"}"#),
            ("eth_getBlockReceipts", r#"["deadbeefdeadbeef"]"#, r#"["deadbeefdeadbeef"]"#),
            ("eth_getBlockReceipts", r#""deadbeefdeadbeef""#, r#""…""#),
        ] {
            let redacted = secrets.redact_answer(method, Answer::Result(Bytes::from(said)));
            let Answer::Result(result) = redacted else { panic!("{method}: {said}") };
            assert_eq!(result, shown, "{method}");
        }
    }

    #[test]
    fn result_that_redaction_would_break_is_an_error() {
        let secrets = secrets("https://x.test/1234567890123456", "none");
        let number = Bytes::from_static(b"[1234567890123456]");
        assert!(matches!(secrets.redact_answer("eth_call", Answer::Result(number)), Answer::Error(_)));
    }

    proptest! {
        #[test]
        fn fast_search_finds_each_long_secret(
            secret in "[0-9a-fA-F]{16,20}|[a-zA-Z0-9-]{16,20}",
            before in "[0-9a-f]{0,40}",
            after in "[0-9a-f]{0,40}",
            is_upper: bool,
        ) {
            let echoed = if is_upper { secret.to_uppercase() } else { secret.to_lowercase() };
            let said = format!("{before}{echoed}{after}");
            prop_assert!(contains_ignore_case(&secret, said.as_bytes()));
            prop_assert!(!contains_ignore_case(&secret, before.as_bytes()) || before.contains(&secret.to_lowercase()));
        }
    }

    #[test]
    fn redacted_text_stays_valid_json() {
        let secrets = secrets("https://x.test/1234567890123456", "none");
        let said = Bytes::from_static(br#"{"data":"0x1234567890123456"}"#);
        assert_eq!(secrets.redact(&said), r#"{"data":"0x…"}"#);
        let number = secrets.redact(&Bytes::from_static(br#"{"code":-32000,"data":1234567890123456}"#));
        assert!(serde_json::from_slice::<serde_json::Value>(&number).is_ok(), "{number:?}");
        assert!(!String::from_utf8_lossy(&number).contains("1234567890123456"));
    }

    #[test]
    fn password_is_redacted_encoded_and_decoded() {
        let url = "https://operator-one:p%40ss@x.test".parse().unwrap();
        let secrets = Secrets::of(&url, &HeaderMap::new());
        let said = Bytes::from_static(br#""operator-one:p%40ss, p@ss""#);
        assert_eq!(secrets.redact(&said), "\"…:…, …\"");
    }

    #[test]
    fn values_that_are_no_secret_are_not_redacted() {
        let headers =
            [("x-shard", "0000"), ("origin", "null"), ("x-region", "us-east"), ("x-api-key", "k3y4")];
        let headers = headers.map(|(name, value)| (name.to_owned(), Secret::Plain(value.to_owned())));
        let url = "https://x.test/v1/11155111?network=ethereum&plan=growth-plan";
        let config = EndpointConfig { headers: headers.into(), ..EndpointConfig::at(url) };
        let secrets = Secrets::from(&EndpointAddress::resolve(&config).unwrap());
        for same in [
            r#"{"code":3,"message":"execution reverted","data":"0x08c379a00000000000000020"}"#,
            r#"{"code":-32000,"message":"ethereum node in us-east, growth-plan","data":null}"#,
            r#"{"code":-32000,"message":"chain 11155111 shard 0000","data":{"chain":11155111}}"#,
            r#"{"code":-32000,"message":"k3y4x and 0xk3y4"}"#,
        ] {
            assert_eq!(secrets.redact(&Bytes::from(same)), same);
        }
        assert_eq!(secrets.redact(&Bytes::from(r#"{"message":"key=k3y4"}"#)), r#"{"message":"key=…"}"#);
    }

    #[test]
    fn key_is_found_in_any_json_escape() {
        let secrets = secrets("https://x.test/?key=SECRET%2FQUERY", "Bearer SECRET\"H\\x");
        for (said, shown) in [
            (r#""no key SECRET\/QUERY.""#, r#""no key ….""#),
            (r#""no key SECRET\u002fQUERY""#, r#""no key …""#),
            (r#""no key \u0053ECRET/QUERY\n""#, r#""no key …\n""#),
            (r#""no key\nSECRET/QUERY""#, r#""no key\n…""#),
            (r#""Bearer SECRET\"H\\x""#, r#""…""#),
        ] {
            assert_eq!(secrets.redact(&Bytes::from(said)), shown);
        }
    }

    fn said() -> impl Strategy<Value = Json> {
        let text = prop_oneof!["[a-c0-2/\"\\\\ \n…-]{0,12}", "0x[0-9a-c]{0,40}", Just("null".to_owned())];
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (0u64..4000).prop_map(Json::from),
            text.clone().prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                proptest::collection::hash_map(text.clone(), inner, 0..4)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn only_secrets_are_redacted_and_json_stays_valid(
            said in said(),
            secret in prop_oneof!["[a-c0-2/\"\\\\-]{1,6}", "[a-c0-2]{16,18}", Just("null".to_owned())],
        ) {
            let mut secrets = Secrets::default();
            secrets.add([secret.clone()].into_iter());
            let bytes = Bytes::from(said.to_string());
            let shown = secrets.redact(&bytes);
            prop_assert!(serde_json::from_slice::<Json>(&shown).is_ok(), "{shown:?}");
            let quoted = Json::from(secret.as_str()).to_string();
            let holds = |form: &str| bytes.windows(form.len()).any(|part| part == form.as_bytes());
            if !holds(&quoted[1..quoted.len() - 1]) && !holds(&secret) {
                prop_assert_eq!(shown, bytes);
            }
        }
    }
}
