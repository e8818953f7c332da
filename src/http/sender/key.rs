//! Keys of clients: their creation, their hashes, and where requests carry them.

use std::{fmt, num::NonZeroU32, str::FromStr};

use alloy_primitives::hex;
use http::{HeaderMap, Request, header};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{client::Client, proxy::Rate};

/// Prefix by which people and secret scanners recognize a key.
const PREFIX: &str = "hf_";

/// Number of random bytes in a key, which is too many to guess. A SHA-256 hash has the same length.
const RANDOM_BYTES: usize = 32;

/// Maximum length of a key's name, which appears in logs.
const LONGEST_NAME: usize = 64;

const API_KEY: &str = "x-api-key";

/// Prefix of a key in the path of a URL. Wallets let people set nothing but the URL.
const PATH: &str = "/k/";

/// The SHA-256 of a key, as the configuration stores it.
///
/// A fast hash without salt is right here. Passwords need a slow, salted hash because people choose guessable
/// passwords. A key is 256 random bits: it cannot be guessed at any speed, and no two keys are equal, so a salt would
/// hide nothing. A slow hash would only slow down every request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; RANDOM_BYTES]);

/// Text that is not the hash of a key. The error does not contain the text, which may be the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the SHA-256 of a key in 64 hex digits; `holdfast key new` makes a key and prints this line"
)]
pub struct KeyHashError;

/// A new key, shown once and stored nowhere.
pub struct NewKey(String);

/// A client with a key: its name, its methods and its rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Name of the client, for logs.
    pub name: String,
    /// The hash of its key.
    pub sha256: KeyHash,
    /// Globs of the methods that the client may call, among the methods that are served at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Globs of the methods that the client may not call.
    #[serde(default)]
    pub deny: Vec<String>,
    /// Call rate of the client; `http.rate` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Calls that the client may make at once after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
}

/// Returns the keys of a request from all places that may contain one. There may be several, because a gateway may use
/// one of the places for its own key.
pub(in crate::http) fn presented<B>(request: &Request<B>) -> impl Iterator<Item = &[u8]> {
    let headers = request.headers();
    let in_path = request.uri().path().strip_prefix(PATH);
    let in_path = in_path.and_then(|rest| rest.split('/').next()).map(str::as_bytes);
    [bearer(headers), headers.get(API_KEY).map(|key| key.as_bytes()), in_path]
        .into_iter()
        .flatten()
        .map(<[u8]>::trim_ascii)
        .filter(|key| !key.is_empty())
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(key)
}

// === impl KeyHash ===

impl KeyHash {
    /// Returns the client whose key has this hash.
    pub(in crate::http) fn client(&self) -> Client {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        Client::Key(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Returns the hash of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Returns the hash of the key in the header `authorization: Bearer KEY`.
    pub fn of_bearer(headers: &HeaderMap) -> Option<Self> {
        bearer(headers).map(<[u8]>::trim_ascii).filter(|key| !key.is_empty()).map(Self::of)
    }

    /// Compares two hashes in constant time.
    pub fn fits(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl FromStr for KeyHash {
    type Err = KeyHashError;

    fn from_str(text: &str) -> Result<Self, KeyHashError> {
        // The length is checked first, because the decoder would accept a `0x` prefix.
        if text.len() != 2 * RANDOM_BYTES {
            return Err(KeyHashError);
        }
        hex::decode_to_array(text).map(Self).map_err(|_| KeyHashError)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

// === impl KeyConfig ===

impl KeyConfig {
    /// Checks that a name is fit for logs and the configuration.
    ///
    /// # Errors
    /// If the name is not fit. The message says which names are fit.
    pub fn check_name(name: &str) -> Result<(), String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) {
            return Ok(());
        }
        Err(format!("expected a name of 1 to {LONGEST_NAME} letters, digits, '.', '-' and '_'"))
    }
}

// === impl NewKey ===

impl NewKey {
    /// Creates a random key.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{PREFIX}{}", hex::encode(bytes))))
    }

    /// Returns the hash of the key, for the configuration.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.as_bytes())
    }

    /// Returns the key itself, for the client that will use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(request: http::request::Builder) -> Vec<String> {
        let request = request.body(()).unwrap();
        presented(&request).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn key_is_found_in_headers_and_path() {
        let post = || Request::post("/");
        assert_eq!(found(post().header("authorization", "Bearer one")), ["one"]);
        assert_eq!(found(post().header("authorization", "bEARER  one ")), ["one"]);
        assert_eq!(found(post().header("x-api-key", "two")), ["two"]);
        assert_eq!(found(Request::post("/k/three")), ["three"]);
        assert_eq!(found(Request::post("http://localhost:1/k/three/?four")), ["three"]);
        assert_eq!(found(Request::post("/k/three").header("x-api-key", "two")), ["two", "three"]);
        for nothing in [
            post(),
            post().header("authorization", "Basic one"),
            post().header("authorization", "Bearer"),
            post().header("authorization", "Bearer "),
            post().header("x-api-key", ""),
            Request::post("/k/"),
            Request::post("/key/three"),
            Request::post("/v1/k/three"),
        ] {
            assert!(found(nothing).is_empty());
        }
    }

    #[test]
    fn new_key_matches_its_hash() {
        let (key, other) = (NewKey::random().unwrap(), NewKey::random().unwrap());
        let kept: KeyHash = key.hash().to_string().parse().unwrap();
        assert!(kept.fits(&KeyHash::of(key.reveal().as_bytes())));
        assert!(!kept.fits(&other.hash()));
        assert_eq!(key.reveal().len(), PREFIX.len() + 2 * RANDOM_BYTES);
        let known = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        assert_eq!(KeyHash::of(b"foo").to_string(), known);
    }

    #[test]
    fn malformed_key_hash_is_not_shown() {
        for text in ["", "hf_0123", &"0".repeat(63), &"g".repeat(64), &format!("0x{}", "0".repeat(62))] {
            assert_eq!(text.parse::<KeyHash>(), Err(KeyHashError), "{text}");
        }
    }
}
