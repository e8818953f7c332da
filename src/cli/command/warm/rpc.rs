//! Calls to the client listener of an instance.

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::time;

use crate::{
    cli::{
        client::{Advice, InstanceClient},
        failure::Failure,
    },
    config::{Config, ENV_KEY},
};

/// Time limit of a request. It is longer than the time that the instance itself waits for its upstream.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Number of attempts to fetch one block, if the failures may be temporary.
pub(super) const ATTEMPTS: u32 = 5;

/// Wait after a reply with status 429 or 503 that has no `retry-after`.
pub(super) const USUAL_WAIT: Duration = Duration::from_secs(1);

pub(super) const BLOCK: &str = "eth_getBlockByNumber";
pub(super) const RECEIPTS: &str = "eth_getBlockReceipts";

const ADVICE: Advice = Advice {
    address: "use the URL of the client listener, with https:// if it speaks TLS (tls)",
    plain: "write the URL with http:// unless tls is set",
};

/// Client of the client listener.
pub(super) struct RpcClient {
    client: InstanceClient,
    /// Host and port, for messages.
    address: String,
    headers: HeaderMap,
}

/// Answer of the instance to a call.
pub(super) struct Reply {
    /// `None` for an error.
    pub(super) result: Option<Value>,
    pub(super) kept: Kept,
}

/// Whether the content of an answer is cached.
pub(super) enum Kept {
    /// Fetched now, with this many bytes.
    Fetched(u64),
    Present,
    /// Not cached, for this reason. An immediate retry would not help.
    No(String),
}

/// Reason why a call has no answer.
pub(super) enum Trouble {
    /// The instance or its upstream limits calls. All workers should wait.
    Limit(Duration, String),
    /// A failure that may be temporary.
    Failure(String),
    /// The instance does not answer.
    Unreachable(String),
    /// A failure that further calls would meet, too.
    Fatal(String),
}

// === impl RpcClient ===

impl RpcClient {
    /// Prepares a client for this URL, or else the default one, that sends this key.
    ///
    /// # Errors
    /// If the URL or the key is not valid, or TLS cannot be set up.
    pub(super) fn new(url: Option<&str>, key: Option<&str>) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::Other(format!("--url: {why}, such as http://127.0.0.1:8555"));
        let url = url.map_or_else(|| format!("http://{}", Config::default().listen), str::to_owned);
        // The URL may hold a key, so no message shows it.
        let url = Url::parse(&url).map_err(|_| bad("expected the URL of the client listener"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad("the scheme must be http or https"));
        }
        let mut headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if let Some(key) = key {
            let bad = || Failure::Other(format!("--key or {ENV_KEY} has characters that no header allows"));
            let mut bearer: HeaderValue = format!("Bearer {}", key.trim()).parse().map_err(|_| bad())?;
            bearer.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, bearer);
        }
        // A certificate seldom names loopback.
        let is_loopback = url.host_str().is_some_and(|host| {
            host == "localhost"
                || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        });
        // Plain HTTP needs no root certificates, and a small container has none.
        let any_certificate = is_loopback || url.scheme() == "http";
        let port = url.port_or_known_default().unwrap_or_default();
        let address = format!("{}:{port}", url.host_str().unwrap_or_default());
        Ok(Self { client: InstanceClient::new(url, TIMEOUT, any_certificate, ADVICE)?, address, headers })
    }

    /// Returns the number of the newest block.
    pub(super) async fn latest(&self) -> Result<u64, Failure> {
        let mut attempt = 1;
        loop {
            let (pause, why) = match self.call("eth_blockNumber", json!([])).await {
                Ok(Reply { result, .. }) => {
                    let number = result.as_ref().and_then(|result| result.as_str()?.strip_prefix("0x"));
                    let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
                    return number.ok_or_else(|| Failure::Other("the newest block has no number".to_owned()));
                }
                Err(Trouble::Limit(wait, why)) => (wait, why),
                Err(Trouble::Failure(why) | Trouble::Unreachable(why)) => (USUAL_WAIT, why),
                Err(Trouble::Fatal(why)) => return Err(Failure::Other(why)),
            };
            if attempt == ATTEMPTS {
                return Err(Failure::Other(why));
            }
            attempt += 1;
            time::sleep(pause).await;
        }
    }

    /// Sends one call, and reads from its response whether the content is cached.
    pub(super) async fn call(&self, method: &str, params: Value) -> Result<Reply, Trouble> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let sent = self.client.send(Method::POST, "", self.headers.clone(), call).await;
        let response = sent.map_err(|why| Trouble::Unreachable(format!("{}: {why}", self.address)))?;
        let status = response.status;
        let reply: Option<Value> = serde_json::from_slice(&response.body).ok();
        let error = reply.as_ref().and_then(|reply| reply.get("error"));
        if error.is_some() || status != StatusCode::OK {
            let why = error.and_then(|error| error["message"].as_str()).map_or_else(
                || format!("{} answers with HTTP status {status}; {}", self.address, ADVICE.address),
                str::to_owned,
            );
            return match status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    let wait = response.retry_after().unwrap_or(USUAL_WAIT);
                    Err(Trouble::Limit(wait.max(USUAL_WAIT), why))
                }
                status if status.is_server_error() => Err(Trouble::Failure(why)),
                // Without this method, no block can be fetched.
                StatusCode::OK if method == BLOCK && error.is_some_and(|error| error["code"] == -32601) => {
                    Err(Trouble::Fatal(why))
                }
                StatusCode::OK => Ok(Reply { result: None, kept: Kept::No(why) }),
                _ => Err(Trouble::Fatal(why)),
            };
        }
        let Some(cache_status) = response.headers.get("cache-status").and_then(|status| status.to_str().ok())
        else {
            let why = format!("{}: the answer has no cache-status, so this is not Holdfast", self.address);
            return Err(Trouble::Fatal(format!("{why}; {}", ADVICE.address)));
        };
        let kept = if cache_status.contains("hit") || cache_status.contains("fwd=stale") {
            Kept::Present
        } else if cache_status.contains("stored") {
            Kept::Fetched(response.body.len() as u64)
        } else if cache_status.contains("collapsed") && method != "eth_blockNumber" {
            // Another call had begun the fetch; the next call shows whether the content is cached.
            return Err(Trouble::Failure("another client fetches this block".to_owned()));
        } else {
            Kept::No(
                "the answer cannot be verified, or the cache has no room for it; see the log of the instance"
                    .to_owned(),
            )
        };
        Ok(Reply { result: reply.map(|mut reply| reply["result"].take()), kept })
    }
}
