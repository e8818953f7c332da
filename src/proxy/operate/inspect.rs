//! Shows the cached entries of a block or a transaction and whether they are canonical, and removes them.
//!
//! Inspection is a tool for operators: it scans all entries, which can take milliseconds, and makes no upstream calls.

use std::{collections::BTreeSet, str::FromStr, sync::Arc};

use alloy_primitives::B256;

use crate::{
    cache::{Held, tier::TierKind},
    chain::{Lookup, Stamp, Tracker},
    eth::{BlockHash, BlockNumber, Home, Part, Query, TxHash, TxPosition},
    proxy::{head::SharedView, lookup::CacheState, miss::load::Loader},
};

/// Block or transaction to inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Hash of a block or a transaction.
    Hash(B256),
    /// All known blocks at a number.
    Number(BlockNumber),
}

/// Invalid name of a block or a transaction. The message shows the valid forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// Empty text.
    #[error("name a block or a transaction by its hash, or a block by its number")]
    Empty,
    /// `0x` with too many digits for a number, but not the 64 digits of a hash.
    #[error("a hash has 64 hex digits after 0x, and a number at most 16; this has {0}")]
    Length(usize),
    /// Number that does not fit into 64 bits.
    #[error("the block number does not fit into 64 bits")]
    TooLarge,
    /// Any other text.
    #[error(
        "expected the hash of a block or a transaction (0x and 64 hex digits) or the number of a block (19000000, or 0x121eac0)"
    )]
    Neither,
}

/// Whether a block is canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Standing {
    /// The block is final.
    Final,
    /// The block is on the tracked branch.
    Tracked,
    /// A recent upstream answer for this block number or for a transaction of the block named the block.
    Asked,
    /// The block left the canonical chain, or was never part of it.
    Orphaned,
    /// No recent answer says which block is canonical, so a call by number would ask the upstream.
    Unknown,
}

/// A known block and its cached entries.
#[derive(Clone, Debug)]
pub struct InspectedBlock {
    /// Hash.
    pub hash: BlockHash,
    /// Number, if known.
    pub number: Option<BlockNumber>,
    /// Whether the block is canonical.
    pub standing: Standing,
    /// Unix timestamp in seconds, if the block is cached.
    pub timestamp: Option<u64>,
    /// Number of transactions, if the block is cached.
    pub transactions: Option<usize>,
    /// Cached entries of this block.
    pub held: Vec<Held>,
}

/// A transaction in one block. Blocks of different branches can include the same transaction.
#[derive(Clone, Debug)]
pub struct InspectedTransaction {
    /// Hash.
    pub hash: TxHash,
    /// The block that includes the transaction.
    pub home: Home,
    /// Index in the block.
    pub index: TxPosition,
    /// Whether that block is canonical.
    pub standing: Standing,
    /// Cached entries that contain the transaction or its receipt.
    pub held: Vec<Held>,
}

/// Shows and removes cached entries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inspector {
    view: Arc<SharedView>,
    state: Arc<CacheState>,
    loader: Arc<Loader>,
}

/// Result of an inspection.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Inspected blocks. For a number, the canonical block comes first.
    pub blocks: Vec<InspectedBlock>,
    /// One entry for each block that includes the transaction.
    pub transactions: Vec<InspectedTransaction>,
    /// Number of the head, if known.
    pub head: Option<BlockNumber>,
}

// === impl Subject ===

impl FromStr for Subject {
    type Err = SubjectError;

    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SubjectError::Empty);
        }
        let Some(digits) = text.strip_prefix("0x") else {
            if !text.bytes().all(|digit| digit.is_ascii_digit()) {
                return Err(SubjectError::Neither);
            }
            return text
                .parse()
                .map(|number| Self::Number(BlockNumber(number)))
                .map_err(|_| SubjectError::TooLarge);
        };
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(SubjectError::Neither);
        }
        match digits.len() {
            64 => text.parse().map(|BlockHash(hash)| Self::Hash(hash)).map_err(|_| SubjectError::Neither),
            1..=16 => u64::from_str_radix(digits, 16)
                .map(|number| Self::Number(BlockNumber(number)))
                .map_err(|_| SubjectError::TooLarge),
            length => Err(SubjectError::Length(length)),
        }
    }
}

