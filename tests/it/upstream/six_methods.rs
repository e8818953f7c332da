//! An upstream that has only the six read operations, such as a gateway or a test double.

use std::time::Duration;

use alloy_primitives::B256;
use alloy_rpc_types_eth::Header;
use holdfast::{
    config::Config,
    devchain::{DevChain, Fault, Lie},
    upstream::{EndpointConfig, EndpointParts, IdentityState},
    verify::Demand,
};
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    doubles::{self, Disguise, SIX},
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, CHAIN_ID, RECEIPT, RECEIPTS, TRANSACTION, TRANSACTION_AT_HASH,
        TRANSACTION_AT_NUMBER,
    },
    nodes::hex,
    process, upstream,
};

/// Methods of a node besides the six operations.
const OTHERS: [&[&str]; 2] = [&[], &[CHAIN_ID]];

/// Reason why the content of a node cannot be proved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mismatch {
    None,
    /// The headers do not have the hashes of the blocks.
    HeaderHash,
    /// The headers have the hashes of the blocks, and name another root of their transactions.
    TransactionsRoot,
    /// The headers have the hashes of the blocks, and name another root of their receipts.
    ReceiptsRoot,
    /// Another account than the sender signed each transaction.
    Signer,
    /// No header names its parent.
    NoParent,
}

const MISMATCHES: [Mismatch; 6] = [
    Mismatch::None,
    Mismatch::HeaderHash,
    Mismatch::TransactionsRoot,
    Mismatch::ReceiptsRoot,
    Mismatch::Signer,
    Mismatch::NoParent,
];

/// Returns a chain with this mismatch, and the disguise in which the node shows it.
fn mismatched(mismatch: Mismatch) -> (DevChain, Disguise) {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let mut disguise = Disguise::default();
    match mismatch {
        Mismatch::None => {}
        // The same lie in headers and receipts.
        Mismatch::HeaderHash => {
            chain.fail(Lie::Everywhere("gasUsed".to_owned(), json!("0x77"))).always();
        }
        Mismatch::Signer => chain.fail(false_sender()).always(),
        Mismatch::NoParent => {
            chain.fail(Lie::Everywhere("parentHash".to_owned(), json!(B256::ZERO))).always();
        }
        Mismatch::TransactionsRoot => disguise = with_other_roots(&chain, "transactionsRoot"),
        Mismatch::ReceiptsRoot => disguise = with_other_roots(&chain, "receiptsRoot"),
    }
    (chain, disguise)
}

fn false_sender() -> Lie {
    Lie::Everywhere("from".to_owned(), json!(format!("0x{:040x}", 0x77)))
}

/// Gives the headers of a chain other roots, and the blocks the hashes that these headers have.
fn with_other_roots(chain: &DevChain, root: &str) -> Disguise {
    let disguise = Disguise::default();
    for number in 0..=chain.head().number {
        let hash = chain.hash_at(number).unwrap();
        let block = String::from_utf8(chain.block_json(hash, false).unwrap().to_vec()).unwrap();
        if number > 0 {
            let truth: Value = serde_json::from_str(&block).unwrap();
            let truth: B256 = truth[root].as_str().unwrap().parse().unwrap();
            disguise.exchange(truth, truth ^ B256::repeat_byte(0xff));
        }
        // The parent has another hash, too.
        let header: Header = serde_json::from_str(&disguise.apply(&block)).unwrap();
        disguise.exchange(hash, header.inner.hash_slow());
    }
    disguise
}

/// Returns an endpoint that has the six operations and `others`.
fn endpoint(
    chain: &DevChain,
    disguise: &Disguise,
    name: &str,
    others: &'static [&'static str],
) -> EndpointParts {
    let endpoint = in_memory::endpoint(chain, name, EndpointConfig::at(""));
    let transport = doubles::six_methods(disguise.over(endpoint.transport), others);
    EndpointParts { transport, ..endpoint }
}

fn program(chain: &DevChain, others: &'static [&'static str], config: &Config) -> InMemory {
    disguised(&(chain.clone(), Disguise::default()), others, config)
}

fn disguised(
    (chain, disguise): &(DevChain, Disguise),
    others: &'static [&'static str],
    config: &Config,
) -> InMemory {
    in_memory::program_of(vec![endpoint(chain, disguise, "six", others)], config)
}

