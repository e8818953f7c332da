//! What the calls of one packet share.

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

/// The setting that the calls of a packet are answered in: one client sent them, they arrived together,
/// their tags mean the same blocks, and what they want together decides what is fetched.
///
/// Where a packet holds a write, what follows it has a setting of its own.
#[derive(Debug)]
pub struct PacketContext {
    caller: Caller,
    arrival: OnceLock<Stamp>,
    /// On the heap, as most calls name none.
    pins: OnceLock<Box<Mutex<Pins>>>,
    calls: Calls,
    wanted: OnceLock<HashMap<(Part, BlockHash), u32>>,
}

#[derive(Debug)]
enum Calls {
    /// Most packets; needs no room of its own.
    One(ReadCall),
    Many(Vec<ReadCall>),
}

/// The blocks that tags mean, as soon as one call has found out.
#[derive(Debug, Default)]
struct Pins {
    latest: Pin,
    safe: Pin,
    finalized: Pin,
    /// Tags that did not fit each other were asked for again.
    realigned: bool,
}

/// The block that a tag means.
#[derive(Debug, Default)]
struct Pin {
    link: Option<Link>,
    /// A call was answered from it: it means this block to the end.
    answered: bool,
    /// It was another one, which left the chain before any call was answered from it.
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
    /// The setting of one call alone.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self::of(caller, Calls::One(call))
    }

    /// The setting of these calls.
    pub fn new(caller: Caller, calls: Vec<ReadCall>) -> Self {
        Self::of(caller, Calls::Many(calls))
    }

    fn of(caller: Caller, calls: Calls) -> Self {
        Self { caller, arrival: OnceLock::new(), pins: OnceLock::new(), calls, wanted: OnceLock::new() }
    }

    /// Its calls, in order.
    pub fn calls(&self) -> &[ReadCall] {
        match &self.calls {
            Calls::One(call) => slice::from_ref(call),
            Calls::Many(calls) => calls,
        }
    }

    fn queries(&self) -> impl Iterator<Item = Query> {
        self.calls().iter().filter_map(|call| call.query.as_ref()?.as_ref().ok().copied())
    }

    /// Who makes these calls.
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

    /// The block that a tag means in this packet; `None` until the first call has found out.
    pub(crate) fn tag(&self, tag: Tag) -> Option<Link> {
        self.pins.get()?.lock().of(tag)?.link
    }

    /// From here on `tag` means this block, unless another call was first. Returns the block that it means.
    pub(crate) fn pin(&self, tag: Tag, link: Link) -> Link {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        pins.of(tag).map_or(link, |pin| *pin.link.get_or_insert(link))
    }

    /// A call was answered from this block, which `tag` was taken to mean. Returns whether it still does.
    pub(crate) fn commit(&self, tag: Tag, link: Link) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        let mut pins = pins.lock();
        let Some(pin) = pins.of(tag) else { return false };
        let is_it = pin.link == Some(link);
        pin.answered |= is_it;
        is_it
    }

    /// Returns whether a call was answered from the block that `tag` means.
    pub(crate) fn is_answered(&self, tag: Tag) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        pins.lock().of(tag).is_some_and(|pin| pin.answered)
    }

    /// This block, which `tag` was taken to mean, left the chain. Returns whether the tag may mean another: once, and only
    /// as long as no call was answered from it.
    pub(crate) fn unpin(&self, tag: Tag, link: Link) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        let mut pins = pins.lock();
        let Some(pin) = pins.of(tag) else { return false };
        if pin.link != Some(link) {
            // Another call was first.
            return true;
        }
        let may_change = !pin.answered && !pin.again;
        if may_change {
            (pin.link, pin.again) = (None, true);
        }
        may_change
    }

    /// Tags do not fit each other. Returns those that are to be asked for again, which is all that no call was answered
    /// from; `None` if that was done before.
    pub(crate) fn realign(&self, tag: Tag) -> Option<Vec<Tag>> {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        if std::mem::replace(&mut pins.realigned, true) {
            return None;
        }
        // The head last: then it tells whether it has the others as ancestors.
        let mut tags = vec![Tag::Safe, Tag::Finalized, Tag::Latest];
        tags.retain(|other| {
            let is_meant = *other == tag || *other == Tag::Latest;
            let pin = pins.of(*other).filter(|pin| !pin.answered && (is_meant || pin.link.is_some()));
            pin.map(|pin| pin.link = None).is_some()
        });
        Some(tags)
    }

    /// Returns whether what a tag means must fit what another call's means.
    pub(crate) fn shares(&self, tag: Tag) -> bool {
        let is_pinned = |tag: &Tag| matches!(tag, Tag::Latest | Tag::Safe | Tag::Finalized);
        let tags = self.queries().filter_map(Query::tag);
        is_pinned(&tag) && tags.filter(is_pinned).nth(1).is_some()
    }

    /// How many distinct answers this packet wants of a block, as far as `locate` knows where they are.
    pub(crate) fn wanted(
        &self,
        part: Part,
        block: BlockHash,
        locate: impl Fn(TxHash) -> Option<BlockHash>,
    ) -> u32 {
        let counts = self.wanted.get_or_init(|| {
            let mut counts = HashMap::new();
            for part in [Part::Transaction, Part::Receipt] {
                // Asked twice is wanted once.
                let queries = self.queries().filter(|query| query.part == part);
                let hashes: HashSet<_> = queries.filter_map(Query::transaction).collect();
                // One alone is nothing to plan.
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
