//! `eth_getTransactionByBlockNumberAndIndex`

use std::fmt;

use super::{INDEX, NUMBER_OR_TAG};
use crate::{
    eth::{NumberOrTag, ParamError, TxPosition, params},
    jsonrpc::Params,
};

/// The transaction at a position of the canonical block at a height, or of the one a tag means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionByBlockNumber {
    /// Which block.
    pub block: NumberOrTag,
    /// Which of its transactions.
    pub index: TxPosition,
}

// === impl TransactionByBlockNumber ===

impl TransactionByBlockNumber {
    pub(in crate::eth) const METHOD: &str = "eth_getTransactionByBlockNumberAndIndex";

    pub(in crate::eth) fn read(params: &Params) -> Result<Self, ParamError> {
        let mut params = params::read(params);
        let block = params.string("block_tag", NUMBER_OR_TAG)?;
        let index = params.position(INDEX)?;
        params.end()?;
        Ok(Self { block, index })
    }
}

/// The canonical params: nodes want the index in hex.
impl fmt::Display for TransactionByBlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"["{}","{}"]"#, self.block, self.index)
    }
}
