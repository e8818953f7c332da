//! Values that follow from earlier blocks. In `tests/it/cache/prove/truth.rs`, the verifier recomputes all hashes,
//! roots, blooms, signatures and prices of a block.

use super::{super::content::transactions::BLOBS, *};
use alloy_consensus::{
    Transaction as _, TxType, crypto::secp256k1::recover_signer, proofs::state_root_unhashed,
};
use alloy_eips::eip1559::BaseFeeParams;
use alloy_primitives::{Address, Bytes as Data, U256, keccak256};
use alloy_trie::{EMPTY_ROOT_HASH, TrieAccount};
use std::collections::{HashMap, HashSet};

#[test]
fn headers_follow_from_their_parents_and_receipts() {
    let chain = chain();
    chain.mine_many(6, 21);
    chain.mine(0);
    let config = chain.config();
    for number in 1..=chain.head().number {
        let hash = chain.hash_at(number).unwrap();
        let block = full_block(&chain, hash);
        let header = &block.header;
        let parent = full_block(&chain, chain.parent_of(hash).unwrap().hash).header;
        assert_eq!(header.timestamp, config.genesis_time + number * config.slot_seconds);
        assert_eq!(header.base_fee_per_gas, parent.next_block_base_fee(BaseFeeParams::ethereum()));
        assert_eq!(header.excess_blob_gas, parent.next_block_excess_blob_gas(BLOBS));
        let (mut gas, mut blob_gas) = (0, 0);
        for (tx, receipt) in block.transactions.as_transactions().unwrap().iter().zip(receipts(&chain, hash))
        {
            assert!(receipt.gas_used >= 21_000 && receipt.gas_used <= tx.inner.gas_limit());
            assert!(receipt.status() || receipt.inner.logs().is_empty(), "a failed transaction has no logs");
            gas += receipt.gas_used;
            blob_gas += tx.inner.blob_gas_used().unwrap_or(0);
        }
        assert!(header.gas_used == gas && gas <= header.gas_limit);
        assert_eq!(header.blob_gas_used, Some(blob_gas));
    }
}

#[test]
fn all_transaction_kinds_and_variants_appear() {
    let chain = chain();
    chain.mine_many(10, 14);
    let mut types: HashMap<TxType, usize> = HashMap::new();
    let (mut unprotected, mut created, mut failed, mut capped, mut accounted) = (0, 0, 0, 0, 0);
    let (mut log_counts, mut topic_counts) = (HashSet::new(), HashSet::new());
    for number in 1..=10 {
        let hash = chain.hash_at(number).unwrap();
        let block = full_block(&chain, hash);
        for (tx, receipt) in block.transactions.as_transactions().unwrap().iter().zip(receipts(&chain, hash))
        {
            *types.entry(tx.inner.tx_type()).or_default() += 1;
            unprotected += usize::from(tx.inner.chain_id().is_none());
            created += usize::from(receipt.contract_address.is_some());
            failed += usize::from(!receipt.status());
            capped += usize::from(
                tx.inner.is_dynamic_fee() && receipt.effective_gas_price == tx.inner.max_fee_per_gas(),
            );
            log_counts.insert(receipt.inner.logs().len());
            topic_counts.extend(receipt.inner.logs().iter().map(|log| log.topics().len()));
            if tx.inner.tx_type() == TxType::Eip2930 {
                assert!(!tx.inner.access_list().unwrap().is_empty());
            }
            for authorization in tx.inner.authorization_list().unwrap_or_default() {
                let signature = authorization.signature().unwrap();
                let authority = recover_signer(&signature, authorization.signature_hash()).unwrap();
                let code: Data = parse(&chain.answer("eth_getCode", (authority, "latest")).unwrap());
                assert!(code.starts_with(&[0xef, 0x01, 0x00]));
                accounted += 1;
            }
            for hash in tx.inner.blob_versioned_hashes().unwrap_or_default() {
                assert_eq!(hash[0], 1);
            }
        }
        assert!(block.header.blob_gas_used.unwrap() <= BLOBS.max_blob_gas_per_block());
    }
    assert_eq!(types.len(), 5, "{types:?}");
    for (what, count) in [
        ("unprotected", unprotected),
        ("created", created),
        ("failed", failed),
        ("capped", capped),
        ("authorized", accounted),
    ] {
        assert!(count > 0, "no transaction is {what}");
    }
    assert_eq!(log_counts, HashSet::from([0, 1, 2, 3, 4]));
    assert_eq!(topic_counts, HashSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn nonces_follow_each_other_on_a_branch() {
    let chain = chain();
    chain.mine_many(12, 17);
    let mut next: HashMap<Address, u64> = HashMap::new();
    for number in 1..=12 {
        let block = full_block(&chain, chain.hash_at(number).unwrap());
        for tx in block.transactions.as_transactions().unwrap() {
            let next = next.entry(tx.inner.signer()).or_default();
            assert_eq!(tx.inner.nonce(), *next);
            *next += 1;
        }
    }
}

#[test]
fn state_root_matches_the_accounts_that_the_node_serves() {
    let chain = chain();
    chain.mine_many(5, 14);
    for number in ["0x0", "0x1", "0x3", "latest"] {
        let addresses: Vec<Address> = {
            let state = chain.shared.state.lock();
            let cast = &state.rules.cast;
            let accounts = cast.senders.iter().chain(&cast.authorities).map(|account| account.address());
            let others = [&cast.contracts, &cast.recipients, &cast.proposers];
            accounts.chain(others.into_iter().flatten().copied()).collect()
        };
        let accounts = addresses.into_iter().map(|address| {
            let balance: U256 = parse(&chain.answer("eth_getBalance", (address, number)).unwrap());
            let nonce: U256 = parse(&chain.answer("eth_getTransactionCount", (address, number)).unwrap());
            let code: Data = parse(&chain.answer("eth_getCode", (address, number)).unwrap());
            (address, TrieAccount::new(nonce.to(), balance, EMPTY_ROOT_HASH, keccak256(code)))
        });
        let root = state_root_unhashed(accounts.filter(|(_, account)| *account != TrieAccount::default()));
        let block = ask(&chain, "eth_getBlockByNumber", (number, false));
        assert_eq!(block["stateRoot"], json!(root), "at {number}");
    }
}

#[test]
fn chain_depends_only_on_commands_and_seed() {
    let program = |seed| {
        let chain = DevChain::new(Config { seed, ..Config::default() });
        chain.mine_many(5, 9);
        chain.reorg(3, 4);
        chain.mine(2);
        (0..=chain.head().number)
            .map(|number| chain.block_json(chain.hash_at(number).unwrap(), true).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(program(1), program(1));
    let (one, two) = (program(1), program(2));
    assert!(one.iter().zip(&two).all(|(one, two)| one != two));
    let other_id = DevChain::new(Config { chain_id: 5, ..Config::default() });
    assert_ne!(other_id.hash_at(0), chain().hash_at(0));
}
