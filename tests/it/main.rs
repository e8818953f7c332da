//! End-to-end tests in one binary, so that cargo links only once.
//!
//! The folders follow `src`; helpers that two files share are in [`support`]. A test consists of three
//! lines of setup and its assertions:
//!
//! ```text
//! let node = upstream::devchain().blocks(3, 5).run().await;
//! let proxy = proxy::new().upstream(&node).run().await;
//! let client = client::http(&proxy);
//! ```

#![expect(clippy::unwrap_used, reason = "a test that cannot continue should panic at that line")]

mod support;

mod cache;
mod chain;
mod edge;
mod meta;
mod model;
mod ops;
mod tiers;
mod upstream;
