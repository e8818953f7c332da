//! Answers follow the canonical chain: absence, reorgs, replicas, lag, finality, writes.

mod absence;
mod anvil;
mod canonicity;
mod finality;
mod follow;
mod lag;
mod lasting;
mod reorgs;
mod replicas;
mod tags;
mod told;
mod writes;
