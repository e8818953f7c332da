//! Equal misses share one upstream call.

use std::time::Duration;

use holdfast::devchain::Fault;
use serde_json::{Value, json};
use tokio::time;

use crate::support::{
    method::{BLOCK_BY_HASH, RECEIPT},
    nodes::{hex, truth},
    one_node::{SOON, agrees, block, setting, tx_hash},
};

#[tokio::test(start_paused = true)]
async fn upper_case_digits_name_the_same_entity() {
    let (chain, program) = setting();
    program.ask("eth_blockNumber", json!([])).await;
    let number = chain.head().number;
    let transaction = tx_hash(&block(&chain, number)[1]);
    let upper = |hash: &str| format!("0x{}", hash[2..].to_uppercase());
    for (method, hash, rest) in [
        (BLOCK_BY_HASH, hex(chain.hash_at(number - 5).unwrap()), vec![json!(true)]),
        (RECEIPT, transaction, vec![]),
    ] {
        chain.clear_calls();
        chain.fail(Fault::Delay(SOON)).on(method).once();
        let params = |hash: String| Value::from([vec![json!(hash)], rest.clone()].concat());
        let (lower, upper) = (params(hash.clone()), params(upper(&hash)));
        // Two clients send the call at the same time.
        let (first, second) =
            tokio::join!(program.ask(method, lower.clone()), program.ask(method, upper.clone()));
        assert_eq!(first, second);
        assert_eq!(agrees(&program, &chain, method, lower).await, program.ask(method, upper.clone()).await);
        assert_eq!(chain.count(method), 1, "{method}");
        assert!(program.cache_status(method, upper).await.starts_with("holdfast; hit"));
    }
}

#[tokio::test(start_paused = true)]
async fn followers_get_their_answer_if_the_leader_hangs_up() {
    for (method, param) in [(RECEIPT, "transaction"), (BLOCK_BY_HASH, "block")] {
        let (chain, program) = setting();
        program.ask("eth_blockNumber", json!([])).await;
        let number = chain.head().number;
        let params = match param {
            "block" => json!([hex(chain.hash_at(number - 4).unwrap()), true]),
            _ => json!([tx_hash(&block(&chain, number)[0])]),
        };
        chain.clear_calls();
        chain.fail(Fault::Delay(Duration::from_millis(500))).on(method).once();
        let ask = || {
            let (program, params) = (program.clone(), params.clone());
            tokio::spawn(async move { program.ask(method, params).await })
        };
        let leader = ask();
        time::sleep(SOON).await;
        let followers: Vec<_> = (0..5).map(|_| ask()).collect();
        time::sleep(SOON).await;
        leader.abort();
        assert!(leader.await.unwrap_err().is_cancelled());
        for follower in followers {
            assert_eq!(follower.await.unwrap(), truth(&chain, method, &params));
        }
        assert_eq!(chain.count(method), 1);
        // If all clients hang up, the next call still finds the fetched answer.
        let alone = ask();
        time::sleep(SOON).await;
        alone.abort();
        assert_eq!(program.ask(method, params.clone()).await, truth(&chain, method, &params));
        assert_eq!(chain.count(method), 1);
    }
}
