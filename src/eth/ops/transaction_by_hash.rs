//! `eth_getTransactionByHash`

use std::fmt;

use super::TX_HASH;
use crate::{
    eth::{ParamError, TxHash, params},
    jsonrpc::Params,
};

/// The transaction with this hash, mined or pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionByHash {
    /// Which transaction.
    pub hash: TxHash,
}

// === impl TransactionByHash ===

impl TransactionByHash {
    pub(in crate::eth) const METHOD: &str = "eth_getTransactionByHash";

    pub(in crate::eth) fn read(params: &Params) -> Result<Self, ParamError> {
        if let Some(hash) = params::lone_hash(params) {
            return Ok(Self { hash });
        }
        let mut params = params::read(params);
        let hash = params.string(TX_HASH.0, TX_HASH.1)?;
        params.end()?;
        Ok(Self { hash })
    }
}

/// The canonical params.
impl fmt::Display for TransactionByHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"["{}"]"#, self.hash)
    }
}
