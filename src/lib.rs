//! Holdfast: a caching sidecar for Ethereum reads.
//!
//! Wallets, dapps and indexers send their calls to Holdfast instead of to a node. Holdfast answers a call from its cache
//! if the cached data is still right, and asks a node otherwise.
//!
//! # Example
//! The whole program in process, without sockets, answers a call in front of a development chain:
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
//! A module imports only from floors below its own. `tests/it/meta/floors.rs` checks the `use` lines against this list.
//!
//! ```text
//! cli         serve · demo · check · health · inspect · warm · purge · key · completions
//! app         assembles the program: start, reload, report, stop
//! config      file + environment + flags
//! admin       health, metrics, status, the status page; inspect and purge the cache
//! http        the edge: access rules, limits, body → packet → replies; turns every error into a response (rescue)
//! proxy       handles one call: count, limit, policy, cache lookup, deadline, miss
//! cache       content by block hash, in memory and in tiers (disk, Redis); locations of transactions
//! upstream    the nodes: choice of an endpoint, retries, hedges, chain identity, transports
//! devchain    a deterministic node with valid hashes, signatures and roots; it can fork, lag, lie and stall
//! verify      Ethereum's rules: checks and proofs that content must pass before the cache stores it
//! chain       which blocks are canonical, as a pure data structure: no clock, no I/O
//! eth         hashes, quantities, tags, queries; blocks and receipts as byte ranges
//! jsonrpc     packets, calls, ids, replies, errors
//! listen      bind, accept, TLS, connection limit, timeouts, drain: for http, admin and devchain
//! secret      values that no log line or error may show
//! workers     long computations on threads of their own, in which clients take turns
//! context     context of a call: client, permit, trace, connection
//! budget      one limit for all bytes in flight, and counts per client
//! client      identity of a client, and its share of a limit
//! trace       trace context: read from a client's headers, sent on to nodes
//! timeout     a timeout that sets no timer for a future that is ready at once
//! histogram   durations in buckets, for metrics
//! labels      labels of metrics
//! breaker     circuit breaker for an endpoint or a tier that keeps failing
//! backoff     pauses that double
//! token_bucket  a rate with a burst
//! blocking    work on blocking threads: tells a panic from a shutdown, can be made repeatable
//! display     formats values in messages
//! log_throttle  logs a repeated event at most every ten seconds
//! outage        the time in which a component fails, for the log
//! ```

pub mod admin;
pub mod app;
pub mod backoff;
pub mod blocking;
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
mod labels;
pub mod listen;
mod log_throttle;
mod outage;
pub mod proxy;
pub mod secret;
pub mod timeout;
pub mod token_bucket;
pub mod trace;
pub mod upstream;
pub mod verify;
pub mod workers;
