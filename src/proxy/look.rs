//! Looks into memory: one synchronous step, which answers a hit and says what a miss would need.

mod located;
mod pieces;

use std::{cell::RefCell, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};

pub(super) use self::pieces::Piece;
use super::{
    PacketContext, Source,
    absence::Absences,
    config::{Blocks, Orphans},
    derive::{Derivation, Derivations},
    fetch::{Fetch, Fetcher},
    plan::Tally,
    view::View,
};
use crate::{
    cache::{Cache, Whole},
    chain::{Link, Lookup, Stamp},
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
    /// It could answer, if it were known what the tag means now.
    Refresh(Tag),
    /// It knows nothing of the chain yet.
    Establish,
    /// This must be fetched.
    Fetch(Fetch),
    /// All of a block that the answer is in should be fetched: it is likely to be wanted.
    Buy(Fetch, Fetch),
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
    Establish,
    Forward,
}

/// What looking needs.
#[derive(Debug)]
pub(super) struct Memory<'a> {
    pub(super) cache: &'a Cache,
    pub(super) view: &'a View,
    pub(super) absences: &'a Absences,
    pub(super) tally: &'a Tally,
    pub(super) orphans: Orphans,
    pub(super) blocks: Blocks,
    pub(super) has_block_receipts: bool,
    /// What is demanded of blocks, and of receipts.
    pub(super) demands: [Demand; 2],
    pub(super) vain: &'a Fetcher,
    pub(super) derivations: &'a Derivations,
    pub(super) last: Last,
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
                Some(head) => Look::Hit(Piece::of_view(format!("\"{}\"", head.number).into())),
                None => Look::Refresh(Tag::Latest),
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
                    self.renews(Kind::Blocks, &thin, thin.header().number).then_some(Fetch::Thin(hash));
                let piece = Piece { bytes: thin.bytes(), source: Source::Head, whole: None, renew };
                Some(piece.of_whole(packet, || Some(Whole::thin(&thin))))
            }
            (None, true) => None,
        };
        let thin = !derives || self.blocks == Blocks::AsAsked && !self.demands_proof(Kind::Blocks);
        if !full && thin {
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
        if self.demands_proof(Kind::Blocks) {
            return self.in_block(block, packet, content, Fetch::Block, Fetch::BlockAt);
        }
        let alone = |hash| Fetch::TransactionIn(hash, index);
        let by_number = |number| Fetch::TransactionAt(number, index);
        match (self.in_block(block, packet, content, alone, by_number), block) {
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
        let Look::Fetch(fetch) = look else { return look };
        match look {
            Look::Fetch(_) if self.demands(Kind::Blocks) == Demand::Structural => Look::Forward,
            Look::Fetch(_) if self.demands_proof(Kind::Blocks) => Look::Fetch(fetch),
            Look::Fetch(_) if self.blocks == Blocks::AsAsked || self.is_vain(fetch) => Look::Forward,
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
            Resolved::Ask(number) => Look::Fetch(by_number(number)),
            Resolved::Refresh(tag) => Look::Refresh(tag),
            Resolved::Establish => Look::Establish,
            Resolved::Forward => Look::Forward,
        }
    }

    fn resolve(&self, block: BlockRef, packet: &PacketContext) -> Resolved {
        let arrival = packet.arrival(self.view.clock());
        match block {
            BlockRef::Hash(hash) if self.orphans == Orphans::Drop && self.is_orphan(hash, arrival) => {
                Resolved::Forward
            }
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
                    Lookup::Unknown if tracker.head().is_none() => Resolved::Establish,
                    Lookup::Unknown => Resolved::Ask(number),
                }
            }
        }
    }

    /// The block that a tag means to all calls of a packet, if that is known.
    fn meaning(&self, tag: Tag, arrival: Stamp, packet: &PacketContext) -> Option<Link> {
        packet.tag(tag).or_else(|| {
            let tracker = self.view.tracker();
            let link = match tag {
                Tag::Latest => tracker.head().filter(|_| tracker.is_fresh(arrival)),
                Tag::Safe => tracker.safe(arrival),
                Tag::Finalized => tracker.finalized_tag(arrival),
                Tag::Earliest | Tag::Pending => None,
            };
            link.map(|link| packet.pin(tag, link))
        })
    }

    fn tagged(&self, tag: Tag, arrival: Stamp, packet: &PacketContext) -> Resolved {
        match (self.meaning(tag, arrival, packet), tag) {
            (Some(link), _) => Resolved::Known { hash: link.hash, surely: true, at: None },
            (None, Tag::Earliest | Tag::Pending) => Resolved::Forward,
            (None, tag) if self.view.has_none(tag, arrival) => Resolved::Forward,
            (None, tag) => Resolved::Refresh(tag),
        }
    }

    /// Is this block known to have left the chain?
    fn is_orphan(&self, hash: BlockHash, arrival: Stamp) -> bool {
        let number = self.block_of(hash).map(|block| block.header().number);
        let Some(number) = number.or_else(|| Some(self.cache.thin(hash)?.header().number)) else {
            return false;
        };
        let tracker = self.view.tracker();
        match tracker.lookup(number, arrival) {
            Lookup::Final(at) | Lookup::Tracked { hash: at, .. } | Lookup::Asked(at) => at != hash,
            // The chain went back below this one.
            Lookup::Above { fresh } => fresh,
            Lookup::Unknown => tracker.excludes(number, hash),
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
