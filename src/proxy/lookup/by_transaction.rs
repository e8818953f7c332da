//! Looks up queries that name a transaction: in which canonical block it is, and what to fetch.

use std::cmp::Reverse;

use super::{
    absence::Absent,
    entries::Entries,
    plan::{CachedAnswer, LookupPlan},
    tags::Tags,
};
use crate::{
    cache::Location,
    chain::Lookup,
    eth::{Home, Part, Query, Tag, TxHash},
    proxy::call::slice::NULL,
    verify::Kind,
};

/// Lookup of one query that names a transaction.
#[derive(Debug)]
pub(super) struct TransactionLookup<'a> {
    pub(super) entries: &'a Entries<'a>,
    pub(super) tags: &'a Tags<'a>,
    /// A block that the node has just shown to be canonical.
    pub(super) shown: Option<Home>,
}

/// Whether a block that contains the transaction is canonical, from the surest to the least sure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Canonical,
    /// If a refresh confirms the view.
    Stale,
    /// If it is the block at its number.
    Unconfirmed,
}

/// A block that contains the transaction, according to the cache.
struct Found {
    home: Home,
    /// Whether the block or its receipts are cached, and not only the transaction or its receipt alone.
    is_whole: bool,
    answer: Option<CachedAnswer>,
}

// === impl TransactionLookup ===

