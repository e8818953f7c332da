//! Development chains, each built once for all tests of a process.

use holdfast::devchain::{Config, DevChain};
use parking_lot::Mutex;

/// Returns a chain with `blocks` blocks of `transactions` transactions each.
///
/// Equal parameters mean equal chains, and signatures and tries are much of the work of the tests. So the first caller
/// builds the chain, and each gets a copy.
pub fn chain(config: &Config, blocks: usize, transactions: usize) -> DevChain {
    static BUILT: Mutex<Vec<(Config, usize, usize, DevChain)>> = Mutex::new(Vec::new());
    let is_equal = |built: &&(Config, usize, usize, DevChain)| {
        (&built.0, built.1, built.2) == (config, blocks, transactions)
    };
    let built = BUILT.lock().iter().find(is_equal).map(|built| built.3.clone());
    let chain = built.unwrap_or_else(|| {
        let chain = DevChain::new(config.clone());
        chain.mine_many(blocks, transactions);
        BUILT.lock().push((config.clone(), blocks, transactions, chain.clone()));
        chain
    });
    chain.copy()
}
