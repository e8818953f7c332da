//! Proves content by Ethereum's own hashes.
//!
//! All of it hangs on the hash of a block: that is the hash of its header, the header holds the roots
//! of transactions, withdrawals and receipts, and the roots hold the content. What is said beside
//! (`from`, `gasPrice`, `logIndex` and the like) follows from the content and is worked out again.
//!
//! The JSON is read by a reader that is stricter than any client: no name twice, none that is another
//! but for its case, no number in two ways of writing. So what is proved here is what everybody else reads.

mod blob;
mod block;
mod envelope;
mod header;
mod log;
mod names;
mod object;
mod receipts;
mod transaction;
mod value;

use alloy_consensus::Header;
use alloy_primitives::B256;
use alloy_trie::EMPTY_ROOT_HASH;

use self::object::Object;
use super::{Failure, Kind, Level, Part, Verified};
use crate::eth::{Block, BlockWithHashes, Receipts, ShapeError, SingleReceipt, SingleTransaction};

/// Content as far as it was proved.
#[derive(Debug)]
pub(super) struct Proof<T> {
    /// The content, raised to the level that it reached: to [`Level::Partial`] if its header was proved.
    pub(super) content: Verified<T>,
    /// What did not come out, and of which part.
    pub(super) failure: Option<(Kind, Failure)>,
}

/// Proves a block with whole transactions, of which those that name a chain must name `chain_id`: a block
/// of another chain proves itself just as well.
///
/// Costs some 50 µs a transaction for recovering its signer, spread over all cores.
///
/// # Errors
/// Says what does not come out.
pub fn block(block: Verified<Block>, chain_id: Option<u64>) -> Result<Verified<Block>, Failure> {
    block_by_parts(block, chain_id, true).into_result()
}

/// Proves the header of a block with whole transactions, and then its content, if that `has_rules` that are known.
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

/// Proves the header of a block that lists the hashes of its transactions. The list itself is proved
/// only where it is empty.
///
/// # Errors
/// Says what does not come out.
pub fn block_with_hashes(
    with_hashes: Verified<BlockWithHashes>,
) -> Result<Verified<BlockWithHashes>, Failure> {
    block_with_hashes_by_parts(with_hashes).into_result()
}

/// Proves the header of a block that lists the hashes of its transactions, and then the lists beside them.
pub(super) fn block_with_hashes_by_parts(with_hashes: Verified<BlockWithHashes>) -> Proof<BlockWithHashes> {
    let (bytes, hash, is_empty) = (with_hashes.bytes(), with_hashes.hash().0, with_hashes.is_empty());
    Proof::of(with_hashes, &bytes, hash, |object, header| {
        block::lists(object, header)?;
        let is_proved = is_empty && header.transactions_root == EMPTY_ROOT_HASH;
        Ok(if is_proved { Level::Proved } else { Level::Partial })
    })
}

/// Proves the receipts of `block`, which is proved itself; where it is not, they stay what they are.
///
/// # Errors
/// Says what does not come out.
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

/// Checks a receipt that came alone against its block, as far as that goes: whose it is, what it may have cost,
/// the bloom of its logs. Its root is made of all receipts, so its status, its gas and its logs stay unproved.
///
/// # Errors
/// Says what does not come out.
pub fn single_receipt(
    receipt: Verified<SingleReceipt>,
    block: &Verified<Block>,
) -> Result<Verified<SingleReceipt>, Failure> {
    let index = usize::try_from(receipt.place().index.0).unwrap_or(usize::MAX);
    let (bytes, single) = (block.full(), receipt.bytes());
    let object = Object::read(text(&bytes)?, None)?;
    let transactions = object.list("transactions")?;
    // That it is there was seen before.
    let Some(transaction) = transactions.get(index).filter(|_| block.is_proved()) else { return Ok(receipt) };
    let transaction = Object::read(transaction, Some(Part::Transaction(index)))?;
    receipts::single(text(&single)?, &header::read(&object)?, block.hash().0, index, &transaction)?;
    Ok(receipt)
}

/// Proves a transaction that came alone by its hash and its signer; where it is cannot be proved.
///
/// # Errors
/// Says what does not come out.
pub fn single_transaction(
    transaction: Verified<SingleTransaction>,
    chain_id: Option<u64>,
) -> Result<Verified<SingleTransaction>, Failure> {
    transaction::prove(text(&transaction.bytes())?, None, None, chain_id)?;
    Ok(transaction.raised(Level::Partial))
}

// === impl Proof ===

impl<T> Proof<T> {
    /// Proves the header that `bytes` hold by its hash, and hands it on for the rest.
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

/// The text of what has been read as text before.
fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| ShapeError::NotUtf8.into())
}
