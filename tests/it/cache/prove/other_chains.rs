//! Chains with rules of their own. The verifier may find their answers unprovable, but never wrong.

use std::sync::Arc;

use bytes::Bytes;
use holdfast::{
    config::Config,
    devchain::{self, DevChain},
    eth::{At, Part, Query, Tag},
    jsonrpc::Answer,
    upstream::{Answers, Calls, EndpointConfig, EndpointParts, InProcessTransport},
    verify::{self, Anchor, Check, Demand, Level, Metrics, OnMismatch, Verdict, Verifier},
};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    data,
    doubles::KnownBlocks,
    in_memory::{self, InMemory},
    method::BLOCK_BY_HASH,
};

const POLYGON: u64 = 137;
const ZKSYNC: u64 = 324;
const ARBITRUM: u64 = 42_161;

/// Each block, its chain, and the verification levels of the whole block and of its header. `None` means unprovable: the
/// content passes as far as it is proved, if the chain is not listed and no proof of its kind has succeeded.
const BLOCKS: [(&str, u64, Option<Level>, Option<Level>); 5] = [
    ("bor-plain-block", POLYGON, Some(Level::Proved), Some(Level::Partial)),
    ("bor-sync-block", POLYGON, None, Some(Level::Partial)),
    ("zk-100-block", ZKSYNC, None, None),
    ("zk-103-block", ZKSYNC, None, None),
    ("arbitrum-150000000-block", ARBITRUM, None, Some(Level::Partial)),
];

/// Returns a verifier for a chain. `is_listed` adds the chain to the configured Ethereum chains.
fn verifier(chain_id: u64, is_listed: bool) -> Verifier {
    let ethereum_chains = if is_listed { vec![chain_id] } else { Vec::new() };
    let config = verify::Config { ethereum_chains, ..verify::Config::default() };
    let verifier = Verifier::new(config, Metrics::default());
    verifier.follow(chain_id, Some(Anchor { chain_id, genesis: None }));
    verifier
}

/// Checks an answer. The error says why it is wrong.
async fn check(verifier: &Verifier, asked: Query, answer: &Value) -> Result<Verdict, String> {
    let check = Check::new(verifier.clone(), asked, Arc::new(KnownBlocks(|_| None)));
    let answer = Answer::Result(Bytes::from(answer.to_string()));
    let found = check.examine(&"a node".into(), &answer).await.map_err(|failure| failure.to_string())?;
    Ok(found.unwrap())
}

/// Returns the level of a passed answer, or `None` if it is unprovable.
fn level(verdict: &Verdict) -> Option<Level> {
    match verdict {
        Verdict::Passed(checked) => Some(checked.level()),
        Verdict::Unproved(..) => None,
        other => panic!("{other:?}"),
    }
}

const WHOLE: Query = Query { part: Part::Block, at: At::Tag(Tag::Latest), index: None };
const HASHES: Query = Query { part: Part::BlockWithHashes, at: At::Tag(Tag::Latest), index: None };

/// Cuts the block down to its transaction hashes.
fn cut(block: &Value) -> Value {
    let mut cut = block.clone();
    for transaction in cut["transactions"].as_array_mut().unwrap() {
        *transaction = transaction["hash"].clone();
    }
    cut
}

/// Starts a program in front of a node whose chain is not listed. The node returns `block` for block calls by hash,
/// and for `latest` if `is_head`.
fn program(chain_id: u64, block: &Value, is_head: bool, level: Demand) -> InMemory {
    let mut config = Config::default();
    config.verify.level = level;
    config.verify.on_mismatch = OnMismatch::Reject;
    let chain = DevChain::new(devchain::Config { chain_id, ..devchain::Config::default() });
    chain.mine_many(3, 0);
    let node = InProcessTransport::new(chain);
    let forms = [block.to_string(), cut(block).to_string()].map(Bytes::from);
    let transport = service_fn(move |calls: Calls| {
        let (node, forms) = (node.clone(), forms.clone());
        async move {
            let params: Vec<_> =
                calls.iter().map(|call| (call.method.clone(), call.params.clone())).collect();
            let mut answers: Answers = node.oneshot(calls).await?;
            for ((method, params), answer) in params.iter().zip(&mut answers) {
                let params = String::from_utf8_lossy(params.as_bytes()).into_owned();
                let is_asked = method.as_str() == BLOCK_BY_HASH || is_head && params.contains("latest");
                if is_asked && method.as_str().starts_with("eth_getBlockBy") {
                    let form = usize::from(params.contains("false"));
                    *answer = Ok(Answer::Result(forms[form].clone()));
                }
            }
            Ok(answers)
        }
    });
    let parts = EndpointParts {
        name: "a node".into(),
        address: Some(in_memory::address("a node")),
        transport: BoxCloneSyncService::new(transport),
        config: EndpointConfig::at(""),
    };
    in_memory::program_of(vec![parts], &config)
}

