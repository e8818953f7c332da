//! What a call turned out to want, and how that is cut out of what was fetched.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    PacketContext, Source,
    fetch::{Fetch, Fetched},
    look::{NULL, counted, hashes_only},
};
use crate::{
    eth::{
        Block, BlockHash, BlockNumber, BlockRef, Extra, NumberOrTag, Operation, Tag, TxHash, TxPosition, ops,
    },
    jsonrpc::{MethodName, Params},
    upstream::Call,
    verify::{Asked, AskedBlock, Kind, Verified},
};

/// What a call turned out to want.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    Operation(Operation),
    Extra(Extra),
}

// === impl Want ===

impl Want {
    /// The kind of content that answers it.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Operation(Operation::Receipt(_)) | Self::Extra(Extra::BlockReceipts(_)) => Kind::Receipts,
            Self::Operation(_) | Self::Extra(_) => Kind::Transactions,
        }
    }

    /// Is it answered with a part of this, rather than with all of it as it came?
    pub(super) fn is_cut_from(self, source: Source) -> bool {
        match (source, self) {
            (Source::Block, Self::Operation(Operation::BlockByHash(wanted))) => !wanted.full,
            (Source::Block, Self::Operation(Operation::BlockByNumber(wanted))) => !wanted.full,
            (Source::Block | Source::Receipts, Self::Operation(_)) => true,
            (
                Source::Block | Source::Head,
                Self::Extra(Extra::TransactionCount(_) | Extra::UncleCount(_)),
            ) => true,
            _ => false,
        }
    }

    /// The whole that it can be cut out of, as it would be fetched; `None` where what that is may change.
    pub(super) fn whole(self) -> Option<Fetch> {
        let block = match self {
            Self::Operation(Operation::TransactionByHash(wanted)) => {
                return Some(Fetch::Transaction(wanted.hash));
            }
            Self::Operation(Operation::Receipt(wanted)) => return Some(Fetch::Receipt(wanted.hash)),
            Self::Extra(Extra::BlockNumber) => return None,
            Self::Operation(Operation::BlockByHash(wanted)) => BlockRef::Hash(wanted.hash),
            Self::Operation(Operation::TransactionByBlockHash(wanted)) => BlockRef::Hash(wanted.block),
            Self::Operation(Operation::BlockByNumber(wanted)) => BlockRef::Place(wanted.block),
            Self::Operation(Operation::TransactionByBlockNumber(wanted)) => BlockRef::Place(wanted.block),
            Self::Extra(
                Extra::BlockReceipts(block) | Extra::TransactionCount(block) | Extra::UncleCount(block),
            ) => block,
        };
        match (block, self.kind()) {
            (BlockRef::Hash(hash), Kind::Receipts) => Some(Fetch::Receipts(hash)),
            (BlockRef::Hash(hash), _) => Some(Fetch::Block(hash)),
            (BlockRef::Place(NumberOrTag::Number(number)), Kind::Receipts) => Some(Fetch::ReceiptsAt(number)),
            (BlockRef::Place(NumberOrTag::Number(number)), _) => Some(Fetch::BlockAt(number)),
            (BlockRef::Place(NumberOrTag::Tag(_)), _) => None,
        }
    }

    /// The tag that it names its block by.
    pub(super) fn tag(self) -> Option<Tag> {
        let block = match self {
            Self::Operation(Operation::BlockByNumber(wanted)) => BlockRef::Place(wanted.block),
            Self::Operation(Operation::TransactionByBlockNumber(wanted)) => BlockRef::Place(wanted.block),
            Self::Operation(_) => return None,
            Self::Extra(Extra::BlockNumber) => return Some(Tag::Latest),
            Self::Extra(
                Extra::BlockReceipts(block) | Extra::TransactionCount(block) | Extra::UncleCount(block),
            ) => block,
        };
        match block {
            BlockRef::Place(NumberOrTag::Tag(tag)) => Some(tag),
            BlockRef::Place(NumberOrTag::Number(_)) | BlockRef::Hash(_) => None,
        }
    }

    /// The transaction that it is about, where it names one by its hash.
    pub(super) fn transaction(self) -> Option<TxHash> {
        match self {
            Self::Operation(Operation::TransactionByHash(wanted)) => Some(wanted.hash),
            Self::Operation(Operation::Receipt(wanted)) => Some(wanted.hash),
            Self::Operation(_) | Self::Extra(_) => None,
        }
    }

    /// The position in its block of the transaction that it is about, where it names one.
    pub(super) fn index(self) -> Option<TxPosition> {
        match self {
            Self::Operation(Operation::TransactionByBlockHash(wanted)) => Some(wanted.index),
            Self::Operation(Operation::TransactionByBlockNumber(wanted)) => Some(wanted.index),
            Self::Operation(_) | Self::Extra(_) => None,
        }
    }

    /// The same of the block with this hash.
    fn of_block(self, hash: BlockHash) -> Self {
        let block = BlockRef::Hash(hash);
        match self {
            Self::Operation(Operation::BlockByNumber(wanted)) => {
                Self::Operation(Operation::BlockByHash(ops::BlockByHash { hash, full: wanted.full }))
            }
            Self::Operation(Operation::TransactionByBlockNumber(wanted)) => {
                Self::Operation(Operation::TransactionByBlockHash(ops::TransactionByBlockHash {
                    block: hash,
                    index: wanted.index,
                }))
            }
            Self::Extra(Extra::BlockReceipts(_)) => Self::Extra(Extra::BlockReceipts(block)),
            Self::Extra(Extra::TransactionCount(_)) => Self::Extra(Extra::TransactionCount(block)),
            Self::Extra(Extra::UncleCount(_)) => Self::Extra(Extra::UncleCount(block)),
            Self::Operation(_) | Self::Extra(Extra::BlockNumber) => self,
        }
    }

    /// The number of the block that it is about, where it names one.
    pub(super) fn number(self) -> Option<BlockNumber> {
        let place = match self {
            Self::Operation(Operation::BlockByNumber(wanted)) => wanted.block,
            Self::Operation(Operation::TransactionByBlockNumber(wanted)) => wanted.block,
            Self::Extra(
                Extra::BlockReceipts(BlockRef::Place(place))
                | Extra::TransactionCount(BlockRef::Place(place))
                | Extra::UncleCount(BlockRef::Place(place)),
            ) => place,
            Self::Operation(_) | Self::Extra(_) => return None,
        };
        match place {
            NumberOrTag::Number(number) => Some(number),
            NumberOrTag::Tag(_) => None,
        }
    }
}

