//! Development chains, each built once for all tests of a process.

use std::sync::{Arc, OnceLock};

use holdfast::devchain::{Config, DevChain};
use parking_lot::Mutex;

/// A chain and what determines it. The test that asks first builds it, and others wait.
struct BuiltChain {
    config: Config,
    blocks: usize,
    transactions: usize,
    chain: Arc<OnceLock<DevChain>>,
}

/// Returns a chain with `blocks` blocks of `transactions` transactions each.
///
/// Equal parameters mean equal chains, and signatures and tries are much of the work of the tests. So each chain is built
/// once, and each caller gets a copy.
pub fn chain(config: &Config, blocks: usize, transactions: usize) -> DevChain {
    static BUILT: Mutex<Vec<BuiltChain>> = Mutex::new(Vec::new());
    let chain = {
        let mut built = BUILT.lock();
        let is_equal = |known: &&BuiltChain| {
            (&known.config, known.blocks, known.transactions) == (config, blocks, transactions)
        };
        let known = built.iter().find(is_equal).map(|known| Arc::clone(&known.chain));
        known.unwrap_or_else(|| {
            let (config, chain) = (config.clone(), Arc::default());
            built.push(BuiltChain { config, blocks, transactions, chain: Arc::clone(&chain) });
            chain
        })
    };
    let build = || {
        let chain = DevChain::new(config.clone());
        chain.mine_many(blocks, transactions);
        chain
    };
    chain.get_or_init(build).copy()
}
