//! Holdfast: a caching sidecar for Ethereum reads.
//!
//! Wallets, dapps and indexers point at it instead of at a node; it answers what cannot have
//! changed and forwards the rest.
//!
//! # Example
//! The whole program without sockets, in front of a development chain, answers a call:
//!
//! ```
//! use holdfast::{
//!     app::App,
//!     devchain::{Config, DevChain},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let chain = DevChain::new(Config::default());
//! chain.mine_many(3, 1);
//!
//! let app = App::builder().dev_chain(&chain).in_process()?;
//! let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x2",true]}"#;
//! let response = app.post(call).await;
//!
//! assert_eq!(response.status(), 200);
//! assert_eq!(response.headers()["cache-status"], "holdfast; fwd=miss; stored");
//! let hash = format!(r#""hash":"{:#x}""#, chain.block_ref(2).unwrap().hash);
//! assert!(String::from_utf8_lossy(response.body()).contains(&hash));
//! # Ok(())
//! # }
//! ```
//!
//! # Floors
//! A module imports only from floors below its own; `tests/it/meta/floors.rs` reads this list and
//! the `use` lines, and says so if one does not.
//!
//! ```text
//! cli         serve · demo · check · health · inspect · warm · purge · key · completions
//! app         puts the parts together: start, reload, report, stop
//! config      file + environment + flags
//! admin       live, ready, metrics, status, a page; look-ups, and what operators change
//! http        the edge: stack, who may come in, packet → replies, rescue (the one place where an error becomes a response)
//! proxy       what happens to one call: measure, limit, policy, deadline, respond
//! cache       content by block hash (moka, by bytes), where transactions are
//! upstream    the node behind: calls in, answers out; its own ids
//! devchain    a deterministic node with true hashes, signatures and roots: can fork, lag, lie, stall
//! verify      Ethereum's rules: what must be proved, or at least agree, before it is kept
//! chain       window, tracker: pure
//! eth         hash, quantity, tag, the operations (one file each), blocks and receipts as byte ranges
//! jsonrpc     packet, call, id, reply, errors
//! listen      bind, accept, TLS, connection cap, time-outs, drain: for http, admin and devchain
//! secret      values that must not be shown
//! context     the context of a call: client, permit, trace, connection
//! budget      one limit for all bytes being read, and each client's share of what is scarce
//! client      who a client is
//! trace       whose trace a call belongs to: what a client says of it, and what a node is told
//! timeout     gives up on what takes too long; sets no timer for what is ready at once
//! histogram   how long things took, for metrics
//! breaker     leaves an endpoint or a tier alone that keeps failing
//! backoff     pauses that double
//! token_bucket  a rate with a burst
//! display     how values read in messages
//! log_throttle  logs a repeated event at most every ten seconds
//! ```

pub mod admin;
pub mod app;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod cache;
pub mod chain;
pub mod cli;
pub mod client;
pub mod config;
pub mod context;
pub mod devchain;
pub mod display;
pub mod eth;
pub mod histogram;
pub mod http;
pub mod jsonrpc;
pub mod listen;
mod log_throttle;
pub mod proxy;
pub mod secret;
pub mod timeout;
pub mod token_bucket;
pub mod trace;
pub mod upstream;
pub mod verify;
