//! Binds listening sockets, accepts connections, serves HTTP on them, and closes them.
//!
//! A listener serves any `tower::Service` over HTTP/1.1 and HTTP/2, in plain text or over TLS. Clients' calls, the
//! admin interface and the development chain each have one. A listener survives running out of file descriptors, and
//! has a time-out for each phase in which a peer could stall. When the cap on open connections is reached, a new
//! connection displaces an open one.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! accept             binds a listener, accepts connections
//! connection         serves one connection
//! slots              the cap on connections
//! victim             which connection is closed for another
//! handshake          the TLS handshake
//! metrics            connections, and handshakes that failed
//! service            a service that a listener serves
//! request_body       the body of a request, and the address of its peer
//! socket             the socket of a connection
//! activity           the phase of a connection, and its time-outs
//! config             the keys of [connections]
//! tls                certificates
//! handshake_failure  reasons why a handshake fails
//! ```

mod accept;
mod activity;
mod config;
mod connection;
mod handshake;
mod handshake_failure;
mod metrics;
mod request_body;
mod service;
mod slots;
mod socket;
mod tls;
mod victim;

pub use self::{
    accept::{BindError, Listener},
    config::{Config, most_files},
    metrics::Metrics,
    request_body::{Peer, RequestBody},
    service::{HttpService, Refused},
    tls::{Tls, TlsConfig, TlsError, TlsIdentity},
};