#[tokio::test]
async fn blocks_of_other_chains_are_never_called_wrong() {
    for (name, chain_id, whole, header) in BLOCKS {
        let block = data::other_chain(name);
        for is_listed in [false, true] {
            let verifier = verifier(chain_id, is_listed);
            let found =
                check(&verifier, WHOLE, &block).await.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            let passes = |level: Option<Level>| level.or((!is_listed).then_some(Level::Structural));
            assert_eq!(
                level(&found),
                whole.or(passes(header).filter(|_| !is_listed)),
                "{name}, listed: {is_listed}"
            );
            let found = check(&verifier, HASHES, &cut(&block)).await;
            let found = found.unwrap_or_else(|wrong| panic!("{name}, hashes only: {wrong}"));
            assert_eq!(level(&found), passes(header), "{name}, hashes only, listed: {is_listed}");
            for transaction in block["transactions"].as_array().unwrap() {
                let asked = Query::new(
                    Part::Transaction,
                    At::Tx(transaction["hash"].as_str().unwrap().parse().unwrap()),
                );
                let found = check(&verifier, asked, transaction).await;
                let found = found.unwrap_or_else(|wrong| panic!("{name}: {transaction}: {wrong}"));
                let is_signed = ["0x0", "0x2"].iter().any(|known| transaction["type"] == *known)
                    && transaction["r"] != "0x0";
                let expected = passes(is_signed.then_some(Level::Partial));
                assert_eq!(level(&found), expected, "{name}: {transaction}");
            }
        }
    }
    let receipts = data::other_chain("arbitrum-150000000-receipts");
    let found = check(&verifier(ARBITRUM, false), Query::new(Part::Receipts, Tag::Latest), &receipts).await;
    assert_eq!(level(&found.unwrap()), Some(Level::Structural), "only their block proves them");
}

#[tokio::test]
async fn empty_list_under_a_zero_root_is_unprovable() {
    let mut block = data::other_chain("zk-103-block");
    for unknown in ["l1BatchNumber", "l1BatchTimestamp", "sealFields"] {
        block.as_object_mut().unwrap().remove(unknown);
    }
    for is_listed in [false, true] {
        let verifier = verifier(ZKSYNC, is_listed);
        for (asked, block) in [(WHOLE, &block), (HASHES, &cut(&block))] {
            assert_eq!(level(&check(&verifier, asked, block).await.unwrap()).is_some(), !is_listed);
        }
    }
    // Under a non-zero root, an empty list is wrong.
    block["transactionsRoot"] = block["sha3Uncles"].clone();
    assert!(check(&verifier(ZKSYNC, false), HASHES, &block).await.unwrap_err().contains("is empty"));
}

#[tokio::test]
async fn list_in_no_root_is_wrong_only_on_ethereum() {
    // The block lists only a state-sync transaction, which is in no root.
    let mut block = data::other_chain("bor-sync-block");
    let last = block["transactions"].as_array_mut().unwrap().pop().unwrap();
    block["transactions"] = json!([last]);
    block["transactions"][0]["transactionIndex"] = json!("0x0");
    block["transactionsRoot"] = json!(format!("{:#x}", alloy_trie::EMPTY_ROOT_HASH));
    let header: alloy_rpc_types_eth::Header = serde_json::from_value(block.clone()).unwrap();
    block["hash"] = json!(header.inner.hash_slow());
    block["transactions"][0]["blockHash"] = block["hash"].clone();
    let polygon = verifier(POLYGON, false);
    assert_eq!(level(&check(&polygon, WHOLE, &block).await.unwrap()), Some(Level::Partial));
    assert_eq!(level(&check(&polygon, HASHES, &cut(&block)).await.unwrap()), Some(Level::Partial));
    let ethereum = verifier(POLYGON, true);
    assert_eq!(level(&check(&ethereum, WHOLE, &block).await.unwrap()), None, "it has no signature");
    assert!(check(&ethereum, HASHES, &cut(&block)).await.unwrap_err().contains("not empty"));
}

#[tokio::test]
async fn deviation_is_wrong_only_on_a_listed_chain() {
    let (plain, sync) = (data::other_chain("bor-plain-block"), data::other_chain("bor-sync-block"));
    let mut lie = plain.clone();
    lie["transactions"][1]["value"] = json!("0x1");
    let mut header = plain.clone();
    header["gasUsed"] = json!("0x1");
    for is_listed in [false, true] {
        let verifier = verifier(POLYGON, is_listed);
        // The chain first follows Ethereum's rules, and deviates from them later.
        assert_eq!(level(&check(&verifier, WHOLE, &plain).await.unwrap()), Some(Level::Proved));
        assert_eq!(level(&check(&verifier, WHOLE, &sync).await.unwrap()), None);
        for lie in [&lie, &header] {
            let found = check(&verifier, WHOLE, lie).await;
            assert_eq!(found.as_ref().map(level).is_err(), is_listed, "{found:?}");
        }
        assert_eq!(level(&check(&verifier, WHOLE, &plain).await.unwrap()), Some(Level::Proved));
    }
}

