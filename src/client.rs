//! The identity of a client, and its share of a limit that all clients share.

use std::net::{IpAddr, Ipv6Addr};

/// A client with a share of limited resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// The holder of an API key: the first eight bytes of the key's hash.
    Key(u64),
    /// A client identified by its address, reduced to its [network].
    Address(IpAddr),
    /// An address that many clients share: all local clients of a loopback listener, or all clients of a trusted proxy
    /// that forwards no address.
    Shared(IpAddr),
}

/// A total for all clients, and the most that one client may use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    total: u64,
    /// If `None`, a [shared](Client::Shared) address may use the whole total, and any other client half of it.
    per_client: Option<u64>,
}

/// Returns the address that identifies a client: an IPv4 address itself, or the first address of the /64 network of an
/// IPv6 address. Providers assign at least a /64, so one client can use 2^64 addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

// === impl ClientLimit ===

impl ClientLimit {
    /// Limits all clients to `total`, and each to `per_client` or the default.
    pub fn new(total: u64, per_client: Option<u64>) -> Self {
        Self { total, per_client }
    }

    /// Returns the most that all clients may use together.
    pub fn total(self) -> u64 {
        self.total
    }

    /// Returns the most that this client may use.
    pub fn of(self, client: Client) -> u64 {
        let default = match client {
            Client::Shared(_) => self.total,
            Client::Key(_) | Client::Address(_) => (self.total / 2).max(1),
        };
        self.per_client.unwrap_or(default).min(self.total)
    }

    /// Returns the client with its limit if the limit is lower than the total.
    pub fn below_total(self, client: Option<Client>) -> Option<(Client, u64)> {
        client.map(|client| (client, self.of(client))).filter(|(_, most)| *most < self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_half_of_the_total_by_default() {
        let address = IpAddr::from([10, 0, 0, 7]);
        let [key, own, shared] = [Client::Key(1), Client::Address(address), Client::Shared(address)];
        let limits = |total, per_client| {
            [key, own, shared].map(|client| ClientLimit::new(total, per_client).of(client))
        };
        assert_eq!(limits(9, None), [4, 4, 9]);
        assert_eq!(limits(1, None), [1; 3]);
        assert_eq!(limits(9, Some(3)), [3; 3]);
        assert_eq!(limits(9, Some(10)), [9; 3]);
        assert_eq!(ClientLimit::new(9, None).below_total(Some(shared)), None);
        assert_eq!(ClientLimit::new(9, Some(3)).below_total(Some(shared)), Some((shared, 3)));
    }
}
