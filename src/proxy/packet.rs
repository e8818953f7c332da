//! What the calls of one packet share.

use std::{
    collections::{HashMap, HashSet},
    sync::OnceLock,
};

use super::{Caller, Derivation, ReadCall, want::Want};
use crate::{
    chain::{Clock, Link, Stamp},
    eth::{BlockHash, Operation, Tag, TxHash},
};

/// The setting that the calls of a packet are answered in: one client sent them, they arrived together,
/// their tags mean the same blocks, and what they want together decides what is fetched.
///
/// Where a packet holds a write, what follows it has a setting of its own.
#[derive(Debug)]
pub struct PacketContext {
    caller: Caller,
    arrival: OnceLock<Stamp>,
    tags: Tags,
    transactions: Vec<TxHash>,
    receipts: Vec<TxHash>,
    wanted: OnceLock<HashMap<(Wanted, BlockHash), u32>>,
}

/// What tags mean, as soon as one call has found out.
#[derive(Debug, Default)]
struct Tags {
    latest: OnceLock<Link>,
    safe: OnceLock<Link>,
    finalized: OnceLock<Link>,
}

/// What a call wants of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    Transaction,
    Receipt,
}

// === impl Wanted ===

impl Wanted {
    /// How it is cut out of its block.
    pub(super) fn derivation(self) -> Derivation {
        match self {
            Self::Transaction => Derivation::Transaction,
            Self::Receipt => Derivation::Receipt,
        }
    }
}

// === impl PacketContext ===

impl PacketContext {
    /// The setting of one call alone.
    pub fn alone(caller: Caller) -> Self {
        Self {
            caller,
            arrival: OnceLock::new(),
            tags: Tags::default(),
            transactions: Vec::new(),
            receipts: Vec::new(),
            wanted: OnceLock::new(),
        }
    }

    /// The setting of these calls.
    pub fn new<'a>(caller: Caller, calls: impl Iterator<Item = &'a ReadCall>) -> Self {
        let mut context = Self::alone(caller);
        for call in calls {
            match call.want {
                Some(Ok(Want::Operation(Operation::TransactionByHash(wanted)))) => {
                    context.transactions.push(wanted.hash);
                }
                Some(Ok(Want::Operation(Operation::Receipt(wanted)))) => context.receipts.push(wanted.hash),
                _ => {}
            }
        }
        context
    }

    /// Who makes these calls.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Has any of its calls been looked at?
    pub(super) fn has_arrived(&self) -> bool {
        self.arrival.get().is_some()
    }

    /// When the packet arrived: when the first of its calls is looked at.
    pub(super) fn arrival(&self, clock: &Clock) -> Stamp {
        *self.arrival.get_or_init(|| clock.now())
    }

    /// The block that a tag means in this packet; `None` until the first call has found out.
    pub(super) fn tag(&self, tag: Tag) -> Option<Link> {
        self.pinned(tag).and_then(|pinned| pinned.get().copied())
    }

    /// From here on `tag` means this block, unless another call was first.
    pub(super) fn pin(&self, tag: Tag, link: Link) -> Link {
        self.pinned(tag).map_or(link, |pinned| *pinned.get_or_init(|| link))
    }

    fn pinned(&self, tag: Tag) -> Option<&OnceLock<Link>> {
        match tag {
            Tag::Latest => Some(&self.tags.latest),
            Tag::Safe => Some(&self.tags.safe),
            Tag::Finalized => Some(&self.tags.finalized),
            Tag::Earliest | Tag::Pending => None,
        }
    }

    /// How many distinct answers this packet wants of a block, as far as `locate` knows where they are.
    pub(super) fn wanted(
        &self,
        wanted: Wanted,
        block: BlockHash,
        locate: impl Fn(TxHash) -> Option<BlockHash>,
    ) -> u32 {
        let counts = self.wanted.get_or_init(|| {
            let mut counts = HashMap::new();
            for (kind, hashes) in
                [(Wanted::Transaction, &self.transactions), (Wanted::Receipt, &self.receipts)]
            {
                // Asked twice is wanted once.
                let hashes: HashSet<_> = hashes.iter().copied().collect();
                // One alone is nothing to plan.
                for hash in hashes.iter().filter(|_| hashes.len() > 1) {
                    if let Some(block) = locate(*hash) {
                        *counts.entry((kind, block)).or_default() += 1;
                    }
                }
            }
            counts
        });
        counts.get(&(wanted, block)).copied().unwrap_or(1)
    }
}
