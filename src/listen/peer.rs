//! Where a request came from.

use std::net::IpAddr;

use http_body_util::Full;

/// Knows the address that its connection came from.
///
/// Asked of a request's body, which belongs to a connection anyway: an extension of the request would cost
/// each of them two allocations.
pub trait Peer {
    /// `None` if there is no connection.
    fn peer(&self) -> Option<IpAddr>;

    /// Records that the client has shown a valid key on this connection, which then outlives refusals.
    fn authenticate(&self);
}

/// A request that the program makes itself.
impl<D> Peer for Full<D> {
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn authenticate(&self) {}
}
