//! Every hash, root, bloom, signature and price, recomputed from the node's answers.

use super::{super::content::transactions::BLOBS, *};
use alloy_consensus::{
    Receipt, ReceiptEnvelope, Transaction as _, TxEnvelope, TxType,
    crypto::secp256k1::recover_signer,
    proofs::{
        calculate_receipt_root, calculate_transaction_root, calculate_withdrawals_root, state_root_unhashed,
    },
    transaction::SignerRecoverable,
};
use alloy_eips::{eip1559::BaseFeeParams, eip2718::Encodable2718};
use alloy_primitives::{Address, Bloom, Bytes as Data, Log, U256, keccak256};
use alloy_trie::{EMPTY_ROOT_HASH, TrieAccount};
use std::collections::{HashMap, HashSet};

/// Recomputes all derived values of a block.
fn verify(chain: &DevChain, hash: B256) {
    let block = full_block(chain, hash);
    let header = &block.header;
    assert_eq!(header.hash, hash);
    assert_eq!(header.inner.hash_slow(), hash, "header hash");

    let config = chain.config();
    assert_eq!(header.timestamp, config.genesis_time + header.number * config.slot_seconds);
    assert!(header.requests_hash.is_some() && header.parent_beacon_block_root.is_some());
    let withdrawals = block.withdrawals.as_ref().unwrap();
    assert_eq!(header.withdrawals_root, Some(calculate_withdrawals_root(withdrawals)), "withdrawals root");
    if let Some(parent) = chain.parent_of(hash) {
        let parent = full_block(chain, parent.hash).header;
        assert_eq!(header.number, parent.number + 1);
        assert_eq!(header.base_fee_per_gas, parent.next_block_base_fee(BaseFeeParams::ethereum()));
        assert_eq!(header.excess_blob_gas, parent.next_block_excess_blob_gas(BLOBS));
    }

    let txs: Vec<_> = block.transactions.as_transactions().unwrap().to_vec();
    let envelopes: Vec<TxEnvelope> = txs.iter().map(|tx| tx.inner.inner().clone()).collect();
    assert_eq!(header.transactions_root, calculate_transaction_root(&envelopes), "transactions root");
    for (index, tx) in txs.iter().enumerate() {
        assert_eq!(tx.block_hash, Some(hash));
        assert_eq!(tx.block_number, Some(header.number));
        assert_eq!(tx.transaction_index, Some(index as u64));
        assert_eq!(*tx.inner.tx_hash(), keccak256(tx.inner.encoded_2718()), "transaction hash");
        assert_eq!(tx.inner.recover_signer().unwrap(), tx.inner.signer(), "sender");
        assert_eq!(chain.transactions_of(hash)[index], *tx.inner.tx_hash());
        let alone: alloy_rpc_types_eth::Transaction = parse(&chain.transaction_json(hash, index).unwrap());
        assert_eq!(alone, *tx);
    }
    verify_receipts(chain, hash, &block);

    let with_hashes: Block = parse(&chain.block_json(hash, false).unwrap());
    assert_eq!(with_hashes.header, block.header);
    let hashes: Vec<_> = with_hashes.transactions.hashes().collect();
    assert_eq!(hashes, chain.transactions_of(hash));
}

fn verify_receipts(chain: &DevChain, hash: B256, block: &Block) {
    let header = &block.header;
    let receipts = receipts(chain, hash);
    assert_eq!(receipts.len(), block.transactions.len());
    let consensus: Vec<ReceiptEnvelope<Log>> =
        receipts.iter().map(|it| it.inner.clone().into_primitives_receipt()).collect();
    assert_eq!(header.receipts_root, calculate_receipt_root(&consensus), "receipts root");

    let (mut gas, mut blob_gas, mut logs, mut bloom) = (0, 0, 0, Bloom::ZERO);
    for (index, (receipt, tx)) in
        receipts.iter().zip(block.transactions.as_transactions().unwrap()).enumerate()
    {
        let tx = &tx.inner;
        gas += receipt.gas_used;
        assert_eq!(receipt.inner.cumulative_gas_used(), gas);
        assert!(receipt.gas_used >= 21_000 && receipt.gas_used <= tx.gas_limit());
        assert_eq!(receipt.effective_gas_price, tx.effective_gas_price(header.base_fee_per_gas));
        assert_eq!(receipt.transaction_hash, *tx.tx_hash());
        assert_eq!(receipt.inner.tx_type(), tx.tx_type());
        assert_eq!((receipt.block_hash, receipt.block_number), (Some(hash), Some(header.number)));
        assert_eq!((receipt.from, receipt.to), (tx.signer(), tx.to()));
        let created = tx.is_create().then(|| tx.signer().create(tx.nonce()));
        assert_eq!(receipt.contract_address, created);
        assert_eq!(receipt.blob_gas_used, tx.blob_gas_used());
        assert_eq!(receipt.blob_gas_price, tx.blob_gas_used().and(header.inner.blob_fee(BLOBS)));
        blob_gas += tx.blob_gas_used().unwrap_or(0);

        let own = Receipt {
            status: receipt.status().into(),
            cumulative_gas_used: gas,
            logs: consensus[index].logs().to_vec(),
        };
        assert_eq!(*receipt.inner.logs_bloom(), own.bloom_slow(), "receipt's bloom");
        bloom.accrue_bloom(receipt.inner.logs_bloom());
        assert!(receipt.status() || receipt.inner.logs().is_empty(), "a failed transaction has no logs");
        for log in receipt.inner.logs() {
            assert_eq!(log.log_index, Some(logs));
            assert_eq!((log.block_hash, log.block_number), (Some(hash), Some(header.number)));
            assert_eq!(log.transaction_hash, Some(*tx.tx_hash()));
            assert_eq!(log.transaction_index, Some(index as u64));
            assert!(!log.removed);
            logs += 1;
        }
        let alone: TransactionReceipt = parse(&chain.receipt_json(hash, index).unwrap());
        assert_eq!(alone, *receipt);
    }
    assert_eq!(header.gas_used, gas);
    assert!(header.gas_used <= header.gas_limit);
    assert_eq!(header.blob_gas_used, Some(blob_gas));
    assert_eq!(header.logs_bloom, bloom, "block's bloom");
}

#[test]
fn every_block_recomputes() {
    let chain = chain();
    chain.mine_many(6, 21);
    chain.mine(0);
    // Indexes above 127 have a longer RLP encoding, and therefore another order in the trie.
    chain.mine(200);
    for number in 0..=chain.head().number {
        verify(&chain, chain.hash_at(number).unwrap());
    }
}

#[test]
fn forks_with_moved_transactions_recompute() {
    let chain = chain();
    chain.mine_many(4, 7);
    let orphans: Vec<_> = (1..=4).map(|number| chain.hash_at(number).unwrap()).collect();
    let moved = chain.transactions_of(orphans[3]);
    let moved: Vec<_> = moved.iter().rev().map(|tx| chain.transaction(*tx).unwrap()).collect();
    // The new branch contains the transactions of the highest block twice, in reverse order. The chain accepts this.
    chain.reorg_with(4, vec![moved.clone(), Vec::new(), moved]);
    for hash in orphans.into_iter().chain((1..=3).map(|number| chain.hash_at(number).unwrap())) {
        verify(&chain, hash);
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
