//! Looks into memory: one synchronous step, which answers a hit and says what a miss would need.

pub(super) mod absence;
mod by_transaction;
pub(super) mod compress;
pub(super) mod derive;
pub(super) mod prefetch;
mod slice;

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use bytes::{BufMut, Bytes, BytesMut};

pub(super) use self::slice::Piece;
use crate::{
    cache::{Cache, Whole},
    chain::{Ancestry, Link, Lookup, Stamp},
    eth::{At, Block, BlockHash, BlockNumber, Part, Query, Receipts, Tag},
    proxy::{
        call::{packet::PacketContext, request::Source},
        head::View,
        lookup::{absence::Absences, derive::Derivations, prefetch::Tally},
        miss::fetcher::Fetcher,
    },
    verify::{Demand, Kind, Verified},
};

/// What memory says to a call.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// The answer.
    Hit(Piece),
    /// It could answer, if the view were fresh.
    Refresh(Tag),
    /// It must first be found out which block its tag means.
    Tagged,
    /// It knows nothing of the chain yet.
    Establish,
    /// This must be fetched.
    Fetch(Query),
    /// All of a block that the answer is in should be fetched: it is likely to be wanted.
    Buy(Query, Query),
    /// There is something that nothing proves to be canonical: the block at its number must be fetched first. If that does
    /// not come, this must be fetched instead.
    Confirm(Query, Query),
    /// The answer, but it is time to ask for it once more: it was not proved, and has become final since.
    Renew(Query, Piece),
    /// Nothing that could be kept.
    Forward,
}

/// A block as far as it is known.
enum Resolved {
    /// This one. It may be fetched by its hash only where it is sure that it is still canonical.
    Known {
        hash: BlockHash,
        surely: bool,
        at: Option<BlockNumber>,
    },
    /// This one, if the view is fresh.
    Stale {
        hash: BlockHash,
        at: BlockNumber,
    },
    /// None.
    Nothing,
    Ask(BlockNumber),
    Refresh(Tag),
    Tagged,
    Establish,
    Forward,
}

/// What a tag means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// This block.
    Block(Link),
    /// It must be asked for.
    Unknown,
    /// The block that it means is not on one branch with those that other tags mean.
    Apart,
    /// Whether it is on one branch with them, another look at the head tells.
    Unsure,
    /// No block that can be told: the node decides.
    Nothing,
}

/// What looking needs.
#[derive(Debug)]
pub(super) struct Memory<'a> {
    pub(super) cache: &'a Cache,
    pub(super) view: &'a View,
    pub(super) absences: &'a Absences,
    pub(super) tally: &'a Tally,
    pub(super) has_block_receipts: bool,
    /// What is demanded of content, by [`Kind`].
    pub(super) demands: [Demand; 3],
    pub(super) vain: &'a Fetcher,
    pub(super) derivations: &'a Derivations,
    pub(super) last: Last,
    /// The block that the call's tag was taken to mean.
    pub(super) pinned: Cell<Option<Link>>,
}

/// What was found last: one look asks for the same thing more than once.
#[derive(Debug, Default)]
pub(super) struct Last {
    block: RefCell<Option<Arc<Verified<Block>>>>,
    receipts: RefCell<Option<Arc<Verified<Receipts>>>>,
}

pub(super) const NULL: Bytes = Bytes::from_static(b"null");

// === impl Memory ===

