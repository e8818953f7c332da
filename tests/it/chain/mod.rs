//! Answers follow the canonical chain: absence, reorgs, lag, finality, writes.

mod anvil;
mod canonicity;
mod follow;
mod regressions;
