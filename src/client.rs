//! Who a client is, as far as it must be told from others.

use std::net::{IpAddr, Ipv6Addr};

use tokio::task_local;

/// One who has a share of what is scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Whoever has this key, by a part of its hash.
    Key(u64),
    /// Whoever is at this address, or in this network.
    Address(IpAddr),
}

task_local! {
    /// For whom something is done. Not an argument: an answer is read many steps from where it was asked for.
    static CURRENT: Option<Client>;
}

/// Returns the address that stands for all those of one client: of IPv6 the first of a /64. One customer is given at least
/// that, so whoever has one address has 2^64.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

// === impl Client ===

impl Client {
    /// For whom the caller does its work, if it is for anybody in particular.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|client| *client).ok().flatten()
    }

    /// Does work for a client, or for nobody in particular.
    pub async fn serve<T>(client: Option<Self>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(client, work).await
    }
}
