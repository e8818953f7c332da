//! Everything that is tested from outside: one binary, so that it is linked once.
//!
//! A test reads as three lines of setting and a claim:
//!
//! ```text
//! let node = upstream::devchain().blocks(3, 5).run().await;
//! let proxy = proxy::new().upstream(&node).run().await;
//! let client = client::http(&proxy);
//! ```

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

mod access;
mod admin;
mod astray;
mod batch;
mod cache;
mod calls;
mod cancel;
mod canonicity;
mod cli;
mod clients;
mod connections;
mod deploy;
mod disk;
mod docs;
mod drain;
mod edge;
mod endpoints;
mod entity;
mod equal;
mod faults;
mod files;
mod filters;
mod floors;
mod follow;
mod fuzz_bodies;
mod gzip;
mod hedge;
mod inspect;
mod malformed;
mod matrix;
mod metrics;
mod model;
mod node;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod polite;
mod pool;
mod prove;
mod readme;
mod redis;
mod regressions;
mod reload;
mod reload_upstream;
mod secrets;
mod soak;
mod startup;
mod tiers;
mod time;
mod tls;
mod trace;
mod tries;
mod verify;
mod warm;
mod wire;
