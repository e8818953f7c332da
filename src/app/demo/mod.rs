//! The program in front of a development chain, with traffic and reorgs.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! stage       Demo: the chain, the program, mining, the score
//! story       a miss and a hit; a reorg, and the answers before and after it
//! traffic     an indexer, an explorer and a wallet
//! client      a client of the demo's own listener
//! ```

mod client;
mod stage;
mod story;
mod traffic;

pub use self::{
    client::{DemoError, Exchange},
    stage::{Demo, Score},
    story::StagedReorg,
};
