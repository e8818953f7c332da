//! Once a client has gone, no further call of its batch begins.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use holdfast::devchain::{DevChain, NodeResponse};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::support::{
    client::{self, Raw},
    eventually,
    method::BLOCK_BY_HASH,
    proxy::{self, Proxy},
    upstream::{self, NODES},
};

/// Number of reads in a batch that are not cached.
const READS: u64 = 50;

/// Maximum number of concurrent upstream calls. The other fetches wait for these.
const SLOTS: usize = 4;

/// A node that holds reads of blocks by hash until its gate opens.
#[derive(Clone)]
struct GatedNode {
    chain: DevChain,
    address: SocketAddr,
    begun: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

// === impl GatedNode ===

impl GatedNode {
    async fn start() -> Self {
        let chain = upstream::devchain().blocks(READS as usize + 10, 1).chain();
        let listener = TcpListener::bind(SocketAddr::from((NODES, 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let node = Self { chain, address, begun: Arc::default(), gate: Arc::new(Semaphore::new(0)) };
        let serving = node.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let node = serving.clone();
                let service = service_fn(move |request| node.clone().answer(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        node
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if String::from_utf8_lossy(&body).contains(BLOCK_BY_HASH) {
            self.begun.fetch_add(1, Relaxed);
            self.gate.acquire().await.unwrap().forget();
        }
        match self.chain.serve(body).await {
            NodeResponse::Reply { body, .. } => Ok(Response::new(Full::new(body))),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of calls for blocks by hash that have reached the node.
    fn begun(&self) -> usize {
        self.begun.load(Relaxed)
    }

    async fn until_begun(&self, count: usize) {
        eventually("calls at the node", async || self.begun() >= count).await;
    }

    /// Answers the waiting calls and all later ones.
    fn open(&self) {
        self.gate.add_permits(1 << 16);
    }

    fn read(&self, number: u64) -> Value {
        let hash = format!("{:#x}", self.chain.hash_at(number).unwrap());
        json!({ "jsonrpc": "2.0", "id": number, "method": BLOCK_BY_HASH, "params": [hash, true] })
    }

    fn batch(&self) -> String {
        json!((1..=READS).map(|number| self.read(number)).collect::<Vec<_>>()).to_string()
    }

    /// Starts a proxy in front of this node with `slots` upstream calls at a time.
    async fn proxy(&self, slots: usize) -> Proxy {
        let url = format!("http://{}", self.address);
        let proxy = proxy::new().upstream_url(&url).config(|config| {
            config.upstream.max_in_flight = slots;
            config.upstream.max_wait = client::PATIENCE;
            config.upstream.timeout = client::PATIENCE;
            config.call_timeout = client::PATIENCE * 2;
        });
        proxy.run().await
    }
}

async fn until_in_flight(proxy: &Proxy, requests: u64) {
    eventually("requests in flight", async || proxy.metric("holdfast_requests_in_flight").await == requests)
        .await;
}

/// Opens the gate and reads an uncached block as another client. This read queues behind the fetches that started
/// before. Returns the number of calls that have reached the node since, not counting this read.
async fn calls_after(node: &GatedNode, proxy: &Proxy) -> usize {
    let before = node.begun();
    node.open();
    let last = client::http(proxy).send(node.read(READS + 1).to_string()).await;
    assert_eq!(last.json()["result"]["number"], format!("{:#x}", READS + 1));
    node.begun() - before - 1
}

#[tokio::test]
async fn a_closed_connection_ends_the_fetches_of_its_batch() {
    let node = GatedNode::start().await;
    let proxy = node.proxy(SLOTS).await;
    let mut client = Raw::connect(proxy.address()).await;
    client.write(client::post(&node.batch())).await;
    node.until_begun(SLOTS).await;
    until_in_flight(&proxy, 1).await;
    drop(client);
    until_in_flight(&proxy, 0).await;
    assert_eq!(node.begun(), SLOTS);
    assert_eq!(calls_after(&node, &proxy).await, 0);
    // Calls on the wire complete, and their blocks are stored.
    let stored = client::http(&proxy).send(node.read(1).to_string()).await;
    assert!(stored.header("cache-status").unwrap().contains("hit"), "{stored:?}");
}

#[tokio::test]
async fn a_reset_stream_ends_the_fetches_of_its_batch() {
    let node = GatedNode::start().await;
    let proxy = node.proxy(SLOTS).await;
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post("http://localhost/").header("content-type", "application/json");
    let mut send = send.ready().await.unwrap();
    let (response, mut stream) = send.send_request(request.body(()).unwrap(), false).unwrap();
    stream.send_data(Bytes::from(node.batch()), true).unwrap();
    node.until_begun(SLOTS).await;
    stream.send_reset(h2::Reason::CANCEL);
    until_in_flight(&proxy, 0).await;
    assert_eq!(node.begun(), SLOTS);
    assert_eq!(calls_after(&node, &proxy).await, 0);
    assert!(response.await.is_err());
    connection.abort();
}

#[tokio::test]
async fn a_fetch_goes_on_for_another_client() {
    let node = GatedNode::start().await;
    // One call is on the wire; the shared fetch waits behind it.
    let proxy = node.proxy(1).await;
    let others = client::http(&proxy);
    let first = tokio::spawn({
        let (others, read) = (others.clone(), node.read(1).to_string());
        async move { others.send(read).await }
    });
    node.until_begun(1).await;
    let mut gone = Raw::connect(proxy.address()).await;
    gone.write(client::post(&node.read(2).to_string())).await;
    until_in_flight(&proxy, 2).await;
    let waits = tokio::spawn({
        let (others, read) = (others.clone(), node.read(2).to_string());
        async move { others.send(read).await }
    });
    until_in_flight(&proxy, 3).await;
    drop(gone);
    until_in_flight(&proxy, 2).await;
    node.open();
    assert_eq!(first.await.unwrap().json()["result"]["number"], "0x1");
    assert_eq!(waits.await.unwrap().json()["result"]["number"], "0x2");
    assert_eq!(node.begun(), 2);
}
