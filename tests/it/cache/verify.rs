//! Verification levels, and the handling of answers that fail.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie},
    eth::{Block, BlockHash, BlockNumber, Part, Query, Receipts, Tag},
    jsonrpc::Answer,
    verify::{
        self, Anchor, Check, Content, Demand, Failure, Kind, Known, OnMismatch, Verdict, Verified, Verifier,
    },
    workers::Overdue,
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    client,
    doubles::KnownBlocks,
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, TRANSACTION},
    nodes::{hash, truth},
    program::{Program, holdfast},
    proxy, upstream,
};

/// A node with mainnet's chain id.
fn mainnet() -> DevChain {
    upstream::devchain().config(|config| config.chain_id = 1).blocks(20, 5).chain()
}

/// Returns a chain with rules of its own: its headers do not have the hashes that Ethereum's rules give.
fn foreign() -> DevChain {
    let chain = upstream::devchain().blocks(120, 3).chain();
    has_rules_of_its_own(&chain);
    chain
}

fn has_rules_of_its_own(chain: &DevChain) {
    chain.fail(Fault::Lie(Lie::Field("stateRoot".to_owned(), json!(word(7))))).on("eth_getBlockBy*").always();
}

fn word(digit: u8) -> String {
    format!("0x{}", digit.to_string().repeat(64))
}

fn config(level: Demand, on_mismatch: OnMismatch) -> Config {
    let mut config = Config::default();
    config.verify.level = level;
    config.verify.on_mismatch = on_mismatch;
    config
}

fn transaction(chain: &DevChain, number: u64, index: usize) -> String {
    format!("{:#x}", chain.transactions_of(chain.hash_at(number).unwrap())[index])
}

/// Returns the methods called on behalf of clients.
fn asked(chain: &DevChain) -> Vec<String> {
    let is_head = |params: &str| ["latest", "finalized", "safe"].iter().any(|tag| params.contains(tag));
    let calls = chain.calls().into_iter().filter(|call| !is_head(&call.params));
    let calls = calls.filter(|call| call.method.starts_with("eth_get") && call.params != r#"["0x0",false]"#);
    calls.map(|call| call.method).collect()
}

async fn refuses(program: &InMemory, method: &str, params: Value) -> String {
    let (_, reply) = program.call(method, params).await;
    assert_eq!(reply["error"]["code"], -32012, "{reply}");
    reply["error"]["message"].as_str().unwrap().to_owned()
}

// ## Failed checks

#[tokio::test(start_paused = true)]
async fn wrong_answer_is_passed_on_and_never_stored() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Pass));
    chain.fail(Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))).on(BLOCK_BY_HASH).times(2);
    let params = json!([hash(&chain, 5), true]);
    for _ in 0..2 {
        let (status, block) = program.cached(BLOCK_BY_HASH, params.clone()).await;
        assert_eq!((status.as_str(), &block["gasUsed"]), ("holdfast; fwd=miss", &json!("0x1")));
    }
    assert_eq!(program.metric(r#"mismatches_total{reason="header_hash"}"#), 2);
    let (status, block) = program.cached(BLOCK_BY_HASH, params.clone()).await;
    assert_eq!(
        (status.as_str(), block),
        ("holdfast; fwd=miss; stored", truth(&chain, BLOCK_BY_HASH, &params))
    );
}

#[tokio::test(start_paused = true)]
async fn wrong_answer_is_rejected_with_its_fault() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Reject));
    let params = json!([hash(&chain, 5), true]);
    let lies = [
        (
            Lie::Field("gasUsed".to_owned(), json!("0x1")),
            "the upstream's answer failed verification: hash is 0x",
        ),
        (Lie::EmptiedTransactions, "the list of transactions is empty, which contradicts transactionsRoot"),
        (Lie::WrongHash, "hash is 0x"),
    ];
    for (lie, message) in lies {
        chain.fail(Fault::Lie(lie)).on(BLOCK_BY_HASH).once();
        let refusal = refuses(&program, BLOCK_BY_HASH, params.clone()).await;
        assert!(refusal.contains(message), "{refusal}");
    }
    assert_eq!(program.ask(BLOCK_BY_HASH, params.clone()).await, truth(&chain, BLOCK_BY_HASH, &params));
}

