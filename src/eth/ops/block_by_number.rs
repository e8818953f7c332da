//! `eth_getBlockByNumber`

use std::fmt;

use super::{FULL, NUMBER_OR_TAG};
use crate::{
    eth::{NumberOrTag, ParamError, params},
    jsonrpc::Params,
};

/// The canonical block at a height, or the one a tag means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockByNumber {
    /// Which block.
    pub block: NumberOrTag,
    /// Whole transactions, or their hashes only.
    pub full: bool,
}

// === impl BlockByNumber ===

impl BlockByNumber {
    pub(in crate::eth) const METHOD: &str = "eth_getBlockByNumber";

    pub(in crate::eth) fn read(params: &Params) -> Result<Self, ParamError> {
        let mut params = params::read(params);
        let block = params.string("block_number", NUMBER_OR_TAG)?;
        let full = params.boolean(FULL)?;
        params.end()?;
        Ok(Self { block, full })
    }
}

/// The canonical params.
impl fmt::Display for BlockByNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"["{}",{}]"#, self.block, self.full)
    }
}
