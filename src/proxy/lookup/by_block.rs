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
    eth::{At, BlockHash, BlockNumber, Part, Query, Tag},
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
}

/// Block that a query names, as far as it is known.
enum Resolved {
    /// This block. If it is not `surely` still canonical, a fetch must name it by number.
    Known {
        hash: BlockHash,
        surely: bool,
        at: Option<BlockNumber>,
    },
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
    ResolveTag,
    FetchHead,
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
            _ => LookupPlan::ResolveTag,
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
                let renew = self
                    .entries
                    .renews(Kind::Transactions, &with_hashes, with_hashes.header().number)
                    .then_some(Query::new(Part::BlockWithHashes, hash));
                let answer = CachedAnswer::cached(Part::BlockWithHashes, with_hashes.bytes(), renew);
                Some(answer.of_whole(self.packet, || Some(Whole::block_with_hashes(&with_hashes))))
            }
            (None, true) => None,
        };
        if !full && !derives {
            return self.in_block(query, content);
        }
        match self.in_block(query.with_part(Part::Block), content) {
            // Do not fetch a full block that cannot be cached.
            LookupPlan::Fetch(whole) if !full && self.entries.is_uncacheable(whole) => {
                LookupPlan::Fetch(whole.with_part(Part::BlockWithHashes))
            }
            plan => plan,
        }
    }

    fn transaction_in(&self, query: Query) -> LookupPlan {
        let Some(index) = query.index else { return LookupPlan::Forward };
        let content = |hash| self.entries.transaction_answer(hash, index, None);
        if self.entries.demands_proof(Kind::Transactions) {
            return self.in_block(Query::new(Part::Block, query.at), content);
        }
        let plan = self.in_block(query, content);
        match (&plan, query.number()) {
            (LookupPlan::Fetch(alone), Some(number))
                if alone.number().is_some() && self.entries.view.tracker().has_placed(number) =>
            {
                let recent = self.entries.transaction_at(number, index, self.tags.arrival);
                // Without a recent answer to this query, an earlier single transaction named a block at this number, but
                // does not prove which block is there.
                let confirm = || LookupPlan::Confirm(Query::new(Part::Block, number), *alone);
                recent.map_or_else(confirm, CachedAnswer::into_plan)
            }
            // By number, `null` means that there is no transaction at the index. By a hash that only the view has
            // named, it could also mean that the node has no such block.
            (LookupPlan::Fetch(_), Some(_)) => LookupPlan::Fetch(query),
            _ => plan,
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
        match self.in_block(query, content) {
            // Only the block proves its receipts.
            LookupPlan::Fetch(alone)
                if self.entries.demands_proof(Kind::Receipts) && !self.has_block(alone.at) =>
            {
                LookupPlan::Prefetch(alone.with_part(Part::Block), alone)
            }
            plan => plan,
        }
    }

    /// Returns whether the block with this hash is cached; false for a number, whose block can change.
    fn has_block(&self, at: At) -> bool {
        matches!(at, At::Hash(hash) if self.entries.block_of(hash).is_some())
    }

    /// Answers a count from a proved block. Fetching the block costs no more calls than asking for the count.
    fn count(&self, block: At, count: impl Fn(&Cache, BlockHash) -> Option<(usize, Part)>) -> LookupPlan {
        let content = |hash| {
            let (count, part) = count(&self.entries.state.cache, hash)?;
            Some(CachedAnswer::cached(part, quantity(count), None))
        };
        let plan = self.in_block(Query::new(Part::Block, block), content);
        if let LookupPlan::Hit(CachedAnswer { source: Source::View, .. }) = plan {
            // Above the head, nodes differ: some answer `null`, others with an error.
            return LookupPlan::Forward;
        }
        let LookupPlan::Fetch(fetch) = plan else { return plan };
        let is_futile = match self.entries.demands(Kind::Transactions) {
            Demand::Structural => true,
            // An unproved block has no count, and another fetch would not prove it.
            Demand::Auto => self.has_block(fetch.at) || self.entries.is_uncacheable(fetch),
            Demand::Full => false,
        };
        if is_futile { LookupPlan::Forward } else { plan }
    }

    /// Answers from the content of the block that `fetch` names, or plans to fetch it.
    fn in_block(&self, fetch: Query, content: impl Fn(BlockHash) -> Option<CachedAnswer>) -> LookupPlan {
        match self.resolve(fetch.at) {
            Resolved::Known { hash, at: Some(number), .. }
                if self.entries.is_at_other_number(hash, number) =>
            {
                LookupPlan::Fetch(fetch.pinned(number))
            }
            Resolved::Known { hash, surely, at } => match (content(hash), at) {
                (Some(answer), _) => answer.into_plan(),
                (None, Some(number)) if !surely => LookupPlan::Fetch(fetch.pinned(number)),
                (None, _) => LookupPlan::Fetch(fetch.pinned(hash)),
            },
            Resolved::Stale { hash, at } if self.entries.is_at_other_number(hash, at) => {
                LookupPlan::Fetch(fetch.pinned(at))
            }
            // If the content is cached, a refresh shows whether its block is still canonical. If not, one fetch by
            // number shows that and brings the content.
            Resolved::Stale { hash, at } => match content(hash) {
                Some(_) => LookupPlan::Refresh(Tag::Latest),
                None => LookupPlan::Fetch(fetch.pinned(at)),
            },
            Resolved::Nothing => LookupPlan::Hit(CachedAnswer::of_view(NULL)),
            Resolved::Ask(number) => {
                // If the block that an earlier answer named at this number is cached, it is enough to fetch the block
                // with hashes, to see whether the same block is still there.
                let hint = self.entries.view.tracker().hint_at(number);
                let is_told = |hash| {
                    !self.entries.demands_proof(Kind::Transactions) || self.entries.block_of(hash).is_some()
                };
                match hint.filter(|&hash| is_told(hash)).and_then(content) {
                    Some(_) => {
                        LookupPlan::Confirm(Query::new(Part::BlockWithHashes, number), fetch.pinned(number))
                    }
                    None => LookupPlan::Fetch(fetch.pinned(number)),
                }
            }
            Resolved::Refresh(tag) => LookupPlan::Refresh(tag),
            Resolved::ResolveTag => LookupPlan::ResolveTag,
            Resolved::FetchHead => LookupPlan::FetchHead,
            Resolved::Forward => LookupPlan::Forward,
        }
    }

    fn resolve(&self, block: At) -> Resolved {
        match block {
            At::Hash(hash) => Resolved::Known { hash, surely: true, at: None },
            At::Tx(_) => Resolved::Forward,
            At::Tag(tag) => self.tagged(tag),
            At::Number(number) => {
                let tracker = self.entries.view.tracker();
                let at = Some(number);
                match tracker.lookup(number, self.tags.arrival) {
                    Lookup::Final(hash) | Lookup::Tracked { hash, fresh: true } => {
                        Resolved::Known { hash, surely: true, at }
                    }
                    Lookup::Tracked { hash, fresh: false } => Resolved::Stale { hash, at: number },
                    Lookup::Asked(hash) => Resolved::Known { hash, surely: false, at },
                    Lookup::Above { fresh: true } => Resolved::Nothing,
                    Lookup::Above { fresh: false } => Resolved::Refresh(Tag::Latest),
                    Lookup::Unknown if tracker.is_suspended() && tracker.may_refresh(self.tags.arrival) => {
                        Resolved::Refresh(Tag::Latest)
                    }
                    Lookup::Unknown if tracker.is_suspended() => Resolved::Forward,
                    Lookup::Unknown if tracker.head().is_none() => Resolved::FetchHead,
                    Lookup::Unknown => Resolved::Ask(number),
                }
            }
        }
    }

    fn tagged(&self, tag: Tag) -> Resolved {
        match self.tags.meaning(tag) {
            TagMeaning::Block(link) => Resolved::Known { hash: link.hash, surely: true, at: None },
            TagMeaning::Nothing if self.tags.is_refresh_due() => Resolved::Refresh(Tag::Latest),
            TagMeaning::Nothing => Resolved::Forward,
            _ => Resolved::ResolveTag,
        }
    }
}

/// Returns content only if it is proved.
fn proved<T>(content: Option<Arc<Verified<T>>>) -> Option<Arc<Verified<T>>> {
    content.filter(|content| content.is_proved())
}
