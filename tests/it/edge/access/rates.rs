//! Rate limits: per key or address and per call, with and without a reverse proxy in front.

use std::{num::NonZeroU32, time::Duration};

use futures_util::future::join_all;
use holdfast::{http::KeyConfig, verify::Demand};
use serde_json::{Value, json};
use tokio::time;

use super::{KEY, OTHER, batch, chain_id, key, refused, status};
use crate::support::{
    client::{self, Response},
    in_memory,
    one_node::raw,
    process, proxy, upstream,
};

#[tokio::test(start_paused = true)]
async fn client_is_limited_to_its_rate() {
    let chain = upstream::devchain().chain();
    let mut config = in_memory::consistent();
    config.http.rate = "2/s".parse().ok();
    config.http.burst = NonZeroU32::new(3);
    config.http.keys = vec![key("one", KEY), key("two", OTHER)];
    let program = in_memory::program(&chain, &config);
    let [one, two] = [KEY, OTHER].map(|key| program.clone().with_key(key));
    time::advance(Duration::from_secs(60)).await;

    for _ in 0..3 {
        assert_eq!(one.call("eth_chainId", json!([])).await.0, 200);
    }
    let limited = one.response(client::call("eth_chainId")).await;
    assert_eq!(limited.0, 429);
    assert_eq!(limited.1["retry-after"], "1");
    assert_eq!(limited.2["error"]["code"], -32005);
    assert_eq!(limited.2["id"], 1);
    assert_eq!(limited.2["error"]["message"], "too many calls; come back in 500 ms");
    // Another client's limit is separate.
    assert_eq!(two.call("eth_chainId", json!([])).await.0, 200);

    time::advance(Duration::from_millis(499)).await;
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 429);
    time::advance(Duration::from_millis(1)).await;
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 200);
    assert_eq!(one.call("eth_chainId", json!([])).await.0, 429);
    time::advance(Duration::from_secs(3600)).await;
    let after = join_all((0..10).map(|_| one.call("eth_chainId", json!([])))).await;
    assert_eq!(after.iter().filter(|(status, _)| *status == 200).count(), 3);
    assert_eq!(program.metric(r#"calls_total{method="eth_chainId",outcome="rate_limited"}"#), 10);
}

#[tokio::test(start_paused = true)]
async fn batch_is_charged_per_call_and_only_the_excess_is_refused() {
    let chain = upstream::devchain().chain();
    let mut config = in_memory::consistent();
    config.http.keys = vec![KeyConfig { rate: "100/m".parse().ok(), ..key("one", KEY) }];
    let program = in_memory::program(&chain, &config).with_key(KEY);
    time::advance(Duration::from_secs(60)).await;

    let (status, headers, answers) = program.response(batch(&["eth_chainId"; 60])).await;
    assert_eq!((status, headers.contains_key("retry-after")), (200, false));
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["result"].is_string()), "{answers}");

    // The limit leaves forty calls. Refused calls, hits, forwarded calls and malformed entries each use one of them.
    let mut calls: Vec<_> = ["eth_chainId", "net_version", "eth_gasPrice", "debug_evil"].repeat(15);
    calls.truncate(49);
    let mut body: Value = serde_json::from_str(&batch(&calls)).unwrap();
    body.as_array_mut().unwrap().insert(0, json!("nonsense"));
    let (status, _, answers) = program.response(body.to_string()).await;
    let answers = answers.as_array().unwrap();
    assert_eq!((status, answers.len()), (200, 50));
    assert_eq!(answers[0]["error"]["code"], -32600);
    let codes = answers[1..].iter().map(|answer| answer["error"]["code"].as_i64());
    let limited: Vec<_> =
        codes.enumerate().filter(|(_, code)| *code == Some(-32005)).map(|(at, _)| at).collect();
    assert_eq!(limited, (39..49).collect::<Vec<_>>());
    assert!(answers[1]["result"].is_string() && answers[4]["error"]["code"] == -32601);
    assert!(answers[1..].iter().zip(0..).all(|(answer, id)| answer["id"] == id));

    // A notification over the limit does not reach the node either.
    let raw = raw(&chain.generate(1)[0]);
    let write = json!({ "jsonrpc": "2.0", "method": "eth_sendRawTransaction", "params": [raw] }).to_string();
    assert_eq!(program.send(write.clone()).await.0, 204);
    assert!(chain.mempool().is_empty());
    time::advance(Duration::from_secs(60)).await;
    assert_eq!(program.send(write).await.0, 204);
    assert_eq!(chain.mempool().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn malformed_entries_and_notifications_cost_a_call() {
    let read = json!({ "jsonrpc": "2.0", "method": "eth_chainId", "params": [] });
    let bad_notification = json!({ "jsonrpc": "2.0", "method": "eth_chainId", "params": {} });
    let nobody_waits = json!([read, bad_notification, read, bad_notification, read]).to_string();
    for (body, costs) in [
        ("nonsense", 1),
        ("[1,2", 1),
        ("[]", 1),
        ("{}", 1),
        ("[1,2,3,4]", 4),
        (r#"[{"id":7,"jsonrpc":"1.0"},{"id":[],"jsonrpc":"2.0"},null]"#, 3),
        (&read.to_string(), 1),
        (&nobody_waits, 5),
    ] {
        let chain = upstream::devchain().chain();
        let mut config = in_memory::consistent();
        config.http.keys = vec![KeyConfig { rate: "10/h".parse().ok(), ..key("one", KEY) }];
        let program = in_memory::program(&chain, &config).with_key(KEY);
        program.send(body.to_owned()).await;
        let answers = join_all((0..10).map(|_| program.call("eth_chainId", json!([])))).await;
        let left = answers.iter().filter(|(status, _)| *status == 200).count();
        assert_eq!(left, 10 - costs, "{body}");

        // With no calls left, the same body is refused.
        let (status, answer) = program.send(body.to_owned()).await;
        let answer = String::from_utf8(answer.to_vec()).unwrap();
        match status {
            204 => {}
            200 => assert_eq!(answer.matches("-32005").count(), costs, "{body}: {answer}"),
            status => assert!(status == 429 && answer.contains("-32005"), "{body}: {status} {answer}"),
        }
    }
}

/// Holdfast reads and answers such calls, too, so a batch that is full after its first call is not free.
#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_that_do_not_begin_cost_a_call() {
    let chain = upstream::devchain().chain();
    let mut config = in_memory::consistent();
    config.http.keys = vec![KeyConfig { rate: "10/h".parse().ok(), ..key("one", KEY) }];
    (config.http.batch_concurrency, config.http.max_batch_answer) = (1, bytesize::ByteSize::b(1));
    let program = in_memory::program(&chain, &config).with_key(KEY);
    let (_, _, answers) = program.response(batch(&["eth_gasPrice"; 6])).await;
    assert!((0..6).all(|at| answers[at]["error"]["code"] == -32600), "{answers}");
    assert_eq!(chain.count("eth_gasPrice"), 1, "the first answer is too large, so that no other call begins");

    let answers = join_all((0..10).map(|_| program.call("eth_chainId", json!([])))).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 4);
}