impl Memory<'_> {
    pub(super) fn look(&self, query: Query, packet: &PacketContext) -> Look {
        match (query.part, query.at) {
            (Part::Block | Part::BlockWithHashes, _) => self.block(query, packet),
            (Part::Transaction | Part::Receipt, At::Tx(hash)) => self.single(query, hash, packet),
            (Part::Transaction, _) => self.transaction_in(query, packet),
            (Part::Receipts, _) => self.block_receipts(query, packet),
            (Part::Receipt, _) => Look::Forward,
            (Part::TransactionCount, at) => self.count(at, packet, |cache, hash| {
                let count = proved(cache.block(hash)).map(|block| (block.len(), Part::Block));
                count.or_else(|| Some((proved(cache.thin(hash))?.len(), Part::BlockWithHashes)))
            }),
            // How many there are is proved only where there are none.
            (Part::UncleCount, at) => self.count(at, packet, |cache, hash| {
                let block = proved(cache.block(hash)).filter(|block| block.header().uncles == 0);
                block.map(|_| (0, Part::Block))
            }),
            (Part::Number, _) => self.head_number(packet),
        }
    }

    fn head_number(&self, packet: &PacketContext) -> Look {
        let arrival = packet.arrival(self.view.clock());
        match self.meaning(Tag::Latest, arrival, packet) {
            Meaning::Block(head) => Look::Hit(Piece::of_number(head.number)),
            Meaning::Unknown | Meaning::Apart | Meaning::Unsure => Look::Tagged,
            Meaning::Nothing => self.unless_due(arrival, Look::Forward),
        }
    }

    fn block(&self, query: Query, packet: &PacketContext) -> Look {
        let full = query.part == Part::Block;
        let derives = self.derivations.allow(Part::BlockWithHashes);
        let content = |hash| match (self.block_of(hash), full) {
            (Some(block), true) => {
                let piece = self.block_piece(&block, block.full());
                Some(piece.of_whole(packet, || Some(Whole::full(&block))))
            }
            (Some(block), false) if derives => {
                let piece = self.block_piece(&block, hashes_only(&block));
                Some(piece.of_whole(packet, || Some(Whole::hashes(&block))))
            }
            (_, false) => {
                let thin = self.cache.thin(hash)?;
                let renew = self
                    .renews(Kind::Transactions, &thin, thin.header().number)
                    .then_some(Query::new(Part::BlockWithHashes, hash));
                let piece = Piece::cached(Part::BlockWithHashes, thin.bytes(), renew);
                Some(piece.of_whole(packet, || Some(Whole::thin(&thin))))
            }
            (None, true) => None,
        };
        if !full && !derives {
            return self.in_block(query, packet, content);
        }
        match self.in_block(query.with_part(Part::Block), packet, content) {
            // A whole block that cannot be kept is fetched for nothing.
            Look::Fetch(whole) if !full && self.is_vain(whole) => {
                Look::Fetch(whole.with_part(Part::BlockWithHashes))
            }
            look => look,
        }
    }

    fn transaction_in(&self, query: Query, packet: &PacketContext) -> Look {
        let Some(index) = query.index else { return Look::Forward };
        let content = |hash| self.transaction_piece(hash, index, true);
        if self.demands_proof(Kind::Transactions) {
            return self.in_block(Query::new(Part::Block, query.at), packet, content);
        }
        let look = self.in_block(query, packet, content);
        match (&look, query.number()) {
            // Fetched alone before, it did not show which block stands there.
            (Look::Fetch(alone), Some(number))
                if alone.number().is_some() && self.view.tracker().has_placed(number) =>
            {
                Look::Confirm(Query::new(Part::Block, number), *alone)
            }
            // By number a `null` says that there is nothing at the index; by a hash that only the view
            // has named, it could as well say that there is no such block.
            (Look::Fetch(_), Some(_)) => Look::Fetch(query),
            _ => look,
        }
    }

    fn block_receipts(&self, query: Query, packet: &PacketContext) -> Look {
        let content = |hash| {
            let receipts = self.receipts_of(hash)?;
            let renew = self.receipts_renew(&receipts);
            let piece = Piece::cached(Part::Receipts, receipts.all(), renew);
            Some(piece.of_whole(packet, || Whole::receipts(&receipts)))
        };
        match self.in_block(query, packet, content) {
            // Nothing but their block proves them.
            Look::Fetch(alone) if self.demands_proof(Kind::Receipts) && !self.has_block(alone.at) => {
                Look::Buy(alone.with_part(Part::Block), alone)
            }
            look => look,
        }
    }

    /// Returns whether the block with this hash is cached; never for a number, which any block may have.
    fn has_block(&self, at: At) -> bool {
        matches!(at, At::Hash(hash) if self.block_of(hash).is_some())
    }

    /// A number out of a block that is proved. To fetch that costs no more calls than to ask for the number.
    fn count(
        &self,
        block: At,
        packet: &PacketContext,
        count: impl Fn(&Cache, BlockHash) -> Option<(usize, Part)>,
    ) -> Look {
        let content = |hash| {
            let (count, part) = count(self.cache, hash)?;
            Some(Piece::cached(part, counted(count), None))
        };
        let look = self.in_block(Query::new(Part::Block, block), packet, content);
        if let Look::Hit(Piece { source: Source::View, .. }) = look {
            // Above the head nodes differ: some say `null`, some that there is no such block.
            return Look::Forward;
        }
        let Look::Fetch(fetch) = look else { return look };
        match look {
            Look::Fetch(_) if self.demands(Kind::Transactions) == Demand::Structural => Look::Forward,
            Look::Fetch(_) if self.demands_proof(Kind::Transactions) => Look::Fetch(fetch),
            Look::Fetch(_) if self.is_vain(fetch) => Look::Forward,
            look => look,
        }
    }

    /// What stands in the block that `fetch` names, or how to get it: by `fetch`, of the block as far as it is known.
    fn in_block(
        &self,
        fetch: Query,
        packet: &PacketContext,
        content: impl Fn(BlockHash) -> Option<Piece>,
    ) -> Look {
        match self.resolve(fetch.at, packet) {
            Resolved::Known { hash, at: Some(number), .. } if self.disowns(hash, number) => {
                Look::Fetch(fetch.pinned(number))
            }
            Resolved::Known { hash, surely, at } => match (content(hash), at) {
                (Some(piece), _) => piece.look(),
                (None, Some(number)) if !surely => Look::Fetch(fetch.pinned(number)),
                (None, _) => Look::Fetch(fetch.pinned(hash)),
            },
            // Something must be asked in either case: what the view is, or what stands there.
            Resolved::Stale { hash, at } if self.disowns(hash, at) => Look::Fetch(fetch.pinned(at)),
            Resolved::Stale { hash, at } => match content(hash) {
                Some(_) => Look::Refresh(Tag::Latest),
                None => Look::Fetch(fetch.pinned(at)),
            },
            Resolved::Nothing => Look::Hit(Piece::of_view(NULL)),
            Resolved::Ask(number) => {
                // What was said to stand there may be cached: then a header tells whether it does.
                let hint = self.view.tracker().hint_at(number);
                let is_told = |hash| !self.demands_proof(Kind::Transactions) || self.block_of(hash).is_some();
                match hint.filter(|&hash| is_told(hash)).and_then(content) {
                    Some(_) => Look::Confirm(Query::new(Part::BlockWithHashes, number), fetch.pinned(number)),
                    None => Look::Fetch(fetch.pinned(number)),
                }
            }
            Resolved::Refresh(tag) => Look::Refresh(tag),
            Resolved::Tagged => Look::Tagged,
            Resolved::Establish => Look::Establish,
            Resolved::Forward => Look::Forward,
        }
    }

    fn resolve(&self, block: At, packet: &PacketContext) -> Resolved {
        let arrival = packet.arrival(self.view.clock());
        match block {
            At::Hash(hash) => Resolved::Known { hash, surely: true, at: None },
            At::Tx(_) => Resolved::Forward,
            At::Tag(tag) => self.tagged(tag, arrival, packet),
            At::Number(number) => {
                let tracker = self.view.tracker();
                let at = Some(number);
                match tracker.lookup(number, arrival) {
                    Lookup::Final(hash) | Lookup::Tracked { hash, fresh: true } => {
                        Resolved::Known { hash, surely: true, at }
                    }
                    Lookup::Tracked { hash, fresh: false } => Resolved::Stale { hash, at: number },
                    Lookup::Asked(hash) => Resolved::Known { hash, surely: false, at },
                    Lookup::Above { fresh: true } => Resolved::Nothing,
                    Lookup::Above { fresh: false } => Resolved::Refresh(Tag::Latest),
                    Lookup::Unknown if tracker.is_suspended() && tracker.may_refresh(arrival) => {
                        Resolved::Refresh(Tag::Latest)
                    }
                    Lookup::Unknown if tracker.is_suspended() => Resolved::Forward,
                    Lookup::Unknown if tracker.head().is_none() => Resolved::Establish,
                    Lookup::Unknown => Resolved::Ask(number),
                }
            }
        }
    }

    /// Returns whether canonicity is suspended, and the finalized block should be asked for again before this call.
    fn is_refresh_due(&self, arrival: Stamp) -> bool {
        let tracker = self.view.tracker();
        // A refresh that was sent after this call arrived tells all that there is to tell.
        tracker.is_suspended() && tracker.may_refresh(arrival)
    }

    /// Asks for the finalized block first, if it is time for that.
    fn unless_due(&self, arrival: Stamp, look: Look) -> Look {
        if self.is_refresh_due(arrival) { Look::Refresh(Tag::Latest) } else { look }
    }

    /// The block that a tag means to all calls of a packet.
    pub(super) fn meaning(&self, tag: Tag, arrival: Stamp, packet: &PacketContext) -> Meaning {
        let pinned = packet.tag(tag);
        let link = pinned.or_else(|| {
            let tracker = self.view.tracker();
            match tag {
                _ if tracker.is_suspended() => None,
                Tag::Latest => tracker.head().filter(|_| tracker.is_fresh(arrival)),
                Tag::Safe => tracker.safe(arrival),
                Tag::Finalized => tracker.finalized_tag(arrival),
                Tag::Earliest | Tag::Pending => None,
            }
        });
        let is_suspended = self.view.tracker().is_suspended();
        let unpinned = link.filter(|_| pinned.is_none());
        let fits = unpinned.map_or(Ancestry::Ancestor, |link| self.fits(tag, link, packet));
        let meaning = match (link, tag) {
            (Some(_), _) if fits == Ancestry::Apart => Meaning::Apart,
            (Some(_), _) if fits == Ancestry::Unsure => Meaning::Unsure,
            (Some(link), _) => Meaning::Block(packet.pin(tag, link)),
            (None, Tag::Earliest | Tag::Pending) => Meaning::Nothing,
            (None, tag) if is_suspended || self.view.has_none(tag, arrival) => Meaning::Nothing,
            (None, _) => Meaning::Unknown,
        };
        if let Meaning::Block(link) = meaning {
            self.pinned.set(Some(link));
        }
        meaning
    }

    /// Returns whether this block, as the meaning of a tag, is on one branch with what the other tags of a packet mean.
    fn fits(&self, tag: Tag, link: Link, packet: &PacketContext) -> Ancestry {
        let tracker = self.view.tracker();
        match (tag, packet.tag(Tag::Latest)) {
            (Tag::Latest, _) => {
                let lower = [Tag::Safe, Tag::Finalized].into_iter().filter_map(|tag| packet.tag(tag));
                lower.map(|lower| tracker.ancestry(lower, link)).min().unwrap_or(Ancestry::Ancestor)
            }
            (Tag::Safe | Tag::Finalized, Some(latest)) => tracker.ancestry(link, latest),
            (Tag::Safe | Tag::Finalized, None) if tracker.excludes(link.number, link.hash) => Ancestry::Apart,
            _ => Ancestry::Ancestor,
        }
    }

    fn tagged(&self, tag: Tag, arrival: Stamp, packet: &PacketContext) -> Resolved {
        match self.meaning(tag, arrival, packet) {
            Meaning::Block(link) => Resolved::Known { hash: link.hash, surely: true, at: None },
            Meaning::Unknown | Meaning::Apart | Meaning::Unsure => Resolved::Tagged,
            Meaning::Nothing if self.is_refresh_due(arrival) => Resolved::Refresh(Tag::Latest),
            Meaning::Nothing => Resolved::Forward,
        }
    }

    /// The block with this hash.
    fn block_of(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        let mut last = self.last.block.borrow_mut();
        if last.as_ref().is_none_or(|last| last.hash() != hash) {
            *last = self.cache.block(hash);
        }
        last.clone()
    }

    /// The receipts of the block with this hash.
    fn receipts_of(&self, hash: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        let mut last = self.last.receipts.borrow_mut();
        if last.as_ref().is_none_or(|last| last.block() != Some(hash)) {
            *last = self.cache.receipts(hash);
        }
        last.clone()
    }
}

/// What is not proved makes no count.
fn proved<T>(content: Option<Arc<Verified<T>>>) -> Option<Arc<Verified<T>>> {
    content.filter(|content| content.is_proved())
}

/// A count as a quantity.
pub(super) fn counted(count: usize) -> Bytes {
    Bytes::from(format!("\"{count:#x}\""))
}

/// The three pieces as one: they are short.
pub(super) fn hashes_only(block: &Block) -> Bytes {
    let pieces = block.hashes_only();
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.put(piece);
    }
    whole.freeze()
}
