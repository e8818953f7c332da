//! Configuration of a development chain.

use alloy_primitives::Address;

/// All parameters that determine a chain.
///
/// Two chains with equal configs that receive equal commands are equal byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The chain id that transactions are signed for and `eth_chainId` returns.
    pub chain_id: u64,
    /// Decides keys, addresses and the content of every generated transaction.
    pub seed: u64,
    /// The timestamp of block 0, in Unix seconds.
    pub genesis_time: u64,
    /// Block `n` has the timestamp `genesis_time + n * slot_seconds`, on every branch.
    pub slot_seconds: u64,
    /// Number of blocks by which `safe` trails the head.
    pub safe_distance: u64,
    /// Number of blocks by which `finalized` trails the head.
    pub finalized_distance: u64,
    /// The gas limit of every block. A block whose transactions use more gas has a limit that equals their gas.
    pub gas_limit: u64,
    /// Whether the node serves orphaned blocks by hash: `true` as with geth, `false` as with anvil.
    pub keep_orphans: bool,
    /// Whether a transaction or uncle count by a number above the head is an error: `true` as with anvil, `false` for
    /// the answer `null` as with geth.
    pub range_errors: bool,
    /// Maximum number of received calls to record. The newest are recorded, but all are counted.
    pub keep_calls: usize,
    /// Accounts besides the chain's own that hold ether at genesis.
    pub funded: Vec<Address>,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            // No known chain has this id, so it differs from mainnet (1) and from other development nodes (1337 and
            // 31337).
            chain_id: 7_331_117,
            seed: 0,
            // 2025-05-07 10:05:11 UTC, when Prague activated on mainnet. The chain follows the rules of Prague and
            // later forks.
            genesis_time: 1_746_612_311,
            slot_seconds: 12,
            safe_distance: 8,
            finalized_distance: 16,
            gas_limit: 60_000_000,
            keep_orphans: true,
            range_errors: false,
            keep_calls: 100_000,
            funded: Vec::new(),
        }
    }
}
