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
    chain::{Lookup, Tracker},
    eth::{Home, Part, Query, Tag, TxHash, TxPosition},
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
#[derive(Clone, Copy)]
struct Found {
    standing: Standing,
    home: Home,
    /// The position, if the block or its receipts are cached, and not only the transaction or its receipt alone.
    index: Option<TxPosition>,
}

// === impl TransactionLookup ===

impl TransactionLookup<'_> {
    /// Looks up a transaction or a receipt by the transaction's hash.
    pub(super) fn plan(&self, query: Query, hash: TxHash) -> LookupPlan {
        let Some(found) = self.find(query.part, hash) else { return self.unfound(query, hash) };
        let answer = self.answer(query.part, hash, found);
        match found.standing {
            Standing::Canonical => answer.map_or_else(|| self.fetch(query, found), LookupPlan::from),
            _ if found.index.is_none() && answer.is_none() => LookupPlan::fetch(query),
            Standing::Stale => LookupPlan::Refresh(Tag::Latest),
            Standing::Unconfirmed => self.confirm(query, found),
        }
    }

    /// Returns the plan for a transaction that no canonical block in the cache contains.
    fn unfound(&self, query: Query, hash: TxHash) -> LookupPlan {
        if is_unlocatable(&self.entries.view.tracker()) {
            return self.tags.unless_due(LookupPlan::Forward);
        }
        if query.part != Part::Receipt {
            return LookupPlan::fetch(query);
        }
        let absences = &self.entries.state.absences;
        match absences.look(hash, self.tags.arrival, &self.entries.view.tracker()) {
            Absent::Surely => LookupPlan::Hit(CachedAnswer::of_view(NULL)),
            Absent::IfFresh => LookupPlan::Refresh(Tag::Latest),
            Absent::Unknown => LookupPlan::fetch(query),
        }
    }

    /// Plans to fetch the block at the number of a block that contains the transaction, to see whether it is that block.
    fn confirm(&self, query: Query, found: Found) -> LookupPlan {
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
    fn fetch(&self, query: Query, found: Found) -> LookupPlan {
        let state = self.entries.state;
        let whole = Query::new(query.part.whole(), found.home.block);
        let is_lacking = query.part == Part::Receipt && !state.node.has_block_receipts();
        let is_futile = is_lacking
            || !state.derivations.allow(query.part)
            || state.uncacheable.gone_from(query, query.part).is_some()
            || state.uncacheable.contains(whole);
        LookupPlan::fetch(if found.index.is_some() && !is_futile { whole } else { query })
    }

    /// Finds the surest canonical block that contains the transaction. Of blocks that are equally sure, finds the newest: the
    /// order of the index is random.
    fn find(&self, part: Part, hash: TxHash) -> Option<Found> {
        let mut best: Option<Found> = None;
        for location in self.entries.state.cache.locations(hash) {
            let Location { home, index } = location;
            if !self.holds(location, hash, part) {
                continue;
            }
            let Some(standing) = self.standing(hash, home) else { continue };
            let found = Found { standing, home, index: Some(index) };
            if standing == Standing::Canonical {
                return Some(found);
            }
            let rank = |found: &Found| (found.standing, Reverse(found.home.number));
            if best.as_ref().is_none_or(|best| rank(&found) < rank(best)) {
                best = Some(found);
            }
        }
        let other = if part == Part::Receipt { Part::Transaction } else { Part::Receipt };
        let alone = self.entries.single(part, hash).or_else(|| self.entries.single(other, hash));
        // A proved block would have been found above if it contained the transaction.
        let is_refuted =
            |home: Home| self.entries.block_of(home.block).is_some_and(|block| block.is_proved());
        if let Some((home, _)) = alone.filter(|(home, _)| !is_refuted(*home))
            && let Some(standing) = self.standing(hash, home)
            && best.is_none_or(|best| standing < best.standing)
        {
            best = Some(Found { standing, home, index: None });
        }
        best
    }

    /// Returns the answer out of the block, its receipts, or the entry alone.
    fn answer(&self, part: Part, hash: TxHash, Found { home, index, .. }: Found) -> Option<CachedAnswer> {
        let whole = match (part, index) {
            (Part::Receipt, Some(index)) => self.entries.receipt_at(home.block, index),
            (_, Some(index)) => self.entries.transaction_at(home.block, index),
            (_, None) => None,
        };
        let single = || self.entries.single(part, hash).filter(|(of, _)| *of == home);
        whole.or_else(|| single().map(|(_, answer)| answer))
    }

    /// Returns whether a block that contains the transaction is canonical; `None` if another block is, or if only the node
    /// knows. If the view knows the block at a number, it overrules a single answer that names another block there.
    fn standing(&self, hash: TxHash, home: Home) -> Option<Standing> {
        let Home { block, number } = home;
        let tracker = self.entries.view.tracker();
        if is_unlocatable(&tracker) {
            return None;
        }
        if let Some(shown) = self.shown.filter(|shown| shown.number == number) {
            return (shown == home).then_some(Standing::Canonical);
        }
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
}

/// Returns whether only the node can locate transactions. On a development chain a transaction may be in two blocks;
/// while canonicity is suspended, the proxy does not know which blocks are canonical.
fn is_unlocatable(tracker: &Tracker) -> bool {
    tracker.rules().development || tracker.is_suspended()
}