// === impl Standing ===

impl Standing {
    /// Returns the name of this standing.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn of(home: Home, tracker: &Tracker, now: Stamp) -> Self {
        let if_same = |at, standing| if at == home.block { standing } else { Self::Orphaned };
        match tracker.lookup(home.number, now) {
            Lookup::Final(at) => if_same(at, Self::Final),
            Lookup::Tracked { hash: at, .. } => if_same(at, Self::Tracked),
            Lookup::Asked(at) => if_same(at, Self::Asked),
            // The head moved back below this block.
            Lookup::Above { fresh: true } => Self::Orphaned,
            Lookup::Unknown if tracker.excludes(home.number, home.block) => Self::Orphaned,
            Lookup::Above { fresh: false } | Lookup::Unknown => Self::Unknown,
        }
    }
}

// === impl Inspector ===

impl Inspector {
    pub(crate) fn new(view: Arc<SharedView>, state: Arc<CacheState>, loader: Arc<Loader>) -> Self {
        Self { view, state, loader }
    }

    /// Returns the cached entries of a block or a transaction.
    pub fn inspect(&self, subject: Subject) -> Inspected {
        let (blocks, transactions) = match subject {
            Subject::Number(number) => (self.blocks_at(number), Vec::new()),
            Subject::Hash(hash) => (self.block_with(BlockHash(hash)), self.places_of(TxHash(hash))),
        };
        Inspected { blocks, transactions, head: self.view.tracker().head().map(|head| head.number) }
    }

    /// Removes from tiers the entries that [`purge`](Self::purge) removes from memory. Callers call this function
    /// first, because a tier could otherwise restore the purged entries. Returns the tiers that may still have one of
    /// the entries.
    pub async fn purge_tiers(&self, hash: B256) -> BTreeSet<TierKind> {
        let mut blocks = BTreeSet::from([BlockHash(hash)]);
        blocks.extend(self.state.cache.held_of(TxHash(hash)).into_iter().map(|(_, held)| held.home.block));
        let (homes, unsure) = self.loader.homes_in_tiers(TxHash(hash)).await;
        blocks.extend(homes);
        let mut left_in = BTreeSet::from_iter(unsure);
        for block in blocks {
            left_in.extend(self.loader.remove_from_tiers(block).await);
        }
        left_in
    }

    /// Removes from memory all entries of the block with this hash, or all entries that contain the transaction with
    /// this hash or its receipt, and returns the removed entries. The canonical view does not change, and the next call
    /// fetches the content again.
    pub fn purge(&self, hash: B256) -> Vec<Held> {
        let mut held = self.state.cache.held_in(|home| home.block == BlockHash(hash));
        held.extend(self.state.cache.held_of(TxHash(hash)).into_iter().map(|(_, held)| held));
        self.state.cache.forget(&held);
        let blocks = held.iter().map(|held| held.home.block).chain([BlockHash(hash)]);
        for block in blocks {
            // Clear the negative cache too, so that the next call retries fetches whose answers could not be stored.
            let parts = [Part::Block, Part::BlockWithHashes, Part::Receipts];
            self.state.uncacheable.forget(&parts.map(|part| Query::new(part, block)));
        }
        held
    }

    fn blocks_at(&self, number: BlockNumber) -> Vec<InspectedBlock> {
        let held = self.state.cache.held_in(|home| home.number == number);
        let now = self.view.clock().now();
        let tracker = self.view.tracker();
        let canonical = tracker.lookup(number, now).hash();
        let mut hashes: Vec<_> = canonical.into_iter().collect();
        for held in &held {
            if !hashes.contains(&held.home.block) {
                hashes.push(held.home.block);
            }
        }
        let inspected = |hash| {
            let standing = Standing::of(Home { block: hash, number }, &tracker, now);
            let held = held.iter().filter(|held| held.home.block == hash).cloned().collect();
            self.inspected(hash, Some(number), standing, held)
        };
        hashes.into_iter().map(inspected).collect()
    }

