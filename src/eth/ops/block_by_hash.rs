//! `eth_getBlockByHash`

use std::fmt;

use super::{BLOCK_HASH, FULL};
use crate::{
    eth::{BlockHash, ParamError, params},
    jsonrpc::Params,
};

/// The block with this hash, canonical or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockByHash {
    /// Which block.
    pub hash: BlockHash,
    /// Whole transactions, or their hashes only.
    pub full: bool,
}

// === impl BlockByHash ===

impl BlockByHash {
    pub(in crate::eth) const METHOD: &str = "eth_getBlockByHash";

    pub(in crate::eth) fn read(params: &Params) -> Result<Self, ParamError> {
        let mut params = params::read(params);
        let hash = params.string(BLOCK_HASH.0, BLOCK_HASH.1)?;
        let full = params.boolean(FULL)?;
        params.end()?;
        Ok(Self { hash, full })
    }
}

/// The canonical params.
impl fmt::Display for BlockByHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"["{}",{}]"#, self.hash, self.full)
    }
}
