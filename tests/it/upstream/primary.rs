//! Choice of the primary, identity of endpoints, and their state when the list changes.

use std::{sync::Arc, time::Duration};

use holdfast::{
    config::Config,
    devchain::{Fault, Lie},
    upstream::{EndpointConfig, Health, RateConfig},
};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::support::{
    in_memory,
    method::{BALANCE, BLOCK_BY_HASH, BLOCK_BY_NUMBER, FILTER_CHANGES, RECEIPT},
    nodes::{
        FIRST, SECOND, followed, hash, head, heads, health, impostor, in_order, introduced, is_known, pair,
        pair_with, parts, somebody, truth, twins,
    },
    one_node::agrees,
    upstream,
};

// ## The primary

#[tokio::test(start_paused = true)]
async fn head_waits_for_a_rate_limited_primary() {
    let (_, second, program) = pair_with(|config| {
        config.chain.max_staleness = Duration::from_millis(10);
        config.upstream.endpoints[0].rate = Some(RateConfig { per_second: 2, burst: 5 });
    })
    .await;
    second.clear_calls();
    let begun = Instant::now();
    for _ in 0..12 {
        head(&program).await;
        assert_eq!(followed(&program).as_deref(), FIRST);
        time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(heads(&second), 0);
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn short_pause_keeps_the_primary_and_a_long_one_does_not() {
    for (retry_after, then) in [(None, FIRST), (Some(1), FIRST), (Some(30), SECOND)] {
        let (first, _, program) = pair().await;
        first.fail(Fault::RateLimited { retry_after }).on(BALANCE).once();
        program.ask(BALANCE, somebody()).await;
        let begun = Instant::now();
        program.ask(BLOCK_BY_NUMBER, json!(["0x70", true])).await;
        assert!(begun.elapsed() <= Duration::from_millis(1_500), "{retry_after:?}: {:?}", begun.elapsed());
        assert_eq!(followed(&program).as_deref(), then, "{retry_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permanently_rate_limited_primary_is_replaced() {
    let (first, _, program) =
        pair_with(|config| config.chain.max_staleness = Duration::from_millis(10)).await;
    first.fail(Fault::RateLimited { retry_after: None }).any().always();
    let begun = Instant::now();
    for _ in 0..20 {
        time::sleep(Duration::from_millis(50)).await;
        head(&program).await;
    }
    assert_eq!(followed(&program).as_deref(), SECOND);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn first_in_order_is_primary_again_once_it_caught_up() {
    let (first, second, program) = pair().await;
    first.fail(Fault::Reset).any().always();
    time::sleep(Duration::from_secs(2)).await;
    head(&program).await;
    assert_eq!(followed(&program).as_deref(), SECOND);
    first.clear_faults();
    first.lag(5);
    let watch = async |seconds: u64| {
        for _ in 0..seconds / 2 {
            time::sleep(Duration::from_secs(2)).await;
            // A forwarded call notices the recovery, so that the next comparison of heads, which a head refresh makes
            // now and then, is not spent on it.
            program.ask(BALANCE, somebody()).await;
            assert_eq!(head(&program).await, "0x78");
        }
    };
    watch(200).await;
    assert_eq!(followed(&program).as_deref(), SECOND, "the first endpoint is back, but behind");
    first.lag(0);
    let asked = heads(&first);
    watch(130).await;
    assert_eq!(followed(&program).as_deref(), FIRST);
    let before = heads(&second);
    watch(20).await;
    // The chain does not grow, so the proxy asks the second node now and then whether its head is newer.
    assert!(heads(&second) <= before + 1, "the spare is rarely asked");
    // While the first node was behind, the proxy rarely asked for its head. It did so to see whether the node could be
    // the primary again, and to compare heads, because the chain did not grow.
    assert!(asked < 14, "{asked} times");
}

#[tokio::test(start_paused = true)]
async fn only_a_demoted_primary_is_replaced() {
    let (_, _, program) = pair().await;
    let (endpoints, _) = program.upstream.status();
    program.upstream.demote(endpoints[1].id);
    assert_eq!(followed(&program).as_deref(), FIRST);
    program.upstream.demote(endpoints[0].id);
    assert_eq!(followed(&program).as_deref(), SECOND);
}

// ## Calls

#[tokio::test(start_paused = true)]
async fn endpoint_recovers_after_a_broken_connection() {
    let (first, _, program) = pair().await;
    first.fail(Fault::Reset).on(BALANCE).once();
    program.ask(BALANCE, somebody()).await;
    time::sleep(Duration::from_secs(6)).await;
    for _ in 0..2 {
        program.ask(BALANCE, somebody()).await;
        time::sleep(Duration::from_millis(100)).await;
    }
    first.clear_calls();
    program.ask(BALANCE, somebody()).await;
    assert_eq!(first.count(BALANCE), 1, "the endpoint is healthy again");
}

#[tokio::test(start_paused = true)]
async fn missing_state_does_not_mean_missing_blocks() {
    let (first, second, program) = pair().await;
    let gone = Fault::Error { code: -32000, message: "missing trie node".to_owned() };
    first.fail(gone).on("eth_call").once();
    program.call("eth_call", json!([{}, "0x1"])).await;
    for number in [10, 11, 12] {
        program.ask(BLOCK_BY_NUMBER, json!([format!("{number:#x}"), true])).await;
        program.ask(BALANCE, somebody()).await;
    }
    assert_eq!((first.count(BALANCE), second.count(BALANCE)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn null_asks_one_other_endpoint_and_spends_no_retry() {
    let nodes = [(); 3].map(|()| twins().0);
    let mut config = in_order();
    config.upstream.endpoints =
        (0..3).map(|priority| EndpointConfig { priority, ..EndpointConfig::at("") }).collect();
    let program = in_memory::program_over(&nodes.each_ref(), &config);
    introduced(&program).await;
    for number in 0..300 {
        assert_eq!(program.ask(BLOCK_BY_HASH, json!([format!("0x{number:064x}"), true])).await, Value::Null);
    }
    let asked: u64 = nodes.iter().map(|node| node.count(BLOCK_BY_HASH)).sum();
    assert_eq!(asked, 600);
    nodes[0].fail(Fault::Status(500)).on(BALANCE).once();
    program.ask(BALANCE, somebody()).await;
}

#[tokio::test(start_paused = true)]
async fn null_counts_only_from_an_endpoint_at_the_head() {
    let (first, second, program) = pair().await;
    first.mine(1);
    second.mine(1);
    second.lag(1);
    time::sleep(Duration::from_secs(2)).await;
    assert_eq!(head(&program).await, "0x79");
    let transaction = first.transactions_of(first.hash_at(121).unwrap())[0];
    let params = json!([format!("{transaction:#x}")]);
    first.fail(Fault::Status(500)).on(RECEIPT).once();
    let asked = || first.count(RECEIPT) + second.count(RECEIPT);
    let receipt = program.ask(RECEIPT, params.clone()).await;
    assert_eq!(
        receipt,
        truth(&first, RECEIPT, &params),
        "the head has it: a null of a lagging endpoint is no answer"
    );
    assert_eq!(asked(), 3);
    // The proxy accepts a null from an endpoint that is at the head.
    let nothing = json!([format!("0x{}", "ab".repeat(32))]);
    time::sleep(Duration::from_secs(30)).await;
    second.lag(0);
    head(&program).await;
    time::sleep(Duration::from_secs(2)).await;
    head(&program).await;
    let before = asked();
    for _ in 0..3 {
        assert_eq!(program.ask(RECEIPT, nothing.clone()).await, Value::Null);
    }
    assert_eq!(asked(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_endpoint_costs_two_timeouts() {
    let (first, _, program) = pair().await;
    first.fail(Fault::Hang).any().always();
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        program.ask(BALANCE, somebody()).await;
        took.push(begun.elapsed() >= Duration::from_secs(2));
    }
    assert_eq!(took, [true, true, false, false, false]);
    assert_eq!(health(&program, 0), Health::Open);
}

#[tokio::test(start_paused = true)]
async fn endpoint_slow_at_one_method_stays_healthy() {
    let (first, _, program) = pair().await;
    first.fail(Fault::Hang).on("eth_getLogs").always();
    for round in 1..=6 {
        let slow = [(); 2].map(|()| {
            let program = program.clone();
            tokio::spawn(async move { program.call("eth_getLogs", json!([{}])).await })
        });
        time::sleep(Duration::from_secs(1)).await;
        program.ask(BALANCE, somebody()).await;
        for slow in slow {
            slow.await.unwrap();
        }
        assert_eq!(first.count("eth_getLogs"), 2 * round, "it is asked as before");
        assert_eq!(health(&program, 0), Health::Closed, "round {round}");
    }
}

// ## Identity

#[tokio::test(start_paused = true)]
async fn first_in_order_decides_the_chain() {
    let ((first, _), second) = (twins(), impostor());
    // The first endpoint answers slowly, so the second identifies itself before it.
    first.fail(Fault::Queue(Duration::from_millis(300))).any().always();
    let program = in_memory::program_over(&[&first, &second], &in_order());
    introduced(&program).await;
    assert_eq!([is_known(&program, 0), is_known(&program, 1)], [true, false]);
}

#[tokio::test(start_paused = true)]
async fn first_in_order_that_is_down_does_not_delay_identity() {
    for fault in [Fault::Hang, Fault::Reset] {
        let (first, second) = twins();
        first.fail(fault.clone()).any().always();
        let program = in_memory::program_over(&[&first, &second], &in_order());
        let begun = Instant::now();
        assert_eq!(head(&program).await, "0x78");
        assert!(begun.elapsed() <= Duration::from_secs(2), "{fault:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn next_in_order_decides_an_unavailable_genesis() {
    let ((first, second), third) = (twins(), impostor());
    let block_zero = Fault::Error { code: 4444, message: "pruned history unavailable".to_owned() };
    first.fail(block_zero).on(BLOCK_BY_NUMBER).once();
    second.fail(Fault::Queue(Duration::from_millis(300))).any().times(3);
    let mut config = in_order();
    config.upstream.endpoints =
        (0..3).map(|priority| EndpointConfig { priority, ..EndpointConfig::at("") }).collect();
    let program = in_memory::program_over(&[&first, &second, &third], &config);
    introduced(&program).await;
    assert_eq!([0, 1, 2].map(|at| is_known(&program, at)), [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn malformed_chain_id_is_quoted() {
    let (node, _) = twins();
    node.fail(Fault::Lie(Lie::Field("any".to_owned(), json!("one")))).on("eth_chainId").always();
    let program = in_memory::program(&node, &Config::default());
    let (status, reply) = program.call(BALANCE, somebody()).await;
    let message = reply["error"]["message"].as_str().unwrap();
    assert_eq!(status, 502);
    assert!(
        message.contains(r#"the answer to eth_chainId is not a quantity such as "0x1": "one""#),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn development_chain_may_be_replaced_by_another() {
    let node = |chain_id, seed: u64| {
        let config = upstream::devchain().config(|config| {
            config.chain_id = chain_id;
            config.seed += seed;
        });
        config.blocks(9 + seed as usize, 2).chain()
    };
    for (ids, is_taken) in
        [([31337, 31337], true), ([31337, 1337], true), ([1, 1], false), ([31337, 5], false)]
    {
        let (before, after) = (node(ids[0], 0), node(ids[1], 1));
        let config = in_order();
        let program = in_memory::program(&before, &config);
        let gone = hash(&before, 5);
        program.ask(BLOCK_BY_HASH, json!([gone, true])).await;
        // If the old node stays in the list, the new node is in any case on the wrong chain.
        program
            .upstream
            .replace(parts(&[("devchain 0", &before), ("new", &after)], &config), &config.upstream);
        introduced(&program).await;
        assert!(!is_known(&program, 1), "{ids:?}");
        program.upstream.replace(parts(&[("other", &after)], &config), &config.upstream);
        let (_, reply) = program.call("eth_blockNumber", json!([])).await;
        assert_eq!(reply["result"] == "0xa", is_taken, "{ids:?}: {reply}");
        if is_taken {
            assert_eq!(
                program.ask(BLOCK_BY_HASH, json!([gone, true])).await,
                Value::Null,
                "the block is of the former chain"
            );
            agrees(&program, &after, BLOCK_BY_HASH, json!([hash(&after, 5), true])).await;
        }
    }
}

// ## Changes of the endpoint list

#[tokio::test(start_paused = true)]
async fn endpoint_keeps_its_state_when_the_list_changes() {
    let (first, second) = twins();
    let mut config = in_order();
    let program = in_memory::program_over(&[&first, &second], &config);
    introduced(&program).await;
    first.fail(Fault::Status(500)).on(BALANCE).always();
    for _ in 0..6 {
        program.ask(BALANCE, somebody()).await;
    }
    second.fail(Fault::RateLimited { retry_after: Some(30) }).on(BALANCE).once();
    program.call(BALANCE, somebody()).await;
    let before = program.upstream.status().0;
    assert!(before[0].health != Health::Closed && !before[1].pause.is_zero());
    first.clear_calls();
    second.clear_calls();
    // Replaces the list by the same endpoints in the other order, with other weights and time-outs.
    config.upstream.endpoints.reverse();
    config.upstream.endpoints.iter_mut().for_each(|endpoint| endpoint.weight = 7);
    config.upstream.timeout = Duration::from_millis(700);
    let turned = parts(&[("devchain 1", &second), ("devchain 0", &first)], &config);
    program.upstream.replace(turned, &config.upstream);
    let after = program.upstream.status().0;
    assert_eq!([after[0].id, after[1].id], [before[1].id, before[0].id]);
    assert!(after[1].health != Health::Closed && !after[0].pause.is_zero());
    assert!(is_known(&program, 0) && is_known(&program, 1));
    time::sleep(Duration::from_secs(40)).await;
    assert_eq!(first.count("eth_chainId") + second.count("eth_chainId"), 0, "they are identified already");
    // The new time-out applies to the old endpoint.
    first.clear_faults();
    for node in [&first, &second] {
        node.fail(Fault::Hang).on(BALANCE).always();
    }
    let begun = Instant::now();
    assert_eq!(program.call(BALANCE, somebody()).await.0, 504);
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn equal_names_keep_their_suffixes_and_the_primary() {
    let (first, second) = twins();
    let mut config = in_order();
    config.upstream.endpoints = vec![EndpointConfig::at(""), EndpointConfig::at("")];
    let alike = |order: [usize; 2]| {
        let nodes = [("one", &first), ("two", &second)];
        let mut parts = parts(&order.map(|at| nodes[at]), &config);
        parts.iter_mut().for_each(|part| part.name = Arc::from("http://alike/…"));
        parts
    };
    let program = in_memory::program_over(&[&first], &config);
    program.upstream.replace(alike([0, 1]), &config.upstream);
    introduced(&program).await;
    let names = || program.upstream.status().0.iter().map(|at| at.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["http://alike/…", "http://alike/… (2)"]);
    let filter = program.ask("eth_newBlockFilter", json!([])).await;
    program.upstream.replace(alike([1, 0]), &config.upstream);
    assert_eq!(names(), ["http://alike/… (2)", "http://alike/…"]);
    first.mine(1);
    second.mine(1);
    assert_eq!(program.ask(FILTER_CHANGES, json!([filter])).await, json!([hash(&first, 121)]));
}

#[tokio::test(start_paused = true)]
async fn metrics_of_an_endpoint_are_removed_with_it() {
    let (first, second) = twins();
    let config = in_order();
    let program = in_memory::program_over(&[&first, &second], &config);
    introduced(&program).await;
    first.fail(Fault::Lie(Lie::Field("gasUsed".to_owned(), json!("0x1")))).on(BLOCK_BY_HASH).once();
    program.ask(BLOCK_BY_HASH, json!([hash(&first, 5), true])).await;
    first.fail(Fault::Status(500)).on(BALANCE).once();
    program.ask(BALANCE, somebody()).await;
    let counted = |endpoint: &str, method: &str, outcome: &str| {
        let labels = format!(r#"endpoint="{endpoint}",method="{method}",outcome="{outcome}""#);
        program.metric(&format!("endpoint_calls_total{{{labels}}}"))
    };
    for (method, outcome, count) in
        [(BLOCK_BY_HASH, "rejected", 1), (BALANCE, "status", 1), (BALANCE, "rejected", 0)]
    {
        let both = ["devchain 0", "devchain 1"].map(|endpoint| counted(endpoint, method, outcome));
        assert_eq!(both, [count, 0], "{method} {outcome}");
    }
    let lies = r#"endpoint_mismatches_total{endpoint="devchain 0",reason="header_hash"}"#;
    assert_eq!(program.metric(lies), 1, "{}", program.metrics());
    program.upstream.replace(parts(&[("devchain 1", &second)], &config), &config.upstream);
    time::sleep(Duration::from_secs(1)).await;
    program.ask(BALANCE, somebody()).await;
    let metrics = program.metrics();
    assert!(!metrics.contains("devchain 0"), "{metrics}");
    assert!(counted("devchain 1", BALANCE, "result") > 0);
}
