//! Requests and replies, batches and the record.

use super::*;

#[tokio::test]
async fn ids_are_returned_unchanged() {
    let chain = chain();
    for id in ["1", "null", "\"a\\u0062\"", "1.0", "18446744073709551616", "-0"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth\u005fblockNumber"}}"#);
        let NodeResponse::Reply { body, .. } = chain.serve(body.into()).await else { panic!() };
        assert_eq!(body, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x0"}}"#));
    }
}

#[tokio::test]
async fn malformed_requests_get_specific_errors() {
    let chain = chain();
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("\u{fffd}", -32700),
        ("{} {}", -32700),
        ("[]", -32600),
        ("{}", -32600),
        ("7", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"eth_blockNumber"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"eth_blockNumber"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_nothing"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":{}}"#, -32602),
    ] {
        let NodeResponse::Reply { status: 200, body: reply, .. } = chain.serve(body.into()).await else {
            panic!()
        };
        assert_eq!(parse::<Value>(&reply)["error"]["code"], code, "{body}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"eth_blockNumber"}"#;
    let NodeResponse::Reply { body, .. } = chain.serve(notification.into()).await else { panic!() };
    assert!(body.is_empty());
    assert!(matches!(chain.serve(Bytes::from_static(&[0xff, 0x00])).await, NodeResponse::Reply { .. }));
}

#[tokio::test]
async fn batches_are_answered_entry_by_entry_and_recorded_together() {
    let chain = chain();
    chain.mine(1);
    let batch = r#" [{"jsonrpc":"2.0","id":"x","method":"eth_blockNumber","params":[]}, 5,
        {"jsonrpc":"2.0","method":"eth_chainId"},
        {"jsonrpc":"2.0","id":2,"method":"eth_getBlockByNumber","params":["0x0", false]}]"#;
    let NodeResponse::Reply { body, .. } = chain.serve(batch.into()).await else { panic!() };
    let replies: Vec<Value> = parse(&body);
    assert_eq!(replies.len(), 3, "a notification gets no reply");
    assert_eq!(replies[0], json!({ "jsonrpc": "2.0", "id": "x", "result": "0x1" }));
    assert_eq!(replies[1]["error"]["code"], -32600);
    assert_eq!(replies[2]["result"]["number"], "0x0");

    post(&chain, "eth_blockNumber", ()).await;
    let calls = chain.calls();
    let seen: Vec<_> =
        calls.iter().map(|call| (call.method.as_str(), call.params.as_str(), call.request)).collect();
    assert_eq!(
        seen,
        [
            ("eth_blockNumber", "[]", 1),
            ("eth_chainId", "", 1),
            ("eth_getBlockByNumber", r#"["0x0", false]"#, 1),
            ("eth_blockNumber", "", 2),
        ]
    );
    assert_eq!((chain.count("eth_blockNumber"), chain.calls_total(), chain.requests_total()), (2, 4, 2));
    chain.answer("eth_blockNumber", ()).unwrap();
    assert_eq!(chain.calls_total(), 4, "calls for the truth are not recorded");
    chain.clear_calls();
    assert_eq!((chain.calls(), chain.calls_total(), chain.requests_total()), (vec![], 0, 0));
}

#[tokio::test]
async fn the_record_is_bounded_and_the_counts_are_not() {
    let chain = DevChain::new(Config { keep_calls: 2, ..Config::default() });
    for method in ["eth_chainId", "eth_blockNumber", "eth_blockNumber", "net_version"] {
        post(&chain, method, ()).await;
    }
    let kept: Vec<_> = chain.calls().into_iter().map(|call| call.method).collect();
    assert_eq!(kept, ["eth_blockNumber", "net_version"]);
    assert_eq!((chain.count("eth_blockNumber"), chain.count("eth_chainId")), (2, 1));
}
