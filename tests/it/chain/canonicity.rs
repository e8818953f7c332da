//! Regression tests for wrong answers under reorgs, lag and false answers, in memory and with paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use alloy_primitives::B256;
use holdfast::{
    budget::ByteBudget,
    cache::{Disk, DiskConfig, Tiers, tier::Tier},
    config::Config,
    devchain::{self, DevChain, Fault, Lie, Pruned, TagTarget},
    upstream::{Calls, EndpointConfig, EndpointParts, InProcessTransport},
    verify::Demand,
};
use serde_json::{Value, json};
use tokio::time;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::{
    chains, client, eventually,
    in_memory::{self, InMemory},
    method::{
        BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, RECEIPTS, TRANSACTION, TRANSACTION_AT_NUMBER,
        TRANSACTION_COUNT,
    },
    nodes::hex,
    proxy,
    tiers::directory,
    upstream,
};

/// A time longer than `max_staleness`.
const STALE: Duration = Duration::from_millis(1100);

/// Configuration of a chain whose finalized block is two below the head.
fn fast_finality() -> devchain::Config {
    devchain::Config { safe_distance: 1, finalized_distance: 2, ..devchain::Config::default() }
}

/// Same as [`fast_finality`], but with an hour between blocks, so that one answer makes a block below the finalized
/// block final.
fn slow_blocks() -> devchain::Config {
    devchain::Config { slot_seconds: 3600, ..fast_finality() }
}

fn chain_of(config: devchain::Config, blocks: usize) -> DevChain {
    chains::chain(&config, blocks, 3)
}

/// Returns the node's own current answer, or `null` if it is an error.
fn answer_or_null(chain: &DevChain, method: &str, params: &Value) -> Value {
    chain.answer(method, params).map_or(Value::Null, |answer| serde_json::from_slice(&answer).unwrap())
}

/// Calls the proxy and compares the answer with the node's own current answer.
async fn agrees(program: &InMemory, chain: &DevChain, method: &str, params: Value) -> Value {
    let answer = program.ask(method, params.clone()).await;
    let truth = answer_or_null(chain, method, &params);
    let named = |value: &Value| value.get("hash").or(value.get("blockHash")).cloned();
    assert!(answer == truth, "{method} {params}: {:?}, not {:?}", named(&answer), named(&truth));
    answer
}

/// Makes all calls about these numbers and transactions, and compares the answers with the node's own.
async fn all_agree(
    program: &InMemory,
    chain: &DevChain,
    numbers: impl Iterator<Item = u64>,
    hashes: &[B256],
) {
    for number in numbers {
        for full in [true, false] {
            agrees(program, chain, BLOCK_BY_NUMBER, json!([hex(number), full])).await;
        }
        agrees(program, chain, RECEIPTS, json!([hex(number)])).await;
        agrees(program, chain, TRANSACTION_AT_NUMBER, json!([hex(number), "0x1"])).await;
    }
    for hash in hashes {
        agrees(program, chain, TRANSACTION, json!([hash])).await;
        agrees(program, chain, RECEIPT, json!([hash])).await;
    }
}

fn transactions(chain: &DevChain, numbers: impl Iterator<Item = u64>) -> Vec<B256> {
    numbers.flat_map(|number| chain.transactions_of(chain.hash_at(number).unwrap())).collect()
}

/// Returns a chain of 20 blocks, a proxy that has seen it grow and cached all of it, and all transactions.
async fn grown() -> (DevChain, InMemory, Vec<B256>) {
    grown_with(|_| {}).await
}

/// The same behind an endpoint that is `consistent`, whose contradictions count at once.
async fn grown_of_one_node() -> (DevChain, InMemory, Vec<B256>) {
    grown_with(|config| *config = in_memory::consistent()).await
}

async fn grown_with(change: impl FnOnce(&mut Config)) -> (DevChain, InMemory, Vec<B256>) {
    let chain = chain_of(fast_finality(), 1);
    let mut config = Config::default();
    change(&mut config);
    let program = in_memory::program(&chain, &config);
    for _ in 0..19 {
        time::sleep(STALE).await;
        chain.mine(3);
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        program.ask("eth_blockNumber", json!([])).await;
    }
    let hashes = transactions(&chain, 1..=20);
    time::sleep(STALE).await;
    all_agree(&program, &chain, 1..=21, &hashes).await;
    (chain, program, hashes)
}

// ## A chain that regresses below the finalized block

#[tokio::test(start_paused = true)]
async fn chain_reverted_below_final_is_forwarded() {
    let (chain, program, mut hashes) = grown_of_one_node().await;
    // The chain now has five other blocks after block 0, so the number of the finalized block no longer exists.
    chain.reorg(20, 5);
    hashes.extend(transactions(&chain, 1..=5));
    time::sleep(STALE).await;
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, "0x5");
    all_agree(&program, &chain, 1..=21, &hashes).await;
    for tag in ["latest", "safe", "finalized"] {
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!([tag, true])).await;
    }
    assert_eq!(program.metric("finality_alarms_total"), 0, "the node may still catch up");
    // The node does not catch up.
    for _ in 0..11 {
        time::sleep(Duration::from_secs(60)).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    }
    assert_eq!(program.metric("finality_alarms_total"), 1);
    all_agree(&program, &chain, 1..=21, &hashes).await;
}

