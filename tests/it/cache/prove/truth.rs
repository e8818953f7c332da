//! True blocks and receipts, in every form that clients ask for.

use holdfast::{
    devchain::{Config, DevChain},
    verify::Level,
};

use super::{block, block_with_hashes, cut, receipts, single_transaction};
use crate::support::{data, vectors};

/// Proves a block in all its forms.
///
/// # Panics
/// If one of the forms is refused.
fn all_forms(name: &str, full: &[u8], all: Option<&[u8]>) {
    let proved = block(full).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    assert_eq!(proved.level(), Level::Proved);

    let with_hashes =
        block_with_hashes(&cut(&proved)).unwrap_or_else(|failure| panic!("{name}, cut: {failure}"));
    assert_eq!(with_hashes.level(), if proved.is_empty() { Level::Proved } else { Level::Partial });

    for index in 0..proved.len() {
        let single = single_transaction(&proved, index);
        let single = single.unwrap_or_else(|failure| panic!("{name}, transaction {index}: {failure}"));
        assert_eq!(single.level(), Level::Partial);
    }
    if let Some(all) = all {
        let receipts = receipts(all, &proved).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(receipts.level(), Level::Proved);
    }
}

#[test]
fn real_blocks_and_receipts_are_proved() {
    for real in data::raw().into_iter().chain(data::real()) {
        all_forms(&real.name, &real.block, real.receipts.as_deref());
    }
}

#[test]
fn development_chain_blocks_are_proved() {
    let chain = DevChain::new(Config::default());
    chain.mine_many(12, 9);
    chain.mine(0);
    // Indexes above 127 have a longer RLP encoding, and therefore another order in the trie.
    chain.mine(200);
    let hashes = |first| (first..=chain.head().number).map(|number| chain.hash_at(number).unwrap());
    let orphans: Vec<_> = hashes(0).collect();
    // The new branch contains the transactions of an orphan twice, in reverse order. The chain accepts this.
    let moved = chain.transactions_of(orphans[12]).into_iter().rev();
    let moved: Vec<_> = moved.map(|transaction| chain.transaction(transaction).unwrap()).collect();
    chain.reorg_with(4, vec![moved.clone(), Vec::new(), moved]);
    for hash in orphans.into_iter().chain(hashes(11)) {
        let (full, all) = (chain.block_json(hash, true).unwrap(), chain.receipts_json(hash).unwrap());
        all_forms(&format!("block {hash}"), &full, Some(&all));
    }
}

#[test]
fn a_block_of_every_fork_is_proved() {
    for vector in vectors::all() {
        all_forms(vector.name, vector.block.as_bytes(), Some(vector.receipts.as_bytes()));
    }
}
