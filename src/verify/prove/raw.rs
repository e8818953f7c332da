//! Encodes content as on the network: RLP, and EIP-2718 for transactions and receipts.
//!
//! Every encoding is proved again by the hash or root that covers it, so it is right even if the content is not: a
//! client that knows the hash can check it in the same way.

use alloy_consensus::Header;
use alloy_primitives::{B256, keccak256};
use alloy_rlp::{Decodable, Encodable, Header as ListHeader, encode_list};

use super::{object::Object, text};
use crate::verify::{Failure, Part, Reason};

/// First byte of the smallest RLP list. A legacy transaction is a list; other types begin with their number.
const LIST: u8 = 0xc0;

/// Encodes the header of a block, whose JSON may contain full transactions or their hashes.
///
/// # Errors
/// If the header does not have the hash that the block names.
pub fn header(block: &[u8]) -> Result<Vec<u8>, Failure> {
    let object = Object::read(text(block)?, None)?;
    let header = super::header::prove(&object, object.get("hash")?)?;
    Ok(alloy_rlp::encode(&header))
}

/// Decodes a header; `None` if these bytes do not have this hash.
pub fn read_header(header: &[u8], hash: B256) -> Option<Header> {
    (keccak256(header) == hash).then(|| Header::decode(&mut &*header).ok())?
}

/// Encodes a transaction.
///
/// # Errors
/// If the transaction does not have the hash that it names.
pub fn transaction(json: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(super::transaction::encode(&Object::read(text(json)?, None)?)?.1)
}

/// Encodes the receipts of a block. `block` contains full transactions.
///
/// # Errors
/// If the receipts are not the receipts of this block.
pub fn receipts(receipts: &[u8], block: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let object = Object::read(text(block)?, None)?;
    let hash = object.get::<B256>("hash")?;
    super::receipts::prove(text(receipts)?, &super::header::prove(&object, hash)?, hash, &object)
}

/// Encodes a block with full transactions. `uncles` are the headers of its uncles.
///
/// # Errors
/// If a hash or root of the header does not cover the rest of the block.
pub fn block(json: &[u8], uncles: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, Failure> {
    let object = Object::read(text(json)?, None)?;
    let header = super::header::prove(&object, object.get("hash")?)?;
    let encode = |(index, text): (usize, &str)| {
        Ok(super::transaction::encode(&Object::read(text, Some(Part::Transaction(index)))?)?.1)
    };
    let transactions = object.list("transactions")?.into_iter().enumerate().map(encode);
    let transactions = transactions.collect::<Result<Vec<_>, Failure>>()?;
    super::block::transactions_root(&transactions, &header)?;
    let withdrawals = super::block::withdrawals(&object, &header)?;
    let uncles = encode_uncles(uncles, &header)?;

    let mut payload = alloy_rlp::encode(&header);
    let mut items = Vec::new();
    for transaction in transactions {
        if transaction.first().is_some_and(|first| *first >= LIST) {
            items.extend(transaction);
        } else {
            transaction.as_slice().encode(&mut items);
        }
    }
    ListHeader { list: true, payload_length: items.len() }.encode(&mut payload);
    payload.extend(items);
    payload.extend(uncles);
    if let Some(withdrawals) = withdrawals {
        encode_list(&withdrawals, &mut payload);
    }
    let mut block = Vec::with_capacity(payload.len() + 9);
    ListHeader { list: true, payload_length: payload.len() }.encode(&mut block);
    block.extend(payload);
    Ok(block)
}

/// Returns the number of a block's uncles, whose headers [`block`] needs.
///
/// # Errors
/// If the text is not a block, or if its list of uncles cannot be right.
pub fn uncles(json: &[u8]) -> Result<usize, Failure> {
    let object = Object::read(text(json)?, None)?;
    super::block::uncles(&object, &super::header::read(&object)?)
}

/// Encodes the list of uncles, and compares its hash with the header of the block.
fn encode_uncles(uncles: &[impl AsRef<[u8]>], of: &Header) -> Result<Vec<u8>, Failure> {
    let read = |uncle: &_| super::header::read(&Object::read(text(AsRef::as_ref(uncle))?, None)?);
    let uncles = uncles.iter().map(read).collect::<Result<Vec<Header>, Failure>>()?;
    let mut encoded = Vec::new();
    encode_list(&uncles, &mut encoded);
    let hash = keccak256(&encoded);
    if hash == of.ommers_hash {
        return Ok(encoded);
    }
    Err(Failure::field(
        Reason::Derived,
        None,
        "sha3Uncles",
        format_args!("{:#x}", of.ommers_hash),
        format_args!("{hash:#x}"),
    ))
}
