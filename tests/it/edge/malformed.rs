//! Malformed requests: each gets an error that names its fault, and the next call is served as usual.
//!
//! The tables list the cases: [`text`] has bodies that are not JSON, [`envelope`] has JSON that is no request,
//! [`operations`] has requests with parameters that no node would accept, and [`transport`] has malformed HTTP. No case
//! of the first three reaches the upstream of a strict proxy.

mod envelope;
mod operations;
mod text;
mod transport;

use bytes::Bytes;
use holdfast::verify::{Demand, OnMismatch};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::support::{
    client::{self, Raw, Response},
    proxy::{self, Proxy},
    upstream,
};

const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A body and the expected response.
struct Case {
    name: String,
    body: Bytes,
    back: Back,
}

/// The expected response to a body.
enum Back {
    /// HTTP 200, or 413 for a batch with too many entries, and an error object.
    Error { code: i64, id: String, says: String },
    /// HTTP 200 and an array: code and raw id of each reply, no code for a result.
    Batch(Vec<(Option<i64>, &'static str)>),
    /// HTTP 204 and an empty body: the body held only notifications.
    Nothing,
}

/// One reply of a response body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ReplyError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyError {
    code: i64,
    message: String,
}

#[tokio::test]
async fn every_malformed_body_is_refused_and_the_next_call_served() {
    let node = upstream::devchain().blocks(2, 2).run().await;
    let lenient = proxy::new().upstream(&node).run().await;
    let strict = proxy::new().upstream(&node).config(|config| config.strict = true).run().await;

    let cases: Vec<_> =
        [text::cases(), envelope::cases(), operations::cases()].into_iter().flatten().collect();
    assert!(cases.len() > 500, "{}", cases.len());
    for case in &cases {
        let calls = node.calls_total();
        let proxy = if case.has_bad_params() { &strict } else { &lenient };
        let response = client::http(proxy).send(case.body.clone()).await;
        case.check(&response);
        assert_eq!(node.calls_total(), calls, "{}: the upstream was called", case.name);
        still_serves(&lenient, &case.name).await;
    }

    // No case has disturbed the connections to the upstream.
    for proxy in [&lenient, &strict] {
        let params = json!(["0x1", true]);
        let direct = node.answer("eth_getBlockByNumber", &params).unwrap();
        let through = client::http(proxy).ask("eth_getBlockByNumber", params).await.unwrap();
        assert_eq!(through.as_bytes(), direct);
    }
}

/// Holdfast leaves parameters that it cannot read to the node. If content must be proved, it refuses them itself.
#[tokio::test]
async fn unknown_forms_of_parameters_are_left_to_the_node() {
    let node = upstream::devchain().blocks(2, 2).run().await;
    let lenient = proxy::new().upstream(&node).run().await;
    let proving = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.verify.level = Demand::Full;
            config.verify.on_mismatch = OnMismatch::Reject;
        })
        .run()
        .await;
    let cases = operations::cases();
    for case in cases.iter().step_by(7) {
        let calls = node.calls_total();
        let through: Value = client::http(&lenient).send(case.body.clone()).await.json();
        assert_eq!(node.calls_total(), calls + 1, "{}: the node was not asked", case.name);
        let call: Value = serde_json::from_slice(&case.body).unwrap();
        match node.answer(call["method"].as_str().unwrap(), &call["params"]) {
            Ok(result) => assert_eq!(through["result"], serde_json::from_slice::<Value>(&result).unwrap()),
            Err(error) => assert_eq!(through["error"]["code"], error.code, "{}: {through}", case.name),
        }
        let calls = node.calls_total();
        case.check(&client::http(&proving).send(case.body.clone()).await);
        assert_eq!(node.calls_total(), calls, "{}: the node was asked", case.name);
    }
}

#[tokio::test]
async fn malformed_batch_entries_do_not_affect_others() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);

    // Puts every body into a batch, except arrays and the largest bodies, which the tests send only by themselves.
    let mut cases = envelope::cases();
    cases.retain(|case| !case.has_bad_params());
    cases.retain(|case| !matches!(case.back, Back::Batch(_)) && case.body.len() < 10_000);
    cases.retain(|case| !case.body.trim_ascii_start().starts_with(b"["));
    let calls = node.calls_total();
    for cases in cases.chunks(300) {
        let mut batch = Vec::new();
        let mut expected: Vec<(&str, &Back)> = Vec::new();
        let fine = Back::Batch(vec![(None, "\"fine\"")]);
        for case in cases {
            batch.extend([case.body.as_ref(), br#"{"jsonrpc":"2.0","id":"fine","method":"eth_chainId"}"#]);
            expected.extend([(case.name.as_str(), &case.back), (case.name.as_str(), &fine)]);
        }
        let response = client.send([b"[", batch.join(&b","[..]).as_slice(), b"]"].concat()).await;
        assert_eq!(response.status, 200);
        let replies: Vec<Reply<'_>> = serde_json::from_slice(&response.body).unwrap();
        expected.retain(|(_, back)| !matches!(back, Back::Nothing));
        assert_eq!(replies.len(), expected.len());
        for (reply, (name, back)) in replies.iter().zip(expected) {
            match back {
                Back::Error { code, id, says } => reply.check(name, Some(*code), id, says),
                Back::Batch(_) => reply.check(name, None, "\"fine\"", ""),
                Back::Nothing => unreachable!("left out above"),
            }
        }
    }
    assert_eq!(node.calls_total(), calls);
}

#[tokio::test]
async fn malformed_http_is_refused_and_the_next_call_is_served() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.max_body = transport::MAX_BODY)
        .config(|config| config.http.body_timeout = transport::BODY_TIMEOUT)
        .run()
        .await;
    let client = client::http(&proxy);
    let calls = node.calls_total();

    for (name, request, back) in transport::requests(&client) {
        let response = Response::of(request).await;
        back.check(name, response.status.as_u16(), &response.body);
        if back.status == 405 {
            assert_eq!(response.header("allow"), Some("POST, OPTIONS"), "{name}");
        }
        still_serves(&proxy, name).await;
    }
    for (name, written, back) in transport::bytes() {
        let mut connection = Raw::connect(proxy.address()).await;
        connection.write(&written).await;
        let read = connection.read_to_end().await;
        let (head, body) = read.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{name}: {read:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        back.check(name, status, body.as_bytes());
        still_serves(&proxy, name).await;
    }
    assert_eq!(node.calls_total(), calls);
}

