//! Looks into memory: one synchronous step, which answers a hit and says what a miss would need.

mod located;
mod pieces;

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use bytes::{BufMut, Bytes, BytesMut};

pub(super) use self::pieces::Piece;
use super::{
    PacketContext, Source,
    absence::Absences,
    derive::{Derivation, Derivations},
    fetch::{Fetch, Fetcher},
    plan::Tally,
    view::View,
};
use crate::{
    cache::{Cache, Whole},
    chain::{Ancestry, Link, Lookup, Stamp},
    eth::{
        Block, BlockHash, BlockNumber, BlockRef, Extra, NumberOrTag, Operation, Receipts, Tag, TxPosition,
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
    Fetch(Fetch),
    /// All of a block that the answer is in should be fetched: it is likely to be wanted.
    Buy(Fetch, Fetch),
    /// There is something that nothing proves to be canonical: the block at its number must be fetched first. If that does
    /// not come, this must be fetched instead.
    Confirm(Fetch, Fetch),
    /// The answer, but it is time to ask for it once more: it was not proved, and has become final since.
    Renew(Fetch, Piece),
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
    pub(super) fn operation(&self, operation: Operation, packet: &PacketContext) -> Look {
        let arrival = packet.arrival(self.view.clock());
        match operation {
            Operation::BlockByHash(wanted) => self.block(BlockRef::Hash(wanted.hash), wanted.full, packet),
            Operation::BlockByNumber(wanted) => {
                self.block(BlockRef::Place(wanted.block), wanted.full, packet)
            }
            Operation::TransactionByBlockHash(wanted) => {
                self.transaction_in(BlockRef::Hash(wanted.block), wanted.index, packet)
            }
            Operation::TransactionByBlockNumber(wanted) => {
                self.transaction_in(BlockRef::Place(wanted.block), wanted.index, packet)
            }
            Operation::TransactionByHash(wanted) => self.transaction(wanted.hash, arrival, packet),
            Operation::Receipt(wanted) => self.receipt(wanted.hash, arrival, packet),
        }
    }

    pub(super) fn extra(&self, extra: Extra, packet: &PacketContext) -> Look {
        let arrival = packet.arrival(self.view.clock());
        match extra {
            Extra::BlockNumber => match self.meaning(Tag::Latest, arrival, packet) {
                Meaning::Block(head) => Look::Hit(Piece::of_number(head.number)),
                Meaning::Unknown | Meaning::Apart | Meaning::Unsure => Look::Tagged,
                Meaning::Nothing => self.unless_due(arrival, Look::Forward),
            },
            Extra::BlockReceipts(block) => self.block_receipts(block, packet),
            Extra::TransactionCount(block) => self.count(block, packet, |cache, hash| {
                let count = proved(cache.block(hash)).map(|block| (block.len(), Source::Block));
                count.or_else(|| Some((proved(cache.thin(hash))?.len(), Source::Head)))
            }),
            // How many there are is proved only where there are none.
            Extra::UncleCount(block) => self.count(block, packet, |cache, hash| {
                let block = proved(cache.block(hash)).filter(|block| block.header().uncles == 0);
                block.map(|_| (0, Source::Block))
            }),
        }
    }

    fn block(&self, block: BlockRef, full: bool, packet: &PacketContext) -> Look {
        let derives = self.derivations.allow(Derivation::Hashes);
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
                let renew =
                    self.renews(Kind::Transactions, &thin, thin.header().number).then_some(Fetch::Thin(hash));
                let piece = Piece { bytes: thin.bytes(), source: Source::Head, whole: None, renew };
                Some(piece.of_whole(packet, || Some(Whole::thin(&thin))))
            }
            (None, true) => None,
        };
        if !full && !derives {
            return self.in_block(block, packet, content, Fetch::Thin, Fetch::ThinAt);
        }
        match self.in_block(block, packet, content, Fetch::Block, Fetch::BlockAt) {
            // A whole block that cannot be kept is fetched for nothing.
            Look::Fetch(Fetch::Block(hash)) if !full && self.is_vain(Fetch::Block(hash)) => {
                Look::Fetch(Fetch::Thin(hash))
            }
            Look::Fetch(Fetch::BlockAt(number)) if !full && self.is_vain(Fetch::BlockAt(number)) => {
                Look::Fetch(Fetch::ThinAt(number))
            }
            look => look,
        }
    }

    fn transaction_in(&self, block: BlockRef, index: TxPosition, packet: &PacketContext) -> Look {
        let content = |hash| self.transaction_piece(hash, index, true);
        if self.demands_proof(Kind::Transactions) {
            return self.in_block(block, packet, content, Fetch::Block, Fetch::BlockAt);
        }
        let alone = |hash| Fetch::TransactionIn(hash, index);
        let by_number = |number| Fetch::TransactionAt(number, index);
        let look = self.in_block(block, packet, content, alone, by_number);
        if let (Look::Fetch(alone @ Fetch::TransactionAt(number, _)), true) = (&look, self.is_told_of(block))
        {
            // Fetched alone before, it did not show which block stands there.
            return Look::Confirm(Fetch::BlockAt(*number), *alone);
        }
        match (look, block) {
            // By number a `null` says that there is nothing at the index; by a hash that only the view
            // has named, it could as well say that there is no such block.
            (Look::Fetch(_), BlockRef::Place(NumberOrTag::Number(number))) => Look::Fetch(by_number(number)),
            (look, _) => look,
        }
    }

    fn block_receipts(&self, block: BlockRef, packet: &PacketContext) -> Look {
        let content = |hash| {
            let receipts = self.receipts_of(hash)?;
            let renew = self.receipts_renew(&receipts);
            let piece = Piece { bytes: receipts.all(), source: Source::Receipts, whole: None, renew };
            Some(piece.of_whole(packet, || Whole::receipts(&receipts)))
        };
        match self.in_block(block, packet, content, Fetch::Receipts, Fetch::ReceiptsAt) {
            // Nothing but their block proves them.
            Look::Fetch(alone @ Fetch::Receipts(hash))
                if self.demands_proof(Kind::Receipts) && self.block_of(hash).is_none() =>
            {
                Look::Buy(Fetch::Block(hash), alone)
            }
            Look::Fetch(alone @ Fetch::ReceiptsAt(number)) if self.demands_proof(Kind::Receipts) => {
                Look::Buy(Fetch::BlockAt(number), alone)
            }
            look => look,
        }
    }

    /// A number out of a block that is proved. To fetch that costs no more calls than to ask for the number.
    fn count(
        &self,
        block: BlockRef,
        packet: &PacketContext,
        count: impl Fn(&Cache, BlockHash) -> Option<(usize, Source)>,
    ) -> Look {
        let content = |hash| {
            let (count, source) = count(self.cache, hash)?;
            Some(Piece { bytes: counted(count), source, whole: None, renew: None })
        };
        let look = self.in_block(block, packet, content, Fetch::Block, Fetch::BlockAt);
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

    /// What stands in a block, or how to get it.
    fn in_block(
        &self,
        block: BlockRef,
        packet: &PacketContext,
        content: impl Fn(BlockHash) -> Option<Piece>,
        by_hash: impl Fn(BlockHash) -> Fetch,
        by_number: impl Fn(BlockNumber) -> Fetch,
    ) -> Look {
        match self.resolve(block, packet) {
            Resolved::Known { hash, at: Some(number), .. } if self.disowns(hash, number) => {
                Look::Fetch(by_number(number))
            }
            Resolved::Known { hash, surely, at } => match (content(hash), at) {
                (Some(piece), _) => piece.look(),
                (None, Some(number)) if !surely => Look::Fetch(by_number(number)),
                (None, _) => Look::Fetch(by_hash(hash)),
            },
            // Something must be asked in either case: what the view is, or what stands there.
            Resolved::Stale { hash, at } if self.disowns(hash, at) => Look::Fetch(by_number(at)),
            Resolved::Stale { hash, at } => match content(hash) {
                Some(_) => Look::Refresh(Tag::Latest),
                None => Look::Fetch(by_number(at)),
            },
            Resolved::Nothing => Look::Hit(Piece::of_view(NULL)),
            Resolved::Ask(number) => {
                // What was said to stand there may be cached: then a header tells whether it does.
                let hint = self.view.tracker().hint_at(number);
                let is_told = |hash| !self.demands_proof(Kind::Transactions) || self.block_of(hash).is_some();
                match hint.filter(|&hash| is_told(hash)).and_then(content) {
                    Some(_) => Look::Confirm(Fetch::ThinAt(number), by_number(number)),
                    None => Look::Fetch(by_number(number)),
                }
            }
            Resolved::Refresh(tag) => Look::Refresh(tag),
            Resolved::Tagged => Look::Tagged,
            Resolved::Establish => Look::Establish,
            Resolved::Forward => Look::Forward,
        }
    }

    fn resolve(&self, block: BlockRef, packet: &PacketContext) -> Resolved {
        let arrival = packet.arrival(self.view.clock());
        match block {
            BlockRef::Hash(hash) => Resolved::Known { hash, surely: true, at: None },
            BlockRef::Place(NumberOrTag::Tag(tag)) => self.tagged(tag, arrival, packet),
            BlockRef::Place(NumberOrTag::Number(number)) => {
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

    /// Returns whether something that was fetched alone was said to be at this number.
    fn is_told_of(&self, block: BlockRef) -> bool {
        match block {
            BlockRef::Place(NumberOrTag::Number(number)) => self.view.tracker().has_placed(number),
            BlockRef::Place(NumberOrTag::Tag(_)) | BlockRef::Hash(_) => false,
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
