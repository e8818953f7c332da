//! Looks up queries that name their block.

use std::sync::Arc;

use super::{
    entries::Entries,
    plan::{CachedAnswer, LookupPlan},
    tags::{TagMeaning, Tags},
};
use crate::{
    cache::{Cache, Whole},
    chain::Lookup,
    eth::{At, BlockHash, BlockNumber, Home, Part, Query, Tag},
    proxy::call::{
        outcome::Source,
        packet::PacketContext,
        slice::{EMPTY_LIST, NULL, hashes_only, quantity},
    },
    verify::{Demand, Kind, Verified},
};

/// Lookup of one query that names its block by hash, number or tag.
#[derive(Debug)]
pub(super) struct BlockLookup<'a> {
    pub(super) entries: &'a Entries<'a>,
    pub(super) tags: &'a Tags<'a>,
    pub(super) packet: &'a PacketContext,
    /// A block that the node has just shown to be canonical.
    pub(super) shown: Option<Home>,
}

/// Block that a query names, as far as it is known.
enum Resolved {
    Known(BlockHash),
    /// This block, if a refresh confirms the view.
    Stale {
        hash: BlockHash,
        at: BlockNumber,
    },
    /// No block: the number is above the head.
    Nothing,
    /// An unknown block at this number.
    Ask(BlockNumber),
    Refresh(Tag),
    Forward,
}

// === impl BlockLookup ===

