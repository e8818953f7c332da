//! History of reorgs and rollbacks, for the status page.

use std::{collections::VecDeque, time::SystemTime};

use parking_lot::Mutex;

use crate::{
    chain::{HeadChange, Link},
    eth::BlockNumber,
};

/// Number of reorgs in the history. The status page shows fewer.
const REMEMBERED: usize = 16;

/// A reorg or a rollback, in which blocks left the canonical chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorg {
    /// Time at which the proxy noticed the reorg.
    pub at: SystemTime,
    /// Number of blocks that left the chain; `None` if the new head does not link to any known block.
    pub depth: Option<usize>,
    /// New head.
    pub head: BlockNumber,
    /// Whether another branch replaced the blocks, or the head only moved back.
    pub kind: ReorgKind,
}

/// Reason why blocks left the canonical chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReorgKind {
    /// Another branch replaced the blocks.
    Reorg,
    /// The head moved back to an ancestor.
    Rollback,
}

/// The latest reorgs and their total number.
#[derive(Debug, Default)]
pub(crate) struct Reorgs(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    all: u64,
    /// The latest reorgs, newest last.
    last: VecDeque<Reorg>,
}

// === impl Reorg ===

impl Reorg {
    /// Values of the `depth` label, from everyday reorgs (`1`, `2`) to reorgs that an operator should look into
    /// (`32+`).
    pub(crate) const DEPTHS: [&'static str; 6] = ["1", "2", "3-7", "8-31", "32+", "unknown"];

    pub(crate) fn depth_label(&self) -> &'static str {
        let [one, two, few, many, most, unknown] = Self::DEPTHS;
        match self.depth {
            Some(0 | 1) => one,
            Some(2) => two,
            Some(3..8) => few,
            Some(8..32) => many,
            Some(_) => most,
            None => unknown,
        }
    }
}

// === impl ReorgKind ===

impl ReorgKind {
    /// Returns the name of this kind, as in `heads_total{reason}`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reorg => "reorg",
            Self::Rollback => "rollback",
        }
    }
}

// === impl Reorgs ===

impl Reorgs {
    /// Records and returns the reorg that a head change implies; `None` if no block left the chain. `links` says
    /// whether the new head links to a known block; if it does not, the depth is unknown.
    pub(crate) fn note(&self, change: HeadChange, head: Link, links: bool, at: SystemTime) -> Option<Reorg> {
        let (kind, depth) = match change {
            HeadChange::Reorg(depth) => (ReorgKind::Reorg, depth),
            HeadChange::Rollback(depth) => (ReorgKind::Rollback, depth),
            HeadChange::Outdated
            | HeadChange::First
            | HeadChange::Same
            | HeadChange::Extended(_)
            | HeadChange::Lag
            | HeadChange::Restarted
            | HeadChange::Unlinked => return None,
        };
        let mut remembered = self.0.lock();
        remembered.all += 1;
        if remembered.last.len() == REMEMBERED {
            remembered.last.pop_front();
        }
        let reorg = Reorg { at, depth: links.then_some(depth), head: head.number, kind };
        remembered.last.push_back(reorg);
        Some(reorg)
    }

    /// Returns the total number of reorgs.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().all
    }

    /// Returns the latest reorgs, newest first.
    pub(crate) fn last(&self) -> Vec<Reorg> {
        self.0.lock().last.iter().rev().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::BlockHash;

    #[test]
    fn last_reorgs_are_listed_and_all_counted() {
        let reorgs = Reorgs::default();
        let hash = BlockHash(alloy_primitives::B256::ZERO);
        let head = |number| Link { number: BlockNumber(number), hash, parent: hash, timestamp: None };
        reorgs.note(HeadChange::Extended(1), head(1), true, SystemTime::UNIX_EPOCH);
        assert_eq!((reorgs.count(), reorgs.last()), (0, vec![]));
        for number in 0..20 {
            reorgs.note(HeadChange::Reorg(96), head(number), false, SystemTime::UNIX_EPOCH);
        }
        reorgs.note(HeadChange::Rollback(3), head(17), true, SystemTime::UNIX_EPOCH);
        assert_eq!((reorgs.count(), reorgs.last().len()), (21, REMEMBERED));
        let [newest, before] = [reorgs.last()[0], reorgs.last()[1]];
        assert_eq!((newest.depth, newest.kind.as_str(), newest.head.0), (Some(3), "rollback", 17));
        assert_eq!((before.depth, before.kind.as_str(), before.head.0), (None, "reorg", 19));
        let label = |depth| Reorg { depth, ..newest }.depth_label();
        assert_eq!(
            [1, 2, 3, 7, 8, 31, 32, 900].map(Some).map(label),
            ["1", "2", "3-7", "3-7", "8-31", "8-31", "32+", "32+"]
        );
        assert_eq!(label(None), "unknown");
    }
}