impl TransactionLookup<'_> {
    /// Looks up a transaction or a receipt by the transaction's hash.
    pub(super) fn plan(&self, query: Query, hash: TxHash) -> LookupPlan {
        if self.is_unlocatable() {
            return self.tags.unless_due(LookupPlan::Forward);
        }
        let arrival = self.tags.arrival;
        let is_receipt = query.part == Part::Receipt;
        match self.find(query.part, hash) {
            Some((Standing::Canonical, Found { answer: Some(answer), .. })) => answer.into(),
            Some((Standing::Canonical, found)) => self.fetch(query, &found),
            Some((Standing::Stale, found)) if found.answer.is_some() || found.is_whole => {
                LookupPlan::Refresh(Tag::Latest)
            }
            Some((Standing::Unconfirmed, found)) if found.answer.is_some() || found.is_whole => {
                self.confirm(query, &found)
            }
            None if is_receipt => {
                match self.entries.state.absences.look(hash, arrival, &self.entries.view.tracker()) {
                    Absent::Surely => LookupPlan::Hit(CachedAnswer::of_view(NULL)),
                    Absent::IfFresh => LookupPlan::Refresh(Tag::Latest),
                    Absent::Unknown => LookupPlan::fetch(query),
                }
            }
            Some(_) | None => LookupPlan::fetch(query),
        }
    }

    /// Plans to fetch the block at the number of a block that contains the transaction, to see whether it is that block.
    fn confirm(&self, query: Query, found: &Found) -> LookupPlan {
        let Home { block, number } = found.home;
        if self.entries.view.tracker().head().is_none() {
            // Fetch the head first: when it arrives, the view discards all earlier answers for single numbers.
            return LookupPlan::Refresh(Tag::Latest);
        }
        // Where proof is demanded, only a full block proves its list of hashes.
        let is_full =
            self.entries.demands_proof(Kind::Transactions) && self.entries.block_of(block).is_none();
        let part = if is_full { Part::Block } else { Part::BlockWithHashes };
        let confirm = Query::new(part, number);
        LookupPlan::fetch(if self.entries.is_uncacheable(confirm) { query } else { confirm })
    }

    /// Plans to fetch the whole block, or all its receipts, if the other of the two is cached. Otherwise, plans to fetch the
    /// transaction or the receipt alone.
    fn fetch(&self, query: Query, found: &Found) -> LookupPlan {
        let state = self.entries.state;
        let whole = Query::new(query.part.whole(), found.home.block);
        let is_lacking = query.part == Part::Receipt && !state.node.has_block_receipts();
        let is_futile = is_lacking
            || !state.derivations.allow(query.part)
            || state.uncacheable.gone_from(query, query.part).is_some()
            || state.uncacheable.contains(whole);
        LookupPlan::fetch(if found.is_whole && !is_futile { whole } else { query })
    }

    /// Finds the surest canonical block that contains the transaction.
    fn find(&self, part: Part, hash: TxHash) -> Option<(Standing, Found)> {
        let mut best: Option<(Standing, Found)> = None;
        let mut consider = |found: Found| {
            let standing = self.standing(hash, found.home);
            // Of blocks that are equally sure, the newest: the order of the index is random.
            let rank = |standing: Standing, found: &Found| (standing, Reverse(found.home.number));
            let is_better =
                |it: Standing| best.as_ref().is_none_or(|(best, of)| rank(it, &found) < rank(*best, of));
            if let Some(standing) = standing.filter(|it| is_better(*it)) {
                best = Some((standing, found));
            }
            standing == Some(Standing::Canonical)
        };
        for location in self.entries.state.cache.locations(hash) {
            let Location { home, index } = location;
            if self.holds(location, hash, part) {
                let answer = match part {
                    Part::Receipt => self.entries.receipt_at(home.block, index),
                    _ => self.entries.transaction_at(home.block, index),
                };
                let single = || self.entries.single(part, hash).filter(|(of, _)| *of == home);
                let answer = answer.or_else(|| single().map(|(_, answer)| answer));
                if consider(Found { home, is_whole: true, answer }) {
                    return best;
                }
            }
        }
        let other = if part == Part::Receipt { Part::Transaction } else { Part::Receipt };
        let alone = self.entries.single(part, hash).map(|(home, answer)| (home, Some(answer)));
        let alone = alone.or_else(|| self.entries.single(other, hash).map(|(home, _)| (home, None)));
        // A proved block would have been found above if it contained the transaction.
        let is_refuted =
            |home: Home| self.entries.block_of(home.block).is_some_and(|block| block.is_proved());
        if let Some((home, answer)) = alone.filter(|(home, _)| !is_refuted(*home)) {
            consider(Found { home, is_whole: false, answer });
        }
        best
    }

    /// Returns whether a block that contains the transaction is canonical; `None` if another block is. If the view knows the
    /// block at a number, it overrules a single answer that names another block there.
    fn standing(&self, hash: TxHash, home: Home) -> Option<Standing> {
        let Home { block, number } = home;
        if let Some(shown) = self.shown.filter(|shown| shown.number == number) {
            return (shown == home).then_some(Standing::Canonical);
        }
        let tracker = self.entries.view.tracker();
        match tracker.lookup(number, self.tags.arrival) {
            Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } | Lookup::Asked(at) => {
                (at == block).then_some(Standing::Canonical)
            }
            Lookup::Tracked { hash: at, fresh: false } => (at == block).then_some(Standing::Stale),
            Lookup::Unknown if tracker.is_above_shown(number) || tracker.excludes(number, block) => None,
            Lookup::Unknown if tracker.is_placed(hash, block, self.tags.arrival) => Some(Standing::Canonical),
            Lookup::Unknown => Some(Standing::Unconfirmed),
            Lookup::Above { .. } => None,
        }
    }

    /// Returns whether this location really holds the transaction: the index stores only part of its hash.
    fn holds(&self, Location { home, index }: Location, hash: TxHash, part: Part) -> bool {
        let in_block = || Some(self.entries.block_of(home.block)?.transaction_hash(index) == Some(hash));
        let in_receipts =
            || Some(self.entries.receipts_of(home.block)?.transaction_hash(index) == Some(hash));
        // Read first the entry that also has the answer.
        let held = match part {
            Part::Receipt => in_receipts().or_else(in_block),
            _ => in_block().or_else(in_receipts),
        };
        held == Some(true)
    }

    /// Returns whether only the node can locate transactions. On a development chain a transaction may be in two blocks;
    /// while canonicity is suspended, the proxy does not know which blocks are canonical.
    fn is_unlocatable(&self) -> bool {
        let tracker = self.entries.view.tracker();
        tracker.rules().development || tracker.is_suspended()
    }
}
