//! The interface of a tier.

use std::{fmt, io, sync::Arc, time::Duration};

use alloy_primitives::B256;
use futures_util::future::BoxFuture;

use super::sealed::{FORMAT, Sealed};
use crate::eth::{BlockHash, BlockNumber, Home, TxHash};

/// Identifies a chain. Tiers store each entry under its chain, so that a lookup in one chain never finds an entry of
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainKey {
    /// The chain id.
    pub id: u64,
    /// The hash of block 0.
    pub genesis: B256,
}

/// The kinds of tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierKind {
    /// A directory on this machine.
    Disk,
    /// A Redis server, which several instances can share.
    Redis,
}

/// A part of a block, as a tier stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The header in RLP, whose hash is the block hash. Empty if the chain's headers cannot be proved.
    Header,
    /// The block with full transactions.
    Block,
    /// All receipts of the block.
    Receipts,
}

/// A part of a finalized block, for a tier to store.
#[derive(Clone, Debug)]
pub struct Record {
    /// The block.
    pub home: Home,
    /// The part.
    pub part: Part,
    /// Hashes of the transactions of a [`Part::Block`], in order.
    pub transactions: Vec<TxHash>,
    /// The part, compressed and with a checksum.
    pub value: Sealed,
}

/// Usage of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of bytes stored; `None` if unknown.
    pub bytes: Option<u64>,
    /// Limit in bytes; `None` if unknown or unlimited.
    pub capacity: Option<u64>,
    /// Number of blocks of which any part is stored; `None` if unknown.
    pub blocks: Option<u64>,
    /// Number of evictions: of blocks from the disk since Holdfast started, or of keys since Redis started.
    pub evictions: u64,
}

/// Failure of a call to a tier.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TierError {
    /// The tier cannot be read or written.
    #[error("{0}")]
    Failed(Arc<io::Error>),
    /// The tier has lost its connection. The tier itself logs the loss and the reconnection.
    #[error("{0}")]
    Disconnected(Arc<str>),
    /// The tier took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// Future of a call to a tier.
pub type Tiered<'a, T> = BoxFuture<'a, Result<T, TierError>>;

/// A store of finalized blocks, by hash.
///
/// Do not call these methods while holding a lock. Timeouts and circuit breaking are the caller's responsibility.
pub trait Tier: fmt::Debug + Send + Sync + 'static {
    /// Returns the kind of this tier.
    fn kind(&self) -> TierKind;

    /// Returns a part of the block `hash`, as [`put`](Self::put) stored it.
    fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, Option<Sealed>>;

    /// Returns the headers of these blocks, in this order. The caller asks for at most a hundred or so.
    fn headers(&self, chain: ChainKey, blocks: Vec<BlockHash>) -> Tiered<'_, Vec<Option<Sealed>>>;

    /// Returns the hashes that the tier has for `count` numbers from `from` on. Each is a hint: nothing but the tier
    /// says that this block is canonical. The caller asks for at most a hundred or so.
    fn hints(&self, chain: ChainKey, from: BlockNumber, count: usize) -> Tiered<'_, Vec<Option<BlockHash>>>;

    /// Returns the block that the tier has for a transaction, which is a hint, too.
    fn home_of(&self, chain: ChainKey, transaction: TxHash) -> Tiered<'_, Option<Home>>;

    /// Stores a part of a finalized block, unless the tier already has it. A [`Part::Header`] is also the hint for its
    /// number, and a [`Part::Block`] for its transactions. Returns whether the tier wrote anything. If it did not, the
    /// call does not show that the tier is writable.
    fn put(&self, chain: ChainKey, record: Record) -> Tiered<'_, bool>;

    /// Removes a part of a block. Returns whether the tier wrote anything, like [`put`](Self::put).
    fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, bool>;

    /// Removes hints: the block with this hash is not canonical at its number.
    fn drop_hints(&self, chain: ChainKey, blocks: Arc<[Home]>) -> Tiered<'_, bool>;

    /// Returns the chain last passed to [`follow`](Self::follow), if the tier remembers it.
    fn last_chain(&self) -> Tiered<'_, Option<ChainKey>> {
        Box::pin(async { Ok(None) })
    }

    /// Remembers the chain that the upstreams serve; `None` for a chain that tiers do not store.
    fn follow(&self, _chain: Option<ChainKey>) -> Tiered<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns whether the tier has its index in memory. If so, a miss does not show that its storage works.
    fn knows_what_it_has(&self) -> bool {
        false
    }

    /// Returns the tier's usage.
    fn usage(&self) -> Usage;
}

// === impl ChainKey ===

impl ChainKey {
    /// Length in bytes of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 1 + 8 + 32;

    /// Encodes the key: format, chain id, genesis hash.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = FORMAT;
        bytes[1..9].copy_from_slice(&self.id.to_be_bytes());
        bytes[9..].copy_from_slice(self.genesis.as_slice());
        bytes
    }

    /// Decodes a key; `None` if it has another format.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (format, rest) = bytes.split_first()?;
        let (id, genesis) = rest.split_first_chunk()?;
        (*format == FORMAT).then(|| Self { id: u64::from_be_bytes(*id), genesis: B256::from_slice(genesis) })
    }
}

// === impl TierKind ===

impl TierKind {
    /// Every kind, in the order of lookup.
    pub const ALL: [Self; 2] = [Self::Disk, Self::Redis];

    /// Name in logs, metrics and headers.
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
    pub const ALL: [Self; 3] = [Self::Header, Self::Block, Self::Receipts];
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
    fn chain_key_round_trips_within_its_format() {
        let chain = ChainKey { id: 1, genesis: B256::repeat_byte(7) };
        let mut bytes = chain.to_bytes();
        assert_eq!(ChainKey::from_bytes(&bytes), Some(chain));
        bytes[0] += 1;
        assert_eq!(ChainKey::from_bytes(&bytes), None);
    }
}
