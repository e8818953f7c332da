//! Takes what an endpoint is reached with out of what it says.
//!
//! A node, or what stands before one, may repeat in an error the URL or the header that it was asked with: "invalid key
//! abc…". That goes into logs, onto the status page and to clients, who have no business with the operator's key.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::de::IgnoredAny;

use super::{EndpointUrl, Reach};
use crate::jsonrpc::Answer;

/// A part of a path or a query that is shorter is no key: `v3`, `rpc`, `mainnet`.
const SHORTEST_PART: usize = 8;

/// Of what is secret by its place less is enough; with still less, every other word would be one.
const SHORTEST_SECRET: usize = 4;

/// What stands in its place.
const SHOWN: &str = "…";

/// What must not be repeated, each as it would stand in JSON, the longest first. Shows nothing of it.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

// === impl Secrets ===

impl Secrets {
    /// What is secret, or may be, in a URL and in headers.
    pub(super) fn of(url: &EndpointUrl, headers: &HeaderMap) -> Self {
        let url = url.as_url();
        let segments = url.path_segments().into_iter().flatten();
        let queried = url.query().into_iter().flat_map(|query| query.split('&'));
        // A key may stand there without a name.
        let queried = queried.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let parts = segments.chain(queried).chain([url.username()]).flat_map(forms);
        let parts = parts.filter(|part| part.len() >= SHORTEST_PART);
        let passwords = url.password().into_iter().flat_map(forms);
        let passwords = passwords.filter(|password| password.len() >= SHORTEST_SECRET);
        let mut secrets = Self::default();
        secrets.add(parts.chain(passwords));
        secrets.add_headers(headers);
        secrets
    }

    /// And what is secret in these.
    pub(super) fn add_headers(&mut self, headers: &HeaderMap) {
        let values = headers.values().filter(|value| value.is_sensitive());
        for value in values.filter_map(|value| HeaderValue::to_str(value).ok()) {
            let whole = Some(value).filter(|value| value.len() >= SHORTEST_SECRET);
            // The word before it, as in `Bearer`, may be left out or written in another way.
            let words = value.split_whitespace().filter(|word| word.len() >= SHORTEST_PART);
            self.add(whole.into_iter().chain(words).map(str::to_owned));
        }
    }

    fn add(&mut self, secrets: impl Iterator<Item = String>) {
        let quoted = secrets.map(|secret| serde_json::Value::from(secret).to_string());
        self.0.extend(quoted.map(|quoted| quoted[1..quoted.len() - 1].to_owned()));
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.dedup();
    }

    /// An answer that may be shown; a result is nobody's words, and stays what it is.
    pub(super) fn redact_answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Error(error) => Answer::Error(self.redact(&error)),
            Answer::Result(result) => Answer::Result(result),
        }
    }

    /// The same JSON without what is secret: the same bytes, where nothing is.
    pub(super) fn redact(&self, json: &Bytes) -> Bytes {
        let Some(redacted) = self.redact_text(json) else { return json.clone() };
        if serde_json::from_str::<IgnoredAny>(&redacted).is_ok() {
            return redacted.into();
        }
        // It stood where it makes a number of it, say. Then there is nothing to show but that there was something.
        Bytes::from_static(br#"{"code":-32000,"message":"an error that repeats what is secret"}"#)
    }

    /// The same text without what is secret, in whatever case it stands there; `None` where nothing is.
    fn redact_text(&self, text: &[u8]) -> Option<String> {
        let here = |at: usize| {
            let is_here = |secret: &&String| {
                text[at..]
                    .get(..secret.len())
                    .is_some_and(|part| part.eq_ignore_ascii_case(secret.as_bytes()))
            };
            self.0.iter().find(is_here)
        };
        let first = (0..text.len()).find(|at| here(*at).is_some())?;
        let mut redacted = text[..first].to_vec();
        let mut at = first;
        while let Some(byte) = text.get(at) {
            if let Some(secret) = here(at) {
                redacted.extend_from_slice(SHOWN.as_bytes());
                at += secret.len();
            } else {
                redacted.push(*byte);
                at += 1;
            }
        }
        Some(String::from_utf8_lossy(&redacted).into_owned())
    }
}

impl From<&Reach> for Secrets {
    fn from(reach: &Reach) -> Self {
        Self::of(reach.url(), reach.headers())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} secrets)", self.0.len())
    }
}

/// A part of a URL as it is written, and as it is meant.
fn forms(part: &str) -> [String; 2] {
    let digit = |at: usize| part.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let (mut meant, mut at) = (Vec::with_capacity(part.len()), 0);
    while let Some(byte) = part.as_bytes().get(at) {
        match digit(at + 1).filter(|_| *byte == b'%') {
            Some(byte) => {
                meant.push(byte);
                at += 3;
            }
            None => {
                meant.push(*byte);
                at += 1;
            }
        }
    }
    [part.to_owned(), String::from_utf8_lossy(&meant).into_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{secret::Secret, upstream::EndpointConfig};

    fn secrets(url: &str, header: &str) -> Secrets {
        let headers = [("authorization".to_owned(), Secret::Plain(header.to_owned()))].into();
        Secrets::from(&Reach::resolve(&EndpointConfig { headers, ..EndpointConfig::at(url) }).unwrap())
    }

    #[test]
    fn what_it_was_asked_with_is_taken_out_of_what_it_says() {
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
    fn what_is_left_is_json() {
        let secrets = secrets("https://x.test/123456789", "none");
        assert_eq!(secrets.redact(&Bytes::from_static(br#"{"data":"0x123456789"}"#)), r#"{"data":"0x…"}"#);
        let number = secrets.redact(&Bytes::from_static(br#"{"code":-32000,"data":123456789}"#));
        assert!(serde_json::from_slice::<serde_json::Value>(&number).is_ok(), "{number:?}");
        assert!(!String::from_utf8_lossy(&number).contains("123456789"));
    }

    #[test]
    fn a_password_is_one_however_it_is_written() {
        let url = "https://operator-one:p%40ss@x.test".parse().unwrap();
        let secrets = Secrets::of(&url, &HeaderMap::new());
        let said = Bytes::from_static(br#""operator-one:p%40ss, p@ss""#);
        assert_eq!(secrets.redact(&said), "\"…:…, …\"");
    }
}
