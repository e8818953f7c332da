//! State that the calls of one packet share. A packet is a single call or a batch.

use std::{slice, sync::OnceLock};

use parking_lot::Mutex;

use crate::{
    chain::{Clock, Link, Stamp},
    eth::{Query, Tag},
    proxy::call::{caller::Caller, read_call::ReadCall},
};

/// Context that the calls of a packet share. The calls have the same client and arrival time, and a tag stands for the
/// same block in all of them.
///
/// A write splits a batch: the calls after the write get a new context.
#[derive(Debug)]
pub struct PacketContext {
    caller: Caller,
    /// Not a `OnceLock`, whose first use costs several times as much, on every cache hit.
    arrival: Mutex<Option<Stamp>>,
    /// Boxed to keep the context small, because most calls use no tag.
    pins: OnceLock<Box<Mutex<Pins>>>,
    calls: Calls,
}

#[derive(Debug)]
enum Calls {
    /// A single call is the common case, and needs no allocation.
    One(ReadCall),
    Many(Vec<ReadCall>),
}

/// Block that each tag stands for in this packet. The first call that resolves a tag pins the tag to a block.
#[derive(Debug, Default)]
struct Pins {
    latest: Pin,
    safe: Pin,
    finalized: Pin,
    /// Whether the packet has already refreshed its tags because their blocks were on different branches.
    realigned: bool,
}

/// Block that a tag stands for.
#[derive(Debug, Default)]
struct Pin {
    link: Option<Link>,
    /// When `safe` or `finalized` was pinned to this block.
    at: Option<Stamp>,
    /// Whether a call was answered from this block, so that the tag must keep it.
    answered: bool,
    /// Whether the tag had another block before, which left the chain before any call was answered from it.
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
        Self { caller, arrival: Mutex::default(), pins: OnceLock::new(), calls }
    }

    /// Returns the calls in order.
    pub fn calls(&self) -> &[ReadCall] {
        match &self.calls {
            Calls::One(call) => slice::from_ref(call),
            Calls::Many(calls) => calls,
        }
    }

    fn queries(&self) -> impl Iterator<Item = Query> {
        self.calls().iter().flat_map(|call| {
            let query = call.query.iter().filter_map(|query| query.as_ref().ok().copied());
            query.chain(call.composed.iter().filter_map(|composed| composed.query()))
        })
    }

    /// Returns the client.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns whether a lookup has set the arrival of the packet.
    pub(crate) fn has_arrival(&self) -> bool {
        self.arrival.lock().is_some()
    }

    /// Returns the arrival of the packet: the time of its first lookup.
    pub(crate) fn arrival(&self, clock: &Clock) -> Stamp {
        *self.arrival.lock().get_or_insert_with(|| clock.now())
    }

    /// Returns the block that `tag` stands for in this packet; `None` until a call has resolved it.
    pub(crate) fn tag(&self, tag: Tag) -> Option<Link> {
        self.pins.get()?.lock().of(tag)?.link
    }

    /// Pins `tag` to this block, unless another call pinned it first. Returns the pinned block.
    pub(crate) fn pin(&self, tag: Tag, link: Link, clock: &Clock) -> Link {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        let Some(pin) = pins.of(tag) else { return link };
        *pin.link.get_or_insert_with(|| {
            pin.at = (tag != Tag::Latest).then(|| clock.now());
            link
        })
    }

    /// Returns the time since which changes of the chain count for the block of `tag`. For `latest`, it is the arrival,
    /// because the tracker still knows these changes. The blocks of other tags may be below the tracked blocks, so only
    /// changes after they were pinned count.
    pub(crate) fn holds_since(&self, tag: Tag, clock: &Clock) -> Stamp {
        let pinned = || self.pins.get()?.lock().of(tag)?.at;
        pinned().unwrap_or_else(|| self.arrival(clock))
    }

    /// Records that a call was answered with `link` as the block of `tag`. Returns whether `tag` is still pinned to
    /// that block.
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

    /// Unpins `tag` from `link`, which left the chain, and returns whether the caller may resolve the tag again. It may
    /// do so only once, and only if no call was answered from `link`.
    pub(crate) fn unpin(&self, tag: Tag, link: Link) -> bool {
        let Some(pins) = self.pins.get() else { return false };
        let mut pins = pins.lock();
        let Some(pin) = pins.of(tag) else { return false };
        if pin.link != Some(link) {
            // Another call unpinned the tag first.
            return true;
        }
        let may_change = !pin.answered && !pin.again;
        if may_change {
            (pin.link, pin.again) = (None, true);
        }
        may_change
    }

    /// Returns the tags to refresh, because the block of `tag` is on another branch than the blocks of the other tags,
    /// or is not known to be on the same one. The first time, also unpins these tags, except a tag from whose block a
    /// call was answered: a refresh may show that this block fits after all.
    pub(crate) fn realign(&self, tag: Tag) -> Vec<Tag> {
        let mut pins = self.pins.get_or_init(Box::default).lock();
        let is_first = !std::mem::replace(&mut pins.realigned, true);
        // `latest` comes last, so that its refresh shows whether the other blocks are ancestors of the head.
        let mut tags = vec![Tag::Safe, Tag::Finalized, Tag::Latest];
        tags.retain(|other| {
            let is_meant = *other == tag || *other == Tag::Latest;
            let Some(pin) = pins.of(*other).filter(|pin| is_meant || pin.link.is_some()) else {
                return false;
            };
            if is_first && !pin.answered {
                pin.link = None;
            }
            true
        });
        tags
    }

    /// Returns whether another call of the packet also uses a tag, so that the blocks of both tags must be on the same
    /// branch.
    pub(crate) fn has_several_tags(&self, tag: Tag) -> bool {
        let is_pinned = |tag: &Tag| matches!(tag, Tag::Latest | Tag::Safe | Tag::Finalized);
        let tags = self.queries().filter_map(Query::tag);
        is_pinned(&tag) && tags.filter(is_pinned).nth(1).is_some()
    }
}
