//! What is canonical, as far as can be known: pure, without a clock and without I/O.
//!
//! Content is keyed by hash and never changes; which hash stands at a number does. The [`Tracker`]
//! keeps what the upstream has shown of that: a head, a window of linked hashes below it, what is
//! final for good, and single numbers that were asked for and are believed for a while. Time comes
//! in as [`Stamp`]s; what it says holds for the moment it is asked about and no longer.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! tracker         takes in heads and answers, and changes the view
//! canonical_view  which blocks are canonical, as far as the upstream has shown
//! finality        which blocks are final, and what contradicts them
//! final_index     hashes of final blocks by number
//! branch          the tracked branch: extensions, reorgs, rollbacks, lag
//! answered        numbers that were answered one by one
//! placed          blocks that single transactions and receipts name
//! suspension      an upstream that denies the finalized block
//! tagged_block    the block that safe or finalized means
//! window          linked hashes below the head
//! rules           what the configuration and the chain allow
//! stamp           logical time
//! ```

mod answered;
mod branch;
mod canonical_view;
mod final_index;
mod finality;
mod placed;
mod rules;
mod stamp;
mod suspension;
mod tagged_block;
mod tracker;
mod window;

#[cfg(test)]
mod tests;

pub use self::{
    branch::{Gap, HeadChange},
    canonical_view::{Ancestry, CanonicalView, Lookup},
    finality::Finalized,
    rules::Rules,
    stamp::{Clock, Stamp},
    suspension::Denied,
    tracker::Tracker,
    window::{Contrary, Find, Link},
};
