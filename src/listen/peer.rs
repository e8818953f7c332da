//! The address of a request's peer.

use std::net::IpAddr;

use http_body_util::Full;

/// Knows the address of the peer.
///
/// The body of a request implements this, because it belongs to a connection anyway: a request extension would cost two
/// allocations per request.
pub trait Peer {
    /// Returns the peer's address; `None` if there is no connection.
    fn peer(&self) -> Option<IpAddr>;

    /// Records that the client has sent a valid key: refusals no longer close its connection.
    fn authenticate(&self);
}

/// The body of a request that the program itself makes.
impl<D> Peer for Full<D> {
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn authenticate(&self) {}
}
