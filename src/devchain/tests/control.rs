//! Mining, forks and the view of clients.

use super::{
    super::{Pruned, TagTarget, TransactionKind},
    *,
};
use alloy_consensus::Transaction as _;
use std::time::Duration;

fn number_of(chain: &DevChain, tag: &str) -> Value {
    ask(chain, "eth_getBlockByNumber", (tag, false))["number"].clone()
}

#[test]
fn a_reorg_replaces_blocks_and_keeps_transactions() {
    let chain = chain();
    chain.mine_many(5, 3);
    let old: Vec<_> = (0..=5).map(|number| chain.hash_at(number).unwrap()).collect();
    let txs: Vec<_> = old[4..].iter().flat_map(|hash| chain.transactions_of(*hash)).collect();

    let head = chain.reorg(2, 3);
    assert_eq!(head.number, 6);
    assert_eq!(chain.hash_at(3), Some(old[3]));
    assert_ne!(chain.hash_at(4), Some(old[4]));
    for (n, tx) in txs.iter().enumerate() {
        let (block, index) = chain.location(*tx).unwrap();
        assert_eq!(chain.hash_at(4 + n as u64 / 3), Some(block));
        assert_eq!(index, n % 3);
    }
    assert!(!chain.is_canonical(old[5]) && chain.is_canonical(old[3]));

    let head = chain.reorg(3, 1);
    assert_eq!(head.number, 4);
    assert_eq!(chain.transactions_of(head.hash), txs, "the last block takes the rest");
}

#[test]
fn transaction_can_be_dropped_moved_and_restored() {
    let chain = chain();
    chain.mine_many(3, 2);
    let [low, high] = [2, 3].map(|number| chain.transactions_of(chain.hash_at(number).unwrap()));
    let tx = |hash| chain.transaction(hash).unwrap();

    chain.reorg_with(2, vec![vec![tx(high[1]), tx(low[0])], vec![tx(high[0])]]);
    assert_eq!(chain.location(low[1]), None, "dropped");
    assert_eq!(ask(&chain, "eth_getTransactionByHash", [low[1]]), Value::Null);
    assert_eq!(ask(&chain, "eth_getTransactionReceipt", [low[1]]), Value::Null);
    assert_eq!(chain.location(high[1]), Some((chain.hash_at(2).unwrap(), 0)), "moved lower");
    assert_eq!(ask(&chain, "eth_getTransactionReceipt", [high[1]])["blockNumber"], "0x2");
    assert_eq!(chain.location(low[0]), Some((chain.hash_at(2).unwrap(), 1)));

    chain.reorg_with(1, vec![vec![], vec![tx(high[0]), tx(low[1])]]);
    assert_eq!(chain.location(low[1]), Some((chain.hash_at(4).unwrap(), 1)), "moved higher");
}

#[test]
fn repeated_transaction_is_found_in_the_newest_block() {
    let chain = chain();
    chain.mine_many(2, 1);
    let older = chain.hash_at(1).unwrap();
    let repeated = chain.transactions_of(older)[0];
    let newer = chain.build_on(chain.head().hash, vec![chain.transaction(repeated).unwrap()]);
    chain.set_head(newer);
    assert_eq!(chain.location(repeated), Some((newer, 0)));
    assert_eq!(ask(&chain, "eth_getTransactionReceipt", [repeated])["blockNumber"], "0x3");
    chain.lag(1);
    assert_eq!(
        ask(&chain, "eth_getTransactionReceipt", [repeated])["blockNumber"],
        "0x1",
        "lag hides the newer"
    );
    chain.lag(0);
    chain.rollback(1);
    assert_eq!(chain.location(repeated), Some((older, 0)), "the older place is back");
    chain.rollback(2);
    assert_eq!(chain.location(repeated), None);
}

#[test]
fn replica_adopts_branches_and_nothing_else() {
    let (chain, replica) = (chain(), chain());
    let first = chain.mine_many(3, 2);
    assert_eq!(replica.adopt(&chain, first.hash), first);
    let skipped = chain.reorg(1, 2);
    let second = chain.reorg(2, 3);
    assert_eq!(replica.head(), first, "it catches up on request");
    assert_eq!(replica.adopt(&chain, second.hash), second);
    assert_eq!(
        ask(&replica, "eth_getBlockByNumber", ("latest", true)),
        ask(&chain, "eth_getBlockByNumber", ("latest", true))
    );
    assert_eq!(ask(&replica, "eth_getBlockByHash", (skipped.hash, false)), Value::Null);
    assert_ne!(ask(&replica, "eth_getBlockByHash", (first.hash, false)), Value::Null, "an orphan of its own");
    let tx = chain.transactions_of(chain.hash_at(3).unwrap())[0];
    assert_eq!(
        ask(&replica, "eth_getTransactionReceipt", [tx]),
        ask(&chain, "eth_getTransactionReceipt", [tx])
    );
}