impl BlockLookup<'_> {
    pub(super) fn plan(&self, query: Query) -> LookupPlan {
        match query.part {
            Part::Block | Part::BlockWithHashes => self.block(query),
            Part::Transaction => self.transaction_in(query),
            Part::Receipts => self.block_receipts(query),
            Part::Receipt => LookupPlan::Forward,
            Part::TransactionCount => self.count(query.at, |cache, hash| {
                let count = proved(cache.block(hash)).map(|block| (block.len(), Part::Block));
                count.or_else(|| Some((proved(cache.block_with_hashes(hash))?.len(), Part::BlockWithHashes)))
            }),
            // The number of uncles is proved only if there are none.
            Part::UncleCount => self.count(query.at, |cache, hash| {
                let block = proved(cache.block(hash)).filter(|block| block.header().uncles == 0);
                block.map(|_| (0, Part::Block))
            }),
            Part::Number => self.head_number(),
        }
    }

    fn head_number(&self) -> LookupPlan {
        match self.tags.meaning(Tag::Latest) {
            TagMeaning::Block(head) => LookupPlan::Hit(CachedAnswer::of_number(head.number)),
            TagMeaning::Nothing => self.tags.unless_due(LookupPlan::Forward),
            _ => LookupPlan::Refresh(Tag::Latest),
        }
    }

    fn block(&self, query: Query) -> LookupPlan {
        let full = query.part == Part::Block;
        let derives = self.entries.state.derivations.allow(Part::BlockWithHashes);
        let content = |hash| match (self.entries.block_of(hash), full) {
            (Some(block), true) => {
                let answer = self.entries.block_answer(&block, block.full());
                Some(answer.of_whole(self.packet, || Some(Whole::full(&block))))
            }
            (Some(block), false) if derives => {
                let answer = self.entries.block_answer(&block, hashes_only(&block));
                Some(answer.of_whole(self.packet, || Some(Whole::hashes(&block))))
            }
            (_, false) => {
                let with_hashes = self.entries.state.cache.block_with_hashes(hash)?;
                let fetch = Query::new(Part::BlockWithHashes, hash);
                let renew = self.entries.renews(fetch, with_hashes.lasts(), with_hashes.header().number);
                let answer = CachedAnswer::cached(Part::BlockWithHashes, with_hashes.bytes(), renew);
                Some(answer.of_whole(self.packet, || Some(Whole::block_with_hashes(&with_hashes))))
            }
            (None, true) => None,
        };
        let part = if full || derives { Part::Block } else { Part::BlockWithHashes };
        match self.in_block(query.at, part, part, content) {
            // Do not fetch a full block that cannot be cached.
            LookupPlan::Fetch(whole, None) if !full && self.entries.is_uncacheable(whole) => {
                LookupPlan::fetch(whole.with_part(Part::BlockWithHashes))
            }
            plan => plan,
        }
    }

    /// Cuts the transaction out of its block, which costs one call like the transaction alone.
    fn transaction_in(&self, query: Query) -> LookupPlan {
        let Some(index) = query.index else { return LookupPlan::Forward };
        let content = |hash| self.entries.transaction_at(hash, index);
        let is_cut = self.entries.state.derivations.allow(Part::Transaction);
        match self.in_block(query.at, Part::Block, Part::Block, content) {
            // An unproved block without a transaction at the index does not prove that there is none.
            LookupPlan::Fetch(fetch, None)
                if !is_cut || self.entries.is_uncacheable(fetch) || self.has_block(fetch.at) =>
            {
                LookupPlan::fetch(query)
            }
            plan => plan,
        }
    }

    fn block_receipts(&self, query: Query) -> LookupPlan {
        let content = |hash| {
            let Some(receipts) = self.entries.receipts_of(hash) else {
                // A proved block without transactions has no receipts.
                let cache = &self.entries.state.cache;
                let count = proved(cache.block(hash)).map(|block| block.len());
                let count = count.or_else(|| Some(proved(cache.block_with_hashes(hash))?.len()));
                return (count == Some(0)).then(|| CachedAnswer::cached(Part::Block, EMPTY_LIST, None));
            };
            let renew = self.entries.receipts_renew(&receipts);
            let answer = CachedAnswer::cached(Part::Receipts, receipts.all(), renew);
            Some(answer.of_whole(self.packet, || Whole::receipts(&receipts)))
        };
        // The block shows where the receipts are, and proves them.
        let is_unprovable = self.entries.demands(Kind::Receipts) == Demand::Structural;
        let part = if is_unprovable { Part::BlockWithHashes } else { Part::Block };
        match self.in_block(query.at, Part::Receipts, part, content) {
            LookupPlan::Fetch(_, None) if !self.entries.state.node.has_block_receipts() => {
                LookupPlan::Forward
            }
            LookupPlan::Fetch(fetch, None) => {
                let block = fetch.with_part(Part::Block);
                let is_wanted = query.number().is_some() || self.entries.demands_proof(Kind::Receipts);
                let can_prove = !is_unprovable && !self.entries.is_uncacheable(block);
                LookupPlan::fetch(match fetch.part {
                    Part::Receipts if is_wanted && can_prove && !self.has_block(fetch.at) => block,
                    Part::Block if !can_prove => fetch.with_part(Part::BlockWithHashes),
                    _ => fetch,
                })
            }
            plan => plan,
        }
    }

    /// Returns whether the block with this hash is cached; false for a number, whose block can change.
    fn has_block(&self, at: At) -> bool {
        matches!(at, At::Hash(hash) if self.entries.block_of(hash).is_some())
    }

    /// Answers a count from a proved block. Fetching the block costs no more calls than asking for the count.
    fn count(&self, at: At, count: impl Fn(&Cache, BlockHash) -> Option<(usize, Part)>) -> LookupPlan {
        let content = |hash| {
            let (count, part) = count(&self.entries.state.cache, hash)?;
            Some(CachedAnswer::cached(part, quantity(count), None))
        };
        let plan = self.in_block(at, Part::Block, Part::Block, content);
        if let LookupPlan::Hit(CachedAnswer { source: Source::View, .. }) = plan {
            // Above the head, nodes differ: some answer `null`, others with an error.
            return LookupPlan::Forward;
        }
        let LookupPlan::Fetch(fetch, _) = plan else { return plan };
        let is_futile = match self.entries.demands(Kind::Transactions) {
            Demand::Structural => true,
            // An unproved block has no count, and another fetch would not prove it.
            Demand::Auto => self.has_block(fetch.at) || self.entries.is_uncacheable(fetch),
            Demand::Full => self.has_block(fetch.at),
        };
        if is_futile { LookupPlan::Forward } else { plan }
    }

    /// Answers from the content of a block, or plans to fetch `part` of it by its hash. If the block is unknown, plans to
    /// fetch `by_number` at its number, which shows the block.
    fn in_block(
        &self,
        at: At,
        part: Part,
        by_number: Part,
        content: impl Fn(BlockHash) -> Option<CachedAnswer>,
    ) -> LookupPlan {
        let ask = |number| LookupPlan::fetch(Query::new(by_number, number));
        match self.resolve(at) {
            Resolved::Known(hash) => match content(hash) {
                Some(answer) => answer.into(),
                None => LookupPlan::fetch(Query::new(part, hash)),
            },
            // If the block is cached, a refresh shows whether it is still canonical. If not, one fetch by number shows that
            // and brings the content.
            Resolved::Stale { hash, .. } if content(hash).is_some() || self.has_block(At::Hash(hash)) => {
                LookupPlan::Refresh(Tag::Latest)
            }
            Resolved::Stale { at: number, .. } => ask(number),
            Resolved::Nothing => LookupPlan::Hit(CachedAnswer::of_view(NULL)),
            Resolved::Ask(number) => {
                // If the block that an earlier answer named at this number is cached, it is enough to fetch the block
                // with hashes, to see whether the same block is still there.
                let light = Query::new(Part::BlockWithHashes, number);
                let hint = self.entries.view.tracker().hint_at(number).map(|link| link.hash);
                let is_enough = |hash| {
                    let has_block = self.has_block(At::Hash(hash));
                    has_block || (!self.entries.demands_proof(Kind::Transactions) && content(hash).is_some())
                };
                let is_light = hint.is_some_and(is_enough);
                match is_light && !self.entries.state.uncacheable.contains(light) {
                    true => LookupPlan::fetch(light),
                    false => ask(number),
                }
            }
            Resolved::Refresh(tag) => LookupPlan::Refresh(tag),
            Resolved::Forward => LookupPlan::Forward,
        }
    }

    fn resolve(&self, block: At) -> Resolved {
        let number = match block {
            At::Hash(hash) => return Resolved::Known(hash),
            At::Tx(_) => return Resolved::Forward,
            At::Tag(tag) => return self.tagged(tag),
            At::Number(number) => number,
        };
        if let Some(shown) = self.shown {
            return Resolved::Known(shown.block);
        }
        let tracker = self.entries.view.tracker();
        let is_suspended = tracker.is_suspended();
        match tracker.lookup(number, self.tags.arrival) {
            Lookup::Final(hash) | Lookup::Tracked { hash, fresh: true } | Lookup::Asked(hash) => {
                Resolved::Known(hash)
            }
            Lookup::Tracked { hash, fresh: false } => Resolved::Stale { hash, at: number },
            Lookup::Above { fresh: true } => Resolved::Nothing,
            Lookup::Above { fresh: false } => Resolved::Refresh(Tag::Latest),
            Lookup::Unknown if is_suspended && tracker.may_refresh(self.tags.arrival) => {
                Resolved::Refresh(Tag::Latest)
            }
            Lookup::Unknown if is_suspended => Resolved::Forward,
            Lookup::Unknown if tracker.head().is_none() => Resolved::Refresh(Tag::Latest),
            Lookup::Unknown => Resolved::Ask(number),
        }
    }

    fn tagged(&self, tag: Tag) -> Resolved {
        match self.tags.meaning(tag) {
            TagMeaning::Block(link) => Resolved::Known(link.hash),
            TagMeaning::Nothing if self.tags.is_refresh_due() => Resolved::Refresh(Tag::Latest),
            TagMeaning::Nothing => Resolved::Forward,
            _ => Resolved::Refresh(tag),
        }
    }
}

/// Returns content only if it is proved.
fn proved<T>(content: Option<Arc<Verified<T>>>) -> Option<Arc<Verified<T>>> {
    content.filter(|content| content.is_proved())
}
