//! Resolves tags. A tag stands for the same block in all calls of a packet.

use std::cell::Cell;

use super::plan::LookupPlan;
use crate::{
    chain::{Ancestry, Link, Stamp},
    eth::Tag,
    proxy::{call::packet::PacketContext, head::SharedView},
};

/// Meaning of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagMeaning {
    /// This block.
    Block(Link),
    /// This block, above a head that was requested earlier: a refresh should raise the head.
    Ahead(Link),
    /// Unknown: the tag must be refreshed.
    Unknown,
    /// A block on another branch than the blocks of the packet's other tags.
    Apart,
    /// A block that may be on the same branch as the blocks of the packet's other tags: another refresh of the head
    /// decides.
    Unsure,
    /// No known block: the node must answer the call.
    Nothing,
}

/// The tags of a packet, for one lookup.
#[derive(Debug)]
pub(super) struct Tags<'a> {
    view: &'a SharedView,
    packet: &'a PacketContext,
    pub(super) arrival: Stamp,
    /// Block that the call's tag stands for.
    pub(super) pinned: Cell<Option<Link>>,
}

// === impl Tags ===

impl<'a> Tags<'a> {
    pub(super) fn new(view: &'a SharedView, packet: &'a PacketContext) -> Self {
        Self { view, packet, arrival: packet.arrival(view.clock()), pinned: Cell::new(None) }
    }

    /// Returns whether canonicity is suspended, and this call should first ask for the finalized block again.
    pub(super) fn is_refresh_due(&self) -> bool {
        let tracker = self.view.tracker();
        // After a refresh that was sent after this call arrived, another one would show nothing new.
        tracker.is_suspended() && tracker.may_refresh(self.arrival)
    }

    /// Returns `plan`, or a refresh of the head if one is due.
    pub(super) fn unless_due(&self, plan: LookupPlan) -> LookupPlan {
        if self.is_refresh_due() { LookupPlan::Refresh(Tag::Latest) } else { plan }
    }

    /// Returns the block that a tag stands for in all calls of the packet.
    pub(super) fn meaning(&self, tag: Tag) -> TagMeaning {
        let pinned = self.packet.tag(tag);
        let link = pinned.or_else(|| {
            let tracker = self.view.tracker();
            match tag {
                _ if tracker.is_suspended() => None,
                Tag::Latest => tracker.head().filter(|_| tracker.is_fresh(self.arrival)),
                Tag::Safe => tracker.safe(self.arrival),
                Tag::Finalized => tracker.finalized_tag(self.arrival),
                Tag::Earliest | Tag::Pending => None,
            }
        });
        let is_suspended = self.view.tracker().is_suspended();
        let unpinned = link.filter(|_| pinned.is_none());
        let unpinned = unpinned.map(|link| self.instead(tag, link).unwrap_or(link));
        let link = unpinned.or(pinned);
        let fits = unpinned.map_or(Ancestry::Ancestor, |link| self.fits(tag, link));
        let meaning = match (link, tag) {
            (Some(link), Tag::Safe | Tag::Finalized)
                if unpinned.is_some() && self.view.tracker().is_ahead(link) =>
            {
                TagMeaning::Ahead(link)
            }
            (Some(_), _) if fits == Ancestry::Apart => TagMeaning::Apart,
            (Some(_), _) if fits == Ancestry::Unsure => TagMeaning::Unsure,
            (Some(link), _) => TagMeaning::Block(self.packet.pin(tag, link, self.view.clock())),
            (None, Tag::Earliest | Tag::Pending) => TagMeaning::Nothing,
            (None, tag) if is_suspended || self.view.has_no_block(tag, self.arrival) => TagMeaning::Nothing,
            (None, _) => TagMeaning::Unknown,
        };
        if let TagMeaning::Block(link) = meaning {
            self.pinned.set(Some(link));
        }
        meaning
    }

    /// Returns the block of another tag, if `tag` must stand for that block to keep the order of the tags in a packet:
    /// `finalized`, `safe`, `latest`. An ancestor of a final block is final, and a final block is safe.
    fn instead(&self, tag: Tag, link: Link) -> Option<Link> {
        if tag == Tag::Latest {
            return None;
        }
        let (above, below) = self.bounds(tag);
        let tracker = self.view.tracker();
        // If the newer head is lower than the block of the tag, `latest` will mean that head.
        let head = || tracker.head().filter(|_| tracker.is_head_newer(link) == Some(true));
        let above = above.or_else(|| head().filter(|_| self.packet.has_several_tags(tag)));
        let lower = above.filter(|above| above.number < link.number && tracker.descends(link, *above));
        lower.or_else(|| below.filter(|below| below.number > link.number && tracker.descends(*below, link)))
    }

    /// Returns the packet's blocks that `tag` may not be above, and not below.
    fn bounds(&self, tag: Tag) -> (Option<Link>, Option<Link>) {
        let [latest, safe, finalized] =
            [Tag::Latest, Tag::Safe, Tag::Finalized].map(|tag| self.packet.tag(tag));
        match tag {
            Tag::Latest => (None, safe.or(finalized)),
            Tag::Safe => (latest, finalized),
            Tag::Finalized => (safe.or(latest), None),
            Tag::Earliest | Tag::Pending => (None, None),
        }
    }

    /// Pins `tag` to a block that the node shows, and that the view cannot judge. Returns `None` if that block breaks the order
    /// of the packet's tags.
    pub(super) fn pin_shown(&self, tag: Tag, link: Link) -> Option<Link> {
        self.is_in_order(tag, link).then(|| self.packet.pin(tag, link, self.view.clock()))
    }

    /// Returns whether this block, as the meaning of `tag`, is in order with the packet's other tags.
    fn is_in_order(&self, tag: Tag, link: Link) -> bool {
        let (above, below) = self.bounds(tag);
        let are_ordered = |lower: Link, upper: Link| lower.hash == upper.hash || lower.number < upper.number;
        above.is_none_or(|above| are_ordered(link, above))
            && below.is_none_or(|below| are_ordered(below, link))
    }

    /// Returns whether this block, as the meaning of `tag`, is on one branch with the blocks of the packet's other
    /// tags, and in order.
    fn fits(&self, tag: Tag, link: Link) -> Ancestry {
        if !self.is_in_order(tag, link) {
            return Ancestry::Apart;
        }
        let tracker = self.view.tracker();
        match (tag, self.packet.tag(Tag::Latest)) {
            (Tag::Latest, _) => {
                let lower = [Tag::Safe, Tag::Finalized].into_iter().filter_map(|tag| self.packet.tag(tag));
                lower.map(|lower| tracker.ancestry(lower, link)).min().unwrap_or(Ancestry::Ancestor)
            }
            (Tag::Safe | Tag::Finalized, Some(latest)) => tracker.ancestry(link, latest),
            (Tag::Safe | Tag::Finalized, None) if tracker.excludes(link.number, link.hash) => Ancestry::Apart,
            _ => Ancestry::Ancestor,
        }
    }
}
