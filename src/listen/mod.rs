//! Binds listening sockets, accepts connections, serves HTTP on them, and closes them.
//!
//! A listener serves any `tower::Service` over HTTP/1.1 and HTTP/2, in plain text or over TLS. Clients' calls, the
//! admin interface and the development chain each have one. A listener survives running out of file descriptors, and
//! has a time-out for each phase in which a peer could stall. When the cap on open connections is reached, a new
//! connection displaces an open one, preferably of the address that holds the most connections.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! accept             binds a listener, accepts connections
//! connection         serves one connection
//! slots              the cap on connections, and which one is evicted for another
//! handshake          the TLS handshake
//! metrics            connections, and handshakes that failed
//! service            a service that a listener serves
//! request_body       the body of a request
//! activity           the phase of a connection, and its time-outs
//! linger             reads the rest of a request whose answer was sent
//! config             the keys of [connections]
//! tls                certificates
//! handshake_failure  reasons why a handshake fails
//! peer               the address of a peer
//! ```

mod accept;
mod activity;
mod config;
mod connection;
mod handshake;
mod handshake_failure;
mod linger;
mod metrics;
mod peer;
mod request_body;
mod service;
mod slots;
mod tls;

pub use self::{
    accept::{BindError, Listener},
    config::Config,
    metrics::Metrics,
    peer::Peer,
    request_body::RequestBody,
    service::{HttpService, Refused},
    tls::{Tls, TlsConfig, TlsError, TlsIdentity},
};
