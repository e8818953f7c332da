//! The interface of a tier.

use std::{fmt, io, sync::Arc, time::Duration};

use alloy_primitives::B256;
use futures_util::future::BoxFuture;

use super::sealed::{FORMAT, Sealed};
use crate::eth::{BlockHash, BlockNumber, TxHash, TxPosition};

/// Whose blocks they are. All that a tier keeps is kept under it, so that another chain can never answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainKey {
    /// Its id.
    pub id: u64,
    /// The hash of its block 0.
    pub genesis: B256,
}

/// The tiers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierKind {
    /// A directory of this machine.
    Disk,
    /// A Redis that a fleet shares.
    Redis,
}

/// What of a block is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The block with whole transactions.
    Block,
    /// All its receipts.
    Receipts,
}

/// A part of a final block, to be kept.
#[derive(Clone, Debug)]
pub struct Record {
    /// The block's number.
    pub number: BlockNumber,
    /// Its hash.
    pub hash: BlockHash,
    /// Which part it is.
    pub part: Part,
    /// The hashes of its transactions, in order: for the index, where they are looked for by hash.
    pub transactions: Vec<TxHash>,
    /// Its JSON, sealed.
    pub value: Sealed,
}

/// How a tier does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that are kept; `None` where it cannot be told.
    pub bytes: Option<u64>,
    /// How many bytes there may be; `None` where somebody else decides.
    pub capacity: Option<u64>,
    /// Blocks that are kept, or parts of them; `None` where it cannot be told.
    pub blocks: Option<u64>,
    /// What made room for others, since the start: blocks, or in Redis keys.
    pub evictions: u64,
}

/// A tier did not do what it should.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TierError {
    /// It cannot be reached, read or written.
    #[error("{0}")]
    Failed(Arc<io::Error>),
    /// It took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Somebody else who shares it had it forget: what was to be written may be what was to be forgotten, and was not; what
    /// was asked for may be of another history. Said once.
    #[error("another had it forget what is canonical")]
    Forgotten,
}

/// What a tier answers, when it does.
pub type Tiered<'a, T> = BoxFuture<'a, Result<T, TierError>>;

/// A place where final blocks are kept.
///
/// None of these is for a moment in which somebody holds a lock. Time-outs, and leaving one alone that keeps failing, are its
/// user's business.
pub trait Tier: fmt::Debug + Send + Sync + 'static {
    /// Which it is.
    fn kind(&self) -> TierKind;

    /// A part of the block with this hash, as it was put.
    fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, Option<Sealed>>;

    /// The hash that stands at this number for good. Nothing but the tier's word says so.
    fn hash_at(&self, chain: ChainKey, number: BlockNumber) -> Tiered<'_, Option<BlockHash>>;

    /// Where a transaction is: which of which block. To be believed where that block holds it, and [stands
    /// there](Self::hash_at).
    fn place_of(&self, chain: ChainKey, transaction: TxHash)
    -> Tiered<'_, Option<(BlockNumber, TxPosition)>>;

    /// The highest final block that was [told](Self::note_finalized).
    fn finalized(&self, chain: ChainKey) -> Tiered<'_, Option<(BlockNumber, BlockHash)>>;

    /// Keeps a part of a final block; with a block also its number and where its transactions are. What is there already
    /// stays as it is. Tells whether anything was written: if not, that says nothing of whether it could be. Fails with
    /// [`TierError::Forgotten`] once after somebody else had it forget.
    fn put(&self, chain: ChainKey, record: Record) -> Tiered<'_, bool>;

    /// This is the highest final block now. Fails like [`put`](Self::put).
    fn note_finalized(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) -> Tiered<'_, ()>;

    /// Forgets a part of a block. Tells the same as [`put`](Self::put).
    fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, bool>;

    /// Forgets which hash stands at a number, where [`remove`](Self::remove) does not do so for its block.
    fn forget_number(&self, _: ChainKey, _: BlockNumber) -> Tiered<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Forgets which numbers have which hash, where transactions are, and what was final. What is kept by hash stays.
    fn forget_canonicity(&self, chain: ChainKey) -> Tiered<'_, ()>;

    /// Forgets the same, and this is the highest final block: whoever finds the one done finds the other.
    fn begin(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) -> Tiered<'_, ()> {
        Box::pin(async move {
            self.forget_canonicity(chain).await?;
            self.note_finalized(chain, number, hash).await
        })
    }

    /// The chain that was last followed here, if that is remembered.
    fn last_chain(&self) -> Tiered<'_, Option<ChainKey>> {
        Box::pin(async { Ok(None) })
    }

    /// From here on this chain is followed; `None` for one that is not kept here.
    fn follow(&self, _chain: Option<ChainKey>) -> Tiered<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Does it know what it has without looking? Then that it has nothing says nothing of how it does.
    fn knows_what_it_has(&self) -> bool {
        false
    }

    /// How it does.
    fn usage(&self) -> Usage;
}

// === impl ChainKey ===

impl ChainKey {
    /// How long it is as bytes.
    pub const LEN: usize = 1 + 8 + 32;

    /// As bytes: the format, the id, the genesis.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = FORMAT;
        bytes[1..9].copy_from_slice(&self.id.to_be_bytes());
        bytes[9..].copy_from_slice(self.genesis.as_slice());
        bytes
    }

    /// Back again; `None` if it is none, or of another format.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (format, rest) = bytes.split_first()?;
        let (id, genesis) = rest.split_first_chunk()?;
        (*format == FORMAT).then(|| Self { id: u64::from_be_bytes(*id), genesis: B256::from_slice(genesis) })
    }
}

// === impl TierKind ===

impl TierKind {
    /// Every kind, in the order in which they are asked.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Redis];

    /// Its name in logs, metrics and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Redis => "redis",
        }
    }
}

// === impl Part ===

impl Part {
    /// Every part.
    pub const ALL: [Self; 2] = [Self::Block, Self::Receipts];
}

// === impl TierError ===

impl From<io::Error> for TierError {
    fn from(error: io::Error) -> Self {
        Self::Failed(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_known_again_and_one_of_another_format_is_not() {
        let chain = ChainKey { id: 1, genesis: B256::repeat_byte(7) };
        let mut bytes = chain.to_bytes();
        assert_eq!(ChainKey::from_bytes(&bytes), Some(chain));
        bytes[0] += 1;
        assert_eq!(ChainKey::from_bytes(&bytes), None);
    }
}