#[tokio::test]
async fn unprovable_answer_passes_under_auto_and_not_under_full() {
    for (name, chain_id, whole, _) in BLOCKS {
        let block = data::other_chain(name);
        let params = json!([block["hash"], true]);
        let auto = program(chain_id, &block, false, Demand::Auto);
        auto.ask("eth_blockNumber", json!([])).await;
        for turn in 0..2 {
            let status = ["holdfast; fwd=miss; stored", "holdfast; hit; detail=block"][turn];
            assert_eq!(
                auto.cached(BLOCK_BY_HASH, params.clone()).await,
                (status.to_owned(), block.clone()),
                "{name}"
            );
        }
        let full = program(chain_id, &block, false, Demand::Full);
        full.ask("eth_blockNumber", json!([])).await;
        let (_, reply) = full.call(BLOCK_BY_HASH, params).await;
        if whole.is_some() {
            assert_eq!(reply["result"], block, "{name}");
            continue;
        }
        assert_eq!(reply["error"]["code"], -32012, "{name}: {reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains("unprovable"), "{reply}");
        assert_eq!(full.metric(r#"mismatches_total{reason="emptied"}"#), 0);
    }
}

#[tokio::test]
async fn empty_block_with_zero_roots_may_be_the_head() {
    let block = data::other_chain("zk-103-block");
    for level in [Demand::Auto, Demand::Full] {
        let program = program(ZKSYNC, &block, true, level);
        assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x67");
    }
}

#[tokio::test]
async fn headers_stay_proved_where_transactions_cannot_be() {
    let chain = DevChain::new(devchain::Config { chain_id: 1, ..devchain::Config::default() });
    chain.mine_many(6, 3);
    let block = |number| -> Value {
        let json = chain.block_json(chain.hash_at(number).unwrap(), true).unwrap();
        serde_json::from_slice(&json).unwrap()
    };
    // The transactions are for another chain, but the headers verify.
    let foreign = verifier(10, false);
    for number in 1..=2 {
        assert_eq!(level(&check(&foreign, WHOLE, &block(number)).await.unwrap()), Some(Level::Partial));
    }
    assert_eq!(foreign.in_force().blocks, Demand::Auto);
    assert_eq!(level(&check(&foreign, WHOLE, &block(3)).await.unwrap()), Some(Level::Partial));
    let in_force = foreign.in_force();
    assert_eq!(
        (in_force.headers, in_force.blocks, in_force.receipts),
        (Demand::Auto, Demand::Structural, Demand::Structural)
    );
    assert!(in_force.why.contains("headers"), "{}", in_force.why);
    let mut forged = block(5);
    forged["stateRoot"] = forged["parentHash"].clone();
    for (asked, forged, honest) in [(WHOLE, forged.clone(), block(5)), (HASHES, cut(&forged), cut(&block(5)))]
    {
        assert_eq!(level(&check(&foreign, asked, &honest).await.unwrap()), Some(Level::Partial));
        assert_eq!(level(&check(&foreign, asked, &forged).await.unwrap()), None, "headers are still checked");
    }
}

#[tokio::test]
async fn lists_under_a_proved_header_may_follow_other_rules() {
    let chain = DevChain::new(devchain::Config { chain_id: 10, ..devchain::Config::default() });
    chain.mine_many(3, 3);
    let block = |number| -> Value {
        let json = chain.block_json(chain.hash_at(number).unwrap(), true).unwrap();
        let mut block: Value = serde_json::from_slice(&json).unwrap();
        // The block is like one of the OP stack, where `withdrawalsRoot` is a storage root.
        block["withdrawals"] = json!([{
            "index": "0x0", "validatorIndex": "0x0", "address": format!("0x{:040x}", 7), "amount": "0x1",
        }]);
        block
    };
    let found = check(&verifier(10, true), HASHES, &cut(&block(1))).await.unwrap_err();
    assert!(found.contains("withdrawalsRoot"), "{found}");
    let optimism = verifier(10, false);
    let found = check(&optimism, HASHES, &cut(&block(1))).await.unwrap();
    assert_eq!(level(&found), Some(Level::Partial), "its header is proved");
    for number in 1..=3 {
        check(&optimism, WHOLE, &block(number)).await.unwrap();
    }
    assert_eq!(level(&check(&optimism, HASHES, &cut(&block(1))).await.unwrap()), Some(Level::Partial));
}
