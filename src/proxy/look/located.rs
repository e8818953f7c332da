//! What is asked for by a transaction's hash: where it is, and whether all of that block is worth fetching.

use super::{Look, Memory, NULL, Piece};
use crate::{
    cache::Location,
    chain::{Lookup, Stamp},
    eth::{BlockHash, Tag, TxHash},
    proxy::{PacketContext, absence::Absent, fetch::Fetch, packet::Wanted},
    verify::Kind,
};

/// Where a transaction is.
enum Located {
    /// Here, and that is canonical; by its hash only where it is sure.
    Here {
        location: Location,
        surely: bool,
    },
    /// Here, if the view is fresh.
    Stale(Location),
    Nowhere,
}

// === impl Memory ===

impl Memory<'_> {
    pub(super) fn transaction(&self, hash: TxHash, arrival: Stamp, packet: &PacketContext) -> Look {
        let content = |Location { home, index }| self.transaction_piece(home.block, index, false);
        let alone = Fetch::Transaction(hash);
        match self.locate(hash, Wanted::Transaction, arrival) {
            Located::Here { location, surely } => match content(location) {
                Some(piece) => piece.look(),
                None => {
                    let home = location.home;
                    let whole = if surely { Fetch::Block(home.block) } else { Fetch::BlockAt(home.number) };
                    self.rent_or_buy(Wanted::Transaction, hash, home.block, packet, arrival, (alone, whole))
                }
            },
            Located::Stale(location) if content(location).is_some() => Look::Refresh(Tag::Latest),
            Located::Stale(Location { home, .. }) => {
                let whole = Fetch::BlockAt(home.number);
                self.rent_or_buy(Wanted::Transaction, hash, home.block, packet, arrival, (alone, whole))
            }
            Located::Nowhere => Look::Fetch(alone),
        }
    }

    pub(super) fn receipt(&self, hash: TxHash, arrival: Stamp, packet: &PacketContext) -> Look {
        let content = |Location { home, index }| self.receipt_piece(hash, home.block, index);
        let alone = Fetch::Receipt(hash);
        match self.locate(hash, Wanted::Receipt, arrival) {
            Located::Here { location, surely } => match content(location) {
                Some(piece) => piece.look(),
                None if self.has_block_receipts => {
                    let home = location.home;
                    let whole =
                        if surely { Fetch::Receipts(home.block) } else { Fetch::ReceiptsAt(home.number) };
                    self.rent_or_buy(Wanted::Receipt, hash, home.block, packet, arrival, (alone, whole))
                }
                None => Look::Fetch(alone),
            },
            Located::Stale(location) if content(location).is_some() => Look::Refresh(Tag::Latest),
            Located::Stale(Location { home, .. }) if self.has_block_receipts => {
                let whole = Fetch::ReceiptsAt(home.number);
                self.rent_or_buy(Wanted::Receipt, hash, home.block, packet, arrival, (alone, whole))
            }
            Located::Stale(_) => Look::Fetch(alone),
            Located::Nowhere => match self.absences.look(hash, arrival, &self.view.tracker()) {
                Absent::Surely => Look::Hit(Piece::of_view(NULL)),
                Absent::IfFresh => Look::Refresh(Tag::Latest),
                Absent::Unknown => Look::Fetch(alone),
            },
        }
    }

    fn rent_or_buy(
        &self,
        wanted: Wanted,
        hash: TxHash,
        block: BlockHash,
        packet: &PacketContext,
        arrival: Stamp,
        (alone, whole): (Fetch, Fetch),
    ) -> Look {
        let locate = |hash| match self.locate(hash, wanted, arrival) {
            Located::Here { location, .. } | Located::Stale(location) => Some(location.home.block),
            Located::Nowhere => None,
        };
        if !self.derivations.allow(wanted.derivation()) || self.is_vain(whole) {
            return Look::Fetch(alone);
        }
        let together = packet.wanted(wanted, block, locate);
        let kind = match wanted {
            Wanted::Transaction => Kind::Blocks,
            Wanted::Receipt => Kind::Receipts,
        };
        // Nothing but the whole proves a part.
        if self.demands_proof(kind) || self.tally.buys(wanted, block, hash, together) {
            Look::Buy(whole, alone)
        } else {
            Look::Fetch(alone)
        }
    }

    /// Where a transaction is on the canonical chain, by the hints that lead to it.
    fn locate(&self, hash: TxHash, wanted: Wanted, arrival: Stamp) -> Located {
        let mut stale = None;
        for location in self.cache.locations(hash) {
            if !self.holds(location, hash, wanted) {
                continue;
            }
            let block = location.home.block;
            match self.view.tracker().lookup(location.home.number, arrival) {
                Lookup::Final(at) | Lookup::Tracked { hash: at, fresh: true } if at == block => {
                    return Located::Here { location, surely: true };
                }
                Lookup::Asked(at) if at == block => return Located::Here { location, surely: false },
                Lookup::Tracked { hash: at, fresh: false } if at == block => stale = Some(location),
                _ => {}
            }
        }
        stale.map_or(Located::Nowhere, Located::Stale)
    }

    /// Is it really that transaction which stands there? The index knows only a part of its hash.
    fn holds(&self, Location { home, index }: Location, hash: TxHash, wanted: Wanted) -> bool {
        let in_block = || Some(self.block_of(home.block)?.transaction_hash(index) == Some(hash));
        let in_receipts = || Some(self.receipts_of(home.block)?.transaction_hash(index) == Some(hash));
        // First where the answer is.
        let held = match wanted {
            Wanted::Transaction => in_block().or_else(in_receipts),
            Wanted::Receipt => in_receipts().or_else(in_block),
        };
        if let Some(held) = held {
            return held;
        }
        self.cache.lone_transaction(home.block, index).is_some_and(|lone| lone.hash() == hash)
            || self.cache.lone_receipt(home.block, index).is_some_and(|lone| lone.hash() == hash)
    }
}
