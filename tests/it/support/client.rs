//! Well-behaved and misbehaving clients of the proxy.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use reqwest::{
    RequestBuilder, StatusCode,
    header::{HeaderMap, HeaderName},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time,
};

use super::{authority::Authority, proxy::Proxy};

/// Timeout of every client operation.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client that sends calls over HTTP.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A connection with raw reads and writes.
pub struct Raw<S = TcpStream>(pub S);

pub fn http(proxy: &Proxy) -> Client {
    at(&proxy.url())
}

pub fn at(url: &str) -> Client {
    Client { http: plain_client(|builder| builder), url: url.to_owned() }
}

/// Returns a client that speaks HTTP/2 without an upgrade (h2c with prior knowledge).
pub fn http2(proxy: &Proxy) -> Client {
    http2_at(&proxy.url())
}

pub fn http2_at(url: &str) -> Client {
    Client { http: plain_client(reqwest::ClientBuilder::http2_prior_knowledge), url: url.to_owned() }
}

/// Returns a client that connects from this local address.
pub fn from(address: IpAddr, url: &str) -> Client {
    Client { http: plain_client(|builder| builder.local_address(address)), url: url.to_owned() }
}

/// Returns a TLS client that trusts this authority and speaks HTTP/2 if the server offers it.
pub fn https(address: SocketAddr, authority: &Authority) -> Client {
    let http = plain_client(|builder| builder.tls_certs_only([authority.certificate()]));
    Client { http, url: format!("https://{address}") }
}

/// Same as [`https`], but with HTTP/1.1 only.
pub fn https1(address: SocketAddr, authority: &Authority) -> Client {
    let http = plain_client(|builder| builder.http1_only().tls_certs_only([authority.certificate()]));
    Client { http, url: format!("https://{address}") }
}

/// How long a client keeps an idle connection: shorter than the server keeps one on which nothing was sent. reqwest opens
/// more connections than it needs, and a request on one that the server is closing would fail.
const IDLE: Duration = Duration::from_secs(5);

#[expect(clippy::disallowed_methods, reason = "a client for tests, with a time-out")]
fn plain_client(change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> reqwest::Client {
    // reqwest needs a crypto provider even for plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    change(reqwest::Client::builder().timeout(PATIENCE).pool_idle_timeout(IDLE).no_proxy()).build().unwrap()
}

// === impl Client ===

impl Client {
    pub async fn get(&self, url: &str) -> Response {
        Response::of(self.http.get(url)).await
    }

    /// Returns a POST request that the caller completes.
    pub fn post(&self) -> RequestBuilder {
        self.http.post(&self.url)
    }

    pub fn request(&self, method: reqwest::Method) -> RequestBuilder {
        self.http.request(method, &self.url)
    }

    /// Sends a body unchanged.
    pub async fn send(&self, body: impl Into<reqwest::Body>) -> Response {
        Response::of(self.post().header("content-type", "application/json").body(body)).await
    }

    pub async fn call(&self, method: &str, params: Value) -> Response {
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()).await
    }

    /// Calls a method and returns the text of the result, or of the error object.
    pub async fn ask(&self, method: &str, params: Value) -> Result<String, String> {
        self.call(method, params).await.outcome()
    }
}

// === impl Response ===

impl Response {
    pub async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, body: response.bytes().await.unwrap() }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the raw text of `result` or of `error`, exactly as in the body.
    pub fn outcome(&self) -> Result<String, String> {
        let answers = holdfast::jsonrpc::read_answers(&self.body).unwrap();
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        match answers.first().and_then(|answer| answer.answer.as_ref()).unwrap() {
            holdfast::jsonrpc::Answer::Result(result) => Ok(text(result)),
            holdfast::jsonrpc::Answer::Error(error) => Err(text(error)),
        }
    }

    /// Returns the code of the error object.
    pub fn code(&self) -> Option<i64> {
        self.json()["error"]["code"].as_i64()
    }

    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

// === impl Raw ===

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub async fn write(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    /// Sends one call and reads its answer.
    pub async fn call(&mut self, method: &str) -> Response {
        self.write(post(&call(method))).await;
        self.response().await
    }

    /// Reads one complete response and no byte of the next.
    pub async fn response(&mut self) -> Response {
        time::timeout(PATIENCE, self.read_response())
            .await
            .expect("an answer arrives")
            .expect("the connection stays open until the answer is complete")
    }

    async fn read_response(&mut self) -> io::Result<Response> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
        let headers: HeaderMap = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (HeaderName::try_from(name).unwrap(), value.parse().unwrap()))
            .collect();
        let length = headers.get("content-length").map_or("0", |length| length.to_str().unwrap());
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).await?;
        Ok(Response { status, headers, body: body.into() })
    }

    /// Reads until the other side closes.
    pub async fn read_to_end(&mut self) -> String {
        let mut read = Vec::new();
        // Ignores an error: a peer that closes with unread bytes resets the connection, and the bytes before the
        // reset are enough.
        let _ = time::timeout(PATIENCE, self.0.read_to_end(&mut read)).await.expect("the other side closes");
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Reads until `text` has arrived `times` times.
    pub async fn read_until(&mut self, text: &str, times: usize) -> String {
        let mut read = Vec::new();
        let enough = |read: &[u8]| String::from_utf8_lossy(read).matches(text).count() >= times;
        while !enough(&read) {
            let mut piece = vec![0; 65536];
            let count =
                time::timeout(PATIENCE, self.0.read(&mut piece)).await.expect("an answer arrives").unwrap();
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(read).unwrap()
    }
}

/// Returns an HTTP/1.1 request with this body.
pub fn post(body: &str) -> String {
    format!("{}{body}", post_head(body.len()))
}

/// Returns the head of an HTTP/1.1 request for a body of this length.
pub fn post_head(length: usize) -> String {
    format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Returns the text of a call without params.
pub fn call(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#)
}

/// Returns a sample, `name` or `name{label="value"}`, from `/metrics` of an admin listener, or 0 if it does not exist
/// yet.
pub async fn metric(admin_url: &str, sample: &str) -> u64 {
    let text = at(admin_url).get(&format!("{admin_url}/metrics")).await;
    let line = text.text().lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}
