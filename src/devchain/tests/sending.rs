//! The calls of a wallet.

use super::{super::TransactionKind, *};
use alloy_consensus::{
    BlobTransactionSidecar, SignableTransaction, Transaction as _, TxEip4844Variant, TxEip4844WithSidecar,
    TxEnvelope, TxLegacy,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{Bytes as Data, TxKind, U256, hex};
use alloy_rpc_types_eth::{FeeHistory, Transaction};
use strum::VariantArray;

fn raw(tx: &TxEnvelope) -> String {
    hex::encode_prefixed(tx.encoded_2718())
}

#[test]
fn a_transaction_of_every_kind_can_be_sent() {
    let chain = chain();
    let sent: Vec<_> = TransactionKind::VARIANTS.iter().map(|kind| chain.generate_kind(*kind)).collect();
    for tx in &sent {
        let hash = *tx.tx_hash();
        assert_eq!(ask(&chain, "eth_sendRawTransaction", [raw(tx)]), json!(hash));
        let pending: Transaction = parse(&chain.answer("eth_getTransactionByHash", [hash]).unwrap());
        assert_eq!((pending.block_hash, pending.block_number, pending.transaction_index), (None, None, None));
        assert_eq!(pending.inner.inner(), tx);
        assert_eq!(ask(&chain, "eth_getTransactionReceipt", [hash]), Value::Null);
        let again = chain.answer("eth_sendRawTransaction", [raw(tx)]).unwrap_err();
        assert_eq!((again.code, again.message.as_str()), (-32000, "already known"));
    }
    let block = chain.mine(0);
    let hashes: Vec<_> = sent.iter().map(|tx| *tx.tx_hash()).collect();
    assert_eq!(chain.transactions_of(block.hash), hashes);
    let late = chain.answer("eth_sendRawTransaction", [raw(&sent[0])]).unwrap_err();
    assert_eq!((late.code, late.message.as_str()), (-32000, "nonce too low: next nonce 1, tx nonce 0"));
}

#[test]
fn blob_sidecars_are_dropped_on_submission() {
    let chain = chain();
    let bare = chain.generate_kind(TransactionKind::Blob);
    let TxEnvelope::Eip4844(signed) = bare.clone() else { panic!("{bare:?}") };
    let (variant, signature, _) = signed.into_parts();
    let tx = variant.tx().clone();
    let count = tx.blob_versioned_hashes.len();
    let sidecar = BlobTransactionSidecar::new(
        vec![Default::default(); count],
        vec![Default::default(); count],
        vec![Default::default(); count],
    );
    let with_blobs = TxEip4844WithSidecar { tx, sidecar: sidecar.into() };
    let with_blobs = TxEip4844Variant::TxEip4844WithSidecar(with_blobs);
    let with_blobs = TxEnvelope::Eip4844(with_blobs.into_signed(signature));
    assert!(with_blobs.encoded_2718().len() > 100_000);

    assert_eq!(ask(&chain, "eth_sendRawTransaction", [raw(&with_blobs)]), json!(bare.tx_hash()));
    let block = chain.mine(0);
    assert_eq!(chain.transaction(*bare.tx_hash()), Some(bare));
    assert!(chain.block_json(block.hash, true).unwrap().len() < 10_000);
}

#[test]
fn foreign_transactions_and_cheap_replacements_are_refused() {
    let chain = chain();
    let foreign =
        DevChain::new(Config { chain_id: 1, ..Config::default() }).generate_kind(TransactionKind::DynamicFee);
    let error = chain.submit(foreign).unwrap_err();
    assert_eq!(error.message, "invalid chain id for signer: have 1 want 7331117");

    let account = &chain.accounts()[0];
    let priced = |gas_price| {
        let tx = TxLegacy {
            chain_id: Some(chain.config().chain_id),
            nonce: 0,
            gas_price,
            gas_limit: 21_000,
            to: TxKind::Call(account.address()),
            value: U256::from(1),
            input: Data::new(),
        };
        let signature = account.sign(tx.signature_hash());
        TxEnvelope::from(tx.into_signed(signature))
    };
    chain.submit(priced(1_000)).unwrap();
    assert_eq!(chain.submit(priced(1_099)).unwrap_err().message, "replacement transaction underpriced");
    let better = chain.submit(priced(1_100)).unwrap();
    assert_eq!(chain.mempool(), [better]);
}

#[test]
fn wallet_methods_are_answered() {
    let chain = chain();
    chain.mine_many(3, 6);
    let sender = chain.accounts()[7].address();
    let count = |tag| ask(&chain, "eth_getTransactionCount", (sender, tag));
    let before = count("latest");
    let tx = chain.generate(11).into_iter().find(|tx| {
        use alloy_consensus::transaction::SignerRecoverable;
        tx.recover_signer().unwrap() == sender
    });
    let tx = tx.unwrap();
    assert_eq!(before, json!(format!("{:#x}", tx.nonce())));
    chain.submit(tx.clone()).unwrap();
    assert_eq!(count("latest"), before);
    assert_eq!(count("pending"), json!(format!("{:#x}", tx.nonce() + 1)));

    let pending = ask(&chain, "eth_getBlockByNumber", ("pending", true));
    assert_eq!(
        (&pending["hash"], &pending["nonce"], &pending["number"]),
        (&Value::Null, &Value::Null, &json!("0x4"))
    );
    assert_eq!(pending["transactions"][0]["hash"], json!(tx.tx_hash()));
    assert_eq!(ask(&chain, "eth_getBlockTransactionCountByNumber", ["pending"]), "0x1");
    assert_eq!(ask(&chain, "eth_getBlockReceipts", ["pending"]), Value::Null);

    assert_ne!(ask(&chain, "eth_getBalance", (sender, "latest")), "0x0");
    assert_eq!(ask(&chain, "eth_call", json!([{ "to": sender }, "latest"])), "0x");
    assert_eq!(ask(&chain, "eth_estimateGas", json!([{ "to": sender }])), "0x30d40");
    let price: U256 = parse(&chain.answer("eth_gasPrice", ()).unwrap());
    let tip: U256 = parse(&chain.answer("eth_maxPriorityFeePerGas", ()).unwrap());
    let history: FeeHistory =
        parse(&chain.answer("eth_feeHistory", ("0x2", "latest", [0.0, 50.0, 100.0])).unwrap());
    assert_eq!(price, tip + U256::from(*history.base_fee_per_gas.last().unwrap()));
    assert_eq!((history.oldest_block, history.base_fee_per_gas.len()), (2, 3));
    for (n, number) in (2..=3).enumerate() {
        let header = full_block(&chain, chain.hash_at(number).unwrap()).header;
        assert_eq!(history.base_fee_per_gas[n], u128::from(header.base_fee_per_gas.unwrap()));
    }
    assert!(history.reward.unwrap().iter().all(|tips| tips.len() == 3 && tips.is_sorted() && tips[0] > 0));
    let funded = DevChain::new(Config { funded: vec![sender.create(0)], ..Config::default() });
    assert_ne!(ask(&funded, "eth_getBalance", (sender.create(0), "latest")), "0x0");
}
