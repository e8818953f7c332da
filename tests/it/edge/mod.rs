//! The client side: HTTP, batches, access, TLS, connections, drain, and real client libraries.

mod access;
mod batch;
mod cancel;
mod clients;
mod connections;
mod drain;
mod file_limit;
mod http;
mod malformed;
mod tls;