#[tokio::test(start_paused = true)]
async fn head_with_a_wrong_hash_is_ignored() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    time::sleep(Duration::from_secs(2)).await;
    chain.fail(Fault::Lie(Lie::Field("parentHash".to_owned(), json!(word(1))))).on(BLOCK_BY_NUMBER).once();
    let (_, reply) = program.call("eth_blockNumber", json!([])).await;
    assert_eq!(reply["error"]["code"], -32012, "{reply}");
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x14");
}

#[tokio::test]
async fn mismatch_log_names_the_query_and_the_fault() {
    let node = upstream::devchain().config(|config| config.chain_id = 1).blocks(5, 3).run().await;
    let flags =
        ["--verify", "full", "--on-mismatch", "reject", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let program = Program::start(holdfast(&[&["serve", "--upstream", &node.url()], &flags[..]].concat()));
    let client = client::at(&format!("http://{}", program.rpc_address().await));
    node.fail(Fault::Lie(Lie::Field("from".to_owned(), json!(format!("0x{}", "1".repeat(40))))))
        .on(TRANSACTION)
        .always();
    let asked = transaction(&node, 3, 1);
    let answer = client.call(TRANSACTION, json!([asked])).await;
    assert_eq!(answer.code(), Some(-32012), "{}", answer.text());
    let line = program.line("upstream returned invalid data").await;
    for part in [&format!("transaction {asked}"), "signer", "from is 0x1111", "not 0x"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
}

// ## Fetches for a proof

#[tokio::test(start_paused = true)]
async fn full_level_fetches_a_block_once_for_all_proofs() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    chain.clear_calls();
    for index in 0..5 {
        for method in [RECEIPT, TRANSACTION] {
            let params = json!([transaction(&chain, 5, index)]);
            assert_eq!(program.ask(method, params.clone()).await, truth(&chain, method, &params));
        }
    }
    // The last call finds out which block is canonical at that number, because a single transaction or receipt does
    // not show it.
    assert_eq!(asked(&chain), [RECEIPT, BLOCK_BY_HASH, RECEIPTS, BLOCK_BY_NUMBER]);
    for params in [json!([hash(&chain, 5), false]), json!([hash(&chain, 5), true])] {
        assert_eq!(program.ask(BLOCK_BY_HASH, params.clone()).await, truth(&chain, BLOCK_BY_HASH, &params));
    }
    assert_eq!(asked(&chain).len(), 4);
    chain.clear_calls();
    // Only a block proves the transaction at an index, the count, or the hashes.
    let at = "eth_getTransactionByBlockHashAndIndex";
    for index in ["0x0", "0x4", "0x5"] {
        let params = json!([hash(&chain, 6), index]);
        assert_eq!(program.ask(at, params.clone()).await, truth(&chain, at, &params));
    }
    assert_eq!(program.ask("eth_getBlockTransactionCountByHash", json!([hash(&chain, 6)])).await, "0x5");
    assert_eq!(asked(&chain), [BLOCK_BY_HASH]);
    chain.clear_calls();
    assert_eq!(program.ask("eth_getBlockTransactionCountByHash", json!([hash(&chain, 7)])).await, "0x5");
    let params = json!([hash(&chain, 8)]);
    assert_eq!(program.ask(RECEIPTS, params.clone()).await, truth(&chain, RECEIPTS, &params));
    assert_eq!(asked(&chain), [BLOCK_BY_HASH, BLOCK_BY_HASH, RECEIPTS]);
}

#[tokio::test(start_paused = true)]
async fn full_level_proves_the_head() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    for full in [false, true, false] {
        let params = json!(["latest", full]);
        assert_eq!(
            program.ask(BLOCK_BY_NUMBER, params.clone()).await,
            truth(&chain, BLOCK_BY_NUMBER, &params)
        );
    }
    assert_eq!(asked(&chain), [BLOCK_BY_HASH]);
    let params = json!(["earliest", false]);
    assert_eq!(program.ask(BLOCK_BY_NUMBER, params.clone()).await, truth(&chain, BLOCK_BY_NUMBER, &params));
}

