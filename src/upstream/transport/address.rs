//! The address of an endpoint: URL and headers.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{super::EndpointConfig, EndpointError, EndpointUrl};

/// An endpoint's URL and headers, with secrets resolved. Equal addresses mean the same node, wherever the
/// configuration reads the secrets from. `Debug` output shows no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAddress {
    url: EndpointUrl,
    headers: HeaderMap,
}

/// Headers about the connection, or about the length and encoding of a body. A configured value would be wrong for
/// some requests, and the node might wait for bytes that never come. `host` is not among them: it selects one of
/// several hosts behind an address.
const RESERVED_HEADERS: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

// === impl EndpointAddress ===

impl EndpointAddress {
    /// Resolves the URL and headers of an endpoint; does not connect.
    ///
    /// # Errors
    /// If a secret, the URL or a header is invalid.
    pub fn resolve(endpoint: &EndpointConfig) -> Result<Self, EndpointError> {
        let url = endpoint.url.resolve().map_err(EndpointError::UrlSecret)?;
        let mut headers = headers(endpoint)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let url: EndpointUrl = url.parse().map_err(EndpointError::Url)?;
        if url.has_credentials() && headers.contains_key(header::AUTHORIZATION) {
            return Err(EndpointError::TwoCredentials);
        }
        Ok(Self { url, headers })
    }

    /// Returns the URL.
    pub fn url(&self) -> &EndpointUrl {
        &self.url
    }

    pub(in crate::upstream) fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// Returns the configured headers.
pub(in crate::upstream) fn headers(endpoint: &EndpointConfig) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &endpoint.headers {
        let owned = || name.clone();
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| EndpointError::HeaderName { name: owned() })?;
        if RESERVED_HEADERS.contains(&header) {
            return Err(EndpointError::ReservedHeader { name: owned() });
        }
        let value =
            value.resolve().map_err(|source| EndpointError::HeaderSecret { name: owned(), source })?;
        let mut value =
            HeaderValue::from_str(&value).map_err(|_| EndpointError::HeaderValue { name: owned() })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{secret::Secret, upstream::check_endpoint};

    fn with_token(url: &str, token: Secret) -> EndpointAddress {
        let headers = [("authorization".to_owned(), token)].into();
        EndpointAddress::resolve(&EndpointConfig { headers, ..EndpointConfig::at(url) }).unwrap()
    }

    #[test]
    fn credentials_in_both_url_and_header_are_refused() {
        let with = |url: &str, header: &str| {
            let headers = [(header.to_owned(), Secret::Plain("Bearer SECRET".to_owned()))].into();
            check_endpoint(&EndpointConfig { headers, ..EndpointConfig::at(url) })
        };
        for url in ["http://user:SECRET@127.0.0.1", "http://user@127.0.0.1", "http://:SECRET@127.0.0.1"] {
            let error = with(url, "Authorization").unwrap_err();
            assert!(matches!(error, EndpointError::TwoCredentials), "{error}");
            assert!(!error.to_string().contains("SECRET"), "{error}");
            assert!(with(url, "x-key").is_ok());
        }
        assert!(with("http://127.0.0.1/SECRET", "authorization").is_ok());
    }

    #[test]
    fn address_compares_by_secret_value_and_hides_it() {
        let path = std::env::temp_dir().join(format!("holdfast-address-{}", std::process::id()));
        std::fs::write(&path, "SECRET-TOKEN\n").unwrap();
        let plain = with_token("http://127.0.0.1/SECRET-KEY", Secret::Plain("SECRET-TOKEN".to_owned()));
        let from_file = with_token("http://127.0.0.1/SECRET-KEY", Secret::File(path.clone()));
        assert_eq!(plain, from_file);
        std::fs::write(&path, "SECRET-OTHER").unwrap();
        let changed = with_token("http://127.0.0.1/SECRET-KEY", Secret::File(path.clone()));
        std::fs::remove_file(path).unwrap();
        assert_ne!(plain, changed);
        let elsewhere = with_token("http://127.0.0.1/SECRET-TWO", Secret::Plain("SECRET-TOKEN".to_owned()));
        assert_ne!(plain, elsewhere, "they display alike, but differ");
        let shown = format!("{plain:?} {changed:?} {elsewhere:?}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}