#[tokio::test]
async fn bytes_after_a_request_do_not_delay_its_answer() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    // The start of another request, the line break that old clients send after a body, and garbage.
    for next in ["P", "POST / HTTP/1.1\r\ncontent-le", "\r\n", "\0", "hello\r\n\r\n"] {
        let mut connection = Raw::connect(proxy.address()).await;
        connection.write(client::post(transport::CALL) + next).await;
        let read = connection.read_until("}", 1).await;
        assert!(read.contains(r#"{"jsonrpc":"2.0","id":1,"result":"0x"#), "{next:?}: {read}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_in_the_middle_leaves_nothing_behind() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let calls = node.calls_total();

    let whole = client::post(r#"{"jsonrpc":"2.0","id":1,"method":"eth_getTransactionReceipt","params":[]}"#);
    for end in 0..whole.len() {
        let mut connection = Raw::connect(proxy.address()).await;
        connection.write(&whole[..end]).await;
        drop(connection);
    }
    still_serves(&proxy, "hanging up").await;
    assert_eq!(node.calls_total(), calls);
}

/// Asserts that a good call on a new connection is served.
async fn still_serves(proxy: &Proxy, after: &str) {
    let mut connection = Raw::connect(proxy.address()).await;
    connection.write(client::post(transport::CALL)).await;
    let read = connection.read_until("}", 1).await;
    assert!(read.starts_with("HTTP/1.1 200 ") && read.contains(r#","result":"0x"#), "after {after}: {read}");
}

// === impl Case ===

impl Case {
    fn error(
        name: impl Into<String>,
        body: impl Into<Bytes>,
        code: i64,
        id: &str,
        says: impl Into<String>,
    ) -> Self {
        let back = Back::Error { code, id: id.to_owned(), says: says.into() };
        Self { name: name.into(), body: body.into(), back }
    }

    /// Returns whether the parameters are at fault. A proxy that is not strict leaves such calls to the node.
    fn has_bad_params(&self) -> bool {
        matches!(self.back, Back::Error { code: INVALID_PARAMS, .. })
    }

    fn check(&self, response: &Response) {
        let name = &self.name;
        match &self.back {
            Back::Nothing => {
                assert_eq!(response.status, 204, "{name}");
                assert!(response.body.is_empty(), "{name}: {:?}", response.body);
                return;
            }
            Back::Error { code, id, says } => {
                let reply: Reply<'_> = response.read(name);
                reply.check(name, Some(*code), id, says);
            }
            Back::Batch(expected) => {
                let replies: Vec<Reply<'_>> = response.read(name);
                assert_eq!(replies.len(), expected.len(), "{name}");
                for (reply, (code, id)) in replies.iter().zip(expected) {
                    reply.check(name, *code, id, "");
                }
            }
        }
        let is_too_long = matches!(&self.back, Back::Error { says, .. } if says.contains("entries"));
        assert_eq!(response.status, if is_too_long { 413 } else { 200 }, "{name}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{name}");
    }
}

// === impl Reply ===

impl Reply<'_> {
    fn check(&self, name: &str, code: Option<i64>, id: &str, says: &str) {
        assert_eq!(self.jsonrpc, "2.0", "{name}");
        assert_eq!(self.id.get(), id, "{name}: {self:?}");
        assert_eq!(self.result.is_some(), self.error.is_none(), "{name}: {self:?}");
        assert_eq!(self.error.as_ref().map(|error| error.code), code, "{name}: {self:?}");
        if let Some(ReplyError { message, .. }) = &self.error {
            assert!(!message.is_empty() && message.contains(says), "{name}: {message}, not: {says}");
            // Error messages stay short, regardless of the request.
            assert!(message.len() < 400, "{name}: {message}");
        }
    }
}

impl Response {
    fn read<'a, T: Deserialize<'a>>(&'a self, name: &str) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{name}: {error}: {:?}", self.body))
    }
}
