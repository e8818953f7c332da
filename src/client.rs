//! Who a client is, as far as it must be told from others, and how much one may have.

use std::net::{IpAddr, Ipv6Addr};

/// One who has a share of what is scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Whoever has this key, by a part of its hash.
    Key(u64),
    /// Whoever is at this address, or in this network.
    Address(IpAddr),
    /// An address that clients share: a loopback listener sees all its clients at one, and so does a listener behind a
    /// trusted proxy that forwards no address.
    Shared(IpAddr),
}

/// A total that clients share, and the part of it that one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    total: u64,
    /// Half of the total if `None`, and the total for [shared](Client::Shared) addresses.
    per_client: Option<u64>,
}

/// Returns the address that stands for all those of one client: of IPv6 the first of a /64. One customer is given at least
/// that, so whoever has one address has 2^64.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

// === impl ClientLimit ===

impl ClientLimit {
    /// Limits one client to `per_client`, or by default.
    pub fn new(total: u64, per_client: Option<u64>) -> Self {
        Self { total, per_client }
    }

    /// How much all clients may have together.
    pub fn total(self) -> u64 {
        self.total
    }

    /// How much this client may have.
    pub fn of(self, client: Client) -> u64 {
        let default = match client {
            Client::Shared(_) => self.total,
            Client::Key(_) | Client::Address(_) => (self.total / 2).max(1),
        };
        self.per_client.unwrap_or(default).min(self.total)
    }

    /// Returns a client with its limit, if that is lower than the total.
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