#[tokio::test]
async fn requests_without_a_key_are_limited_by_address() {
    let node = upstream::devchain().run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.http.keys = vec![key("one", KEY)]).run().await;
    let client = client::http(&proxy);
    let mut answers = Vec::new();
    while answers.last().is_none_or(|answer: &Response| answer.status == 401) && answers.len() < 1000 {
        let request = chain_id(client.post());
        let request = if answers.len() % 2 == 0 { request } else { request.header("x-api-key", OTHER) };
        answers.push(Response::of(request).await);
    }
    assert!(answers.len() > 60, "{answers:?}");
    let last = answers.last().unwrap();
    assert_eq!((last.status.as_u16(), last.code()), (429, Some(-32005)));
    assert_eq!(last.header("retry-after"), Some("1"));
    assert!(last.message().contains("without a valid key"), "{}", last.message());
    assert!(proxy.metric(&refused("too_many_unauthenticated")).await > 0);
    // A client with a key at the same address is still served, and other addresses have their own limit.
    assert_eq!(status(chain_id(client.post()).header("x-api-key", KEY)).await, 200);
    let elsewhere = client::from("127.0.0.9".parse().unwrap(), &proxy.url());
    assert_eq!(status(chain_id(elsewhere.post())).await, 401);
}

#[tokio::test]
async fn without_keys_clients_are_told_apart_by_address() {
    let node = upstream::devchain().run().await;
    let process = process::serve(&node).set("HTTP__RATE", "3/h").run().await;
    let client = process.client();
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(client.call("eth_chainId", json!([])).await);
    }
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let wait: u64 = answers[3].header("retry-after").unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&wait), "{wait}");
    // Clients can write this header themselves, so it does not make them another client.
    let forwarded = chain_id(client.post()).header("x-forwarded-for", "1.2.3.4");
    assert_eq!(status(forwarded).await, 429);
    // The same address over another connection is the same client; another address is not.
    assert_eq!(process.client().call("eth_chainId", json!([])).await.status, 429);
    let other = client::from("127.0.0.9".parse().unwrap(), &format!("http://{}", process.address()));
    assert_eq!(other.call("eth_chainId", json!([])).await.status, 200);
    let limited = r#"holdfast_calls_total{method="eth_chainId",outcome="rate_limited"}"#;
    assert_eq!(process.metric(limited).await, 4);
    // Without a rate there is no limit.
    let free = proxy::new().upstream(&node).run().await;
    let calls = client::http(&free).send(batch(&["eth_chainId"; 1000])).await.json();
    assert!(calls.as_array().unwrap().iter().all(|answer| answer["result"].is_string()));
}

