//! Holdfast: a caching sidecar for Ethereum reads.
//!
//! Wallets, dapps and indexers point at Holdfast instead of at a node. It answers calls from its cache if the data
//! cannot have changed, and forwards all others.
//!
//! # Example
//! Runs the whole program in process, without sockets, in front of a development chain, and answers a call:
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
//! admin       live, ready, metrics, status, the status page; look-ups, purge and warm
//! http        the edge: stack, access rules, packet → replies, rescue (the only place where an error becomes a response)
//! proxy       handles one call: measure, limit, policy, deadline, respond
//! cache       content by block hash (moka, limited in bytes), locations of transactions
//! upstream    the nodes: calls in, answers out; request ids of its own
//! devchain    a deterministic node with valid hashes, signatures and roots: can fork, lag, lie, stall
//! verify      Ethereum's rules: proofs and checks that content passes before the cache stores it
//! chain       window, tracker: pure
//! eth         hash, quantity, tag, the operations (one file each), blocks and receipts as byte ranges
//! jsonrpc     packet, call, id, reply, errors
//! listen      bind, accept, TLS, connection cap, time-outs, drain: for http, admin and devchain
//! secret      values that must not be printed
//! context     the context of a call: client, permit, trace, connection
//! budget      one limit for all bytes in flight, and counts per client
//! client      identifies a client, and computes its share of a limit
//! trace       the trace of a call: read from a client's headers, propagated to nodes
//! timeout     a time-out that sets no timer for a future that is ready at once
//! histogram   durations in buckets, for metrics
//! breaker     circuit breaker for an endpoint or a tier that keeps failing
//! backoff     pauses that double
//! token_bucket  a rate with a burst
//! display     formats values in messages
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
