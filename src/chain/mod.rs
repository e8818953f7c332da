//! Tracks which blocks are canonical. The tracker is pure state: it reads no clock and does no I/O.
//!
//! Content is keyed by block hash and never changes, but the canonical hash at a number can. The [`Tracker`] records
//! the upstream's answers: a head, a window of linked hashes below it, the final blocks, and answers for single
//! numbers, which expire. The caller passes time in as [`Stamp`]s. A lookup takes the arrival time of a call, and its
//! result is valid only for that call.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! tracker         takes in heads and answers, and updates the view
//! canonical_view  canonical blocks, as far as the upstream has shown them
//! lookup          answers of the view
//! finality        final blocks, and answers that contradict them
//! final_index     hashes of final blocks by number
//! branch          the tracked branch: extensions, reorgs, rollbacks, lag
//! answered        answers for single numbers
//! placed          blocks named by transactions and receipts that were fetched alone
//! told            blocks above the head that clients were told of
//! suspension      an upstream that denies the finalized block
//! tagged_block    the block that safe or finalized resolves to
//! window          the head, and the linked blocks below it
//! rules           limits set by the configuration and the chain
//! stamp           logical time
//! ```

mod answered;
mod branch;
mod canonical_view;
mod final_index;
mod finality;
mod lookup;
mod placed;
mod rules;
mod stamp;
mod suspension;
mod tagged_block;
mod told;
mod tracker;
mod window;

#[cfg(test)]
mod tests;

pub use self::{
    branch::{Gap, HeadChange},
    canonical_view::CanonicalView,
    finality::Finalized,
    lookup::{Ancestry, Lookup},
    rules::Rules,
    stamp::{Clock, Stamp},
    suspension::Denied,
    told::ToldBlock,
    tracker::Tracker,
    window::{Contrary, Find, Link},
};
