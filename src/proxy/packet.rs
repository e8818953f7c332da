//! What the calls of one packet share.

use std::{
    collections::{HashMap, HashSet},
    slice,
    sync::{Arc, OnceLock},
};

use super::{Caller, Derivation, ReadCall, Request, want::Want};
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
    /// On the heap, as most calls name none.
    tags: OnceLock<Box<Tags>>,
    calls: Calls,
    wanted: OnceLock<HashMap<(Wanted, BlockHash), u32>>,
}

#[derive(Debug)]
enum Calls {
    /// Most packets; needs no room of its own.
    One(ReadCall),
    Many(Vec<ReadCall>),
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

    /// The transaction of which a call wants this, if it names one.
    fn named_by(self, want: &Want) -> Option<TxHash> {
        match (self, want) {
            (Self::Transaction, Want::Operation(Operation::TransactionByHash(wanted))) => Some(wanted.hash),
            (Self::Receipt, Want::Operation(Operation::Receipt(wanted))) => Some(wanted.hash),
            _ => None,
        }
    }
}

// === impl Tags ===

impl Tags {
    fn pinned(&self, tag: Tag) -> Option<&OnceLock<Link>> {
        match tag {
            Tag::Latest => Some(&self.latest),
            Tag::Safe => Some(&self.safe),
            Tag::Finalized => Some(&self.finalized),
            Tag::Earliest | Tag::Pending => None,
        }
    }
}

// === impl PacketContext ===

impl PacketContext {
    /// The setting of one call alone.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self::of(caller, Calls::One(call))
    }

    /// The setting of these calls.
    pub fn new(caller: Caller, calls: Vec<ReadCall>) -> Self {
        Self::of(caller, Calls::Many(calls))
    }

    fn of(caller: Caller, calls: Calls) -> Self {
        Self { caller, arrival: OnceLock::new(), tags: OnceLock::new(), calls, wanted: OnceLock::new() }
    }

    /// Its calls, in order.
    pub fn calls(&self) -> &[ReadCall] {
        match &self.calls {
            Calls::One(call) => slice::from_ref(call),
            Calls::Many(calls) => calls,
        }
    }

    /// The call at this place.
    pub fn request(self: &Arc<Self>, index: usize) -> Request {
        Request::of(self.clone(), index)
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
        self.tags.get()?.pinned(tag)?.get().copied()
    }

    /// From here on `tag` means this block, unless another call was first.
    pub(super) fn pin(&self, tag: Tag, link: Link) -> Link {
        self.tags.get_or_init(Box::default).pinned(tag).map_or(link, |pinned| *pinned.get_or_init(|| link))
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
            for kind in [Wanted::Transaction, Wanted::Receipt] {
                // Asked twice is wanted once.
                let hashes: HashSet<_> = self
                    .calls()
                    .iter()
                    .filter_map(|call| kind.named_by(call.want.as_ref()?.as_ref().ok()?))
                    .collect();
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
