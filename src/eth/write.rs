//! Methods that can change the results of later reads.

/// Prefixes of the methods with which tests control a development node.
const DEVELOPMENT: [&str; 3] = ["evm_", "anvil_", "hardhat_"];

/// Returns whether tests control a development node with `method`.
pub fn is_development_method(method: &str) -> bool {
    DEVELOPMENT.iter().any(|family| method.starts_with(family))
}

/// Returns whether `method` can replace the node's chain: its blocks, its head or its history.
///
/// After such a call no earlier knowledge of the chain is valid.
pub fn is_reset(method: &str) -> bool {
    method == "debug_setHead" || is_development_method(method)
}

/// Returns whether `method` can change the results of later reads.
///
/// In a batch such a call is a barrier: later calls run after it, so that a client reads its own writes.
pub fn is_write(method: &str) -> bool {
    // The most common calls are not writes, so they are ruled out first.
    if method.starts_with("eth_get") {
        return false;
    }
    const FAMILIES: [&str; 4] = ["miner_", "tenderly_", "eth_resend", "eth_cancel"];
    // A method whose name starts with `send` is a write in any namespace: bundles (`eth_`, `mev_`), accounts
    // (`personal_`), other chains' own methods (`zks_`).
    let sends = method.split_once('_').is_some_and(|(_, deed)| deed.starts_with("send"));
    sends || is_reset(method) || FAMILIES.iter().any(|family| method.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_send_or_cancel_are_writes() {
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
