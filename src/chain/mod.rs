//! What is canonical, as far as can be known: pure, without a clock and without I/O.
//!
//! Content is keyed by hash and never changes; which hash stands at a number does. The [`Tracker`]
//! keeps what the upstream has shown of that: a head, a window of linked hashes below it, what is
//! final for good, and single numbers that were asked for and are believed for a while. Time comes
//! in as [`Stamp`]s; what it says holds for the moment it is asked about and no longer.

mod asked;
mod branch;
mod final_index;
mod finality;
mod placed;
mod rules;
mod stamp;
mod suspension;
mod tracker;
mod window;

#[cfg(test)]
mod tests;

pub use self::{
    branch::{Gap, HeadChange},
    finality::Finalized,
    rules::Rules,
    stamp::{Clock, Stamp},
    suspension::Denied,
    tracker::{Ancestry, Lookup, Tracker},
    window::{Contrary, Find, Link},
};
