//! The URL of an endpoint, safe to display.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use reqwest::Url;

/// The URL of an endpoint.
///
/// `Display` and `Debug` show scheme, host and port only: credentials, path and query may hold a key.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl(Url);

/// An invalid endpoint URL. Does not repeat the text, which may hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL.
    #[error("not a URL such as http://127.0.0.1:8545")]
    Malformed,
    /// Neither http nor https.
    #[error("the scheme must be http or https, as in http://127.0.0.1:8545")]
    Scheme,
    /// A WebSocket URL where an HTTP URL is required.
    #[error(
        "the scheme must be http or https, as in http://127.0.0.1:8545; put a WebSocket's URL into the key ws of \
         [[upstream.endpoints]]"
    )]
    WebSocket,
    /// Neither ws nor wss, where a WebSocket URL is required.
    #[error("the scheme must be ws or wss, as in ws://127.0.0.1:8546")]
    WsScheme,
    /// A user or password, which the WebSocket client would not send.
    #[error("a WebSocket's URL cannot hold credentials; write them into headers.authorization")]
    Credentials,
}

// === impl EndpointUrl ===

impl EndpointUrl {
    pub(in crate::upstream) fn as_url(&self) -> &Url {
        &self.0
    }

    /// Returns whether the endpoint uses TLS.
    pub(in crate::upstream) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns whether the URL holds a user or a password.
    pub(in crate::upstream) fn has_credentials(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// Parses a WebSocket URL.
    pub(in crate::upstream) fn parse_ws(text: &str) -> Result<Self, UrlError> {
        let url = Url::parse(text.trim()).map_err(|_| UrlError::Malformed)?;
        match (url.scheme(), url.has_host()) {
            ("ws" | "wss", true) if Self(url.clone()).has_credentials() => Err(UrlError::Credentials),
            ("ws" | "wss", true) => Ok(Self(url)),
            _ => Err(UrlError::WsScheme),
        }
    }

    /// Returns whether the node is on this machine.
    pub fn is_loopback(&self) -> bool {
        match self.0.host_str() {
            Some("localhost") => true,
            Some(host) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
                    || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
            }
            None => false,
        }
    }
}

impl EndpointUrl {
    /// Returns whether a call to this URL would reach a listener of ours at this address. Recognizes loopback
    /// addresses and `localhost` only: other names are unknown until resolved.
    pub fn is_listener(&self, listener: SocketAddr) -> bool {
        // Port 0 means a port that the system has yet to choose.
        let is_port = listener.port() != 0 && self.0.port_or_known_default() == Some(listener.port());
        if !is_port || !self.is_loopback() {
            return false;
        }
        let host = self.0.host_str().unwrap_or_default().trim_matches(['[', ']']).parse::<IpAddr>();
        match (listener.ip().to_canonical(), host) {
            // A listener on the unspecified IPv6 address usually accepts IPv4 connections, too.
            (IpAddr::V6(own), _) if own.is_unspecified() => true,
            (IpAddr::V4(own), Ok(host)) if own.is_unspecified() => host.is_ipv4(),
            (own, Ok(host)) => own == host,
            (own, Err(_)) => own.is_unspecified() || own.is_loopback(),
        }
    }
}

impl FromStr for EndpointUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = Url::parse(text.trim()).map_err(|_| UrlError::Malformed)?;
        match (url.scheme(), url.has_host()) {
            ("http" | "https", true) => Ok(Self(url)),
            ("ws" | "wss", _) => Err(UrlError::WebSocket),
            _ => Err(UrlError::Scheme),
        }
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        let bare = self.0.path() == "/" && self.0.query().is_none();
        f.write_str(if bare { "" } else { "/…" })
    }
}

impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        url.parse::<EndpointUrl>().unwrap().to_string()
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(
            shown("https://user:pass@mainnet.example.com/v3/SECRET?key=SECRET"),
            "https://mainnet.example.com/…"
        );
        assert_eq!(shown("https://example.com?SECRET"), "https://example.com/…");
        assert_eq!(shown("http://127.0.0.1:8545"), "http://127.0.0.1:8545");
        assert_eq!(shown("http://[::1]:8545/"), "http://[::1]:8545");
    }

    #[test]
    fn only_http_urls_are_accepted() {
        for (url, error) in [
            ("ws://127.0.0.1:8546", UrlError::WebSocket),
            ("localhost:8545", UrlError::Scheme),
            ("127.0.0.1:8545", UrlError::Malformed),
            ("", UrlError::Malformed),
        ] {
            assert_eq!(url.parse::<EndpointUrl>(), Err(error), "{url}");
        }
    }

    #[test]
    fn websocket_urls_need_a_websocket_scheme() {
        let shown = |url| EndpointUrl::parse_ws(url).map(|url| url.to_string());
        assert_eq!(shown("wss://example.com/v3/SECRET?key=SECRET"), Ok("wss://example.com/…".to_owned()));
        assert_eq!(shown("ws://[::1]:8546"), Ok("ws://[::1]:8546".to_owned()));
        assert_eq!(shown("http://127.0.0.1:8545"), Err(UrlError::WsScheme));
        assert_eq!(shown("wss://user:SECRET@example.com"), Err(UrlError::Credentials));
        assert_eq!(shown("127.0.0.1:8546"), Err(UrlError::Malformed));
    }

    #[test]
    fn url_of_our_own_listener_is_recognized() {
        for (url, listener, is_ours) in [
            ("http://127.0.0.1:8555", "127.0.0.1:8555", true),
            ("http://127.0.0.1:8555/k/x", "0.0.0.0:8555", true),
            ("http://localhost:8555", "127.0.0.1:8555", true),
            ("http://localhost:8555", "[::1]:8555", true),
            ("https://[::1]:8555", "[::]:8555", true),
            ("http://127.0.0.1:8555", "[::]:8555", true),
            ("http://127.0.0.1:8555", "[::ffff:127.0.0.1]:8555", true),
            ("http://127.0.0.1", "127.0.0.1:80", true),
            ("http://127.0.0.1:8545", "127.0.0.1:8555", false),
            ("http://127.0.0.2:8555", "127.0.0.1:8555", false),
            ("http://[::1]:8555", "127.0.0.1:8555", false),
            ("http://[::1]:8555", "0.0.0.0:8555", false),
            ("http://10.0.0.1:8555", "0.0.0.0:8555", false),
            ("http://node:8555", "127.0.0.1:8555", false),
            ("http://localhost:8555", "10.0.0.1:8555", false),
        ] {
            let listener = listener.parse().unwrap();
            assert_eq!(
                url.parse::<EndpointUrl>().unwrap().is_listener(listener),
                is_ours,
                "{url} {listener}"
            );
        }
    }

    #[test]
    fn loopback_urls_are_recognized() {
        for (url, loopback) in [
            ("http://localhost:8545", true),
            ("http://127.0.0.53", true),
            ("http://[::1]:1", true),
            ("http://10.0.0.1", false),
            ("https://example.com", false),
        ] {
            assert_eq!(url.parse::<EndpointUrl>().unwrap().is_loopback(), loopback, "{url}");
        }
    }
}
