//! Genesis hashes of well-known chains.

use alloy_primitives::{B256, b256};

use crate::eth::{BlockHash, chain_name};

/// Chain id and hash of block 0. Each of these chains has a [`chain_name`].
const KNOWN: [(u64, B256); 7] = [
    (1, b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3")),
    (100, b256!("4f1dd23188aab3a76b463e4af801b52b1248ef073c648cbdc4c9333d3da79756")),
    (137, b256!("a9c28ce2141b56c474f1dc504bee9b01eb1bd7d1a507580d5519d4437a97de1b")),
    (8453, b256!("f712aa9241cc24369b143cf6dce85f0902a9731e70d66818a3a5845b296c73dd")),
    (17000, b256!("b5f7f912443c940f21fd611f12828d75b534364ed9e95ca4e307729a4661bde4")),
    (560048, b256!("bbe312868b376a3001692a646dd2d7d1e4406380dfd86b98aa8a34d1557c971b")),
    (11155111, b256!("25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9")),
];

/// Returns the name of the known chain with this id, if `genesis` is not its genesis hash. Then the endpoint serves a
/// development chain with the id of a known chain, or misreports its chain.
pub(super) fn impersonated(chain_id: u64, genesis: BlockHash) -> Option<&'static str> {
    let (_, first) = KNOWN.iter().find(|(known, _)| *known == chain_id)?;
    if BlockHash(*first) == genesis { None } else { chain_name(chain_id) }
}

#[cfg(test)]
mod tests {
    use alloy_consensus::constants::{
        HOLESKY_GENESIS_HASH, HOODI_GENESIS_HASH, MAINNET_GENESIS_HASH, SEPOLIA_GENESIS_HASH,
    };

    use super::*;

    #[test]
    fn known_chain_id_has_one_genesis() {
        let ethereum = [
            (1, MAINNET_GENESIS_HASH),
            (17000, HOLESKY_GENESIS_HASH),
            (560048, HOODI_GENESIS_HASH),
            (11155111, SEPOLIA_GENESIS_HASH),
        ];
        for (chain_id, genesis) in ethereum {
            assert_eq!(impersonated(chain_id, BlockHash(genesis)), None);
            assert_eq!(impersonated(100, BlockHash(genesis)), Some("Gnosis"));
        }
        assert_eq!(impersonated(1, BlockHash(SEPOLIA_GENESIS_HASH)), Some("Ethereum Mainnet"));
        for (chain_id, _) in KNOWN {
            assert!(chain_name(chain_id).is_some(), "{chain_id} has no name");
        }
        assert_eq!(impersonated(31337, BlockHash(SEPOLIA_GENESIS_HASH)), None);
    }
}