    fn block_with(&self, hash: BlockHash) -> Vec<InspectedBlock> {
        let held = self.state.cache.held_in(|home| home.block == hash);
        let now = self.view.clock().now();
        let tracker = self.view.tracker();
        let number = held.first().map(|held| held.home.number).or_else(|| tracker.number_of(hash));
        if number.is_none() && held.is_empty() {
            return Vec::new();
        }
        let home = |number| Home { block: hash, number };
        let standing = number.map_or(Standing::Unknown, |number| Standing::of(home(number), &tracker, now));
        vec![self.inspected(hash, number, standing, held)]
    }

    fn inspected(
        &self,
        hash: BlockHash,
        number: Option<BlockNumber>,
        standing: Standing,
        held: Vec<Held>,
    ) -> InspectedBlock {
        let cache = &self.state.cache;
        let whole = cache.peek_block(hash).map(|block| (block.header().timestamp, block.len()));
        let facts = whole.or_else(|| {
            cache.peek_block_with_hashes(hash).map(|block| (block.header().timestamp, block.len()))
        });
        let (timestamp, transactions) = facts.map_or((None, None), |(time, count)| (time, Some(count)));
        InspectedBlock { hash, number, standing, timestamp, transactions, held }
    }

    fn places_of(&self, hash: TxHash) -> Vec<InspectedTransaction> {
        let now = self.view.clock().now();
        let mut places: Vec<InspectedTransaction> = Vec::new();
        for (index, held) in self.state.cache.held_of(hash) {
            match places.iter_mut().find(|place| place.home == held.home && place.index == index) {
                Some(place) => place.held.push(held),
                None => {
                    let home = held.home;
                    let tracker = self.view.tracker();
                    let standing = match Standing::of(home, &tracker, now) {
                        Standing::Unknown if tracker.is_placed(hash, home.block, now) => Standing::Asked,
                        standing => standing,
                    };
                    places.push(InspectedTransaction { hash, home, index, standing, held: vec![held] });
                }
            }
        }
        // Sort by standing, so that the canonical block comes first.
        places.sort_by_key(|place| (place.standing as u8, place.home.number));
        places
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}", digits in "(0x)?[0-9a-f]{0,70}") {
            for text in [text, digits] {
                match text.parse() {
                    Ok(Subject::Hash(hash)) => prop_assert_eq!(format!("{hash:#x}"), text.trim().to_lowercase()),
                    Ok(Subject::Number(BlockNumber(number))) => {
                        let digits = text.trim().trim_start_matches("0x").trim_start_matches('0');
                        let written = if text.trim().starts_with("0x") { format!("{number:x}") } else { number.to_string() };
                        prop_assert_eq!(written.trim_start_matches('0'), digits);
                    }
                    Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn numbers_and_hashes_are_distinguished() {
        let number = |number| Ok(Subject::Number(BlockNumber(number)));
        assert_eq!("19000000".parse(), number(19_000_000));
        assert_eq!(" 0 ".parse(), number(0));
        assert_eq!("0x10".parse(), number(16));
        assert_eq!("0xffffffffffffffff".parse(), number(u64::MAX));
        let hash = format!("0x{}", "Ab".repeat(32));
        assert_eq!(hash.parse(), Ok(Subject::Hash(B256::repeat_byte(0xab))));
    }

    #[test]
    fn subject_errors_are_specific() {
        let parse = |text: &str| text.parse::<Subject>().unwrap_err();
        assert_eq!(parse(""), SubjectError::Empty);
        assert_eq!(parse("18446744073709551616"), SubjectError::TooLarge);
        assert_eq!(parse(&format!("0x{}", "a".repeat(63))), SubjectError::Length(63));
        assert_eq!(parse(&format!("0x{}", "a".repeat(17))), SubjectError::Length(17));
        for text in ["latest", "0x", "-1", "1.0", "0xg", "0X10", &"a".repeat(64)] {
            assert_eq!(parse(text), SubjectError::Neither, "{text}");
        }
    }
}
