//! Whether the block of an answer may have left the chain since the answer was requested.

use crate::{
    chain::{Link, Stamp, Tracker},
    eth::{BlockHash, BlockNumber, Home, Query},
    proxy::head::view::SharedView,
};

/// The view at the moment since which changes of the chain count for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    stamp: Stamp,
    head: Option<Link>,
    /// The number that the query names, and the block that was known there.
    named: Option<(BlockNumber, Option<BlockHash>)>,
}

// === impl Since ===

impl Since {
    /// Captures the view before an answer to this query is requested.
    pub(crate) fn now(view: &SharedView, query: Query) -> Self {
        let (stamp, tracker) = (view.clock().now(), view.tracker());
        let named = query.number().map(|number| (number, tracker.known_at(number)));
        Self { stamp, head: tracker.head(), named }
    }

    /// Returns the same view, for an answer that was requested at `sent`.
    pub(crate) fn sent(self, sent: Stamp) -> Self {
        Self { stamp: sent, ..self }
    }

    pub(crate) fn stamp(self) -> Stamp {
        self.stamp
    }

    pub(crate) fn head(self) -> Option<Link> {
        self.head
    }

    /// Returns whether a block was known at the number that the query names.
    pub(crate) fn knew_block(self) -> bool {
        matches!(self.named, Some((_, Some(_))))
    }

    /// Returns whether this block may have left the chain, or the view has accepted another head, which is below it.
    pub(crate) fn has_left(self, view: &SharedView, Home { block, number }: Home) -> bool {
        let tracker = view.tracker();
        self.is_above_new_head(&tracker, number) || tracker.may_have_left(number, block, self.stamp)
    }

    /// Like [`has_left`](Self::has_left), for an answer that names no block: the known block at the number of the query has
    /// changed, or none is known there although blocks left the chain or the window moved past it.
    pub(crate) fn has_changed(self, view: &SharedView) -> bool {
        let tracker = view.tracker();
        let Some((number, before)) = self.named else { return tracker.has_left(self.stamp) };
        let now = tracker.known_at(number);
        now != before
            || (now.is_none() && tracker.has_left(self.stamp))
            || self.is_above_new_head(&tracker, number)
            || tracker.has_outgrown(number, self.stamp)
    }

    fn is_above_new_head(self, tracker: &Tracker, number: BlockNumber) -> bool {
        let head = tracker.head();
        head != self.head && head.is_some_and(|head| head.number < number)
    }
}