/// Returns a call of each operation, about block 5.
fn calls(chain: &DevChain) -> [(&'static str, Value); 6] {
    let block = chain.hash_at(5).unwrap();
    let transaction = chain.transactions_of(block)[1];
    [
        (BLOCK_BY_HASH, json!([hex(block), true])),
        (BLOCK_BY_NUMBER, json!(["0x5", false])),
        (TRANSACTION, json!([hex(transaction)])),
        (RECEIPT, json!([hex(transaction)])),
        (TRANSACTION_AT_HASH, json!([hex(block), "0x1"])),
        (TRANSACTION_AT_NUMBER, json!(["0x5", "0x1"])),
    ]
}

/// Returns the calls as clients of a node in disguise make them.
fn disguised_calls((chain, disguise): &(DevChain, Disguise)) -> [(&'static str, Value); 6] {
    calls(chain)
        .map(|(method, params)| (method, serde_json::from_str(&disguise.apply(&params.to_string())).unwrap()))
}

fn chain_id(program: &InMemory) -> Option<u64> {
    match program.upstream.identity().state() {
        IdentityState::Known(chain) => Some(chain.chain_id),
        IdentityState::Unknown(_) | IdentityState::WrongChain(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn second_of_two_calls_is_a_hit() {
    for others in OTHERS {
        for mismatch in MISMATCHES {
            let node = mismatched(mismatch);
            let calls = disguised_calls(&node);
            assert!(SIX.iter().all(|method| calls.iter().any(|call| call.0 == *method)));
            for (method, params) in calls {
                let program = disguised(&node, others, &Config::default());
                let what = format!("{method}, {others:?}, {mismatch:?}");
                let (first, answer) = program.cached(method, params.clone()).await;
                assert!(!first.contains("hit"), "{what}: {first}");
                assert!(answer.is_object(), "{what}: {answer}");
                let (second, again) = program.cached(method, params).await;
                assert!(second.starts_with("holdfast; hit"), "{what}: {second}");
                assert_eq!(answer, again, "{what}");
            }
        }
    }
}

/// The block right below the head does not link to it.
#[tokio::test(start_paused = true)]
async fn blocks_without_parents_are_hits_below_the_head() {
    let node = mismatched(Mismatch::NoParent);
    let program = disguised(&node, &[], &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    let below = json!(["0x7", false]);
    assert!(program.ask(BLOCK_BY_NUMBER, below.clone()).await.is_object());
    let (second, _) = program.cached(BLOCK_BY_NUMBER, below).await;
    assert!(second.starts_with("holdfast; hit"), "{second}");
}

/// Each mismatch lets the proof of another kind fail, so that the test above covers all kinds.
#[tokio::test(start_paused = true)]
async fn each_mismatch_concerns_one_kind() {
    for (mismatch, block_level, receipts_level) in [
        (Mismatch::None, "proved", "proved"),
        (Mismatch::HeaderHash, "structural", "structural"),
        (Mismatch::TransactionsRoot, "partial", "structural"),
        (Mismatch::Signer, "partial", "structural"),
        (Mismatch::ReceiptsRoot, "proved", "structural"),
        (Mismatch::NoParent, "structural", "structural"),
    ] {
        let node = mismatched(mismatch);
        let program = disguised(&node, &[CHAIN_ID, RECEIPTS], &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        let [(_, block), ..] = disguised_calls(&node);
        let calls =
            [(BLOCK_BY_HASH, block.clone(), block_level), (RECEIPTS, json!([block[0]]), receipts_level)];
        for (method, params, level) in calls {
            let checked = || program.metric(&format!("checked_total{{level=\"{level}\"}}"));
            let before = checked();
            program.ask(method, params.clone()).await;
            assert_eq!(checked(), before + 1, "{mismatch:?} {method}");
            let (status, _) = program.cached(method, params).await;
            assert!(status.starts_with("holdfast; hit"), "{mismatch:?} {method}: {status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn full_verification_caches_only_proved_content() {
    let mut config = Config::default();
    config.verify.level = Demand::Full;
    for others in OTHERS {
        for mismatch in MISMATCHES {
            let node = mismatched(mismatch);
            for (method, params) in disguised_calls(&node) {
                let program = disguised(&node, others, &config);
                let what = format!("{method}, {others:?}, {mismatch:?}");
                let (_, answer) = program.cached(method, params.clone()).await;
                assert!(answer.is_object(), "{what}: {answer}");
                let (second, again) = program.cached(method, params).await;
                // Without the receipts of a block, no receipt has a proof.
                let is_proved =
                    matches!(mismatch, Mismatch::None | Mismatch::ReceiptsRoot) && method != RECEIPT;
                assert_eq!(second.starts_with("holdfast; hit"), is_proved, "{what}: {second}");
                assert_eq!(answer, again, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn chain_is_unknown_until_it_has_an_id() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let (method, params) = calls(&chain)[0].clone();
    let unknown = program(&chain, &[], &Config::default());
    unknown.ask(method, params.clone()).await;
    assert_eq!(chain_id(&unknown), Some(0));
    let (_, refused) = unknown.call(CHAIN_ID, json!([])).await;
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    // The operator's id is believed.
    let config = Config { chain_id: Some(77), ..Config::default() };
    let named = program(&chain, &[], &config);
    named.ask(method, params).await;
    assert_eq!(named.ask(CHAIN_ID, json!([])).await, "0x4d");
}

#[tokio::test(start_paused = true)]
async fn double_joins_a_pool_only_with_an_id_and_the_same_genesis() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let other = upstream::devchain().config(|config| config.seed += 1).blocks(8, 3).chain();
    let named = Config { chain_id: Some(chain.config().chain_id), ..Config::default() };
    for (config, double, joins) in
        [(&Config::default(), &chain, false), (&named, &chain, true), (&named, &other, false)]
    {
        let full = in_memory::endpoint(&chain, "full", EndpointConfig::at(""));
        let program =
            in_memory::program_of(vec![full, endpoint(double, &Disguise::default(), "six", &[])], config);
        program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        time::sleep(Duration::from_secs(10)).await;
        let (statuses, _) = program.upstream.status();
        let double = statuses.into_iter().find(|status| &*status.name == "six").unwrap();
        assert_eq!(matches!(double.identity, Some(IdentityState::Known(_))), joins, "{:?}", double.identity);
    }
}

#[tokio::test(start_paused = true)]
async fn named_doubles_with_one_genesis_make_a_pool() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let config = Config { chain_id: Some(chain.config().chain_id), ..Config::default() };
    let double = |name| endpoint(&chain, &Disguise::default(), name, &[]);
    let program = in_memory::program_of(vec![double("one"), double("two")], &config);
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    time::sleep(Duration::from_secs(10)).await;
    let (statuses, _) = program.upstream.status();
    assert!(statuses.iter().all(|status| matches!(status.identity, Some(IdentityState::Known(_)))));
}

/// The node of an unknown chain begins to say its id, and a client asks for it.
#[tokio::test(start_paused = true)]
async fn later_id_drops_everything() {
    let chain = upstream::devchain().blocks(8, 3).chain();
    let refusal = Fault::Error { code: -32601, message: "the method does not exist".to_owned() };
    for method in [CHAIN_ID, "net_version"] {
        chain.fail(refusal.clone()).on(method).always();
    }
    let program = in_memory::program(&chain, &Config::default());
    let (method, params) = calls(&chain)[0].clone();
    program.ask(method, params.clone()).await;
    assert!(program.cached(method, params.clone()).await.0.starts_with("holdfast; hit"));
    assert_eq!(chain_id(&program), Some(0));
    // The network id is not the chain id.
    chain.clear_faults();
    chain.fail(refusal).on(CHAIN_ID).always();
    program.ask("net_version", json!([])).await;
    assert!(program.cached(method, params.clone()).await.0.starts_with("holdfast; hit"));
    chain.clear_faults();
    assert_eq!(program.ask(CHAIN_ID, json!([])).await, hex(chain.config().chain_id));
    assert_eq!(chain_id(&program), Some(chain.config().chain_id));
    assert!(!program.cached(method, params).await.0.contains("hit"));
}

/// A reload adds an endpoint that says its chain id.
#[tokio::test(start_paused = true)]
async fn endpoint_beside_an_unknown_chain_is_the_only_one_in_use() {
    let (chain, config) = (upstream::devchain().blocks(8, 3).chain(), Config::default());
    let double = || endpoint(&chain, &Disguise::default(), "six", &[]);
    let program = in_memory::program_of(vec![double()], &config);
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(chain_id(&program), Some(0));
    let full = in_memory::endpoint(&chain, "full", EndpointConfig::at(""));
    program.upstream.replace(vec![double(), full], &config.upstream);
    time::sleep(Duration::from_secs(10)).await;
    let (statuses, _) = program.upstream.status();
    let is_used = |name| {
        let status = statuses.iter().find(|status| &*status.name == name).unwrap();
        matches!(status.identity, Some(IdentityState::Known(_)))
    };
    assert!(!is_used("six") && is_used("full"));
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(chain_id(&program), Some(chain.config().chain_id));
}

#[tokio::test]
async fn ethereums_id_with_other_data_is_one_warning() {
    let false_header = Lie::Field("extraData".to_owned(), json!("0x77"));
    for lie in [false_header, Lie::Field("stateRoot".to_owned(), Value::Null)] {
        let node = upstream::devchain().config(|config| config.chain_id = 1).blocks(8, 3).run().await;
        for method in [BLOCK_BY_HASH, BLOCK_BY_NUMBER] {
            node.fail(lie.clone()).on(method).always();
        }
        let process = process::serve(&node).run().await;
        let [by_hash, by_number, ..] = calls(&node);
        for (method, params) in [by_hash.clone(), by_number.clone(), by_hash, by_number] {
            let response = process.client().call(method, params).await;
            let status = response.header("cache-status").unwrap();
            assert!(!status.contains("hit"), "{lie:?} {method}: {status}");
        }
        // Signatures prove a transaction alone, but no block.
        for (method, params) in calls(&node) {
            process.client().call(method, params).await;
        }
        let warnings = process.said().matches("nothing is cached until a proof succeeds").count();
        assert_eq!(warnings, 1, "{lie:?}: {}", process.said());
        let status = process.client().get(&format!("{}/status", process.admin_url())).await;
        assert!(status.text().contains("--verify structural"), "{lie:?}: {}", status.text());
    }
}

/// Content that passed without a proof leaves the cache once the chain turns out to be provable: headers, transactions and
/// receipts, each with the first proof of its kind.
#[tokio::test(start_paused = true)]
async fn first_proof_drops_unproved_content() {
    let false_header = Lie::Field("extraData".to_owned(), json!("0x77"));
    let false_receipts = Lie::Everywhere("gasUsed".to_owned(), json!("0x77"));
    for (lie, method, before) in [
        (false_header, BLOCK_BY_HASH, None),
        (false_sender(), BLOCK_BY_HASH, None),
        // Only a proved block can prove its receipts.
        (false_receipts, RECEIPTS, Some(BLOCK_BY_HASH)),
    ] {
        let chain = upstream::devchain().blocks(8, 3).chain();
        let program = in_memory::program(&chain, &Config::default());
        let about = |method: &str, number| {
            let hash = hex(chain.hash_at(number).unwrap());
            if method == RECEIPTS { json!([hash]) } else { json!([hash, true]) }
        };
        for (method, number) in before.into_iter().flat_map(|method| [(method, 5), (method, 6)]) {
            program.ask(method, about(method, number)).await;
        }
        chain.fail(lie.clone()).on(method).once();
        let params = about(method, 5);
        let (_, untrue) = program.cached(method, params.clone()).await;
        let (status, again) = program.cached(method, params.clone()).await;
        assert!(status.starts_with("holdfast; hit"), "{lie:?}: {status}");
        assert_eq!(untrue, again, "{lie:?}");
        program.ask(method, about(method, 6)).await;
        let (status, answer) = program.cached(method, params.clone()).await;
        assert!(!status.contains("hit"), "{lie:?}: {status}");
        assert_ne!(answer, untrue, "{lie:?}");
        assert!(program.cached(method, params).await.0.starts_with("holdfast; hit"), "{lie:?}");
    }
}

/// An answer may arrive, or wait for the head, while another answer is the first one to be proved.
#[tokio::test(start_paused = true)]
async fn unproved_content_does_not_enter_after_the_first_proof() {
    let late = Duration::from_millis(500);
    for waits_for_head in [false, true] {
        let chain = upstream::devchain().blocks(8, 3).chain();
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        // The transaction is in another block than the one that the proxy knows, so the proxy asks for the head.
        chain.reorg(2, 3);
        let transaction = hex(chain.transactions_of(chain.hash_at(7).unwrap())[1]);
        chain.fail(false_sender()).on(TRANSACTION).always();
        let slow = if waits_for_head { "eth_getBlockByNumber[\"latest\"*" } else { TRANSACTION };
        chain.fail(Fault::Delay(late)).on(slow).once();
        let asking = {
            let (program, params) = (program.clone(), json!([transaction]));
            tokio::spawn(async move { program.ask(TRANSACTION, params).await })
        };
        time::sleep(late / 2).await;
        assert!(!asking.is_finished());
        program.ask(BLOCK_BY_HASH, json!([hex(chain.hash_at(3).unwrap()), true])).await;
        let untrue = asking.await.unwrap();
        assert_eq!(untrue["from"], format!("0x{:040x}", 0x77), "waits for the head: {waits_for_head}");
        chain.clear_faults();
        let (status, answer) = program.cached(TRANSACTION, json!([transaction])).await;
        assert_ne!(answer["from"], untrue["from"], "waits for the head: {waits_for_head}: {status}");
    }
}
