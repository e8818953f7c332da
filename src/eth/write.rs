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
    // What most calls are.
    if method.starts_with("eth_get") {
        return false;
    }
    const FAMILIES: [&str; 7] =
        ["evm_", "anvil_", "hardhat_", "miner_", "tenderly_", "eth_resend", "eth_cancel"];
    // Whoever's it is: bundles (`eth_`, `mev_`), accounts (`personal_`), what other chains have beside (`zks_`).
    let sends = method.split_once('_').is_some_and(|(_, deed)| deed.starts_with("send"));
    sends || method == "debug_setHead" || FAMILIES.iter().any(|family| method.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sends_or_takes_back_is_a_write_whoever_s_it_is() {
        for method in [
            "eth_sendRawTransaction",
            "eth_sendTransaction",
            "eth_sendBundle",
            "eth_sendPrivateTransaction",
            "eth_cancelPrivateTransaction",
            "eth_resend",
            "mev_sendBundle",
            "zks_sendRawTransactionWithDetailedOutput",
            "personal_sendTransaction",
            "evm_mine",
            "debug_setHead",
        ] {
            assert!(is_write(method), "{method}");
        }
        for method in
            ["eth_call", "eth_getBalance", "mev_simBundle", "zks_L1ChainId", "debug_traceCall", "send"]
        {
            assert!(!is_write(method), "{method}");
        }
    }
}
