//! Proves content with Ethereum's hashes.
//!
//! Every proof starts from the block hash, which is the hash of the header. The header contains the roots of
//! transactions, withdrawals and receipts, and the roots cover the content. Other members (`from`, `gasPrice`,
//! `logIndex` and the like) follow from the content, and the proof recomputes them.
//!
//! The JSON reader is stricter than any client's: it rejects duplicate names, names that differ only in case, and
//! numbers in non-canonical form. So every client reads the same content that was proved.

mod blob;
mod block;
mod envelope;
mod header;
mod log;
mod names;
mod object;
pub mod raw;
mod receipts;
mod transaction;
mod value;

use alloy_consensus::Header;
use alloy_primitives::B256;
use alloy_trie::EMPTY_ROOT_HASH;

use self::object::Object;
use super::{Failure, Kind, Level, Part, Verified};
use crate::eth::{Block, BlockWithHashes, Receipts, ShapeError, SingleReceipt, SingleTransaction};

/// Result of proving content in parts: first the header, then the rest.
#[derive(Debug)]
pub(super) struct Proof<T> {
    /// The content with the level that it reached: at least [`Level::Partial`] if its header was proved.
    pub(super) content: Verified<T>,
    /// The failure, and the kind of content that failed.
    pub(super) failure: Option<(Kind, Failure)>,
}

/// Proves a block with full transactions. Transactions that name a chain must name `chain_id`, because the hashes of a
/// block of another chain match, too.
///
/// Recovering the signer takes about 50 µs per transaction. The work is spread over all proof threads.
///
/// # Errors
/// If a hash or a derived member does not match.
pub fn block(block: Verified<Block>, chain_id: Option<u64>) -> Result<Verified<Block>, Failure> {
    block_by_parts(block, chain_id, true).into_result()
}

/// Proves the header of a block with full transactions. `has_rules` says whether the chain's transactions follow
/// Ethereum's rules. If so, this function proves the rest of the block, too.
pub(super) fn block_by_parts(block: Verified<Block>, chain_id: Option<u64>, has_rules: bool) -> Proof<Block> {
    let (bytes, hash) = (block.full(), block.hash().0);
    Proof::of(block, &bytes, hash, |object, header| {
        if !has_rules {
            return Ok(Level::Partial);
        }
        block::lists(object, header)?;
        block::transactions(object, header, chain_id)?;
        Ok(Level::Proved)
    })
}

/// Proves the header of a block with transaction hashes. The list itself is proved only if it is empty.
///
/// # Errors
/// If a hash or a derived member does not match.
pub fn block_with_hashes(
    with_hashes: Verified<BlockWithHashes>,
) -> Result<Verified<BlockWithHashes>, Failure> {
    block_with_hashes_by_parts(with_hashes).into_result()
}

/// Proves the header of a block with transaction hashes, and then its uncles and withdrawals.
pub(super) fn block_with_hashes_by_parts(with_hashes: Verified<BlockWithHashes>) -> Proof<BlockWithHashes> {
    let (bytes, hash, is_empty) = (with_hashes.bytes(), with_hashes.hash().0, with_hashes.is_empty());
    Proof::of(with_hashes, &bytes, hash, |object, header| {
        block::lists(object, header)?;
        let is_proved = is_empty && header.transactions_root == EMPTY_ROOT_HASH;
        Ok(if is_proved { Level::Proved } else { Level::Partial })
    })
}

/// Proves the receipts of `block`. If `block` itself is not proved, returns the receipts unchanged.
///
/// # Errors
/// If a hash or a derived member does not match.
pub fn receipts(
    receipts: Verified<Receipts>,
    block: &Verified<Block>,
) -> Result<Verified<Receipts>, Failure> {
    if !block.is_proved() {
        return Ok(receipts);
    }
    let (bytes, all) = (block.full(), receipts.all());
    let object = Object::read(text(&bytes)?, None)?;
    let header = header::read(&object)?;
    receipts::prove(text(&all)?, &header, block.hash().0, &object)?;
    Ok(receipts.raised(Level::Proved))
}

/// Checks a single receipt against its block, as far as possible: its transaction, its gas price and a bound on its
/// gas, and the bloom of its logs. The receipts root covers all receipts together, so the status, the gas and the logs
/// of a single receipt stay unproved.
///
/// # Errors
/// If a member does not match.
pub fn single_receipt(
    receipt: Verified<SingleReceipt>,
    block: &Verified<Block>,
) -> Result<Verified<SingleReceipt>, Failure> {
    let index = usize::try_from(receipt.place().index.0).unwrap_or(usize::MAX);
    let (bytes, single) = (block.full(), receipt.bytes());
    let object = Object::read(text(&bytes)?, None)?;
    let transactions = object.list("transactions")?;
    // The structural checks have already found that the transaction is in the block.
    let Some(transaction) = transactions.get(index).filter(|_| block.is_proved()) else { return Ok(receipt) };
    let transaction = Object::read(transaction, Some(Part::Transaction(index)))?;
    receipts::single(text(&single)?, &header::read(&object)?, block.hash().0, index, &transaction)?;
    Ok(receipt)
}

/// Proves a single transaction by its hash and its signer. Its place stays unproved.
///
/// # Errors
/// If a hash or a derived member does not match.
pub fn single_transaction(
    transaction: Verified<SingleTransaction>,
    chain_id: Option<u64>,
) -> Result<Verified<SingleTransaction>, Failure> {
    transaction::prove(text(&transaction.bytes())?, None, None, chain_id)?;
    Ok(transaction.raised(Level::Partial))
}

// === impl Proof ===

impl<T> Proof<T> {
    /// Proves the header in `bytes` by its hash, and then calls `rest` to prove the remaining content.
    fn of(
        content: Verified<T>,
        bytes: &[u8],
        hash: B256,
        rest: impl FnOnce(&Object<'_>, &Header) -> Result<Level, Failure>,
    ) -> Self {
        let read = || -> Result<_, Failure> {
            let object = Object::read(text(bytes)?, None)?;
            let header = header::prove(&object, hash)?;
            Ok((object, header))
        };
        let (level, failure) = match read() {
            Err(failure) => return Self { content, failure: Some((Kind::Header, failure)) },
            Ok((object, header)) => match rest(&object, &header) {
                Ok(level) => (level, None),
                Err(failure) => (Level::Partial, Some((Kind::Transactions, failure))),
            },
        };
        Self { content: content.raised(level), failure }
    }

    fn into_result(self) -> Result<Verified<T>, Failure> {
        match self.failure {
            Some((_, failure)) => Err(failure),
            None => Ok(self.content),
        }
    }
}

/// Converts the bytes of an answer, which was read as UTF-8 before, to text.
fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| ShapeError::NotUtf8.into())
}
