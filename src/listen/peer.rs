//! The address of a request's peer.

use std::net::IpAddr;

use http_body_util::Full;

/// A request body that knows the address of its peer.
///
/// Bodies implement this trait because they belong to a connection anyway. A request extension would cost two
/// allocations per request.
pub trait Peer {
    /// Returns the peer's address; `None` if there is no connection.
    fn peer(&self) -> Option<IpAddr>;

    /// Records that the client has sent a valid key, so that refused requests no longer close its connection.
    fn authenticate(&self);
}

/// The body of a request that Holdfast itself creates, without a connection.
impl<D> Peer for Full<D> {
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    fn authenticate(&self) {}
}
