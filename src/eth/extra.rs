//! Methods beside the six that a cached block, or the view, can answer.
//!
//! Read leniently: what is not understood is the node's to answer, and its to refuse.

use serde::Deserialize;

use super::{BlockHash, NumberOrTag};
use crate::jsonrpc::{Kind, Params, unescape};

/// A block, however it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockRef {
    /// By its hash, canonical or not.
    Hash(BlockHash),
    /// By its place on the canonical chain.
    Place(NumberOrTag),
}

/// A call beside the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// `eth_blockNumber`
    BlockNumber,
    /// `eth_getBlockReceipts`
    BlockReceipts(BlockRef),
    /// `eth_getBlockTransactionCountByHash` and `…ByNumber`
    TransactionCount(BlockRef),
    /// `eth_getUncleCountByBlockHash` and `…ByBlockNumber`
    UncleCount(BlockRef),
}

// === impl Extra ===

impl Extra {
    /// Reads a call; `None` if it is another one, or not understood.
    pub fn read(method: &str, params: &Params) -> Option<Self> {
        let mut elements = params.elements();
        let (first, second) = (elements.next(), elements.next());
        let one = first.filter(|_| second.is_none());
        match method {
            "eth_blockNumber" => first.is_none().then_some(Self::BlockNumber),
            "eth_getBlockReceipts" => BlockRef::any(one?).map(Self::BlockReceipts),
            "eth_getBlockTransactionCountByHash" => BlockRef::hash(one?).map(Self::TransactionCount),
            "eth_getBlockTransactionCountByNumber" => BlockRef::place(one?).map(Self::TransactionCount),
            "eth_getUncleCountByBlockHash" => BlockRef::hash(one?).map(Self::UncleCount),
            "eth_getUncleCountByBlockNumber" => BlockRef::place(one?).map(Self::UncleCount),
            _ => None,
        }
    }
}

// === impl BlockRef ===

impl BlockRef {
    fn hash(raw: &str) -> Option<Self> {
        string(raw)?.parse().ok().map(Self::Hash)
    }

    fn place(raw: &str) -> Option<Self> {
        string(raw)?.parse().ok().map(Self::Place)
    }

    fn any(raw: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct ByHash {
            block_hash: String,
        }
        match Kind::of(raw.as_bytes()) {
            Kind::String => Self::hash(raw).or_else(|| Self::place(raw)),
            Kind::Object => {
                let ByHash { block_hash } = serde_json::from_str(raw).ok()?;
                block_hash.parse().ok().map(Self::Hash)
            }
            _ => None,
        }
    }
}

fn string(raw: &str) -> Option<std::borrow::Cow<'_, str>> {
    (Kind::of(raw.as_bytes()) == Kind::String).then(|| unescape(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_named_in_every_way_nodes_take() {
        let hash = format!("0x{}", "ab".repeat(32));
        let read = |params: String| Extra::read("eth_getBlockReceipts", &Params::from_own(params));
        let by_hash = Some(Extra::BlockReceipts(BlockRef::Hash(hash.parse().unwrap())));
        assert_eq!(read(format!(r#"["{hash}"]"#)), by_hash);
        assert_eq!(read(format!(r#"[{{"blockHash":"{hash}"}}]"#)), by_hash);
        assert_eq!(read(format!(r#"[{{"blockHash":"{hash}","requireCanonical":true}}]"#)), None);
        assert!(matches!(read(r#"["latest"]"#.into()), Some(Extra::BlockReceipts(BlockRef::Place(_)))));
        assert!(matches!(read(r#"["0x10"]"#.into()), Some(Extra::BlockReceipts(BlockRef::Place(_)))));
        for odd in ["[]", "[1]", r#"["0x01"]"#, r#"["latest",1]"#, "[{}]", "[null]"] {
            assert_eq!(read(odd.into()), None, "{odd}");
        }
    }
}
