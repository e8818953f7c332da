//! Headers, blocks, receipts and transactions in the form of the network, encoded from ordinary content.

use alloy_primitives::hex;
use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie},
    eth::header_of_block,
    verify::{Demand, OnMismatch, prove::raw},
};
use http::Response;
use serde_json::{Value, json};

use crate::support::{
    client, data,
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPTS, TRANSACTION},
    nodes::{hex, truth},
    proxy, server, upstream,
    vectors::{self, Fork},
};

const RAW_HEADER: &str = "debug_getRawHeader";
const RAW_BLOCK: &str = "debug_getRawBlock";
const RAW_RECEIPTS: &str = "debug_getRawReceipts";
const RAW_TRANSACTION: &str = "debug_getRawTransaction";
const RAW_BY_HASH: &str = "eth_getRawTransactionByHash";
const RAW_AT_HASH: &str = "eth_getRawTransactionByBlockHashAndIndex";
const RAW_AT_NUMBER: &str = "eth_getRawTransactionByBlockNumberAndIndex";
const HEADER_BY_HASH: &str = "eth_getHeaderByHash";
const HEADER_BY_NUMBER: &str = "eth_getHeaderByNumber";

const ALL: [&str; 9] = [
    RAW_HEADER,
    RAW_BLOCK,
    RAW_RECEIPTS,
    RAW_TRANSACTION,
    RAW_BY_HASH,
    RAW_AT_HASH,
    RAW_AT_NUMBER,
    HEADER_BY_HASH,
    HEADER_BY_NUMBER,
];

/// Returns every raw call about a block and its first two transactions.
fn calls_about(chain: &DevChain, number: u64) -> Vec<(&'static str, Value)> {
    let hash = chain.hash_at(number).unwrap();
    let mut calls = Vec::new();
    for block in [json!(hex(number)), json!(hex(hash)), json!({ "blockNumber": hex(number) })] {
        for method in [RAW_HEADER, RAW_BLOCK, RAW_RECEIPTS] {
            calls.push((method, json!([block])));
        }
    }
    calls.push((HEADER_BY_HASH, json!([hex(hash)])));
    calls.push((HEADER_BY_NUMBER, json!([hex(number)])));
    for (transaction, index) in chain.transactions_of(hash).into_iter().zip(0_u64..2) {
        calls.push((RAW_TRANSACTION, json!([hex(transaction)])));
        calls.push((RAW_BY_HASH, json!([hex(transaction)])));
        calls.push((RAW_AT_HASH, json!([hex(hash), hex(index)])));
        calls.push((RAW_AT_NUMBER, json!([hex(number), hex(index)])));
    }
    calls
}

async fn agrees(program: &InMemory, chain: &DevChain, method: &str, params: &Value) {
    assert_eq!(program.ask(method, params.clone()).await, truth(chain, method, params), "{method} {params}");
}

/// Makes the node refuse all raw methods.
fn lack_raw_methods(chain: &DevChain) {
    for methods in ["debug_*", "eth_getRaw*", "eth_getHeader*"] {
        let fault = Fault::Error { code: -32601, message: "the method does not exist".to_owned() };
        chain.fail(fault).on(methods).always();
    }
}

#[test]
fn recorded_content_is_encoded_as_by_geth() {
    for at in data::recorded() {
        let (block, receipts) = (at["block"].to_string(), at["receipts"].to_string());
        let header = raw::header(block.as_bytes()).unwrap();
        assert_eq!(hex::encode_prefixed(header), at[RAW_HEADER].as_str().unwrap());
        let uncles: [&[u8]; 0] = [];
        let encoded = raw::block(block.as_bytes(), &uncles).unwrap();
        assert_eq!(hex::encode_prefixed(encoded), at[RAW_BLOCK].as_str().unwrap());
        let receipts = raw::receipts(receipts.as_bytes(), block.as_bytes()).unwrap();
        let receipts: Vec<_> = receipts.iter().map(hex::encode_prefixed).collect();
        assert_eq!(json!(receipts), at[RAW_RECEIPTS]);
        for (index, transaction) in at["block"]["transactions"].as_array().unwrap().iter().enumerate() {
            let encoded = raw::transaction(transaction.to_string().as_bytes()).unwrap();
            assert_eq!(hex::encode_prefixed(encoded), at[RAW_TRANSACTION][index].as_str().unwrap());
        }
        let header: Value = serde_json::from_slice(&header_of_block(&block).unwrap()).unwrap();
        assert_eq!(header, at[HEADER_BY_NUMBER]);
    }
}