/// A call that memory can have something to say to, and the form in which it is forwarded.
#[derive(Debug)]
pub(super) struct Cacheable {
    pub(super) want: Want,
    pub(super) method: MethodName,
    pub(super) params: Params,
    pub(super) packet: Arc<PacketContext>,
}

// === impl Cacheable ===

impl Cacheable {
    /// The same call for the block with this hash, which its tag means.
    pub(super) fn of_block(&self, hash: BlockHash) -> Self {
        let (method, params) = match self.want {
            Want::Extra(Extra::TransactionCount(_)) => {
                ("eth_getBlockTransactionCountByHash", Params::from_own(format!(r#"["{hash}"]"#)))
            }
            Want::Extra(Extra::UncleCount(_)) => {
                ("eth_getUncleCountByBlockHash", Params::from_own(format!(r#"["{hash}"]"#)))
            }
            Want::Extra(Extra::BlockReceipts(_)) => {
                ("eth_getBlockReceipts", Params::from_own(format!(r#"["{hash}"]"#)))
            }
            // An operation is written anew when it is forwarded.
            Want::Operation(_) | Want::Extra(Extra::BlockNumber) => {
                return self.wanting(self.want.of_block(hash));
            }
        };
        Self { method: method.into(), params, ..self.wanting(self.want.of_block(hash)) }
    }

    fn wanting(&self, want: Want) -> Self {
        let Self { method, params, packet, .. } = self;
        Self { want, method: method.clone(), params: params.clone(), packet: packet.clone() }
    }

    /// The call, as it is forwarded.
    pub(super) fn call(&self) -> Call {
        match self.want {
            Want::Operation(operation) => Call::new(operation.method(), operation.params()),
            Want::Extra(_) => Call::new(self.method.clone(), self.params.clone()),
        }
    }

    /// Does what is fetched so answer the call as it is, whole?
    pub(super) fn takes(&self, fetch: Fetch) -> bool {
        match self.want {
            Want::Operation(
                Operation::BlockByHash(ops::BlockByHash { full, .. })
                | Operation::BlockByNumber(ops::BlockByNumber { full, .. }),
            ) => match fetch {
                Fetch::Block(_) | Fetch::BlockAt(_) => full,
                Fetch::Thin(_) | Fetch::ThinAt(_) => !full,
                _ => false,
            },
            Want::Operation(
                Operation::TransactionByBlockHash(_) | Operation::TransactionByBlockNumber(_),
            ) => {
                matches!(fetch, Fetch::TransactionIn(..) | Fetch::TransactionAt(..))
            }
            Want::Operation(Operation::TransactionByHash(_)) => matches!(fetch, Fetch::Transaction(_)),
            Want::Operation(Operation::Receipt(_)) => matches!(fetch, Fetch::Receipt(_)),
            Want::Extra(Extra::BlockReceipts(_)) => {
                matches!(fetch, Fetch::Receipts(_) | Fetch::ReceiptsAt(_))
            }
            Want::Extra(Extra::BlockNumber | Extra::TransactionCount(_) | Extra::UncleCount(_)) => false,
        }
    }

    /// Did the client name a block by its hash? Then it is nobody's mistake that there is none.
    pub(super) fn names_hash(&self) -> bool {
        use BlockRef::Hash;
        match self.want {
            Want::Operation(operation) => {
                matches!(operation, Operation::BlockByHash(_) | Operation::TransactionByBlockHash(_))
            }
            Want::Extra(extra) => matches!(
                extra,
                Extra::BlockReceipts(Hash(_)) | Extra::TransactionCount(Hash(_)) | Extra::UncleCount(Hash(_))
            ),
        }
    }

    /// The number asked for and the block that came for it, if that one has another number.
    pub(super) fn misnumbered(&self, fetched: &Fetched) -> Option<(BlockNumber, BlockHash)> {
        let asked = self.want.number()?;
        let header = match fetched {
            Fetched::Block(block) => block.header(),
            Fetched::Thin(thin) => thin.header(),
            Fetched::Receipts(receipts) => {
                let (hash, number) = receipts.home()?;
                return (number != asked).then_some((asked, hash));
            }
            Fetched::Transaction(_) | Fetched::Receipt(_) | Fetched::Short(_) | Fetched::Other(_) => {
                return None;
            }
        };
        (header.number != asked).then_some((asked, header.hash))
    }

    /// What an answer to the call, forwarded as it is, must be; `None` if it is a count or a height, or of
    /// what is pending, which nobody can check.
    pub(super) fn question(&self) -> Option<Asked> {
        let sort = |full| if full { Asked::Block } else { Asked::Thin };
        Some(match self.want {
            Want::Operation(Operation::BlockByHash(wanted)) => {
                sort(wanted.full)(AskedBlock::ByHash(wanted.hash))
            }
            Want::Operation(Operation::BlockByNumber(wanted)) => sort(wanted.full)(place(wanted.block)?),
            Want::Operation(Operation::TransactionByBlockHash(wanted)) => {
                Asked::TransactionAt(AskedBlock::ByHash(wanted.block), wanted.index)
            }
            Want::Operation(Operation::TransactionByBlockNumber(wanted)) => {
                Asked::TransactionAt(place(wanted.block)?, wanted.index)
            }
            Want::Operation(Operation::TransactionByHash(wanted)) => Asked::Transaction(wanted.hash),
            Want::Operation(Operation::Receipt(wanted)) => Asked::Receipt(wanted.hash),
            Want::Extra(Extra::BlockReceipts(BlockRef::Hash(hash))) => {
                Asked::Receipts(AskedBlock::ByHash(hash))
            }
            Want::Extra(Extra::BlockReceipts(BlockRef::Place(at))) => Asked::Receipts(place(at)?),
            Want::Extra(Extra::BlockNumber | Extra::TransactionCount(_) | Extra::UncleCount(_)) => {
                return None;
            }
        })
    }

    /// Does it want something of a block that can be proved, and that only the block itself tells?
    pub(super) fn counts(&self) -> bool {
        match self.want {
            Want::Extra(Extra::TransactionCount(block) | Extra::UncleCount(block)) => {
                block != BlockRef::Place(NumberOrTag::Tag(Tag::Pending))
            }
            Want::Operation(_) | Want::Extra(Extra::BlockNumber | Extra::BlockReceipts(_)) => false,
        }
    }
}

fn place(place: NumberOrTag) -> Option<AskedBlock> {
    match place {
        NumberOrTag::Number(number) => Some(AskedBlock::ByNumber(number)),
        NumberOrTag::Tag(Tag::Pending) => None,
        NumberOrTag::Tag(_) => Some(AskedBlock::ByTag),
    }
}

/// The part of what was fetched that answers the call; `None` if it does not tell.
pub(super) fn cut(want: Want, fetched: &Fetched) -> Option<Bytes> {
    match (fetched, want) {
        (
            Fetched::Block(block),
            Want::Operation(
                Operation::BlockByHash(ops::BlockByHash { full, .. })
                | Operation::BlockByNumber(ops::BlockByNumber { full, .. }),
            ),
        ) => Some(if full { block.full() } else { hashes_only(block) }),
        (
            Fetched::Block(block),
            Want::Operation(
                Operation::TransactionByBlockHash(ops::TransactionByBlockHash { index, .. })
                | Operation::TransactionByBlockNumber(ops::TransactionByBlockNumber { index, .. }),
            ),
        ) => transaction(block, index),
        (Fetched::Block(block), Want::Extra(Extra::TransactionCount(_))) if block.is_proved() => {
            Some(counted(block.len()))
        }
        (Fetched::Block(block), Want::Extra(Extra::UncleCount(_))) => {
            // How many there are is proved only where there are none.
            (block.is_proved() && block.header().uncles == 0).then(|| counted(0))
        }
        (Fetched::Thin(thin), Want::Operation(_)) => Some(thin.bytes()),
        (Fetched::Receipts(receipts), Want::Extra(Extra::BlockReceipts(_))) => Some(receipts.all()),
        (Fetched::Transaction(lone), _) => Some(lone.bytes()),
        (Fetched::Receipt(lone), _) => Some(lone.bytes()),
        _ => None,
    }
}

/// That there is none at a position is said only by a block that is proved.
fn transaction(block: &Verified<Block>, index: TxPosition) -> Option<Bytes> {
    block.transaction(index).or_else(|| block.is_proved().then_some(NULL))
}
