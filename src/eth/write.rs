//! Methods that can change what reads see.

/// Can a call of `method` make the node another one: other blocks, another head, another past?
///
/// After it nothing that was known of the chain holds.
pub fn is_reset(method: &str) -> bool {
    method == "debug_setHead"
        || ["evm_", "anvil_", "hardhat_"].iter().any(|family| method.starts_with(family))
}

/// Can a call of `method` change what later reads answer?
///
/// In a batch such a call is a barrier: what follows it runs after it, so that a client reads its
/// own writes.
pub fn is_write(method: &str) -> bool {
    const FAMILIES: [&str; 6] = ["eth_send", "evm_", "anvil_", "hardhat_", "miner_", "tenderly_"];
    method == "debug_setHead" || FAMILIES.iter().any(|family| method.starts_with(family))
}