#[test]
fn blocks_of_every_fork_are_encoded() {
    for vector in vectors::all() {
        let block = vector.block.as_bytes();
        assert_eq!(raw::block(block, &vector.uncles).unwrap(), vector.rlp, "{}", vector.name);
        let receipts = raw::receipts(vector.receipts.as_bytes(), block).unwrap();
        assert_eq!(receipts, vector.encoded_receipts, "{}", vector.name);
        assert_eq!(raw::uncles(block).unwrap(), vector.uncles.len());
        if !vector.uncles.is_empty() {
            let none: [&str; 0] = [];
            assert!(raw::block(block, &none).is_err());
            let other = vector.uncles[0].replace("\"number\":\"0x6\"", "\"number\":\"0x5\"");
            assert!(raw::block(block, &[other]).is_err());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn encoded_answers_need_no_raw_methods_of_the_node() {
    let chain = upstream::devchain().blocks(4, 3).chain();
    chain.mine(0);
    let calls: Vec<_> = (1..=5).flat_map(|number| calls_about(&chain, number)).collect();
    let truths: Vec<_> = calls.iter().map(|(method, params)| truth(&chain, method, params)).collect();
    lack_raw_methods(&chain);
    let program = in_memory::program(&chain, &Config::default());
    for ((method, params), truth) in calls.iter().zip(truths) {
        assert_eq!(program.ask(method, params.clone()).await, truth, "{method} {params}");
    }
    for method in ALL {
        assert_eq!(chain.count(method), 0, "{method}");
    }
}

/// Every raw form of a block comes out of the two answers that its ordinary forms come out of.
#[tokio::test(start_paused = true)]
async fn raw_forms_share_the_fetches_of_ordinary_forms() {
    let chain = upstream::devchain().blocks(40, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    chain.clear_calls();
    program.ask(RAW_RECEIPTS, json!(["0x5"])).await;
    assert_eq!((chain.count(RECEIPTS), chain.calls_total()), (1, 2), "{:?}", chain.calls());
    for (method, params) in calls_about(&chain, 5) {
        agrees(&program, &chain, method, &params).await;
        let status = program.cache_status(method, params.clone()).await;
        assert!(status.starts_with("holdfast; hit"), "{method} {params}: {status}");
    }
    program.ask(BLOCK_BY_NUMBER, json!(["0x5", true])).await;
    program.ask(RECEIPTS, json!(["0x5"])).await;
    assert_eq!(chain.calls_total(), 2, "{:?}", chain.calls());
}

#[tokio::test(start_paused = true)]
async fn raw_form_by_number_follows_a_reorg() {
    let chain = upstream::devchain().blocks(5, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let orphan = hex(chain.head().hash);
    agrees(&program, &chain, RAW_BLOCK, &json!(["0x5"])).await;
    chain.reorg(1, 2);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    for method in [RAW_HEADER, RAW_BLOCK, RAW_RECEIPTS, HEADER_BY_NUMBER] {
        agrees(&program, &chain, method, &json!(["0x5"])).await;
        agrees(&program, &chain, method, &json!(["latest"])).await;
    }
    agrees(&program, &chain, RAW_BLOCK, &json!([orphan])).await;
}

#[tokio::test(start_paused = true)]
async fn node_answers_for_unknown_and_pending_content() {
    let chain = upstream::devchain().blocks(3, 1).chain();
    let program = in_memory::program(&chain, &Config::default());
    let pending = chain.generate(1).remove(0);
    chain.submit(pending.clone()).unwrap();
    let nothing = json!([format!("0x{}", "ab".repeat(32))]);
    for (method, params) in [
        (RAW_TRANSACTION, json!([hex(*pending.tx_hash())])),
        (RAW_BY_HASH, nothing.clone()),
        (RAW_HEADER, nothing.clone()),
        (RAW_RECEIPTS, nothing.clone()),
        (HEADER_BY_HASH, nothing.clone()),
        (RAW_AT_NUMBER, json!(["0x3", "0x9"])),
        (RAW_HEADER, json!(["pending"])),
    ] {
        agrees(&program, &chain, method, &params).await;
        assert_eq!(chain.count(method), 1, "{method}");
        chain.clear_calls();
    }
    agrees(&program, &chain, RAW_AT_NUMBER, &json!(["latest", "0x9"])).await;
    let (_, reply) = program.call(RAW_BLOCK, nothing.clone()).await;
    assert_eq!(reply["error"]["message"], "block not found", "{reply}");

    lack_raw_methods(&chain);
    for (method, expected) in [
        (RAW_HEADER, json!("0x")),
        (RAW_RECEIPTS, Value::Null),
        (RAW_TRANSACTION, json!("0x")),
        (RAW_BY_HASH, json!("0x")),
        (HEADER_BY_HASH, Value::Null),
    ] {
        assert_eq!(program.ask(method, nothing.clone()).await, expected, "{method}");
    }
    assert_eq!(program.ask(RAW_AT_NUMBER, json!(["0x3", "0x9"])).await, json!("0x"));
    assert_eq!(program.ask(RAW_HEADER, json!(["pending"])).await, json!("0x"));
    assert_eq!(program.ask(HEADER_BY_NUMBER, json!(["0x99"])).await, Value::Null);
    let (_, reply) = program.call(RAW_BLOCK, nothing).await;
    assert_eq!(reply["error"], json!({ "code": -32000, "message": "not found" }));
}

/// Content with a false member is not encoded: the node answers, or the call fails if clients get proved content only.
#[tokio::test(start_paused = true)]
async fn unprovable_content_is_not_encoded() {
    for rejects in [false, true] {
        let chain = upstream::devchain().blocks(3, 2).chain();
        let mut config = Config::default();
        if rejects {
            config.verify.level = Demand::Full;
            config.verify.on_mismatch = OnMismatch::Reject;
        }
        let hash = chain.hash_at(2).unwrap();
        let transaction = hex(chain.transactions_of(hash)[0]);
        for method in [BLOCK_BY_HASH, BLOCK_BY_NUMBER, TRANSACTION] {
            chain.fail(Lie::Field("nonce".to_owned(), json!("0x0000000000000077"))).on(method).always();
        }
        for (method, params) in [
            (RAW_BLOCK, json!([hex(hash)])),
            (RAW_HEADER, json!(["0x2"])),
            (RAW_TRANSACTION, json!([transaction])),
        ] {
            let program = in_memory::program(&chain, &config);
            if rejects {
                let (_, reply) = program.call(method, params).await;
                assert_eq!(reply["error"]["code"], -32012, "{method}: {reply}");
                assert_eq!(chain.count(method), 0, "{method}");
            } else {
                agrees(&program, &chain, method, &params).await;
                assert_eq!(chain.count(method), 1, "{method}");
            }
        }
    }
}

/// A block that proves to be right, but is not the block of the call, is not encoded.
#[tokio::test(start_paused = true)]
async fn another_block_than_the_named_one_is_not_encoded() {
    let chain = upstream::devchain().blocks(5, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let params = json!([hex(chain.hash_at(2).unwrap())]);
    for method in [RAW_HEADER, RAW_BLOCK, RAW_RECEIPTS, HEADER_BY_HASH] {
        chain.fail(Lie::ForeignBlock).on(BLOCK_BY_HASH).always();
        agrees(&program, &chain, method, &params).await;
        chain.clear_faults();
    }
}

/// The node's error about the client's own call is passed on, also by tag.
#[tokio::test(start_paused = true)]
async fn error_of_the_node_about_a_raw_call_is_passed_on() {
    let chain = upstream::devchain().blocks(5, 2).chain();
    let program = in_memory::program(&chain, &Config::default());
    let lie = || Lie::Field("nonce".to_owned(), json!("0x0000000000000077"));
    chain.fail(lie()).on("eth_getBlockBy*").always();
    chain.fail(Fault::Error { code: -32099, message: "not on your plan".to_owned() }).on("debug_*").always();
    for block in ["latest", "0x4"] {
        let (_, reply) = program.call(RAW_RECEIPTS, json!([block])).await;
        assert_eq!(reply["error"]["code"], -32099, "{block}: {reply}");
    }
}

/// If the node lacks the raw methods, its error about the content is passed on.
#[tokio::test(start_paused = true)]
async fn error_about_the_content_of_a_raw_call_is_passed_on() {
    for method in [RECEIPTS, "eth_getBlockBy*,true]"] {
        let chain = upstream::devchain().blocks(5, 2).chain();
        lack_raw_methods(&chain);
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        chain
            .fail(Fault::Error { code: 4444, message: "pruned history unavailable".to_owned() })
            .on(method)
            .always();
        let (_, reply) = program.call(RAW_RECEIPTS, json!([hex(chain.hash_at(2).unwrap())])).await;
        assert_eq!(reply["error"]["code"], 4444, "{method}: {reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn proved_content_is_encoded_where_proof_is_demanded() {
    let chain = upstream::devchain().blocks(3, 2).chain();
    let mut config = Config::default();
    config.verify.level = Demand::Full;
    config.verify.on_mismatch = OnMismatch::Reject;
    let program = in_memory::program(&chain, &config);
    for (method, params) in calls_about(&chain, 2) {
        agrees(&program, &chain, method, &params).await;
        assert_eq!(chain.count(method), 0, "{method}");
    }
    assert_eq!(program.ask(RAW_TRANSACTION, json!([hex(chain.head().hash)])).await, json!("0x"));
    // Only the node knows these forms, and nothing would prove its answer.
    for params in [
        json!(["0x02"]),
        json!(["0x2", 1]),
        json!([{ "blockHash": hex(chain.head().hash), "requireCanonical": true }]),
    ] {
        let (_, reply) = program.call(RAW_BLOCK, params).await;
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
    }
}

#[tokio::test]
async fn uncles_of_a_raw_block_are_fetched() {
    let vector = vectors::vector(Fork::Berlin);
    let block: Value = serde_json::from_str(&vector.block).unwrap();
    let (hash, uncle) = (block["hash"].as_str().unwrap().to_owned(), vector.uncles[0].clone());
    for lies in [false, true] {
        let chain = upstream::devchain().blocks(3, 1).chain();
        let (block, uncle) = (vector.block.clone(), uncle.clone());
        let node = server::node(&chain)
            .changing(move |request, answer| {
                let call: Value = serde_json::from_str(request).unwrap();
                let result = match call["method"].as_str().unwrap() {
                    BLOCK_BY_HASH => &block,
                    "eth_getUncleByBlockHashAndIndex" if lies => "null",
                    "eth_getUncleByBlockHashAndIndex" => &uncle,
                    RAW_BLOCK => "\"0xthe node's own\"",
                    _ => return answer,
                };
                let reply = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call["id"]);
                Response::builder()
                    .header("content-type", "application/json")
                    .body(Bytes::from(reply))
                    .unwrap()
            })
            .run()
            .await;
        let proxy = proxy::new().upstream_url(&node.url()).run().await;
        let answer = client::http(&proxy).call(RAW_BLOCK, json!([hash])).await.json();
        let expected = if lies { "0xthe node's own".to_owned() } else { hex::encode_prefixed(&vector.rlp) };
        assert_eq!(answer["result"], json!(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn strict_and_denied_raw_methods_are_refused() {
    let chain = upstream::devchain().blocks(2, 1).chain();
    let strict = in_memory::program(&chain, &Config { strict: true, ..Config::default() });
    for method in ALL {
        let (_, reply) = strict.call(method, json!(["0x1"])).await;
        assert_eq!(reply["error"]["code"], -32601, "{method}");
    }
    let mut config = Config::default();
    config.methods.deny = vec![RAW_BLOCK.to_owned()];
    let program = in_memory::program(&chain, &config);
    assert!(program.ask(RAW_HEADER, json!(["0x1"])).await.is_string());
    for method in [RAW_BLOCK, "debug_traceTransaction", "debug_setHead", "debug_getBadBlocks"] {
        let (_, reply) = program.call(method, json!([])).await;
        assert_eq!(reply["error"]["code"], -32601, "{method}");
    }
}
