//! Proves a header by its hash, which is the block hash.

use alloy_consensus::Header;
use alloy_primitives::B256;

use super::object::Object;
use crate::verify::{Failure, Reason};

/// Members that forks have added to the header, oldest first. The header is hashed as a list without names. So if one
/// of these members were missing and a later member present, the later value would take the place of the missing one.
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

/// All other members of a block that are known to be in the hash, or known not to be.
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
    // These are not in the hash: the hash itself, two members that nothing confirms, and three lists, which the hash
    // covers by their root or hash.
    "hash",
    "totalDifficulty",
    "size",
    "uncles",
    "transactions",
    "withdrawals",
];

/// Rebuilds the header and checks its hash.
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

/// Returns the name of the first root that is zero, as on chains that do not compute roots.
fn zero_root(block: &Object<'_>) -> Option<&'static str> {
    let is_zero = |name: &&'static str| block.get::<B256>(name).is_ok_and(|root| root.is_zero());
    ["stateRoot", "transactionsRoot", "receiptsRoot"].into_iter().find(is_zero)
}

/// Reads the hashed members of the header.
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
