//! Tests of each rule of the tracker. `program` tests all rules together, against a model that knows the true chain.

mod below_finality;
mod finality;
mod heads;
mod lag;
mod model;
mod numbers;
mod program;
mod under_way;
mod world;

use std::{ops::RangeInclusive, time::Duration};

use alloy_primitives::B256;
use tokio::time::Instant;

use super::*;
use crate::eth::{BlockHash, BlockNumber};

/// A tracker with a manual clock.
struct Told {
    tracker: Tracker,
    now: Stamp,
}

const SECOND: Duration = Duration::from_secs(1);

/// Seconds between two blocks. With the `final_margin` of [`ethereum`], one answer makes a block final if that block is
/// at least 20 blocks below the finalized block.
const SLOT: u64 = 1;

/// Returns rules like those of Ethereum's own chains.
fn ethereum() -> Rules {
    Rules {
        max_staleness: SECOND,
        window: 1024,
        rollback_after: 3,
        lag_patience: 15 * SECOND,
        consistent: false,
        finality: true,
        development: false,
        final_margin: 20 * SECOND,
        finality_depth: None,
    }
}

fn development() -> Rules {
    Rules {
        max_staleness: Duration::ZERO,
        rollback_after: 1,
        lag_patience: Duration::ZERO,
        finality: false,
        development: true,
        ..ethereum()
    }
}

/// Returns the hash of the block with this number on a branch.
fn hash(number: u64, branch: char) -> BlockHash {
    let mut hash = B256::left_padding_from(&number.to_be_bytes());
    hash[0] = branch as u8;
    BlockHash(hash)
}

/// Returns a block whose parent is the previous block of the same branch.
fn block(number: u64, branch: char) -> Link {
    fork(number, branch, branch)
}

/// Returns the first block of a branch that forks off another.
fn fork(number: u64, branch: char, from: char) -> Link {
    child(number, branch, hash(number.wrapping_sub(1), from))
}

fn child(number: u64, branch: char, parent: BlockHash) -> Link {
    let timestamp = Some(number.wrapping_mul(SLOT));
    Link { number: BlockNumber(number), hash: hash(number, branch), parent, timestamp }
}

fn blocks(numbers: RangeInclusive<u64>, branch: char) -> Vec<Link> {
    numbers.map(|number| block(number, branch)).collect()
}

fn tracked(link: Link) -> Lookup {
    Lookup::Tracked { hash: link.hash, fresh: true }
}

/// Returns the tracked blocks.
fn links(tracker: &Tracker) -> Vec<Link> {
    tracker.branch.window.up_to(BlockNumber(u64::MAX)).collect()
}

// === impl Told ===

impl Told {
    fn new(rules: Rules) -> Self {
        Self { tracker: Tracker::new(rules), now: Stamp { time: Instant::now(), order: 0 } }
    }

    /// Returns a tracker that has seen these heads of branch `a`, one after the other.
    fn shown(rules: Rules, heads: RangeInclusive<u64>) -> Self {
        let mut told = Self::new(rules);
        for head in blocks(heads, 'a') {
            told.head(head);
        }
        told
    }

    fn wait(&mut self, time: Duration) {
        self.now.time += time;
    }

    /// Returns a stamp that is later than all others.
    fn now(&mut self) -> Stamp {
        self.now.order += 1;
        self.now
    }

    /// Takes in a head that is requested and answered at once.
    fn head(&mut self, head: Link) -> HeadChange {
        self.head_over(head, &[])
    }

    fn head_over(&mut self, head: Link, gap: &[Link]) -> HeadChange {
        let sent = self.now();
        self.late_head(head, gap, sent)
    }

    fn late_head(&mut self, head: Link, gap: &[Link], sent: Stamp) -> HeadChange {
        let now = self.now();
        // The endpoint shows the finalized block with every head.
        let finalized = self.tracker.must_show(head, gap, now);
        self.tracker.observe_head(head, gap, finalized, sent, now)
    }

    /// Takes in a block that is requested by number and answered at once.
    fn number(&mut self, link: Link) -> Result<(), Contrary> {
        let sent = self.now();
        self.late_number(link, sent)
    }

    fn late_number(&mut self, link: Link, sent: Stamp) -> Result<(), Contrary> {
        self.tracker.observe_number(link, sent, &|_| None)
    }

    fn finalized(&mut self, link: Link) -> Finalized {
        let (sent, now) = (self.now(), self.now());
        self.tracker.observe_finalized(Some(link), sent, now, &|_| None)
    }

    fn confirm_final(&mut self, link: Link) -> Finalized {
        let now = self.now();
        self.tracker.confirm_final(link.number, link.hash, now)
    }

    /// Looks `number` up for a call that arrives now.
    fn at(&mut self, number: u64) -> Lookup {
        let arrival = self.now();
        self.tracker.lookup(BlockNumber(number), arrival)
    }

    fn numbers(&self) -> Vec<u64> {
        links(&self.tracker).iter().map(|link| link.number.0).collect()
    }
}

/// Returns a tracker with head 100, where 97 and all lower blocks are final.
fn final_at_97() -> Told {
    final_under(ethereum())
}

/// The same for a single node, whose contradictions count at once.
fn final_at_97_of_one_node() -> Told {
    final_under(Rules { consistent: true, ..ethereum() })
}

fn final_under(rules: Rules) -> Told {
    let mut told = Told::shown(rules, 90..=100);
    told.finalized(block(97, 'a'));
    told
}
