//! Finds the address of a client, even behind proxies, and limits rates by address.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};
use moka::{policy::EvictionPolicy, sync::Cache};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    client::{Client, network},
    proxy::{Allowance, Bucket},
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Maximum number of buckets in memory, which take about 20 MB. Beyond that, the buckets of the clients that were
/// silent for longest are dropped, and these clients start again with a full bucket.
const MOST_CLIENTS: u64 = 65_536;

/// Rate limit of requests without a valid key. It is high enough for a person or a program with a wrong key to see the
/// reason, and too low to guess a key.
const UNAUTHENTICATED_RATE: &str = "60/m";

/// Longest time that an idle client's bucket stays in memory, even if the bucket takes longer to fill.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// An address or a network: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// Text that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither an address nor a network; write for example 10.0.0.7, 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError {
    /// The text.
    pub text: String,
}

/// A token bucket for each client that is known only by its address.
#[derive(Clone, Debug)]
pub(in crate::http) struct SubnetBuckets {
    allowance: Allowance,
    /// Keyed by the [network] of the client's address.
    buckets: Cache<IpAddr, Bucket>,
}

/// Returns whether this peer is one of the trusted proxies.
pub(in crate::http) fn is_trusted(peer: IpAddr, trusted: &[Network]) -> bool {
    let peer = peer.to_canonical();
    trusted.iter().any(|network| network.0.contains(&peer))
}

/// Returns the address of the client behind `peer`.
///
/// Each trusted proxy is trusted only about its own peer. So this function reads `x-forwarded-for` from the right,
/// where the nearest proxy wrote, up to the first address that is not a trusted proxy. That address is the client's.
/// The client may have sent everything to the left of it.
pub(in crate::http) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let mut client = peer.to_canonical();
    if trusted.is_empty() {
        return client;
    }
    let hops = headers.get_all(FORWARDED_FOR).iter().rev();
    let mut hops = hops.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    while is_trusted(client, trusted) {
        // If a hop is unreadable, the proxy that wrote it is taken for the client.
        let Some(hop) = hops.next().and_then(address) else { break };
        client = hop;
    }
    client
}

/// Returns the client at an address.
///
/// Many clients share the address of a trusted proxy that forwards no client address. At a loopback listener, many
/// clients also share the loopback address. Any other address belongs to one client, even if a proxy on this machine
/// forwarded it.
pub(in crate::http) fn client_at(address: IpAddr, is_loopback: bool, trusted: &[Network]) -> Client {
    if is_trusted(address, trusted) || (is_loopback && address.is_loopback()) {
        Client::Shared(network(address))
    } else {
        Client::Address(network(address))
    }
}

/// Parses a hop: an address, with or without the port that some proxies add.
fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    Some(bare.parse().ok().or_else(with_port)?.to_canonical())
}

// === impl Network ===

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let one = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
        let network = text.parse::<IpNet>().ok().or_else(one);
        network.map(Self::of).ok_or_else(|| NetworkError { text: text.to_owned() })
    }
}

impl Network {
    /// Prefix length of IPv4-mapped IPv6 addresses, `::ffff:0:0/96`.
    const MAPPED: u8 = 96;

    /// Converts an IPv4-mapped IPv6 network to IPv4, because peer addresses are converted in the same way.
    fn of(network: IpNet) -> Self {
        let mapped = match network {
            IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(Self::MAPPED)),
            IpNet::V4(_) => None,
        };
        let v4 = mapped.and_then(|(address, length)| Ipv4Net::new(address, length).ok());
        Self(v4.map_or(network, IpNet::V4))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

// === impl SubnetBuckets ===

impl SubnetBuckets {
    pub(in crate::http) fn new(allowance: Allowance) -> Self {
        // An idle bucket is dropped once it is full again, because a new bucket is full, too.
        let idle = (allowance.recovery() + Duration::from_secs(1)).min(LONGEST);
        let buckets = Cache::builder()
            .max_capacity(MOST_CLIENTS)
            // Eviction by frequency would evict the buckets of new clients while old clients are busy.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(idle)
            .build();
        Self { allowance, buckets }
    }

    /// Creates the buckets of requests without a valid key.
    pub(in crate::http) fn for_unauthenticated() -> Self {
        Self::new(Allowance::new(UNAUTHENTICATED_RATE.parse().expect("a valid rate"), None))
    }

    pub(in crate::http) fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Returns the bucket of the client at this address.
    pub(in crate::http) fn bucket(&self, client: IpAddr) -> Bucket {
        self.buckets.get_with(network(client), || Bucket::new(self.allowance))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        let trusted: Vec<_> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        client_address(ip(peer), &headers, &trusted).to_string()
    }

