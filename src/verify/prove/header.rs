//! A block's own hash: that of its header.

use alloy_consensus::Header;
use alloy_primitives::B256;

use super::object::Object;
use crate::verify::{Failure, Reason};

/// What forks have added to the header, oldest first. A header is a list without names: were one of
/// these left out and a later one given, its value would be taken for that of the other.
const ADDED: [&str; 8] = [
    // London
    "baseFeePerGas",
    // Shanghai
    "withdrawalsRoot",
    // Cancun
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    // Prague
    "requestsHash",
    // Amsterdam
    "blockAccessListHash",
    "slotNumber",
];

/// Every other member of a block that is in the hash, or known not to be.
const KNOWN: [&str; 21] = [
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    // Not in the hash: the hash itself, two that nothing confirms, and what has a root of its own.
    "hash",
    "totalDifficulty",
    "size",
    "uncles",
    "transactions",
    "withdrawals",
];

/// Rebuilds the header and compares its hash.
pub(super) fn prove(block: &Object<'_>, hash: B256) -> Result<Header, Failure> {
    let proved = read(block).and_then(|header| {
        let got = header.hash_slow();
        if got == hash {
            Ok(header)
        } else {
            Err(Failure::field(
                Reason::HeaderHash,
                None,
                "hash",
                format_args!("{got:#x}"),
                format_args!("{hash:#x}"),
            ))
        }
    });
    proved.map_err(|failure| {
        let failure = block.excuse(&[&KNOWN[..], &ADDED].concat(), failure);
        match zero_root(block) {
            Some(name) if !failure.is_unprovable() => block.beyond(format!("a zero {name}")),
            _ => failure,
        }
    })
}

/// Finds a root that is zero: chains that do not compute roots write them so.
fn zero_root(block: &Object<'_>) -> Option<&'static str> {
    let is_zero = |name: &&'static str| block.get::<B256>(name).is_ok_and(|root| root.is_zero());
    ["stateRoot", "transactionsRoot", "receiptsRoot"].into_iter().find(is_zero)
}

/// The header as it is hashed.
pub(super) fn read(block: &Object<'_>) -> Result<Header, Failure> {
    let left_out = ADDED.iter().position(|name| block.raw(name).is_none());
    if let Some(first) = left_out
        && ADDED[first..].iter().any(|name| block.raw(name).is_some())
    {
        return Err(block.missing(ADDED[first]));
    }
    Ok(Header {
        parent_hash: block.get("parentHash")?,
        ommers_hash: block.get("sha3Uncles")?,
        beneficiary: block.get("miner")?,
        state_root: block.get("stateRoot")?,
        transactions_root: block.get("transactionsRoot")?,
        receipts_root: block.get("receiptsRoot")?,
        logs_bloom: block.get("logsBloom")?,
        difficulty: block.get("difficulty")?,
        number: block.get("number")?,
        gas_limit: block.get("gasLimit")?,
        gas_used: block.get("gasUsed")?,
        timestamp: block.get("timestamp")?,
        extra_data: block.get("extraData")?,
        mix_hash: block.get("mixHash")?,
        nonce: block.get("nonce")?,
        base_fee_per_gas: block.maybe("baseFeePerGas")?,
        withdrawals_root: block.maybe("withdrawalsRoot")?,
        blob_gas_used: block.maybe("blobGasUsed")?,
        excess_blob_gas: block.maybe("excessBlobGas")?,
        parent_beacon_block_root: block.maybe("parentBeaconBlockRoot")?,
        requests_hash: block.maybe("requestsHash")?,
        block_access_list_hash: block.maybe("blockAccessListHash")?,
        slot_number: block.maybe("slotNumber")?,
    })
}