#[tokio::test(start_paused = true)]
async fn unknown_header_member_passes_unless_proof_is_required() {
    let chain = mainnet();
    let params = json!([hash(&chain, 5), true]);
    let fork = || {
        // A header with an unknown member that its hash covers.
        chain.fail(Fault::Lie(Lie::Disguised(3))).on(BLOCK_BY_HASH).once();
    };
    for (demand, on_mismatch) in [
        (Demand::Auto, OnMismatch::Pass),
        (Demand::Auto, OnMismatch::Reject),
        (Demand::Full, OnMismatch::Pass),
    ] {
        let program = in_memory::program(&chain, &config(demand, on_mismatch));
        program.ask("eth_blockNumber", json!([])).await;
        fork();
        let (status, block) = program.cached(BLOCK_BY_HASH, params.clone()).await;
        assert_eq!((status.as_str(), &block["strange"]), ("holdfast; fwd=miss", &json!("0x1")), "{demand:?}");
        assert_eq!(program.metric("unprovable_total"), 1);
        assert_eq!(program.metric(r#"mismatches_total{reason="header_hash"}"#), 0);
    }
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    fork();
    let refusal = refuses(&program, BLOCK_BY_HASH, params).await;
    assert!(refusal.contains("unprovable"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn answer_with_a_null_member_is_never_stored_as_proved() {
    let chain = mainnet();
    let block = json!([hash(&chain, 5), true]);
    let receipts = json!([hash(&chain, 5)]);
    for (method, params, member) in [
        (RECEIPTS, &receipts, "effectiveGasPrice"),
        (RECEIPTS, &receipts, "type"),
        (BLOCK_BY_HASH, &block, "mixHash"),
        (BLOCK_BY_HASH, &block, "withdrawals"),
    ] {
        for level in [Demand::Auto, Demand::Full] {
            let program = in_memory::program(&chain, &config(level, OnMismatch::Reject));
            program.ask("eth_blockNumber", json!([])).await;
            if level == Demand::Auto && method == RECEIPTS {
                program.ask(BLOCK_BY_HASH, block.clone()).await;
            }
            chain.fail(Fault::Lie(Lie::Field(member.to_owned(), Value::Null))).on(method).once();
            match level {
                Demand::Full => drop(refuses(&program, method, params.clone()).await),
                _ => assert_eq!(
                    program.cached(method, params.clone()).await.0,
                    "holdfast; fwd=miss",
                    "{member}"
                ),
            }
            assert!(program.metric("unprovable_total") > 0, "{member}");
            let (status, answer) = program.cached(method, params.clone()).await;
            assert_eq!(
                (status.as_str(), answer),
                ("holdfast; fwd=miss; stored", truth(&chain, method, params))
            );
        }
    }
}

// ## Receipts and their block

#[tokio::test(start_paused = true)]
async fn stored_receipts_are_proved_or_dropped_with_their_block() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let (lied, told) = (json!([hash(&chain, 5)]), json!([hash(&chain, 6)]));
    chain.fail(Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))).on(RECEIPTS).once();
    // Both lists of receipts are stored, because nothing contradicts them yet.
    for (params, stored) in [(&lied, true), (&told, true)] {
        let (status, _) = program.cached(RECEIPTS, params.clone()).await;
        assert_eq!(status == "holdfast; fwd=miss; stored", stored, "{status}");
    }
    assert_eq!(program.metric(r#"checked_total{level="proved"}"#), 0);
    for params in [&lied, &told] {
        program.ask(BLOCK_BY_HASH, json!([params[0], true])).await;
    }
    // No call waits for the proof, which runs as soon as a proof thread is free.
    time::sleep(Duration::from_millis(1)).await;
    assert_eq!(program.metric(r#"mismatches_total{reason="derived"}"#), 1);
    chain.clear_calls();
    let (status, receipts) = program.cached(RECEIPTS, told.clone()).await;
    assert_eq!(
        (status.as_str(), receipts),
        ("holdfast; hit; detail=receipts", truth(&chain, RECEIPTS, &told))
    );
    let (status, receipts) = program.cached(RECEIPTS, lied.clone()).await;
    assert_eq!((status.as_str(), receipts), ("holdfast; fwd=miss; stored", truth(&chain, RECEIPTS, &lied)));
}

#[tokio::test(start_paused = true)]
async fn single_receipt_is_checked_against_a_cached_block() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Reject));
    // A node with all receipts of a block would be asked for them.
    let message = "the method eth_getBlockReceipts does not exist/is not available".to_owned();
    chain.fail(Fault::Error { code: -32601, message }).on(RECEIPTS).always();
    program.ask(BLOCK_BY_HASH, json!([hash(&chain, 5), true])).await;
    program.ask(RECEIPT, json!([transaction(&chain, 5, 0)])).await;
    let lies = [
        ("from", json!(format!("0x{}", "1".repeat(40)))),
        ("effectiveGasPrice", json!("0x1")),
        ("type", json!("0x7")),
        ("gasUsed", json!("0xffffffffff")),
        ("logsBloom", json!(format!("0x{}", "f".repeat(512)))),
    ];
    for (member, lie) in lies {
        chain.fail(Fault::Lie(Lie::Field(member.to_owned(), lie))).on(RECEIPT).once();
        let refusal = refuses(&program, RECEIPT, json!([transaction(&chain, 5, 1)])).await;
        assert!(refusal.contains(member), "{refusal}");
    }
    for index in 0..5 {
        let params = json!([transaction(&chain, 5, index)]);
        assert_eq!(program.ask(RECEIPT, params.clone()).await, truth(&chain, RECEIPT, &params));
    }
}

#[tokio::test(start_paused = true)]
async fn single_receipt_is_not_stored_if_all_receipts_were_wrong() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Pass));
    program.ask(BLOCK_BY_HASH, json!([hash(&chain, 5), true])).await;
    // Only the receipts root reveals this lie.
    for method in [RECEIPT, RECEIPTS] {
        chain.fail(Fault::Lie(Lie::Field("status".to_owned(), json!("0x0")))).on(method).always();
    }
    for _ in 0..2 {
        for index in 0..5 {
            program.ask(RECEIPT, json!([transaction(&chain, 5, index)])).await;
        }
    }
    // Each call costs one upstream call. The proxy does not prefetch uncacheable receipts again and again.
    assert!(asked(&chain).len() <= 1 + 10 + 2, "{:?}", asked(&chain));
    chain.clear_faults();
    for index in 0..5 {
        let params = json!([transaction(&chain, 5, index)]);
        assert_eq!(program.ask(RECEIPT, params.clone()).await, truth(&chain, RECEIPT, &params), "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn emptied_receipts_are_detected_by_their_block() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Lie(Lie::EmptiedTransactions)).on(RECEIPTS).once();
    let refusal = refuses(&program, RECEIPTS, json!([hash(&chain, 5)])).await;
    assert!(refusal.contains("there are 0 receipts for 5 transactions"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn foreign_block_is_detected_by_its_transactions() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    chain.mine_many(200, 1);
    time::sleep(Duration::from_secs(2)).await;
    program.ask("eth_blockNumber", json!([])).await;
    // The hash, roots and signatures of the foreign block are all valid.
    chain.fail(Fault::Lie(Lie::ForeignBlock)).on(BLOCK_BY_NUMBER).once();
    let refusal = refuses(&program, BLOCK_BY_NUMBER, json!(["0x5", true])).await;
    assert!(refusal.contains("chainId is 0x2, not 0x1"), "{refusal}");
}

// ## Chains with rules of their own

#[tokio::test]
async fn nonstandard_chain_falls_back_to_structural_checks() {
    let node = upstream::devchain().blocks(10, 3).run().await;
    has_rules_of_its_own(&node);
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let status = || async { client.get(&proxy.admin_url("/status")).await.json()["verification"].clone() };
    assert_eq!(status().await["blocks"], "auto");
    for number in [3, 3, 4] {
        let params = json!([hash(&node, number), true]);
        assert!(client.ask(BLOCK_BY_HASH, params).await.is_ok());
        assert_eq!(status().await["blocks"], "auto", "decided too early");
    }
    client.ask(BLOCK_BY_HASH, json!([hash(&node, 5), true])).await.unwrap();
    let decided = status().await;
    assert_eq!((&decided["configured"], &decided["blocks"]), (&json!("auto"), &json!("structural")));
    assert!(decided["reason"].as_str().unwrap().contains("does not follow Ethereum's rules"), "{decided}");
    // The proxy stored the block at which it made this decision.
    node.clear_calls();
    client.ask(BLOCK_BY_HASH, json!([hash(&node, 5), true])).await.unwrap();
    assert_eq!(node.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn listed_ethereum_chain_never_falls_back() {
    for named in [false, true] {
        let chain = foreign();
        let mut config = Config::default();
        if named {
            config.verify.ethereum_chains = vec![chain.config().chain_id];
        }
        let program = in_memory::program(&chain, &config);
        for number in 1..20 {
            program.ask(BLOCK_BY_HASH, json!([hash(&chain, number), true])).await;
        }
        let (status, _) = program.cached(BLOCK_BY_HASH, json!([hash(&chain, 19), true])).await;
        assert_eq!(status == "holdfast; hit; detail=block", !named, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn unproved_content_is_fetched_again_once_it_is_final() {
    let chain = upstream::devchain().blocks(20, 3).chain();
    chain.set_finalized(5);
    let program = in_memory::program(&chain, &config(Demand::Structural, OnMismatch::Pass));
    let params = json!([hash(&chain, 10), true]);
    let single = json!([transaction(&chain, 11, 1)]);
    program.ask(BLOCK_BY_NUMBER, json!(["0xa", true])).await;
    program.ask(TRANSACTION, single.clone()).await;
    chain.clear_calls();
    assert_eq!(program.cached(BLOCK_BY_HASH, params.clone()).await.0, "holdfast; hit; detail=block");
    chain.set_finalized(15);
    time::sleep(Duration::from_secs(2)).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.clear_calls();
    for _ in 0..3 {
        assert_eq!(program.ask(BLOCK_BY_HASH, params.clone()).await, truth(&chain, BLOCK_BY_HASH, &params));
        assert_eq!(program.ask(TRANSACTION, single.clone()).await, truth(&chain, TRANSACTION, &single));
    }
    assert_eq!(
        asked(&chain),
        [BLOCK_BY_HASH, BLOCK_BY_NUMBER, TRANSACTION],
        "once each: the block at its number confirms the single transaction"
    );
    // A block that the node has since pruned is still served, without another call for each answer.
    let kept = json!([hash(&chain, 17), true]);
    program.ask(BLOCK_BY_HASH, kept.clone()).await;
    chain.set_finalized(18);
    chain.fail(Fault::Null).on(BLOCK_BY_HASH).always();
    time::sleep(Duration::from_secs(2)).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.clear_calls();
    for _ in 0..3 {
        assert_eq!(program.ask(BLOCK_BY_HASH, kept.clone()).await, truth(&chain, BLOCK_BY_HASH, &kept));
    }
    assert_eq!(asked(&chain), [BLOCK_BY_HASH]);
}

#[tokio::test(start_paused = true)]
async fn differing_receipts_are_no_longer_cut_from_their_block() {
    let chain = upstream::devchain().blocks(20, 4).chain();
    // A single receipt has one member more than in its block's list.
    chain.fail(Fault::Lie(Lie::Field("l1Fee".to_owned(), json!("0x1")))).on(RECEIPT).always();
    let program = in_memory::program(&chain, &config(Demand::Structural, OnMismatch::Pass));
    program.ask("eth_blockNumber", json!([])).await;
    for index in 0..4 {
        let receipt = program.ask(RECEIPT, json!([transaction(&chain, 5, index)])).await;
        assert_eq!(receipt["l1Fee"], "0x1", "receipt {index}");
    }
    // The first block's receipts reveal the difference; from there on, the proxy makes no useless prefetch.
    chain.clear_calls();
    for index in 0..4 {
        assert_eq!(program.ask(RECEIPT, json!([transaction(&chain, 6, index)])).await["l1Fee"], "0x1");
    }
    assert_eq!(asked(&chain), [RECEIPT; 4]);
}

#[tokio::test(start_paused = true)]
async fn empty_block_is_no_evidence_of_ethereum_rules() {
    let chain = foreign();
    let program = in_memory::program(&chain, &Config::default());
    // The genesis is served without the fault, because the genesis of such a chain has only members that Ethereum
    // knows.
    chain.clear_faults();
    program.ask(BLOCK_BY_NUMBER, json!(["0x0", true])).await;
    has_rules_of_its_own(&chain);
    for number in 1..=3 {
        program.ask(BLOCK_BY_HASH, json!([hash(&chain, number), true])).await;
    }
    let (status, _) = program.cached(BLOCK_BY_HASH, json!([hash(&chain, 3), true])).await;
    assert_eq!(status, "holdfast; hit; detail=block");
}

// ## Wrong block numbers and places

/// A configuration whose window does not reach down to the queried blocks.
fn shallow(level: Demand, on_mismatch: OnMismatch) -> Config {
    let mut config = config(level, on_mismatch);
    config.chain.window = 8;
    config
}

fn renumber(chain: &DevChain, method: &str, number: &str) {
    chain.fail(Fault::Lie(Lie::Field("blockNumber".to_owned(), json!(number)))).on(method).once();
}

#[tokio::test(start_paused = true)]
async fn wrong_number_in_a_single_answer_places_no_block() {
    for (level, held) in [(Demand::Auto, false), (Demand::Auto, true), (Demand::Full, false)] {
        for method in [RECEIPT, TRANSACTION] {
            let chain = upstream::devchain().config(|config| config.chain_id = 1).blocks(220, 2).chain();
            let program = in_memory::program(&chain, &shallow(level, OnMismatch::Reject));
            program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
            // The answer is true except for its block number. Both blocks are final.
            renumber(&chain, method, "0x32");
            let _ = program.call(method, json!([transaction(&chain, 100, 0)])).await;
            if held {
                program.ask(BLOCK_BY_HASH, json!([hash(&chain, 100), true])).await;
            }
            for params in [json!(["0x32", true]), json!(["0x64", true]), json!(["0x32", false])] {
                for _ in 0..2 {
                    let (_, reply) = program.call(BLOCK_BY_NUMBER, params.clone()).await;
                    assert_eq!(
                        reply["result"],
                        truth(&chain, BLOCK_BY_NUMBER, &params),
                        "{level:?} {method} {params}"
                    );
                }
            }
            let (status, _) = program.cached(BLOCK_BY_NUMBER, json!(["0x32", true])).await;
            assert_eq!(status, "holdfast; hit; detail=block", "the true block is stored in the end");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_number_in_receipts_places_no_block() {
    let chain = upstream::devchain().config(|config| config.chain_id = 1).blocks(220, 2).chain();
    let program = in_memory::program(&chain, &shallow(Demand::Auto, OnMismatch::Pass));
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    renumber(&chain, RECEIPTS, "0x32");
    let _ = program.call(RECEIPTS, json!([hash(&chain, 100)])).await;
    for params in [json!(["0x32"]), json!(["0x64"])] {
        let _ = program.call(BLOCK_BY_NUMBER, json!([params[0], true])).await;
        // When the block of unproved receipts arrives, the proxy checks them as soon as a proof thread is free.
        time::sleep(Duration::from_millis(1)).await;
        assert_eq!(program.ask(RECEIPTS, params.clone()).await, truth(&chain, RECEIPTS, &params), "{params}");
    }
}

#[tokio::test(start_paused = true)]
async fn mined_transaction_with_a_partial_place_is_refused() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    program.ask("eth_blockNumber", json!([])).await;
    for member in ["blockHash", "blockNumber", "transactionIndex"] {
        chain.fail(Fault::Lie(Lie::Field(member.to_owned(), Value::Null))).on(TRANSACTION).once();
        refuses(&program, TRANSACTION, json!([transaction(&chain, 7, 1)])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn member_that_differs_only_in_case_is_refused() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Reject));
    for member in ["Hash", "GASUSED", "ha\u{17f}h"] {
        chain.fail(Fault::Lie(Lie::Field(member.to_owned(), json!("0x1")))).on(BLOCK_BY_HASH).once();
        let refusal = refuses(&program, BLOCK_BY_HASH, json!([hash(&chain, 5), true])).await;
        assert!(refusal.contains("each name in its own case"), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn unprovable_head_is_ignored_if_proof_is_required() {
    let chain = mainnet();
    chain.set_finalized(5);
    let program = in_memory::program(&chain, &config(Demand::Full, OnMismatch::Reject));
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    time::sleep(Duration::from_secs(2)).await;
    chain.fail(Fault::Lie(Lie::Disguised(1))).on(BLOCK_BY_NUMBER).always();
    for tag in ["latest", "finalized"] {
        refuses(&program, BLOCK_BY_NUMBER, json!([tag, true])).await;
    }
    chain.clear_faults();
    for tag in ["latest", "finalized"] {
        let params = json!([tag, true]);
        assert_eq!(
            program.ask(BLOCK_BY_NUMBER, params.clone()).await,
            truth(&chain, BLOCK_BY_NUMBER, &params)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn uncacheable_block_is_not_fetched_whole_for_its_parts() {
    let chain = mainnet();
    let program = in_memory::program(&chain, &config(Demand::Auto, OnMismatch::Pass));
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Fault::Lie(Lie::Disguised(3))).on(BLOCK_BY_HASH).always();
    let count = "eth_getBlockTransactionCountByHash";
    for (method, params) in
        [(count, json!([hash(&chain, 5)])), (BLOCK_BY_HASH, json!([hash(&chain, 6), false]))]
    {
        program.call(method, params.clone()).await;
        chain.clear_calls();
        for _ in 0..5 {
            program.call(method, params.clone()).await;
        }
        assert_eq!(asked(&chain).len(), 5, "{method}: {:?}", asked(&chain));
    }
}

// ## The verifier alone

/// A cache that panics at a lookup, to simulate a bug.
struct Panics;

impl Known for Panics {
    fn block(&self, _: BlockHash) -> Option<Arc<Verified<Block>>> {
        panic!("asked for a block")
    }

    fn receipts(&self, _: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        panic!("asked for receipts")
    }

    fn at(&self, _: BlockNumber) -> Option<BlockHash> {
        panic!("asked for a number")
    }

    fn was_final(&self, _: BlockNumber) -> bool {
        panic!("asked for finality")
    }
}

#[tokio::test]
async fn panicked_check_counts_as_overdue() {
    let chain = mainnet();
    let verifier = verifier(Demand::Auto, 1);
    // The first query is checked on the calling thread, the second on a proof thread.
    let asked = [
        (Query::new(Part::BlockWithHashes, Tag::Latest), false),
        (Query::new(Part::Block, Tag::Latest), true),
    ];
    for (asked, full) in asked {
        let check = Check::new(verifier.clone(), asked, Arc::new(Panics));
        let answer = chain.answer(BLOCK_BY_NUMBER, ("latest", full)).unwrap();
        let found = check.examine(&"node".into(), &Answer::Result(answer)).await.unwrap();
        assert!(matches!(found, Some(Verdict::Overdue(Overdue::Panicked))), "{asked}");
    }
}

fn verifier(level: Demand, chain_id: u64) -> Verifier {
    let config = verify::Config { level, ..verify::Config::default() };
    let verifier = Verifier::new(config, verify::Metrics::default());
    verifier.follow(chain_id, Some(Anchor { chain_id, genesis: None }));
    verifier
}

/// Checks a block beside a cache with at most one block.
async fn check(
    verifier: &Verifier,
    json: Bytes,
    held: Option<Arc<Verified<Block>>>,
) -> Result<Arc<Verified<Block>>, Failure> {
    let known = KnownBlocks(move |hash| held.clone().filter(|block| block.hash() == hash));
    let check = Check::new(verifier.clone(), Query::new(Part::Block, Tag::Latest), Arc::new(known));
    match check.examine(&"a node".into(), &Answer::Result(json)).await? {
        Some(Verdict::Passed(Content::Block(block)) | Verdict::Unproved(_, Some(Content::Block(block)))) => {
            Ok(block)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn proved_content_is_not_proved_again() {
    let chain = mainnet();
    let json = chain.block_json(chain.head().hash, true).unwrap();
    let proved = check(&verifier(Demand::Auto, 1), json.clone(), None).await.unwrap();
    assert!(proved.is_proved());
    // A verifier of another Ethereum chain accepts the same bytes, because it does not check a known block again.
    let elsewhere = verifier(Demand::Auto, 17_000);
    assert!(check(&elsewhere, json.clone(), Some(proved.clone())).await.is_ok());
    let spaced = [b" ".as_slice(), &json].concat();
    let refused = check(&elsewhere, spaced.into(), Some(proved)).await.unwrap_err();
    assert_eq!(refused.as_str(), "chain");
}

#[tokio::test]
async fn level_in_force_is_reported_with_its_reason() {
    assert_eq!(verifier(Demand::Structural, 1).in_force().why, "set by verify.level");
    let known = verifier(Demand::Auto, 1);
    assert_eq!(known.in_force().why, "the chain is listed as following Ethereum's rules");
    // Blocks of chain 1 do not verify on chain 10; after three heights, the verifier blames the chain's rules.
    let (chain, foreign) = (mainnet(), verifier(Demand::Full, 10));
    for number in 1..=3 {
        assert!(foreign.demands_proof(Kind::Transactions));
        let json = chain.block_json(chain.hash_at(number).unwrap(), true).unwrap();
        assert!(!check(&foreign, json, None).await.unwrap().is_proved());
    }
    assert_eq!(
        (foreign.demands(Kind::Receipts), foreign.in_force().blocks),
        (Demand::Structural, Demand::Structural)
    );
    assert!(foreign.in_force().why.contains("do not follow Ethereum's rules"));
}

// ## Time

/// This test uses the real clock, because a paused clock does not advance while proof threads work.
#[tokio::test(flavor = "multi_thread")]
async fn passed_on_answer_does_not_wait_for_long_checks() {
    let chain = upstream::devchain().config(|config| config.chain_id = 1).blocks(1, 600).chain();
    let mut config = config(Demand::Auto, OnMismatch::Pass);
    config.verify.patience = Duration::from_millis(1);
    let program = in_memory::program(&chain, &config);
    let params = json!([hash(&chain, 1), true]);
    let (status, block) = program.cached(BLOCK_BY_HASH, params.clone()).await;
    assert_eq!((status.as_str(), block), ("holdfast; fwd=miss", truth(&chain, BLOCK_BY_HASH, &params)));
    assert_eq!(program.metric(r#"checks_overdue_total{reason="slow"}"#), 1);
    config.verify.on_mismatch = OnMismatch::Reject;
    let patient = in_memory::program(&chain, &config);
    assert_eq!(patient.cached(BLOCK_BY_HASH, params).await.0, "holdfast; fwd=miss; stored");
}
