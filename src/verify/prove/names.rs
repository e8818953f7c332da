//! Names that mean something, and those that look like them.
//!
//! Readers differ in what they take for the same name: Go's, in which much of Ethereum is written, does not
//! tell upper from lower case and believes the last one. What is proved must be what all of them read, so
//! a name that is one of these but for its case is refused.

/// Every name that means something in a block, a transaction, a receipt, a log or what is in them; sorted.
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

/// Is this one of the names, but for its case?
pub(super) fn is_lookalike(name: &str) -> bool {
    if MEANT.binary_search(&name).is_ok() {
        return false;
    }
    let folded = fold(name);
    MEANT.iter().any(|meant| meant.len() == folded.len() && fold(meant) == folded)
}

/// Lower case, with the two letters beyond ASCII that fold into it.
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
    fn what_go_would_take_for_another_name_is_told() {
        for name in ["Hash", "HASH", "ha\u{17f}h", "bloc\u{212a}Hash", "GasPrice", "YPARITY", "yparity"] {
            assert!(is_lookalike(name), "{name}");
        }
        for name in ["hash", "yParity", "strange", "l1Fee", "l1BlockNumber", "hashes", ""] {
            assert!(!is_lookalike(name), "{name}");
        }
    }
}
