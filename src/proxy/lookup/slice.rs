//! Answers as they are cut out of what is in memory, and whether that may be used.

use bytes::Bytes;

use super::{Look, Memory, NULL};
use crate::{
    cache::Whole,
    eth::{Block, BlockHash, BlockNumber, Home, Part, Query, Receipts, TxHash, TxPosition},
    proxy::call::{packet::PacketContext, request::Source},
    verify::{Demand, Kind, Verified},
};

/// Below this a text fits into one packet of the network or little more, deflated or not.
const WORTHWHILE: usize = 1024;

/// An answer, cut out of something in memory.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Piece {
    pub(in crate::proxy) bytes: Bytes,
    pub(in crate::proxy) source: Source,
    /// What has a deflated form, or may come to have one, for a caller who takes it.
    pub(in crate::proxy) whole: Option<Whole>,
    /// What it is cut out of must be fetched once more.
    pub(super) renew: Option<Query>,
}

// === impl Memory ===

impl Memory<'_> {
    pub(super) fn block_piece(&self, block: &Verified<Block>, bytes: Bytes) -> Piece {
        let header = block.header();
        let renew = self
            .renews(Kind::Transactions, block, header.number)
            .then_some(Query::new(Part::Block, header.hash));
        Piece::cached(Part::Block, bytes, renew)
    }

    /// A transaction out of its block, or one that came alone. That there is none at a position is said
    /// only by a block that is proved.
    pub(super) fn transaction_piece(
        &self,
        hash: BlockHash,
        index: TxPosition,
        or_null: bool,
    ) -> Option<Piece> {
        if self.derivations.allow(Part::Transaction)
            && let Some(block) = self.block_of(hash)
        {
            return match block.transaction(index) {
                Some(bytes) => Some(self.block_piece(&block, bytes)),
                None if or_null && block.is_proved() => Some(Piece::cached(Part::Block, NULL, None)),
                None => None,
            };
        }
        // Whoever asks for what is at a position is not told what only says so of itself.
        let lone = self.cache.lone_transaction(hash, index)?;
        if or_null && !lone.is_asked_of_block() {
            return None;
        }
        let number = lone.place()?.number;
        let renew =
            self.renews(Kind::Transactions, &lone, number).then_some(Query::transaction_in(hash, index));
        Some(Piece::cached(Part::Transaction, lone.bytes(), renew))
    }

    pub(super) fn receipt_piece(
        &self,
        transaction: TxHash,
        hash: BlockHash,
        index: TxPosition,
    ) -> Option<Piece> {
        if self.derivations.allow(Part::Receipt)
            && let Some(receipts) = self.receipts_of(hash)
        {
            let renew = self.receipts_renew(&receipts);
            return Some(Piece::cached(Part::Receipts, receipts.receipt(index)?, renew));
        }
        let lone = self.cache.lone_receipt(hash, index)?;
        let renew = self
            .renews(Kind::Receipts, &lone, lone.place().number)
            .then_some(Query::new(Part::Receipt, transaction));
        Some(Piece::cached(Part::Receipt, lone.bytes(), renew))
    }

    pub(super) fn receipts_renew(&self, receipts: &Verified<Receipts>) -> Option<Query> {
        let Home { block, number } = receipts.named_home()?;
        self.renews(Kind::Receipts, receipts, number).then_some(Query::new(Part::Receipts, block))
    }

    /// Where nothing is proved, what was said of a block before it was final is asked for once more when
    /// it is: nodes err most about what is new.
    pub(super) fn renews<T>(&self, kind: Kind, content: &Verified<T>, number: BlockNumber) -> bool {
        self.demands(kind) == Demand::Structural && !content.lasts() && self.view.tracker().is_final(number)
    }

    pub(super) fn demands(&self, kind: Kind) -> Demand {
        self.demands[kind as usize]
    }

    pub(super) fn demands_proof(&self, kind: Kind) -> bool {
        self.demands(kind) == Demand::Full
    }

    pub(super) fn is_vain(&self, fetch: Query) -> bool {
        !self.demands_proof(Kind::Transactions) && self.vain.is_vain(fetch)
    }

    /// Has this block, which is said to stand at a number, another? Then nobody says so from here on.
    pub(super) fn disowns(&self, hash: BlockHash, number: BlockNumber) -> bool {
        let held = self.block_of(hash).map(|block| block.header().number);
        let held = held.or_else(|| Some(self.cache.thin(hash)?.header().number));
        let disowned = held.is_some_and(|held| held != number);
        if disowned {
            self.view.change(|tracker| tracker.remove(number, hash));
        }
        disowned
    }
}

// === impl Piece ===

impl Piece {
    /// An answer out of the cached entry with this part.
    pub(super) fn cached(part: Part, bytes: Bytes, renew: Option<Query>) -> Self {
        Self { bytes, source: Source::Cached(part), whole: None, renew }
    }

    /// A height.
    pub(in crate::proxy) fn of_number(number: BlockNumber) -> Self {
        Self::of_view(format!("\"{number}\"").into())
    }

    pub(super) fn of_view(bytes: Bytes) -> Self {
        Self { bytes, source: Source::View, whole: None, renew: None }
    }

    /// The same, for whoever asks in `packet`: a whole text, unless it is too short to gain anything.
    pub(super) fn of_whole(self, packet: &PacketContext, whole: impl FnOnce() -> Option<Whole>) -> Self {
        if !packet.caller().gzip || self.bytes.len() < WORTHWHILE {
            return self;
        }
        Self { whole: whole(), ..self }
    }

    pub(super) fn look(self) -> Look {
        match self.renew {
            Some(fetch) => Look::Renew(fetch, self),
            None => Look::Hit(self),
        }
    }
}
