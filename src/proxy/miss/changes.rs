//! Detects changes of the chain while a call waits for its answer.

use crate::{
    chain::{Link, Stamp},
    eth::{BlockHash, BlockNumber, Home, Query},
    proxy::head::SharedView,
};

/// The view before a call was sent.
#[derive(Clone, Copy)]
pub(super) struct ViewBefore {
    pub(super) head: Option<Link>,
    /// Block at the number that the query names.
    pub(super) named: Option<BlockHash>,
}

// === impl ViewBefore ===

impl ViewBefore {
    /// Captures the view before a call for this query is sent.
    pub(super) fn new(view: &SharedView, query: Query) -> Self {
        let tracker = view.tracker();
        let known_at = |number| tracker.known_at(number);
        Self { head: tracker.head(), named: query.number().and_then(known_at) }
    }

    /// Returns whether a block may have left the chain since an answer about it was requested, or the view has
    /// accepted a head below its number.
    pub(super) fn has_changed(self, view: &SharedView, Home { block, number }: Home, sent: Stamp) -> bool {
        self.is_above_new_head(view, number) || view.tracker().may_have_left(number, block, sent)
    }

    /// Like [`has_changed`](Self::has_changed), for an answer that names no block: the known block at the number of
    /// the query has changed, or none is known there although blocks left the chain or the window moved past it.
    pub(super) fn has_changed_at(self, view: &SharedView, query: Query, sent: Stamp) -> bool {
        let now = Self::new(view, query).named;
        let is_above = |number| self.is_above_new_head(view, number);
        let is_outgrown = |number| view.tracker().has_outgrown(number, sent);
        now != self.named
            || (now.is_none() && view.tracker().has_left(sent))
            || query.number().is_some_and(|number| is_above(number) || is_outgrown(number))
    }

    /// Returns whether the view has accepted another head than before, which is below this number.
    fn is_above_new_head(self, view: &SharedView, number: BlockNumber) -> bool {
        let now = view.tracker().head();
        now != self.head && now.is_some_and(|now| now.number < number)
    }
}