#[tokio::test(start_paused = true)]
async fn reorg_below_final_is_an_alarm_with_the_next_head() {
    for length in [9, 12, 200] {
        let (chain, program, hashes) = grown_of_one_node().await;
        chain.reorg(8, length);
        time::sleep(STALE).await;
        let head = agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
        assert_eq!(head["hash"], hex(chain.head().hash));
        assert_eq!(program.metric("finality_alarms_total"), 1, "{length}");
        all_agree(&program, &chain, 1..=21, &hashes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_rewinds_and_catches_up_raises_no_alarm() {
    let (chain, program, hashes) = grown_of_one_node().await;
    let head = chain.head().hash;
    chain.rollback(12);
    for round in 0..5 {
        time::sleep(Duration::from_secs(10)).await;
        program.ask("eth_blockNumber", json!([])).await;
        all_agree(&program, &chain, 1..=8, &[]).await;
        // Above the head of the node, nothing comes from the cache: at first the proxy assumes that the node lags, and later it
        // passes on the node's answers.
        for number in 9..=21 {
            let (_, reply) = program.call(BLOCK_BY_NUMBER, json!([hex(number), true])).await;
            let expected = if number <= 20 && round < 1 { json!(-32010) } else { Value::Null };
            assert_eq!(reply["error"]["code"], expected, "{number} in round {round}: {reply}");
            assert!(reply["result"].is_null());
        }
    }
    chain.set_head(head);
    time::sleep(STALE).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    chain.clear_calls();
    all_agree(&program, &chain, 1..=18, &hashes[..40]).await;
    assert_eq!(chain.calls_total(), 0, "all of it is in the cache, and canonical again");
    assert_eq!(program.metric("finality_alarms_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_check_of_the_finalized_block_denies_nothing() {
    let (chain, program, _) = grown().await;
    let final_block = answer_or_null(&chain, BLOCK_BY_NUMBER, &json!([hex(15), true]));
    chain.reorg(8, 200);
    chain.fail(Fault::Status(500)).on(r#"eth_getBlockByNumber["0x12"*"#).always();
    for _ in 0..5 {
        time::sleep(Duration::from_secs(30)).await;
        let (_, reply) = program.call("eth_blockNumber", json!([])).await;
        assert!(reply["error"].is_object(), "{reply}");
        assert_eq!(program.ask(BLOCK_BY_NUMBER, json!([hex(15), true])).await, final_block);
    }
    assert_eq!(program.metric("finality_alarms_total"), 0);
}

/// Asks for the head until the proxy no longer treats a lower head as lag.
async fn outlast_lag(program: &InMemory) {
    for _ in 0..5 {
        time::sleep(Duration::from_secs(10)).await;
        program.call("eth_blockNumber", json!([])).await;
    }
}

/// Makes the node refuse a block, by number or tag, with an error.
fn refuse(chain: &DevChain, block: &str, message: &str) {
    let error = Fault::Error { code: -32000, message: message.to_owned() };
    chain.fail(error).on(format!(r#"eth_getBlockByNumber["{block}"*"#)).always();
}

#[tokio::test(start_paused = true)]
async fn pruned_finalized_block_is_confirmed_by_a_higher_one() {
    let (chain, program, _) = grown().await;
    chain.mine_many(100, 1);
    refuse(&chain, "0x12", "required historical state unavailable");
    time::sleep(STALE).await;
    for params in [json!(["latest", false]), json!([hex(119), true])] {
        agrees(&program, &chain, BLOCK_BY_NUMBER, params).await;
    }
    assert_eq!(program.metric("finality_alarms_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn calls_are_forwarded_if_the_finalized_block_and_tag_fail() {
    let (chain, program, hashes) = grown().await;
    chain.rollback(12);
    refuse(&chain, "finalized", "'finalized' tag not supported on pre-merge network");
    outlast_lag(&program).await;
    for _ in 0..3 {
        time::sleep(STALE).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
        all_agree(&program, &chain, 1..=8, &hashes[..20]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn error_for_a_denied_finalized_block_fails_no_call() {
    let (chain, program, _) = grown().await;
    chain.rollback(12);
    outlast_lag(&program).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    refuse(&chain, "0x12", "try later");
    for _ in 0..3 {
        time::sleep(STALE).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn short_reorg_keeps_the_links_of_the_window() {
    let (chain, program, _) = grown().await;
    // The proxy has not seen the parent of the new head.
    chain.reorg(1, 2);
    time::sleep(STALE).await;
    chain.clear_calls();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
    let calls: Vec<_> = chain.calls().iter().map(|call| call.method.clone()).collect();
    assert_eq!(calls, [BLOCK_BY_NUMBER, BLOCK_BY_HASH], "the head, and its parent by hash");
    chain.clear_calls();
    for number in 1..=19 {
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(number), true])).await;
    }
    assert_eq!(chain.calls_total(), 0);
}

// ## One answer of a lagging replica

/// Selects which of the nodes behind one URL answers the next call.
#[derive(Clone, Default)]
struct Balancer(Arc<AtomicUsize>);

impl Balancer {
    fn choose(&self, replica: usize) {
        self.0.store(replica, Relaxed);
    }

    /// Returns a proxy in front of these nodes as one endpoint.
    fn program(&self, replicas: &[DevChain], config: &Config) -> InMemory {
        in_memory::program_of(vec![self.endpoint(replicas)], config)
    }

    fn endpoint(&self, replicas: &[DevChain]) -> EndpointParts {
        let (chosen, replicas) = (self.0.clone(), replicas.to_vec());
        let transport = BoxCloneSyncService::new(service_fn(move |calls: Calls| {
            let replica = replicas[chosen.load(Relaxed)].clone();
            async move { InProcessTransport::new(replica).oneshot(calls).await }
        }));
        let address = Some(in_memory::address("balanced"));
        EndpointParts { name: "balanced".into(), address, transport, config: EndpointConfig::at("") }
    }
}

/// Returns a node, and one that lags behind it with an orphan at block 30.
fn replicas(config: &devchain::Config) -> [DevChain; 2] {
    let [ahead, behind] = [(); 2].map(|()| chain_of(config.clone(), 30));
    ahead.reorg(1, 8);
    assert_ne!(ahead.hash_at(30), behind.hash_at(30));
    [ahead, behind]
}

#[tokio::test(start_paused = true)]
async fn lagging_replica_makes_no_orphan_final() {
    for (method, params) in [
        (BLOCK_BY_NUMBER, json!([hex(30), true])),
        (BLOCK_BY_NUMBER, json!([hex(30), false])),
        (RECEIPTS, json!([hex(30)])),
        (TRANSACTION_AT_NUMBER, json!([hex(30), "0x0"])),
    ] {
        let replicas = replicas(&fast_finality());
        let (balancer, [ahead, _]) = (Balancer::default(), &replicas);
        let program = balancer.program(&replicas, &Config::default());
        program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        balancer.choose(1);
        program.ask(method, params.clone()).await;
        balancer.choose(0);
        for _ in 0..3 {
            time::sleep(STALE).await;
            all_agree(&program, ahead, 30..=30, &transactions(ahead, 30..=30)).await;
        }
        assert_eq!(program.metric("finality_alarms_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_makes_deep_history_final() {
    let chain = chain_of(slow_blocks(), 40);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(14), true])).await;
    time::sleep(Duration::from_secs(100)).await;
    chain.clear_calls();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(14), true])).await;
    for hash in transactions(&chain, 14..=14) {
        agrees(&program, &chain, TRANSACTION, json!([hash])).await;
    }
    assert_eq!(chain.calls_total(), 0);
}

#[tokio::test(start_paused = true)]
async fn recent_history_costs_a_header_to_read_again() {
    let chain = chain_of(fast_finality(), 40);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(14), true])).await;
    agrees(&program, &chain, RECEIPTS, json!([hex(14)])).await;
    time::sleep(STALE).await;
    chain.clear_calls();
    for hash in transactions(&chain, 14..=14) {
        agrees(&program, &chain, TRANSACTION, json!([hash])).await;
        agrees(&program, &chain, RECEIPT, json!([hash])).await;
    }
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(14), true])).await;
    let calls: Vec<_> = chain.calls().iter().map(|call| format!("{}{}", call.method, call.params)).collect();
    assert_eq!(calls, [r#"eth_getBlockByNumber["0xe",false]"#]);
}

/// Here the assumption behind `final_margin` fails: a replica still shows an orphan that is hours old.
#[test]
fn contradicted_final_entry_is_removed_from_disk_too() {
    let [ahead, behind] = [(); 2].map(|()| chain_of(slow_blocks(), 30));
    ahead.reorg(1, 30);
    let (replicas, balancer) = ([ahead.clone(), behind], Balancer::default());
    let directory = directory();
    let mut config = Config::default();
    config.chain.max_staleness = Duration::from_millis(20);
    let stale = || time::sleep(Duration::from_millis(40));
    let start = || {
        let disk = || loop {
            // The previous proxy may not have released the directory yet, so try again.
            match Disk::open(&DiskConfig::new(&directory)) {
                Ok(disk) => return disk,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        in_memory::program_with(vec![balancer.endpoint(&replicas)], &config, |metrics| {
            let tiers: Vec<(Arc<dyn Tier>, _)> = vec![(Arc::new(disk()), Duration::from_secs(5))];
            Tiers::new(tiers, ByteBudget::new(1 << 30, None), metrics)
        })
    };
    let written = |program: &InMemory| program.metric(r#"tier_writes_total{tier="disk",outcome="written"}"#);
    // Each proxy has its own runtime, because remaining tasks of the first proxy would lock the directory.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let program = start();
        program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        let before = written(&program);
        balancer.choose(1);
        let orphan = program.ask(BLOCK_BY_NUMBER, json!([hex(30), true])).await;
        balancer.choose(0);
        stale().await;
        assert_eq!(
            program.ask(BLOCK_BY_NUMBER, json!([hex(30), true])).await,
            orphan,
            "one answer makes the block final"
        );
        eventually("the orphan is written", async || written(&program) > before).await;
        // The canonical child names another parent than the cached block, so the proxy treats neither as final.
        agrees(&program, &ahead, BLOCK_BY_NUMBER, json!([hex(31), true])).await;
        stale().await;
        all_agree(&program, &ahead, 30..=31, &[]).await;
        program.tiers.settle().await;
    });
    first.shutdown_background();
    runtime().block_on(async {
        let program = start();
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        all_agree(&program, &ahead, 30..=31, &[]).await;
    });
}

// ## Single answers that name another block

/// Makes the node answer a call for a final transaction or its receipt with a false block hash: the hash of an orphan,
/// or of no block at all.
async fn false_place(is_orphan: bool, method: &str) -> (DevChain, InMemory) {
    let chain = chain_of(slow_blocks(), 10);
    let orphan = chain.hash_at(10).unwrap();
    chain.reorg(1, 30);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let block = if is_orphan { orphan } else { B256::repeat_byte(0xab) };
    chain.fail(Lie::Everywhere("blockHash".to_owned(), json!(block))).on(method).once();
    let hash = transactions(&chain, 10..=10)[1];
    let answer = program.ask(method, json!([hash])).await;
    assert_eq!(answer["blockHash"], json!(block), "nothing contradicts the answer yet");
    (chain, program)
}

#[tokio::test(start_paused = true)]
async fn false_single_answer_is_dropped_and_does_not_set_its_number() {
    for is_orphan in [true, false] {
        for method in [RECEIPT, TRANSACTION] {
            let (chain, program) = false_place(is_orphan, method).await;
            // The answer by number is right at once, because the false answer about the transaction does not affect
            // it.
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(10), true])).await;
            time::sleep(STALE).await;
            all_agree(&program, &chain, 10..=10, &transactions(&chain, 10..=10)).await;
            let (chain, program) = false_place(is_orphan, method).await;
            time::sleep(STALE).await;
            all_agree(&program, &chain, 10..=10, &transactions(&chain, 10..=10)).await;
            chain.clear_calls();
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(10), true])).await;
            assert_eq!(chain.calls_total(), 0, "the block is cached");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn false_single_answer_does_not_override_a_proved_block() {
    let (chain, program) = false_place(true, RECEIPT).await;
    // The block with its true hash proves the place of the transaction.
    let hash = chain.hash_at(10).unwrap();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(10), true])).await;
    agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, true])).await;
    for _ in 0..2 {
        agrees(&program, &chain, RECEIPT, json!([transactions(&chain, 10..=10)[1]])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn single_receipt_of_deep_history_costs_two_calls() {
    let chain = chain_of(slow_blocks(), 40);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.clear_calls();
    let hash = transactions(&chain, 10..=10)[1];
    for _ in 0..10 {
        agrees(&program, &chain, RECEIPT, json!([hash])).await;
        time::sleep(STALE).await;
    }
    let calls: Vec<_> = chain.calls().iter().map(|call| call.method.clone()).collect();
    assert_eq!(calls, [RECEIPT, BLOCK_BY_NUMBER]);
}

// ## The same transaction twice

#[tokio::test(start_paused = true)]
async fn repeated_transaction_is_answered_as_by_the_node() {
    let config = devchain::Config { chain_id: 31337, ..devchain::Config::default() };
    let chain = chain_of(config, 5);
    let program = in_memory::program(&chain, &Config::default());
    let hash = transactions(&chain, 3..=3)[0];
    all_agree(&program, &chain, 3..=3, &[hash]).await;
    let again = chain.build_on(chain.head().hash, vec![chain.transaction(hash).unwrap()]);
    chain.set_head(again);
    all_agree(&program, &chain, 0..0, &[hash]).await;
    all_agree(&program, &chain, 3..=6, &[hash]).await;
}

// ## Tags

#[tokio::test(start_paused = true)]
async fn tag_whose_block_is_denied_means_the_new_head() {
    for (method, params) in [
        (BLOCK_BY_NUMBER, json!(["latest", true])),
        (RECEIPTS, json!(["latest"])),
        (TRANSACTION_AT_NUMBER, json!(["latest", "0x0"])),
    ] {
        let config = devchain::Config { keep_orphans: false, ..fast_finality() };
        let chain = chain_of(config, 10);
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        chain.reorg(1, 2);
        let answer = program.ask(method, params.clone()).await;
        assert_eq!(answer, answer_or_null(&chain, method, &params), "{method}");
    }
}

/// Sends a batch of two calls and returns the replies, including errors.
async fn replies(program: &InMemory, calls: [(&str, Value); 2]) -> Value {
    let call = |(method, params)| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let (_, body) = program.send(json!(calls.map(call)).to_string()).await;
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn tag_means_one_block_in_a_batch_or_an_error() {
    let config = devchain::Config { keep_orphans: false, ..fast_finality() };
    let chain = chain_of(config, 10);
    let program = in_memory::program(&chain, &Config::default());
    let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await["hash"].clone();
    chain.reorg(1, 2);
    // The first entry is cached, so the tag means that block; the second needs a fetch.
    let replies =
        replies(&program, [(BLOCK_BY_NUMBER, json!(["latest", false])), (RECEIPTS, json!(["latest"]))]).await;
    assert_eq!(replies[0]["result"]["hash"], head);
    let error = &replies[1]["error"];
    assert_eq!(error["code"], -32010, "{replies}");
    assert_eq!(error["message"], "the block that `latest` meant left the chain meanwhile; send it again");
}

#[tokio::test(start_paused = true)]
async fn safe_of_a_batch_is_on_the_branch_of_its_latest() {
    let chain = chain_of(fast_finality(), 10);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    chain.reorg(2, 3);
    // The proxy still has a fresh head; it fetches `safe`, which is on the new branch.
    let batch = || [(BLOCK_BY_NUMBER, json!(["latest", false])), (BLOCK_BY_NUMBER, json!(["safe", false]))];
    let first = replies(&program, batch()).await;
    assert_eq!(first[1]["error"]["code"], -32010, "{first}");
    let second = replies(&program, batch()).await;
    assert_eq!(second[0]["result"]["parentHash"], second[1]["result"]["hash"], "{second}");
}

// ## The chain changes during a fetch

#[tokio::test(start_paused = true)]
async fn fetch_in_flight_over_a_reorg_is_discarded() {
    let number = hex(9);
    for (method, by_transaction, params) in [
        (BLOCK_BY_NUMBER, false, json!([number, true])),
        (BLOCK_BY_NUMBER, false, json!([number, false])),
        (RECEIPTS, false, json!([number])),
        (TRANSACTION_AT_NUMBER, false, json!([number, "0x1"])),
        (TRANSACTION_COUNT, false, json!([number])),
        (BLOCK_BY_NUMBER, false, json!(["latest", true])),
        (TRANSACTION, true, json!([])),
        (RECEIPT, true, json!([])),
    ] {
        let chain = chain_of(devchain::Config::default(), 10);
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        let hash = transactions(&chain, 9..=9)[1];
        let params = if by_transaction { json!([hash]) } else { params };
        let fetched = match method {
            TRANSACTION_AT_NUMBER => BLOCK_BY_NUMBER,
            _ if params[0] == "latest" => BLOCK_BY_HASH,
            _ => method,
        };
        chain.fail(Fault::Delay(Duration::from_millis(500))).on(fetched).once();
        let (asking, asked) = (program.clone(), params.clone());
        let method_asked = method.to_owned();
        let pending = tokio::spawn(async move { asking.ask(&method_asked, asked).await });
        time::sleep(Duration::from_millis(100)).await;
        chain.reorg(3, 4);
        // After a write the next call refreshes the head, so another client sees the new head.
        let raw = chain.generate(1).remove(0);
        let raw = alloy_eips::eip2718::Encodable2718::encoded_2718(&raw);
        program.ask("eth_sendRawTransaction", json!([hex(alloy_primitives::Bytes::from(raw))])).await;
        let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        assert_eq!(head["hash"], hex(chain.head().hash));
        let answer = pending.await.unwrap();
        assert!(answer == answer_or_null(&chain, method, &params), "{method} {params}");
    }
}

#[tokio::test(start_paused = true)]
async fn answer_without_a_block_in_flight_over_a_reorg_is_discarded() {
    for (method, params) in [
        (RECEIPTS, json!([hex(9)])),
        (TRANSACTION_AT_NUMBER, json!([hex(9), "0x0"])),
        (TRANSACTION_COUNT, json!([hex(9)])),
        (TRANSACTION, json!([])),
        (RECEIPT, json!([])),
    ] {
        for level in [Demand::Auto, Demand::Structural] {
            if (method, level) == (TRANSACTION_COUNT, Demand::Auto) {
                // The proxy derives this answer from the block, which contains its own hash.
                continue;
            }
            let chain = chain_of(devchain::Config::default(), 8);
            chain.mine_many(2, 0);
            let mut config = Config::default();
            config.verify.level = level;
            let program = in_memory::program(&chain, &config);
            program.ask("eth_blockNumber", json!([])).await;
            let moved = chain.generate(3);
            let params = if params == json!([]) { json!([moved[0].tx_hash()]) } else { params.clone() };
            // Receipts and transactions by number begin with their block.
            let is_whole = [RECEIPTS, TRANSACTION_AT_NUMBER].contains(&method);
            let fetched = if is_whole { BLOCK_BY_NUMBER } else { method };
            chain.fail(Fault::Delay(Duration::from_millis(500))).on(fetched).once();
            let (asking, asked) = (program.clone(), params.clone());
            let pending = tokio::spawn(async move { asking.ask(method, asked).await });
            time::sleep(Duration::from_millis(100)).await;
            chain.reorg_with(3, vec![vec![], moved, vec![], vec![]]);
            let raw = alloy_eips::eip2718::Encodable2718::encoded_2718(&chain.generate(1).remove(0));
            program.ask("eth_sendRawTransaction", json!([hex(alloy_primitives::Bytes::from(raw))])).await;
            let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
            assert_eq!(head["hash"], hex(chain.head().hash));
            let answer = pending.await.unwrap();
            assert!(
                answer == answer_or_null(&chain, method, &params),
                "{method} {params} {level:?}: {answer}"
            );
        }
    }
}

/// Content by hash does not depend on the chain.
#[tokio::test(start_paused = true)]
async fn null_by_hash_in_flight_over_a_reorg_is_not_asked_again() {
    let chain = chain_of(devchain::Config::default(), 10);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    let (asking, unknown) = (program.clone(), B256::repeat_byte(9));
    chain.fail(Fault::Delay(STALE * 2)).on(format!(r#"{BLOCK_BY_HASH}["{unknown}"*"#)).once();
    let pending = tokio::spawn(async move { asking.ask(BLOCK_BY_HASH, json!([unknown, true])).await });
    time::sleep(STALE).await;
    chain.reorg(1, 2);
    let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(head["hash"], hex(chain.head().hash));
    assert_eq!(pending.await.unwrap(), Value::Null);
    let calls = chain.calls().into_iter().filter(|call| call.params.contains(&hex(unknown)));
    assert_eq!(calls.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn forwarded_transaction_in_flight_over_a_reorg_is_discarded() {
    let config = devchain::Config { chain_id: 31337, ..devchain::Config::default() };
    let chain = chain_of(config, 5);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!([hex(5), false])).await;
    let params = json!([transactions(&chain, 5..=5)[0]]);
    chain.fail(Fault::Delay(Duration::from_millis(500))).on(TRANSACTION).once();
    let (asking, asked) = (program.clone(), params.clone());
    let pending = tokio::spawn(async move { asking.ask(TRANSACTION, asked).await });
    time::sleep(Duration::from_millis(1)).await;
    chain.reorg(1, 1);
    let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
    assert_eq!(head["hash"], hex(chain.head().hash));
    assert!(pending.await.unwrap() == answer_or_null(&chain, TRANSACTION, &params));
}

// ## Answers that must exist

#[tokio::test(start_paused = true)]
async fn null_for_known_data_is_retried() {
    let chain = chain_of(fast_finality(), 10);
    let program = in_memory::program(&chain, &Config::default());
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    let hash = transactions(&chain, 10..=10)[0];
    for (method, params) in [
        (RECEIPT, json!([hash])),
        (RECEIPTS, json!([hex(10)])),
        (RECEIPTS, json!([chain.head().hash])),
        (RECEIPTS, json!(["latest"])),
    ] {
        let program = in_memory::program(&chain, &Config::default());
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
        chain.fail(Fault::Null).on("eth_get*Receipt*").times(2);
        agrees(&program, &chain, method, params.clone()).await;
        // The proxy also retries if the list of receipts is empty.
        chain.fail(Lie::EmptiedTransactions).on("eth_getBlockReceipts").times(2);
        let program = in_memory::program(&chain, &Config::default());
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
        agrees(&program, &chain, method, params).await;
        chain.clear_faults();
        assert_eq!(program.metric("mismatches_total"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn short_receipt_list_of_a_known_block_is_retried() {
    for level in [Demand::Auto, Demand::Structural] {
        for lie in [Lie::EmptiedTransactions, Lie::Shortened] {
            let chain = chain_of(fast_finality(), 10);
            let mut config = Config::default();
            config.verify.level = level;
            let by_hash = json!([chain.head().hash]);
            for params in [json!([hex(10)]), by_hash, json!(["latest"])] {
                let program = in_memory::program(&chain, &config);
                agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
                chain.fail(lie.clone()).on(RECEIPTS).times(2);
                for _ in 0..2 {
                    agrees(&program, &chain, RECEIPTS, params.clone()).await;
                }
                chain.clear_faults();
            }
            // The last call is about a block between two heads, which the proxy tracks.
            let program = in_memory::program(&chain, &config);
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
            chain.mine_many(3, 2);
            time::sleep(STALE).await;
            agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", false])).await;
            chain.fail(lie.clone()).on(RECEIPTS).times(2);
            agrees(&program, &chain, RECEIPTS, json!([hex(12)])).await;
            chain.clear_faults();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn null_for_a_block_read_by_number_is_retried() {
    let chain = chain_of(devchain::Config::default(), 10);
    for method in [RECEIPT, RECEIPTS] {
        let program = in_memory::program(&chain, &Config::default());
        program.ask("eth_blockNumber", json!([])).await;
        agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(6), true])).await;
        chain.fail(Fault::Null).on("eth_get*Receipt*").times(2);
        let of_transaction = json!([transactions(&chain, 6..=6)[1]]);
        let params = if method == RECEIPT { of_transaction } else { json!([hex(6)]) };
        agrees(&program, &chain, method, params).await;
        chain.clear_faults();
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_receipts_are_dropped_when_their_block_arrives() {
    let chain = chain_of(fast_finality(), 10);
    let mut config = Config::default();
    config.verify.level = Demand::Structural;
    for full in [true, false] {
        let program = in_memory::program(&chain, &config);
        let hash = chain.hash_at(5).unwrap();
        chain.fail(Lie::Shortened).on(RECEIPTS).once();
        program.ask(RECEIPTS, json!([hash])).await;
        agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, full])).await;
        agrees(&program, &chain, RECEIPTS, json!([hash])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn block_without_transactions_has_no_receipts() {
    let chain = chain_of(fast_finality(), 5);
    chain.mine_many(2, 0);
    let program = in_memory::program(&chain, &Config::default());
    for params in [json!([hex(6)]), json!(["latest"]), json!([chain.head().hash])] {
        for _ in 0..2 {
            assert_eq!(agrees(&program, &chain, RECEIPTS, params.clone()).await, json!([]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn known_data_that_never_arrives_is_an_error() {
    let chain = chain_of(fast_finality(), 10);
    let program = in_memory::program(&chain, &Config::default());
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    let hash = transactions(&chain, 10..=10)[0];
    chain.fail(Fault::Null).on("eth_get*Receipt*").always();
    let (_, reply) = program.call(RECEIPT, json!([hash])).await;
    assert_eq!(reply["error"]["code"], -32010, "{reply}");
    assert_eq!(reply["error"]["message"], format!("the upstream does not have receipt of {hash} yet"));
    chain.clear_calls();
    let (_, again) = program.call(RECEIPT, json!([hash])).await;
    assert_eq!((&again["error"], chain.count(RECEIPT)), (&reply["error"], 0), "fails without a fetch");
    chain.clear_faults();
    time::sleep(STALE).await;
    agrees(&program, &chain, RECEIPT, json!([hash])).await;
    // An unknown transaction has no receipt.
    agrees(&program, &chain, RECEIPT, json!([B256::repeat_byte(9)])).await;
}

#[tokio::test(start_paused = true)]
async fn pruned_known_history_is_an_error_not_null() {
    let (chain, program, _) = grown_with(|config| config.cache.size = bytesize::ByteSize::kib(16)).await;
    chain.prune_below(20, Pruned::Null);
    // The proxy tracks the block; the small cache has evicted its receipts.
    let (_, reply) = program.call(RECEIPTS, json!([hex(2)])).await;
    assert_eq!(reply["error"]["code"], -32010, "{reply}");
}

#[tokio::test(start_paused = true)]
async fn single_receipt_contrary_to_its_proved_block_is_dropped() {
    for (member, value) in [
        ("from", json!("0x00000000000000000000000000000000000000aa")),
        ("to", json!("0x00000000000000000000000000000000000000bb")),
        ("effectiveGasPrice", json!("0x1")),
    ] {
        let chain = chain_of(slow_blocks(), 20);
        let mut config = Config::default();
        config.verify.ethereum_chains.push(chain.config().chain_id);
        let program = in_memory::program(&chain, &config);
        program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
        let receipt = json!([transactions(&chain, 2..=2)[0]]);
        chain.fail(Lie::Field(member.to_owned(), value.clone())).on(RECEIPT).once();
        assert_eq!(program.ask(RECEIPT, receipt.clone()).await[member], value, "nothing contradicts it yet");
        agrees(&program, &chain, BLOCK_BY_HASH, json!([chain.hash_at(2).unwrap(), true])).await;
        agrees(&program, &chain, RECEIPT, receipt).await;
    }
}

/// The pauses between the requests take longer than an answer for a number counts.
#[tokio::test(start_paused = true)]
async fn short_receipts_are_an_error_at_each_call() {
    let chain = chain_of(devchain::Config::default(), 40);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    chain.fail(Lie::Shortened).on(RECEIPTS).always();
    for number in [9, 9, 9, 20, 20] {
        let (_, reply) = program.call(RECEIPTS, json!([hex(number)])).await;
        assert_eq!(reply["error"]["code"], -32010, "{number}: {reply}");
        time::sleep(2 * STALE).await;
    }
}

/// A false place of a transaction counts until the block that it names is cached.
#[tokio::test(start_paused = true)]
async fn single_transaction_is_refuted_by_the_block_that_it_names() {
    let chain = chain_of(slow_blocks(), 20);
    let mut config = Config::default();
    config.verify.ethereum_chains.push(chain.config().chain_id);
    let program = in_memory::program(&chain, &config);
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let (transaction, other) = (json!([transactions(&chain, 2..=2)[0]]), chain.hash_at(3).unwrap());
    for (member, value) in [("blockHash", json!(other)), ("blockNumber", json!("0x3"))] {
        chain.fail(Lie::Field(member.to_owned(), value)).on(TRANSACTION).always();
    }
    assert_eq!(program.ask(TRANSACTION, transaction.clone()).await["blockHash"], json!(other));
    chain.clear_faults();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(3), true])).await;
    agrees(&program, &chain, TRANSACTION, transaction).await;
}

/// The named block is at that number, but does not list the transaction.
#[tokio::test(start_paused = true)]
async fn single_transaction_is_refuted_by_the_hashes_of_the_block_that_it_names() {
    let chain = chain_of(devchain::Config::default(), 10);
    let (before, transaction) = (chain.head().hash, json!([transactions(&chain, 5..=5)[0]]));
    let after = chain.reorg_with(6, vec![vec![]; 6]).hash;
    let named = json!(chain.hash_at(5).unwrap());
    chain.set_head(before);
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(Lie::Field("blockHash".to_owned(), named.clone())).on(TRANSACTION).once();
    assert_eq!(program.ask(TRANSACTION, transaction.clone()).await["blockHash"], named);
    chain.set_head(after);
    time::sleep(STALE).await;
    agrees(&program, &chain, TRANSACTION, transaction).await;
}

/// The index still leads to the orphan, but the lowest tracked block has another parent.
#[tokio::test(start_paused = true)]
async fn transaction_of_an_orphan_below_the_window_costs_one_call() {
    let chain = chain_of(devchain::Config::default(), 10);
    let (orphan, transaction) = (chain.head().hash, transactions(&chain, 10..=10)[0]);
    chain.reorg(1, 2);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    program.ask(BLOCK_BY_HASH, json!([orphan, true])).await;
    chain.clear_calls();
    agrees(&program, &chain, TRANSACTION, json!([transaction])).await;
    assert_eq!(chain.calls_total(), 1);
}

/// A list of receipts may name any hashes until its block arrives.
#[tokio::test(start_paused = true)]
async fn transaction_is_not_taken_from_a_place_that_false_receipts_name() {
    let chain = chain_of(slow_blocks(), 20);
    let mut config = Config::default();
    config.verify.level = Demand::Structural;
    let program = in_memory::program(&chain, &config);
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    chain.submit(chain.generate(1).remove(0)).unwrap();
    let (hash, false_hash) = (chain.mine(0).hash, B256::repeat_byte(9));
    chain.fail(Lie::Everywhere("transactionHash".to_owned(), json!(false_hash))).on(RECEIPTS).once();
    let receipts = program.ask(RECEIPTS, json!([hash])).await;
    assert_eq!(receipts[0]["transactionHash"], json!(false_hash));
    time::sleep(STALE).await;
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    agrees(&program, &chain, TRANSACTION, json!([false_hash])).await;
}

/// One answer makes the block final, because it is far below the finalized block. No chain of parents links the two.
#[tokio::test(start_paused = true)]
async fn pruned_receipts_do_not_affect_their_final_block() {
    let chain = chain_of(slow_blocks(), 20);
    let program = in_memory::program(&chain, &Config::default());
    program.ask(BLOCK_BY_NUMBER, json!(["finalized", false])).await;
    let block = agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(2), true])).await;
    let transaction = transactions(&chain, 2..=2)[0];
    for fault in [Fault::Null, Fault::Error { code: -32000, message: "block not found".to_owned() }] {
        let is_null = fault == Fault::Null;
        chain.fail(fault).on("eth_get*Receipt*").always();
        for (method, params) in [(RECEIPTS, json!([hex(2)])), (RECEIPT, json!([transaction]))] {
            let (_, reply) = program.call(method, params).await;
            assert_eq!(reply["error"].is_object(), !is_null, "{method}: {reply}");
        }
        chain.clear_faults();
        time::sleep(STALE).await;
        chain.fail(Fault::Status(503)).any().always();
        assert_eq!(
            program.ask(BLOCK_BY_NUMBER, json!([hex(2), true])).await,
            block,
            "the final block is still served"
        );
        chain.clear_faults();
        time::sleep(STALE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn null_on_a_development_chain_is_passed_on() {
    let config = devchain::Config { chain_id: 31337, ..devchain::Config::default() };
    let chain = chain_of(config, 5);
    let program = in_memory::program(&chain, &Config::default());
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!(["latest", true])).await;
    chain.fail(Fault::Null).on("eth_get*Receipt*").always();
    assert_eq!(program.ask(RECEIPT, json!([transactions(&chain, 5..=5)[0]])).await, Value::Null);
    chain.clear_calls();
    assert_eq!(program.ask(RECEIPTS, json!([hex(5)])).await, Value::Null);
    assert_eq!(chain.count(RECEIPTS), 2, "by hash, and as the client asked");
}

// ## Errors to calls that the client did not make

#[tokio::test(start_paused = true)]
async fn error_to_the_full_form_is_not_passed_to_a_hashes_call() {
    let refuses = || Fault::Error { code: -32000, message: "response too large".to_owned() };
    let chain = chain_of(fast_finality(), 10);
    let program = in_memory::program(&chain, &Config::default());
    chain.fail(refuses()).on("eth_getBlockBy*true]").always();
    chain.fail(refuses()).on(RECEIPTS).always();
    let hash = chain.hash_at(5).unwrap();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(5), false])).await;
    chain.clear_calls();
    agrees(&program, &chain, BLOCK_BY_NUMBER, json!([hex(5), false])).await;
    let whole = chain.calls().iter().filter(|call| call.params.ends_with("true]")).count();
    assert_eq!(whole, 0, "the full form was requested again after an error");
    agrees(&program, &chain, BLOCK_BY_HASH, json!([hash, false])).await;
    agrees(&program, &chain, TRANSACTION_COUNT, json!([hex(5)])).await;
    for hash in transactions(&chain, 5..=5) {
        agrees(&program, &chain, TRANSACTION, json!([hash])).await;
        agrees(&program, &chain, RECEIPT, json!([hash])).await;
    }
    let (_, reply) = program.call(BLOCK_BY_NUMBER, json!([hex(5), true])).await;
    assert_eq!(reply["error"]["message"], "response too large", "the full form");
}

/// The test uses HTTP, because only answers over HTTP have a size limit.
#[tokio::test]
async fn block_with_hashes_does_not_need_the_full_form() {
    let node = upstream::devchain().blocks(3, 1).run().await;
    node.mine(400);
    node.mine(1);
    let limit = bytesize::ByteSize::kib(64);
    let proxy = proxy::new().upstream(&node).config(|config| config.upstream.max_answer = limit).run().await;
    let params = json!([hex(4), false]);
    for _ in 0..3 {
        let answer = client::http(&proxy).call(BLOCK_BY_NUMBER, params.clone()).await.json();
        assert!(
            answer["result"] == answer_or_null(&node, BLOCK_BY_NUMBER, &params),
            "{:?}",
            answer.get("error")
        );
    }
    let whole = node.calls().iter().filter(|call| call.params.ends_with("true]")).count();
    assert_eq!(whole, 1, "the proxy does not request the full form with every read");
}

// ## Counts above the head

#[tokio::test(start_paused = true)]
async fn count_above_the_head_is_forwarded() {
    let chain = chain_of(fast_finality(), 10);
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    for method in [TRANSACTION_COUNT, "eth_getUncleCountByBlockNumber"] {
        chain.fail(Fault::Error { code: -32602, message: "out of range".to_owned() }).on(method).once();
        let (_, reply) = program.call(method, json!([hex(11)])).await;
        assert_eq!(reply["error"]["code"], -32602, "{method}: {reply}");
    }
}

// ## A finalized block that the node denies forever

#[tokio::test(start_paused = true)]
async fn finalized_block_denied_by_a_high_head_is_an_alarm_after_15_s() {
    let (chain, program, hashes) = grown_of_one_node().await;
    chain.reorg(8, 200);
    chain.set_finalized(TagTarget::Null);
    chain.fail(Fault::Null).on(r#"eth_getBlockByNumber["0x12"*"#).times(12);
    for round in 0..20 {
        time::sleep(STALE).await;
        // The proxy forwards the call, so the answer is from the new branch.
        let head = program.ask(BLOCK_BY_NUMBER, json!(["latest", false])).await;
        assert_eq!(head["hash"], hex(chain.head().hash), "round {round}");
        all_agree(&program, &chain, 13..=16, &hashes[36..45]).await;
    }
    assert_eq!(program.metric("finality_alarms_total"), 1);
}
