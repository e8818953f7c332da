//! `eth_getTransactionByBlockHashAndIndex`

use std::fmt;

use super::{BLOCK_HASH, INDEX};
use crate::{
    eth::{BlockHash, ParamError, TxPosition, params},
    jsonrpc::Params,
};

/// The transaction at a position of the block with this hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionByBlockHash {
    /// Which block.
    pub block: BlockHash,
    /// Which of its transactions.
    pub index: TxPosition,
}

// === impl TransactionByBlockHash ===

impl TransactionByBlockHash {
    pub(in crate::eth) const METHOD: &str = "eth_getTransactionByBlockHashAndIndex";

    pub(in crate::eth) fn read(params: &Params) -> Result<Self, ParamError> {
        let mut params = params::read(params);
        let block = params.string(BLOCK_HASH.0, BLOCK_HASH.1)?;
        let index = params.position(INDEX)?;
        params.end()?;
        Ok(Self { block, index })
    }
}

/// The canonical params: nodes want the index in hex.
impl fmt::Display for TransactionByBlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"["{}","{}"]"#, self.block, self.index)
    }
}