/// The blocks of a range are charged together: a full bucket is enough for one range, and the rest is a debt.
#[tokio::test(start_paused = true)]
async fn blocks_fetched_for_logs_count_against_the_rate() {
    let chain = upstream::devchain().config(|config| config.chain_id = 1).blocks(30, 2).chain();
    let mut config = in_memory::consistent();
    config.verify.level = Demand::Full;
    config.http.rate = "5/s".parse().ok();
    config.http.burst = NonZeroU32::new(5);
    config.http.keys = vec![key("one", KEY)];
    let program = in_memory::program(&chain, &config).with_key(KEY);
    let search = async |from: &str, to: &str| {
        let params = json!([{ "fromBlock": from, "toBlock": to }]);
        let truth: Value =
            serde_json::from_slice(&chain.answer("eth_getLogs", params.clone()).unwrap()).unwrap();
        program.call("eth_getLogs", params).await.1["result"] == truth
    };
    assert!(search("0x2", "0x17").await);
    // The debt of 21 blocks, without the burst.
    for _ in 0..3 {
        time::advance(Duration::from_secs(1)).await;
        assert!(!search("0x18", "0x1a").await);
    }
    time::advance(Duration::from_secs(2)).await;
    assert!(search("0x18", "0x1a").await);
}

#[tokio::test]
async fn trusted_proxy_identifies_its_clients() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.rate = "1/h".parse().ok();
            config.http.trusted_proxies = vec!["127.0.0.1".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        })
        .run()
        .await;
    let client = client::http(&proxy);
    let from = async |forwarded: &str| {
        status(chain_id(client.post()).header("x-forwarded-for", forwarded)).await.as_u16()
    };
    assert_eq!((from("1.1.1.1").await, from("1.1.1.1").await), (200, 429));
    assert_eq!(from("2.2.2.2").await, 200);
    // Holdfast ignores addresses further left, because the client could have written them itself.
    assert_eq!(from("9.9.9.9, 1.1.1.1").await, 429);
    assert_eq!(from("8.8.8.8, 2.2.2.2, 10.1.2.3").await, 429);
    assert_eq!(from("[2001:db8::1]:1234").await, 200);
    assert_eq!(from("2001:db8::2").await, 429);
    assert_eq!(from("2001:db8:0:1::1").await, 200);
    // Without the header, the trusted proxy itself is the client.
    assert_eq!(status(chain_id(client.post())).await, 200);
    assert_eq!(status(chain_id(client.post())).await, 429);
    // The header of an untrusted peer is ignored.
    let other = client::from("127.0.0.9".parse().unwrap(), &proxy.url());
    let from_other = |forwarded: &str| chain_id(other.post()).header("x-forwarded-for", forwarded);
    assert_eq!(status(from_other("3.3.3.3")).await, 200);
    assert_eq!(status(from_other("4.4.4.4")).await, 429);
}