    #[test]
    fn forwarded_header_is_used_only_from_trusted_proxies() {
        assert_eq!(client("9.9.9.9", &["1.2.3.4"], &[]), "9.9.9.9");
        assert_eq!(client("9.9.9.9", &["1.2.3.4"], &["10.0.0.0/8"]), "9.9.9.9");
        assert_eq!(client("10.0.0.1", &["1.2.3.4"], &["10.0.0.0/8"]), "1.2.3.4");
        assert_eq!(client("10.0.0.1", &[], &["10.0.0.0/8"]), "10.0.0.1");
    }

    #[test]
    fn loopback_clients_and_unforwarded_ones_share_an_address() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let at = |address, is_loopback| client_at(ip(address), is_loopback, &trusted);
        assert_eq!(at("9.9.9.9", false), Client::Address(ip("9.9.9.9")));
        assert_eq!(at("10.0.0.1", false), Client::Shared(ip("10.0.0.1")));
        assert_eq!(at("10.0.0.1", true), Client::Shared(ip("10.0.0.1")));
        assert_eq!(at("127.0.0.1", true), Client::Shared(ip("127.0.0.1")));
        assert_eq!(at("::1", true), Client::Shared(network(ip("::1"))));
        assert_eq!(
            at("9.9.9.9", true),
            Client::Address(ip("9.9.9.9")),
            "a proxy on this machine forwarded this address"
        );
    }

    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        for trusted in ["::ffff:10.0.0.1", "::ffff:10.0.0.1/128", "::ffff:10.0.0.0/104", "::ffff:0:0/96"] {
            for peer in ["10.0.0.1", "::ffff:10.0.0.1"] {
                assert_eq!(client(peer, &["1.2.3.4"], &[trusted]), "1.2.3.4", "{peer} by {trusted}");
                assert_eq!(
                    client(peer, &["1.2.3.4, ::ffff:10.0.0.1"], &[trusted]),
                    "1.2.3.4",
                    "{peer} by {trusted}"
                );
            }
            assert_eq!(client("2001:db8::1", &["1.2.3.4"], &[trusted]), "2001:db8::1", "{trusted}");
        }
        assert_eq!("::ffff:10.0.0.0/104".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
        // A network that is wider than the IPv4-mapped prefix stays an IPv6 network.
        assert_eq!("::/0".parse::<Network>().unwrap().to_string(), "::/0");
    }

    #[test]
    fn rightmost_untrusted_address_is_the_client() {
        let trusted = &["10.0.0.0/8", "fd00::/8"];
        for (forwarded, expected) in [
            (vec!["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            (vec!["6.6.6.6, 1.2.3.4, 10.0.0.9"], "1.2.3.4"),
            (vec!["6.6.6.6", "1.2.3.4", "10.0.0.9"], "1.2.3.4"),
            (vec!["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
            (vec!["6.6.6.6, nonsense, 10.0.0.9"], "10.0.0.9"),
            (vec!["6.6.6.6, "], "10.0.0.1"),
            (vec!["1.2.3.4:5678"], "1.2.3.4"),
            (vec!["[2001:db8::1]:5678"], "2001:db8::1"),
            (vec!["[2001:db8::1]"], "2001:db8::1"),
            (vec!["2001:db8::1,fd00::5"], "2001:db8::1"),
            (vec!["::ffff:1.2.3.4"], "1.2.3.4"),
        ] {
            assert_eq!(client("10.0.0.1", &forwarded, trusted), expected, "{forwarded:?}");
            assert_eq!(client("::ffff:10.0.0.1", &forwarded, trusted), expected, "{forwarded:?}");
        }
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let one = network(ip("2001:db8:1:2:3:4:5:6"));
        assert_eq!(one, network(ip("2001:db8:1:2::")));
        assert_ne!(one, network(ip("2001:db8:1:3::")));
        assert_eq!(network(ip("::ffff:1.2.3.4")), network(ip("1.2.3.4")));
        assert_ne!(network(ip("1.2.3.5")), network(ip("1.2.3.4")));
    }

    #[test]
    fn number_of_remembered_clients_is_bounded() {
        let subnets = SubnetBuckets::new(Allowance::new("1/h".parse().unwrap(), None));
        for number in 0..100_000_u32 {
            assert!(subnets.bucket(std::net::Ipv4Addr::from(number).into()).take(1).is_ok());
        }
        subnets.buckets.run_pending_tasks();
        assert!(subnets.buckets.entry_count() <= MOST_CLIENTS);
        // The bucket of the newest client is still in memory.
        assert!(subnets.bucket(std::net::Ipv4Addr::from(99_999).into()).take(1).is_err());
    }

    proptest! {
        #[test]
        fn any_forwarded_header_is_parsed_without_panic(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let headers = HeaderMap::from_iter([(FORWARDED_FOR, value)]);
            client_address(ip("10.0.0.1"), &headers, &["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]);
        }
    }
}
