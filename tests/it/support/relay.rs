//! A relay between a consumer and the proxy. It compares every answer of the proxy with the node's own answer.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use alloy_eips::Encodable2718;
use alloy_primitives::Bytes;
use alloy_rpc_types_eth::{Block, TransactionReceipt};
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tokio::{net::TcpListener, task::AbortHandle};

use super::client::{self, Client};

/// A running relay. Stops when dropped.
pub struct Relay {
    address: SocketAddr,
    relaying: Arc<Relaying>,
    accepting: AbortHandle,
}

/// State that the connections of a relay share.
struct Relaying {
    proxy: Client,
    node: Client,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Number of calls by method.
    calls: BTreeMap<String, u64>,
    /// Descriptions of answers that differ from the node's.
    differences: Vec<String>,
}

#[derive(Deserialize)]
struct Call {
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

#[derive(Deserialize)]
struct Reply {
    id: Value,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

/// Starts a relay in front of these URLs of the proxy and of the node.
pub async fn between(proxy: &str, node: &str) -> Relay {
    let seen = Mutex::default();
    let relaying = Arc::new(Relaying { proxy: client::at(proxy), node: client::at(node), seen });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = relaying.clone();
    let accepting = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let relaying = shared.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| relaying.clone().answer(request));
                let http = auto::Builder::new(TokioExecutor::new());
                // Ignores the result, because the consumer reports how the connection ended.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Relay { address, relaying, accepting: accepting.abort_handle() }
}

// === impl Relay ===

impl Relay {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Panics if an answer of the proxy differed from the node's. Returns the number of calls by method.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let seen = self.relaying.seen.lock().unwrap();
        let differences = &seen.differences;
        assert!(differences.is_empty(), "{} answers differ, first {}", differences.len(), differences[0]);
        assert!(!seen.calls.is_empty(), "the consumer made no call");
        seen.calls.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

// === impl Relaying ===

impl Relaying {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> hyper::Result<Response<Full<bytes::Bytes>>> {
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        // The relay compares texts, and connects to another host.
        for name in [header::ACCEPT_ENCODING, header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
            headers.remove(name);
        }
        let body = body.collect().await?.to_bytes();
        let answer = self.ask(&headers, &body).await;
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        Ok(response)
    }

    /// Asks the node before and after the proxy, and again if the node's answer changed in between.
    async fn ask(&self, headers: &HeaderMap, body: &bytes::Bytes) -> client::Response {
        let calls: Vec<Call> = each(body);
        for call in &calls {
            *self.seen.lock().unwrap().calls.entry(call.method.clone()).or_default() += 1;
        }
        let ask = async |client: &Client| {
            client::Response::of(client.post().headers(headers.clone()).body(body.clone())).await
        };
        if calls.iter().any(|call| call.method.starts_with("eth_send")) {
            return ask(&self.proxy).await;
        }
        let truth = async || match &calls[..] {
            [call] if call.method.starts_with("debug_getRaw") => self.encode(call).await,
            _ => outcomes(&ask(&self.node).await),
        };
        loop {
            let before = truth().await;
            let answer = ask(&self.proxy).await;
            let got = outcomes(&answer);
            if got == before {
                return answer;
            }
            if before == truth().await {
                let difference = format!("{body:?}\n  the node  {before:?}\n  the proxy {got:?}");
                self.seen.lock().unwrap().differences.push(difference);
                return answer;
            }
        }
    }

    /// Encodes a header or the receipts of a block from the node's JSON, because anvil has no raw form of them.
    async fn encode(&self, call: &Call) -> Outcomes {
        let hash = &call.params[0];
        let raw = if call.method == "debug_getRawHeader" {
            let block = self.node.ask("eth_getBlockByHash", json!([hash, false])).await.unwrap();
            let block: Block = serde_json::from_str(&block).unwrap();
            json!(Bytes::from(alloy_rlp::encode(&block.header.inner)))
        } else {
            assert_eq!(call.method, "debug_getRawReceipts");
            let receipts = self.node.ask("eth_getBlockReceipts", json!([hash])).await.unwrap();
            let receipts: Vec<TransactionReceipt> = serde_json::from_str(&receipts).unwrap();
            let raw = |receipt: TransactionReceipt| receipt.into_primitives_receipt().inner.encoded_2718();
            json!(receipts.into_iter().map(raw).map(Bytes::from).collect::<Vec<_>>())
        };
        [(call.id.to_string(), [Some(raw.to_string()), None])].into()
    }
}

/// Results and errors by id.
type Outcomes = BTreeMap<String, [Option<String>; 2]>;

/// Reads one object, or an array of objects.
fn each<T: DeserializeOwned>(body: &bytes::Bytes) -> Vec<T> {
    let read = if body.starts_with(b"[") {
        serde_json::from_slice(body)
    } else {
        serde_json::from_slice(body).map(|one| vec![one])
    };
    read.unwrap_or_else(|error| panic!("{error}: {body:?}"))
}

/// Returns the exact texts of result and error by id.
fn outcomes(answer: &client::Response) -> Outcomes {
    let text = |raw: Option<Box<RawValue>>| raw.map(|raw| raw.get().to_owned());
    let replies = each::<Reply>(&answer.body).into_iter();
    replies.map(|reply| (reply.id.to_string(), [text(reply.result), text(reply.error)])).collect()
}
