//! Checks that a request names a host that the listener serves, as a protection against DNS rebinding.
//!
//! Once a web page is loaded, its author can point the page's domain name at the visitor's machine. The page can then
//! talk to a listener there as to its own server, without CORS. But the `host` that the browser sends is still the
//! page's name, and the page cannot change it. So a listener on loopback serves only the names of loopback and the
//! hosts that the operator lists.

use std::{fmt, net::IpAddr, str::FromStr};

use http::{Request, header};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A host name or address without a port, or `*` for any host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(Box<str>);

/// Text that is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a host; write a name or an address without scheme and port, such as rpc.example.org"
)]
pub struct HostNameError {
    /// The text.
    pub text: String,
}

/// A request for a host that the listener does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this host is not served here, to protect from web pages (DNS rebinding); to serve it, list it in http.allowed_hosts"
)]
pub struct HostError;

/// Checks that a request is for an allowed host.
///
/// A loopback listener serves `localhost`, loopback addresses and the hosts in `allowed`. Any other listener serves
/// every host if `allowed` is empty. Otherwise it serves the hosts in `allowed`, `localhost` and every IP address,
/// because health probes use addresses, and an address cannot be rebound.
///
/// # Errors
/// If the request names a host that the listener does not serve.
pub(in crate::http) fn check<B>(
    request: &Request<B>,
    allowed: &[HostName],
    is_loopback: bool,
) -> Result<(), HostError> {
    if !is_loopback && allowed.is_empty() {
        return Ok(());
    }
    let serves = |host: &[u8]| {
        let host = without_port(host).ok_or(HostError)?;
        // These common hosts on loopback need no parsing.
        if host == b"127.0.0.1" || host.eq_ignore_ascii_case(b"localhost") {
            return Ok(());
        }
        let host = std::str::from_utf8(host).map_err(|_| HostError)?;
        let is_served = allowed.iter().any(|allowed| allowed.fits(host))
            || bare(host).parse::<IpAddr>().is_ok_and(|ip| !is_loopback || ip.to_canonical().is_loopback());
        if is_served { Ok(()) } else { Err(HostError) }
    };
    // Every host that a request names must be served, because it is unknown which of them the browser meant. A request
    // without a host passes, because browsers always send one.
    if let Some(authority) = request.uri().authority() {
        serves(authority.as_str().as_bytes())?;
    }
    let hosts = request.headers().iter().filter(|(name, _)| *name == header::HOST);
    hosts.map(|(_, host)| host).try_for_each(|host| serves(host.as_bytes()))
}

/// Returns the host of `host` or `host:port`; `None` if the text is neither.
fn without_port(text: &[u8]) -> Option<&[u8]> {
    let end = match text.strip_prefix(b"[") {
        Some(rest) => rest.iter().position(|byte| *byte == b']')? + 2,
        None => text.iter().position(|byte| *byte == b':').unwrap_or(text.len()),
    };
    let (host, port) = text.split_at(end);
    (port.is_empty() || port.strip_prefix(b":").is_some_and(|port| port.iter().all(u8::is_ascii_digit)))
        .then_some(host)
}

/// Removes the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

// === impl HostName ===

impl HostName {
    const ANY: &str = "*";

    /// Returns whether this is `*`, which stands for every host.
    pub(in crate::http) fn is_any(&self) -> bool {
        &*self.0 == Self::ANY
    }

    fn fits(&self, host: &str) -> bool {
        self.is_any() || self.0.eq_ignore_ascii_case(bare(host))
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let host = bare(text);
        let is_name = |text: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            !text.is_empty() && text.bytes().all(fits)
        };
        if text == Self::ANY || is_name(host) || host.parse::<IpAddr>().is_ok() {
            return Ok(Self(host.into()));
        }
        Err(HostNameError { text: text.to_owned() })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn serves(host: &str, allowed: &[&str], is_loopback: bool) -> bool {
        let allowed: Vec<HostName> = allowed.iter().map(|name| name.parse().unwrap()).collect();
        let by_header = Request::post("/").header("host", host).body(()).unwrap();
        check(&by_header, &allowed, is_loopback).is_ok()
    }

    #[test]
    fn loopback_serves_only_its_own_names() {
        for host in
            ["localhost", "LocalHost:8555", "127.0.0.1", "127.0.0.1:8555", "127.8.9.1", "[::1]", "[::1]:8555"]
        {
            assert!(serves(host, &[], true), "{host}");
        }
        for host in [
            "evil.example.org",
            "evil.example.org:8555",
            "localhost.evil.example.org",
            "127.0.0.1.evil.example.org",
            "192.168.0.1:8555",
            "[2001:db8::1]",
            "0.0.0.0",
            "[::1",
            "[::1]x",
            "localhost:80:80",
            "evil@localhost",
            "localhost:x",
            "",
        ] {
            assert!(!serves(host, &[], true), "{host}");
        }
    }

    #[test]
    fn listed_host_names_are_served() {
        assert!(serves("RPC.example.org:443", &["rpc.example.org"], true));
        assert!(serves("localhost", &["rpc.example.org"], true));
        assert!(serves("other.example.org", &["*"], true));
        assert!(serves("other.example.org", &[], false));
        assert!(!serves("other.example.org", &["rpc.example.org"], false));
        // Health probes use the address of the listener.
        assert!(serves("10.1.2.3:8555", &["rpc.example.org"], false));
        assert!(serves("[2001:db8::1]:1", &["2001:db8::1"], true));
        assert!(serves("[2001:db8::1]:1", &["[2001:db8::1]"], true));
    }

    #[test]
    fn every_host_that_a_request_names_must_be_served() {
        let request = |uri: &str, hosts: &[&str]| {
            let request =
                hosts.iter().fold(Request::post(uri), |request, host| request.header("host", *host));
            check(&request.body(()).unwrap(), &[], true).is_ok()
        };
        assert!(request("/", &[]));
        assert!(request("http://localhost:1/", &[]));
        assert!(!request("http://evil.example.org/", &[]));
        assert!(!request("http://evil.example.org/", &["localhost"]));
        assert!(!request("http://localhost/", &["evil.example.org"]));
        assert!(!request("/", &["localhost", "evil.example.org"]));
    }

    #[test]
    fn names_are_written_without_scheme_and_port() {
        for name in ["rpc.example.org", "box", "10.0.0.1", "::1", "[::1]", "*"] {
            assert!(name.parse::<HostName>().is_ok(), "{name}");
        }
        for name in ["", "http://rpc.example.org", "rpc.example.org:8555", "a/b", "*.example.org", "a b"] {
            assert!(name.parse::<HostName>().is_err(), "{name}");
        }
    }

    proptest! {
        /// If a host passes on a loopback listener, another parser also reads it as a loopback host.
        #[test]
        fn accepted_loopback_host_is_loopback_to_any_parser(parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "localhost", "127.0.0.1", "::1", "evil.example.org", ":", "80", "@", ".", "[", "]", "%", "/", " ", "é",
            ]),
            0..6,
        )) {
            let host = parts.concat();
            let Ok(header) = http::HeaderValue::from_str(&host) else { return Ok(()) };
            let request = Request::post("/").header("host", header).body(()).unwrap();
            if check(&request, &[], true).is_ok() {
                let authority: http::uri::Authority = host.trim_end_matches(':').parse().unwrap();
                let read = bare(authority.host());
                prop_assert!(read == "localhost" || read.parse::<IpAddr>().unwrap().is_loopback(), "{}", host);
            }
        }
    }
}