#[test]
fn orphans_change_nothing_until_they_are_the_head() {
    let chain = chain();
    let head = chain.mine_many(3, 1);
    let fork = chain.hash_at(1).unwrap();
    let tx = chain.generate_kind(TransactionKind::Blob);
    let side = chain.build_on(fork, vec![tx.clone()]);
    assert_ne!(side, chain.build_on(fork, vec![tx.clone()]), "every built block is different");
    assert_eq!(chain.head(), head);
    assert_eq!(chain.location(*tx.tx_hash()), None);

    assert_eq!(chain.set_head(side).number, 2);
    assert_eq!(chain.location(*tx.tx_hash()), Some((side, 0)));
    assert_eq!(ask(&chain, "eth_getBlockByNumber", ("0x3", false)), Value::Null);
    assert_eq!(chain.set_head(head.hash), head, "and back");
    assert_eq!(chain.location(*tx.tx_hash()), None);
}

#[test]
fn rollback_lowers_the_head_and_new_blocks_differ() {
    let chain = chain();
    let old = chain.mine_many(4, 1);
    assert_eq!(chain.rollback(2).number, 2);
    assert_eq!(ask(&chain, "eth_blockNumber", ()), "0x2");
    assert_ne!(chain.mine_many(2, 1), old);
    assert_eq!(chain.rollback(100).number, 0);
    assert_eq!(chain.reorg(1, 2).number, 2, "a reorg of nothing grows the chain");
}

#[test]
fn orphans_are_served_by_hash_if_configured() {
    for keep_orphans in [true, false] {
        let chain = DevChain::new(Config { keep_orphans, ..Config::default() });
        let orphan = chain.mine_many(2, 2);
        chain.reorg(1, 1);
        let by_hash = ask(&chain, "eth_getBlockByHash", (orphan.hash, false));
        let receipts = ask(&chain, "eth_getBlockReceipts", [orphan.hash]);
        let tx = ask(&chain, "eth_getTransactionByBlockHashAndIndex", (orphan.hash, "0x1"));
        for answer in [by_hash, receipts, tx] {
            assert_eq!(!answer.is_null(), keep_orphans);
        }
        let strict = json!([{ "blockHash": orphan.hash, "requireCanonical": true }]);
        assert_eq!(chain.answer("eth_getBlockReceipts", strict).is_err(), keep_orphans);
    }
}

#[test]
fn lagging_node_knows_nothing_above_its_head() {
    let chain = chain();
    let head = chain.mine_many(6, 2);
    let (tx, seen) =
        (chain.transactions_of(head.hash)[0], chain.transactions_of(chain.hash_at(4).unwrap())[0]);
    chain.lag(2);
    assert_eq!(ask(&chain, "eth_blockNumber", ()), "0x4");
    assert_eq!(number_of(&chain, "latest"), "0x4");
    assert_eq!(number_of(&chain, "pending"), "0x5");
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x5", true])),
        ("eth_getBlockByHash", json!([head.hash, true])),
        ("eth_getBlockReceipts", json!([head.hash])),
        ("eth_getTransactionByHash", json!([tx])),
        ("eth_getTransactionReceipt", json!([tx])),
        ("eth_getTransactionByBlockHashAndIndex", json!([head.hash, "0x0"])),
    ] {
        assert_eq!(ask(&chain, method, params), Value::Null, "{method}");
    }
    assert!(!ask(&chain, "eth_getTransactionByHash", [seen]).is_null());
    assert_eq!(chain.head(), head, "the truth is not affected");
    chain.lag(0);
    assert!(!ask(&chain, "eth_getTransactionByHash", [tx]).is_null());
}

