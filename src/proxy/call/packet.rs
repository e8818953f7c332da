//! State that the calls of one packet share. A packet is a single call or a batch.

use std::{
    collections::{HashMap, HashSet},
    slice,
    sync::OnceLock,
};

use parking_lot::Mutex;

use crate::{
    chain::{Clock, Link, Stamp},
    eth::{BlockHash, Part, Query, Tag, TxHash},
    proxy::call::{caller::Caller, read_call::ReadCall},
};

/// Context of the calls of a packet. They have the same client and arrival time, their tags stand for the same
/// blocks, and all of them together determine how much to prefetch.
///
/// A write splits a batch: the calls after it get a new context.
#[derive(Debug)]
pub struct PacketContext {
    caller: Caller,
    arrival: OnceLock<Stamp>,
    /// Boxed, because most calls use no tag.
    pins: OnceLock<Box<Mutex<Pins>>>,
    calls: Calls,
    wanted: OnceLock<HashMap<(Part, BlockHash), u32>>,
}

#[derive(Debug)]
enum Calls {
    /// The common case, without an allocation.
    One(ReadCall),
    Many(Vec<ReadCall>),
}

/// Blocks that the tags stand for in this packet, set by the first call that resolves each tag.
#[derive(Debug, Default)]
struct Pins {
    latest: Pin,
    safe: Pin,
    finalized: Pin,
    /// The tags were on different branches and have been refreshed once.
    realigned: bool,
}

/// Block that a tag stands for.
#[derive(Debug, Default)]
struct Pin {
    link: Option<Link>,
    /// A call has used this block, so the tag keeps it.
    answered: bool,
    /// The previous block left the chain before any call had used it.
    again: bool,
}

// === impl Pins ===

impl Pins {
    fn of(&mut self, tag: Tag) -> Option<&mut Pin> {
        match tag {
            Tag::Latest => Some(&mut self.latest),
            Tag::Safe => Some(&mut self.safe),
            Tag::Finalized => Some(&mut self.finalized),
            Tag::Earliest | Tag::Pending => None,
        }
    }
}

// === impl PacketContext ===

impl PacketContext {
    /// Returns the context of a single call.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self::of(caller, Calls::One(call))
    }

    /// Returns the context of these calls.
    pub fn new(caller: Caller, calls: Vec<ReadCall>) -> Self {
        Self::of(caller, Calls::Many(calls))
    }

    fn of(caller: Caller, calls: Calls) -> Self {
        Self { caller, arrival: OnceLock::new(), pins: OnceLock::new(), calls, wanted: OnceLock::new() }
    }

    /// Returns the calls in order.
    pub fn calls(&self) -> &[ReadCall] {
        match &self.calls {
            Calls::One(call) => slice::from_ref(call),
            Calls::Many(calls) => calls,
        }
    }

    fn queries(&self) -> impl Iterator<Item = Query> {
        self.calls().iter().filter_map(|call| call.query.as_ref()?.as_ref().ok().copied())
    }

    /// Returns the client.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns whether a lookup has set the arrival of the packet.
    pub(crate) fn has_arrival(&self) -> bool {
        self.arrival.get().is_some()
    }

    /// Returns the arrival of the packet: the time of its first lookup.
    pub(crate) fn arrival(&self, clock: &Clock) -> Stamp {
        *self.arrival.get_or_init(|| clock.now())
    }

    /// Returns the block that `tag` stands for in this packet; `None` until a call has resolved it.
    pub(crate) fn tag(&self, tag: Tag) -> Option<Link> {
        self.pins.get()?.lock().of(tag)?.link
    }

    /// Pins `tag` to this block, unless another call pinned it first. Returns the pinned block.
    pub(crate) fn pin(&self, tag: Tag, link: Link) -> Link {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        pins.of(tag).map_or(link, |pin| *pin.link.get_or_insert(link))
    }

    /// Records that a call was answered from `link` as the meaning of `tag`. Returns whether `tag` is still pinned to
    /// it.
    pub(crate) fn commit(&self, tag: Tag, link: Link) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        let mut pins = pins.lock();
        let Some(pin) = pins.of(tag) else { return false };
        let is_it = pin.link == Some(link);
        pin.answered |= is_it;
        is_it
    }

    /// Returns whether a call was answered from the pinned block of `tag`.
    pub(crate) fn is_answered(&self, tag: Tag) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        pins.lock().of(tag).is_some_and(|pin| pin.answered)
    }

    /// Unpins `tag` from a block that left the chain. Returns whether the tag may be resolved again: once, and only
    /// if no call was answered from that block.
    pub(crate) fn unpin(&self, tag: Tag, link: Link) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        let mut pins = pins.lock();
        let Some(pin) = pins.of(tag) else { return false };
        if pin.link != Some(link) {
            // Another call unpinned it first.
            return true;
        }
        let may_change = !pin.answered && !pin.again;
        if may_change {
            (pin.link, pin.again) = (None, true);
        }
        may_change
    }

    /// Unpins tags that are on different branches. Returns the tags to refresh: those from which no call was
    /// answered. `None` if the packet was realigned before.
    pub(crate) fn realign(&self, tag: Tag) -> Option<Vec<Tag>> {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        if std::mem::replace(&mut pins.realigned, true) {
            return None;
        }
        // The head last: its refresh then shows whether the other blocks are its ancestors.
        let mut tags = vec![Tag::Safe, Tag::Finalized, Tag::Latest];
        tags.retain(|other| {
            let is_meant = *other == tag || *other == Tag::Latest;
            let pin = pins.of(*other).filter(|pin| !pin.answered && (is_meant || pin.link.is_some()));
            pin.map(|pin| pin.link = None).is_some()
        });
        Some(tags)
    }

    /// Returns whether another call of the packet also uses a tag, so that the block of `tag` must be on the same
    /// branch.
    pub(crate) fn has_several_tags(&self, tag: Tag) -> bool {
        let is_pinned = |tag: &Tag| matches!(tag, Tag::Latest | Tag::Safe | Tag::Finalized);
        let tags = self.queries().filter_map(Query::tag);
        is_pinned(&tag) && tags.filter(is_pinned).nth(1).is_some()
    }

    /// Returns the number of distinct answers that this packet asks for within `block`; `locate` maps a transaction
    /// to its block.
    pub(crate) fn answers_in_block(
        &self,
        part: Part,
        block: BlockHash,
        locate: impl Fn(TxHash) -> Option<BlockHash>,
    ) -> u32 {
        let counts = self.wanted.get_or_init(|| {
            let mut counts = HashMap::new();
            for part in [Part::Transaction, Part::Receipt] {
                // Repeated queries count once.
                let queries = self.queries().filter(|query| query.part == part);
                let hashes: HashSet<_> = queries.filter_map(Query::transaction).collect();
                // A single query gives no reason to prefetch.
                for hash in hashes.iter().filter(|_| hashes.len() > 1) {
                    if let Some(block) = locate(*hash) {
                        *counts.entry((part, block)).or_default() += 1;
                    }
                }
            }
            counts
        });
        counts.get(&(part, block)).copied().unwrap_or(1)
    }
}
