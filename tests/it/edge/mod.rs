//! The client side: HTTP, batches, access, TLS, connections, drain, real client libraries and consumers.

mod access;
mod batch;
mod cancel;
mod clients;
mod connections;
mod consumers;
mod drain;
mod file_limit;
mod http;
mod malformed;
mod receipts;
mod tls;