#[test]
fn safe_and_finalized_trail_or_are_pinned_or_missing() {
    let chain = chain();
    chain.mine_many(4, 0);
    assert_eq!(number_of(&chain, "finalized"), "0x0");
    chain.mine_many(16, 0);
    assert_eq!((number_of(&chain, "safe"), number_of(&chain, "finalized")), (json!("0xc"), json!("0x4")));
    assert_eq!((chain.safe(), chain.finalized()), (Some(12), Some(4)));

    chain.set_finalized(Some(9));
    chain.set_safe(99);
    assert_eq!((number_of(&chain, "safe"), number_of(&chain, "finalized")), (json!("0x14"), json!("0x9")));
    assert_eq!(chain.finalized_hash(), chain.hash_at(9));

    chain.set_finalized(TagTarget::Null);
    assert_eq!(ask(&chain, "eth_getBlockByNumber", ("finalized", false)), Value::Null);
    chain.set_safe(TagTarget::Error);
    let error = chain.answer("eth_getBlockByNumber", ("safe", false)).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (-32000, "safe block not found"));
    chain.set_finalized(None);
    assert_eq!(number_of(&chain, "finalized"), "0x4");
}

#[test]
fn pruned_history_is_null_or_an_error_but_the_genesis_stays() {
    let chain = chain();
    chain.mine_many(5, 1);
    let hash = chain.hash_at(2).unwrap();
    let tx = chain.transactions_of(hash)[0];
    chain.prune_below(3, Pruned::Null);
    assert_eq!(ask(&chain, "eth_getBlockByNumber", ("0x2", false)), Value::Null);
    assert_eq!(ask(&chain, "eth_getBlockByHash", (hash, false)), Value::Null);
    assert_eq!(ask(&chain, "eth_getBlockReceipts", [hash]), Value::Null);
    chain.prune_below(3, Pruned::Error4444);
    assert_eq!(error_code(&chain, "eth_getBlockByNumber", ("0x2", false)), 4444);
    assert_eq!(error_code(&chain, "eth_getBlockReceipts", ["0x1"]), 4444);
    assert_eq!(ask(&chain, "eth_getTransactionReceipt", [tx]), Value::Null);
    assert_eq!(number_of(&chain, "earliest"), "0x0");
    assert_eq!(number_of(&chain, "0x3"), "0x3");
    chain.prune_below(0, Pruned::Null);
    assert_eq!(number_of(&chain, "0x2"), "0x2");
}

#[test]
fn restart_replaces_the_chain_under_the_same_handle() {
    let chain = chain();
    let old = chain.mine_many(3, 2);
    chain.lag(1);
    let clone = chain.clone();
    chain.restart(Config { seed: 9, chain_id: 12, ..Config::default() });
    assert_eq!(clone.head().number, 0);
    assert_eq!(ask(&clone, "eth_chainId", ()), "0xc");
    assert_eq!(ask(&clone, "eth_getBlockByHash", (old.hash, false)), Value::Null);
    assert_eq!(clone.mine(1).number, 1);
    assert_eq!(ask(&clone, "eth_blockNumber", ()), "0x1", "the lag is gone too");
}

#[test]
fn the_mempool_is_mined_first_and_may_be_replaced() {
    let chain = chain();
    chain.mine(3);
    let txs = chain.generate(2);
    let hashes: Vec<_> = txs.iter().map(|tx| *tx.tx_hash()).collect();
    chain.set_mempool(txs.clone());
    assert_eq!(chain.mempool(), hashes);
    let block = chain.mine(2);
    assert_eq!(chain.transactions_of(block.hash)[..2], hashes);
    assert_eq!(chain.transactions_of(block.hash).len(), 4);
    assert!(chain.mempool().is_empty());

    chain.rollback(1);
    assert!(chain.mempool().is_empty(), "rolled-back transactions do not return to the mempool");
    chain.submit(txs[0].clone()).unwrap();
    let side = chain.build_on(chain.head().hash, vec![txs[0].clone()]);
    assert_eq!(chain.mempool().len(), 1);
    chain.set_head(side);
    assert!(chain.mempool().is_empty(), "a mined transaction leaves the mempool");
    assert_eq!(txs[0].chain_id().unwrap_or(chain.config().chain_id), chain.config().chain_id);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_next_head() {
    let chain = chain();
    let miner = tokio::spawn(chain.clone().mine_every(Duration::from_secs(12), || 1));
    let start = tokio::time::Instant::now();
    assert_eq!(chain.mined().await.number, 1);
    assert_eq!(chain.mined().await.number, 2);
    assert_eq!(start.elapsed().as_secs(), 24);
    miner.abort();

    let mut heads = chain.subscribe();
    chain.rollback(1);
    heads.changed().await.unwrap();
    assert_eq!(heads.borrow_and_update().number, 1);
    chain.set_head(chain.head().hash);
    assert!(!heads.has_changed().unwrap(), "the same head is no news");
}
