//! Structural checks, which every answer must pass: they test whether the answer has the right shape and its parts
//! agree.

use alloy_trie::EMPTY_ROOT_HASH;
use bytes::Bytes;

use super::{Failure, Reason, Verified};
use crate::eth::{
    At, Block, BlockHash, BlockNumber, BlockWithHashes, Header, Home, Place, Receipts, SingleReceipt,
    SingleTransaction, TxHash, TxPosition,
};

/// Checks a block with full transactions.
///
/// # Errors
/// If the answer is not the requested block, or its transactions name another block.
pub fn block(result: &[u8], asked: At) -> Result<Verified<Block>, Failure> {
    let (block, places) = Block::read(Bytes::copy_from_slice(result))?;
    let header = *block.header();
    check_header(&header, asked, block.is_empty())?;
    check_places(&places, header.home())?;
    Ok(Verified::structurally(block))
}

/// Checks a block with transaction hashes.
///
/// # Errors
/// If the answer is not the requested block, or its list contradicts its header.
pub fn block_with_hashes(result: &[u8], asked: At) -> Result<Verified<BlockWithHashes>, Failure> {
    let block = BlockWithHashes::read(Bytes::copy_from_slice(result))?;
    check_header(block.header(), asked, block.is_empty())?;
    Ok(Verified::structurally(block))
}

/// Receipts, and the place that each receipt names.
pub(super) type Placed = (Receipts, Vec<(TxHash, Place)>);

/// Reads receipts of any block.
pub(super) fn read_receipts(result: &[u8]) -> Result<Placed, Failure> {
    Ok(Receipts::read(Bytes::copy_from_slice(result))?)
}

/// Checks the receipts of a block, and compares them with the block itself if `held` contains it.
///
/// # Errors
/// If the receipts belong to another block or some are missing. An empty list passes only if `held` is a block without
/// transactions, because nodes that lost receipts return empty lists.
pub fn receipts(
    result: &[u8],
    block: BlockHash,
    number: BlockNumber,
    held: Option<&Verified<Block>>,
) -> Result<Verified<Receipts>, Failure> {
    let (receipts, places) = read_receipts(result)?;
    if receipts.is_empty() && held.is_none() {
        return Err(Failure::Emptied("empty"));
    }
    own_receipts(receipts, &places, Home { block, number }, held)
}

/// Like [`receipts`], for receipts that have been read already.
pub(super) fn own_receipts(
    receipts: Receipts,
    places: &[(TxHash, Place)],
    home: Home,
    held: Option<&Verified<Block>>,
) -> Result<Verified<Receipts>, Failure> {
    check_places(places, home)?;
    if let Some(held) = held {
        if held.len() != receipts.len() {
            return Err(Failure::Count { expected: held.len(), got: receipts.len() });
        }
        for (expected, got) in held.transaction_hashes().zip(receipts.transaction_hashes()) {
            equal("transactionHash", &expected, &got)?;
        }
    }
    Ok(Verified::structurally(receipts.of_block(home)))
}

/// Compares the place that a single transaction or receipt names with its block, if `held` contains the block.
pub(super) fn belongs(place: Place, hash: TxHash, held: Option<&Verified<Block>>) -> Result<(), Failure> {
    let Some(held) = held else { return Ok(()) };
    equal("blockNumber", &held.header().number, &place.number)?;
    match held.transaction_hash(place.index) {
        Some(at) => equal("hash", &at, &hash),
        None => Err(Failure::field(
            Reason::Names,
            None,
            "transactionIndex",
            format_args!("below {}", held.len()),
            place.index,
        )),
    }
}

/// Checks a single transaction.
///
/// # Errors
/// If the answer is not the requested transaction.
pub fn single_transaction(result: &[u8], asked: TxHash) -> Result<Verified<SingleTransaction>, Failure> {
    let transaction = SingleTransaction::read(Bytes::copy_from_slice(result))?;
    equal("hash", &asked, &transaction.hash())?;
    Ok(Verified::structurally(transaction))
}

