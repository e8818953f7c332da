//! Known member names, and their lookalikes.
//!
//! JSON readers differ in which names they consider equal. Go's reader, which much Ethereum software uses, ignores case
//! and takes the last match. All clients must read the content that was proved, so the proof rejects a name that
//! differs from a known name only in case.

/// All known names in blocks, transactions, receipts, logs and their nested objects, in sorted order.
const MEANT: [&str; 68] = [
    "accessList",
    "address",
    "amount",
    "authorizationList",
    "baseFeePerGas",
    "blobGasPrice",
    "blobGasUsed",
    "blobVersionedHashes",
    "blockAccessListHash",
    "blockHash",
    "blockNumber",
    "blockTimestamp",
    "chainId",
    "contractAddress",
    "cumulativeGasUsed",
    "data",
    "difficulty",
    "effectiveGasPrice",
    "excessBlobGas",
    "extraData",
    "from",
    "gas",
    "gasLimit",
    "gasPrice",
    "gasUsed",
    "hash",
    "index",
    "input",
    "logIndex",
    "logs",
    "logsBloom",
    "maxFeePerBlobGas",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "miner",
    "mixHash",
    "nonce",
    "number",
    "parentBeaconBlockRoot",
    "parentHash",
    "r",
    "receiptsRoot",
    "removed",
    "requestsHash",
    "root",
    "s",
    "sha3Uncles",
    "size",
    "slotNumber",
    "stateRoot",
    "status",
    "storageKeys",
    "timestamp",
    "to",
    "topics",
    "totalDifficulty",
    "transactionHash",
    "transactionIndex",
    "transactions",
    "transactionsRoot",
    "type",
    "uncles",
    "v",
    "validatorIndex",
    "value",
    "withdrawals",
    "withdrawalsRoot",
    "yParity",
];

/// Returns whether `name` differs from a known name only in case.
pub(super) fn is_lookalike(name: &str) -> bool {
    if MEANT.binary_search(&name).is_ok() {
        return false;
    }
    let folded = fold(name);
    MEANT.iter().any(|meant| meant.len() == folded.len() && fold(meant) == folded)
}

/// Returns `name` in lower case. Also converts the two letters outside ASCII that Go's reader considers equal to `s`
/// and `k`.
fn fold(name: &str) -> String {
    let plain = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order() {
        assert!(MEANT.is_sorted());
    }

    #[test]
    fn names_that_go_would_match_are_lookalikes() {
        for name in ["Hash", "HASH", "ha\u{17f}h", "bloc\u{212a}Hash", "GasPrice", "YPARITY", "yparity"] {
            assert!(is_lookalike(name), "{name}");
        }
        for name in ["hash", "yParity", "strange", "l1Fee", "l1BlockNumber", "hashes", ""] {
            assert!(!is_lookalike(name), "{name}");
        }
    }
}
