//! Looks up queries that name a transaction: where it is, and whether to fetch its whole block.

use super::{
    absence::Absent,
    entries::Entries,
    plan::{CachedAnswer, LookupPlan},
    prefetch::PrefetchCounter,
    tags::Tags,
};
use crate::{
    cache::Location,
    chain::{Lookup, Stamp, Tracker},
    eth::{At, Home, Part, Query, Tag, TxHash},
    proxy::call::{packet::PacketContext, slice::NULL},
    verify::Kind,
};

/// Lookup of one query that names a transaction.
#[derive(Debug)]
pub(super) struct TransactionLookup<'a> {
    pub(super) entries: &'a Entries<'a>,
    pub(super) tags: &'a Tags<'a>,
    pub(super) packet: &'a PacketContext,
    pub(super) prefetch: &'a PrefetchCounter,
}

/// Location of a transaction.
enum Located {
    /// In this block, which is canonical. If not `surely`, a fetch must name the block by number.
    Here {
        location: Location,
        surely: bool,
    },
    /// In this block, if a refresh confirms the view.
    Stale(Location),
    /// In this block, if it is the canonical one at its number.
    Unconfirmed(Location),
    Nowhere,
    /// Only the node knows.
    Unlocatable,
}

// === impl TransactionLookup ===

impl TransactionLookup<'_> {
    /// Looks up a transaction or a receipt by the transaction's hash.
    pub(super) fn plan(&self, query: Query, hash: TxHash) -> LookupPlan {
        let arrival = self.tags.arrival;
        let is_receipt = query.part == Part::Receipt;
        let content = |Location { home, index }| {
            if is_receipt {
                self.entries.receipt_answer(hash, home.block, index)
            } else {
                self.entries.transaction_answer(home.block, index, Some(hash))
            }
        };
        match self.locate(hash, query.part, arrival) {
            Located::Here { location, surely } => match content(location) {
                Some(answer) => answer.into_plan(),
                None => self.fetch_or_prefetch(query, hash, location.home, surely),
            },
            Located::Stale(location) if content(location).is_some() => LookupPlan::Refresh(Tag::Latest),
            Located::Stale(location) => self.fetch_or_prefetch(query, hash, location.home, false),
            Located::Unconfirmed(location) => self.confirm(location, query),
            Located::Nowhere if is_receipt => {
                match self.entries.state.absences.look(hash, arrival, &self.entries.view.tracker()) {
                    Absent::Surely => LookupPlan::Hit(CachedAnswer::of_view(NULL)),
                    Absent::IfFresh => LookupPlan::Refresh(Tag::Latest),
                    Absent::Unknown => LookupPlan::Fetch(query),
                }
            }
            Located::Nowhere => LookupPlan::Fetch(query),
            Located::Unlocatable => self.tags.unless_due(LookupPlan::Forward),
        }
    }

    /// Plans to fetch the block at the number that a single transaction or receipt names, to see whether it is the
    /// block that they name. Plans a full block, unless that block is cached already.
    fn confirm(&self, Location { home, .. }: Location, single: Query) -> LookupPlan {
        if self.entries.view.tracker().head().is_none() {
            // Fetch the head first: when it arrives, the view discards all earlier answers for single numbers.
            return LookupPlan::FetchHead;
        }
        let is_cached = self.entries.block_of(home.block).is_some()
            // Where proof is demanded, only a full block proves its list of hashes.
            || !self.entries.demands_proof(Kind::Transactions)
                && (self.entries.receipts_of(home.block).is_some() || self.entries.state.cache.block_with_hashes(home.block).is_some());
        let part = if is_cached { Part::BlockWithHashes } else { Part::Block };
        let block = Query::new(part, home.number);
        if self.entries.is_uncacheable(block) {
            LookupPlan::Fetch(single)
        } else {
            LookupPlan::Confirm(block, single)
        }
    }

    /// Plans to fetch a single transaction or receipt, or the whole block or receipt list that contains it: by hash if
    /// the block is `surely` canonical, else by number.
    fn fetch_or_prefetch(
        &self,
        single: Query,
        hash: TxHash,
        Home { block, number }: Home,
        surely: bool,
    ) -> LookupPlan {
        let part = single.part;
        let at = if surely { At::Hash(block) } else { At::Number(number) };
        let whole = Query::new(part.whole(), at);
        let is_lacking = part == Part::Receipt && !self.entries.state.node.has_block_receipts();
        if is_lacking || !self.entries.state.derivations.allow(part) || self.entries.is_uncacheable(whole) {
            return LookupPlan::Fetch(single);
        }
        let arrival = self.tags.arrival;
        let locate = |hash| match self.locate(hash, part, arrival) {
            Located::Here { location, .. } | Located::Stale(location) | Located::Unconfirmed(location) => {
                Some(location.home.block)
            }
            Located::Nowhere | Located::Unlocatable => None,
        };
        let together = self.packet.answers_in_block(part, block, locate);
        // A client that reads a whole block mostly reads all its receipts.
        let is_read = part == Part::Receipt && self.entries.block_of(block).is_some();
        // Only the whole proves a part.
        if is_read
            || self.entries.demands_proof(Kind::of(part))
            || self.prefetch.is_due(part, block, hash, together)
        {
            LookupPlan::Prefetch(whole, single)
        } else {
            LookupPlan::Fetch(single)
        }
    }

    /// Finds a transaction on the canonical chain, among the locations in the index. If the view knows the block at a
    /// number, it overrules a single answer that names another block there.
    fn locate(&self, hash: TxHash, part: Part, arrival: Stamp) -> Located {
        let (mut placed, mut stale, mut unconfirmed) = (None, None, None);
        for location in self.entries.state.cache.locations(hash) {
            if !self.holds(location, hash, part) {
                continue;
            }
            let Home { block, number } = location.home;
            let tracker = self.entries.view.tracker();
            if is_unlocatable(&tracker) {
                return Located::Unlocatable;
            }
            match tracker.lookup(number, arrival) {
                Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } if at == block => {
                    return Located::Here { location, surely: true };
                }
                Lookup::Asked(at) if at == block => placed = Some(location),
                Lookup::Tracked { hash: at, fresh: false } if at == block => stale = Some(location),
                Lookup::Unknown if tracker.is_above_shown(number) || tracker.excludes(number, block) => {}
                Lookup::Unknown if tracker.is_placed(hash, block, arrival) => {
                    placed.get_or_insert(location);
                }
                Lookup::Unknown => unconfirmed = Some(location),
                _ => {}
            }
        }
        let here = placed.map(|location| Located::Here { location, surely: false });
        here.or(stale.map(Located::Stale)).or(unconfirmed.map(Located::Unconfirmed)).unwrap_or_else(|| {
            if is_unlocatable(&self.entries.view.tracker()) { Located::Unlocatable } else { Located::Nowhere }
        })
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
        let cache = &self.entries.state.cache;
        let is_transaction = || Some(cache.single_transaction(home.block, index)?.hash() == hash);
        let is_receipt = || Some(cache.single_receipt(home.block, index)?.hash() == hash);
        held.unwrap_or_else(|| is_transaction() == Some(true) || is_receipt() == Some(true))
    }
}

/// Returns whether only the node can locate transactions. On a development chain a transaction may be in two blocks;
/// while canonicity is suspended, the proxy does not know which blocks are canonical.
fn is_unlocatable(tracker: &Tracker) -> bool {
    tracker.rules().development || tracker.is_suspended()
}