/// Checks a single transaction that was requested by its place.
///
/// # Errors
/// If the transaction names another place, or none.
pub fn single_transaction_at(
    result: &[u8],
    asked: At,
    index: Option<TxPosition>,
) -> Result<Verified<SingleTransaction>, Failure> {
    let transaction = SingleTransaction::read(Bytes::copy_from_slice(result))?;
    let Some(place) = transaction.place() else {
        // A transaction that was requested by its place cannot be pending.
        return Err(Failure::field(Reason::Names, None, "blockHash", asked, "missing"));
    };
    equal("transactionIndex", &index.unwrap_or(place.index), &place.index)?;
    match asked {
        At::Hash(hash) => equal("blockHash", &hash, &place.block)?,
        At::Number(number) => equal("blockNumber", &number, &place.number)?,
        At::Tag(_) | At::Tx(_) => {}
    }
    Ok(Verified::structurally(transaction))
}

/// Checks the hash of a block.
///
/// # Errors
/// If `got` is not the expected hash.
pub(super) fn hash(expected: BlockHash, got: BlockHash) -> Result<(), Failure> {
    equal("hash", &expected, &got)
}

/// Checks the number of the block that the content belongs to.
///
/// # Errors
/// If `got` is not the requested number.
pub(super) fn number(asked: BlockNumber, got: BlockNumber) -> Result<(), Failure> {
    equal("blockNumber", &asked, &got)
}

/// Checks a single receipt.
///
/// # Errors
/// If the answer is not the receipt of the requested transaction.
pub fn single_receipt(result: &[u8], asked: TxHash) -> Result<Verified<SingleReceipt>, Failure> {
    let receipt = SingleReceipt::read(Bytes::copy_from_slice(result))?;
    equal("transactionHash", &asked, &receipt.hash())?;
    Ok(Verified::structurally(receipt))
}

fn check_header(header: &Header, asked: At, empty: bool) -> Result<(), Failure> {
    match asked {
        At::Hash(hash) => equal("hash", &hash, &header.hash)?,
        At::Number(number) => equal("number", &number, &header.number)?,
        At::Tag(_) | At::Tx(_) => {}
    }
    // Without hashing the transactions, the header shows only whether the list is empty. A chain that computes no roots
    // writes a zero root.
    let root = header.transactions_root;
    if empty && root != EMPTY_ROOT_HASH && !root.is_zero() {
        return Err(Failure::Emptied("empty"));
    }
    Ok(())
}

/// Checks that each transaction or receipt names this block and its own position in the list.
fn check_places(places: &[(TxHash, Place)], Home { block, number }: Home) -> Result<(), Failure> {
    for (position, (_, place)) in places.iter().enumerate() {
        equal("blockHash", &block, &place.block)?;
        equal("blockNumber", &number, &place.number)?;
        equal("transactionIndex", &TxPosition(position as u64), &place.index)?;
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Display>(
    field: &'static str,
    expected: &T,
    got: &T,
) -> Result<(), Failure> {
    if expected == got { Ok(()) } else { Err(Failure::field(Reason::Names, None, field, expected, got)) }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    #[test]
    fn empty_list_needs_a_block_or_an_empty_root() {
        let hash = BlockHash(B256::ZERO);
        assert!(matches!(receipts(b"[]", hash, BlockNumber(1), None), Err(Failure::Emptied(_))));
        for (transactions_root, is_right) in
            [(EMPTY_ROOT_HASH, true), (B256::ZERO, true), (B256::repeat_byte(1), false)]
        {
            let header = Header {
                hash,
                parent: hash,
                number: BlockNumber(1),
                transactions_root,
                uncles: 0,
                timestamp: None,
            };
            assert_eq!(check_header(&header, At::Hash(hash), true).is_ok(), is_right, "{transactions_root}");
            assert!(check_header(&header, At::Hash(hash), false).is_ok());
        }
    }
}
