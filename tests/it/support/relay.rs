//! A relay between a consumer and the proxy. It compares every answer of the proxy with the node's own answer.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
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
    method: String,
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
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
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
    async fn ask(&self, headers: &HeaderMap, body: &Bytes) -> client::Response {
        let methods: Vec<String> = each::<Call>(body).into_iter().map(|call| call.method).collect();
        for method in &methods {
            *self.seen.lock().unwrap().calls.entry(method.clone()).or_default() += 1;
        }
        let ask = async |client: &Client| {
            client::Response::of(client.post().headers(headers.clone()).body(body.clone())).await
        };
        if methods.iter().any(|method| method.starts_with("eth_send")) {
            return ask(&self.proxy).await;
        }
        loop {
            let before = outcomes(&ask(&self.node).await);
            let answer = ask(&self.proxy).await;
            let got = outcomes(&answer);
            if got == before {
                return answer;
            }
            if before == outcomes(&ask(&self.node).await) {
                let difference = format!("{body:?}\n  the node  {before:?}\n  the proxy {got:?}");
                self.seen.lock().unwrap().differences.push(difference);
                return answer;
            }
        }
    }
}

/// Reads one object, or an array of objects.
fn each<T: DeserializeOwned>(body: &Bytes) -> Vec<T> {
    let read = if body.starts_with(b"[") {
        serde_json::from_slice(body)
    } else {
        serde_json::from_slice(body).map(|one| vec![one])
    };
    read.unwrap_or_else(|error| panic!("{error}: {body:?}"))
}

/// Returns the exact texts of result and error by id.
fn outcomes(answer: &client::Response) -> BTreeMap<String, [Option<String>; 2]> {
    let text = |raw: Option<Box<RawValue>>| raw.map(|raw| raw.get().to_owned());
    let replies = each::<Reply>(&answer.body).into_iter();
    replies.map(|reply| (reply.id.to_string(), [text(reply.result), text(reply.error)])).collect()
}
