//! A client of the demo's own listener.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{self, Instant},
};

/// Time limit for a call. Answers arrive within milliseconds, so only a stopped process takes longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A call of the demo and the answer to it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The method.
    pub method: &'static str,
    /// The parameters, as they were sent.
    pub params: Value,
    /// The header `cache-status` of the response.
    pub cache_status: String,
    /// The time from the request to the end of the response, on an open connection.
    pub took: Duration,
    /// The result, as it was received.
    pub result: Value,
}

/// Why a call of the demo has no result.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No answer arrived.
    #[error("no answer to {method}: {source}")]
    NoAnswer {
        /// The method.
        method: &'static str,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer has no result.
    #[error("no result of {method}: {answer}")]
    NoResult {
        /// The method.
        method: &'static str,
        /// The answer.
        answer: Value,
    },
}

/// A client with one connection to the proxy. Connects when it is first used.
#[derive(Debug)]
pub(super) struct Client {
    proxy: SocketAddr,
    connection: Option<SendRequest<Full<Bytes>>>,
}

// === impl Exchange ===

impl Exchange {
    /// Returns the text of a member of the result, such as `hash`.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.result[member].as_str()
    }

    /// Returns the number in a member of the result, such as `number`.
    pub fn number(&self, member: &str) -> Option<u64> {
        quantity(&self.result[member])
    }
}

/// Returns the value of a JSON-RPC quantity.
pub(super) fn quantity(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

// === impl Client ===

impl Client {
    pub(super) fn new(proxy: SocketAddr) -> Self {
        Self { proxy, connection: None }
    }

    /// Sends one call.
    ///
    /// # Errors
    /// If no answer arrives, or the answer is an error.
    pub(super) async fn ask(&mut self, method: &'static str, params: Value) -> Result<Exchange, DemoError> {
        let no_answer = |source| DemoError::NoAnswer { method, source };
        let sent = time::timeout(TIMEOUT, self.send(method, &params)).await;
        let (cache_status, took, body) = sent.map_err(|error| no_answer(error.into()))?.map_err(no_answer)?;
        let mut answer: Value = serde_json::from_slice(&body).map_err(|error| no_answer(error.into()))?;
        match answer.get_mut("result").map(Value::take) {
            Some(result) => Ok(Exchange { method, params, cache_status, took, result }),
            None => Err(DemoError::NoResult { method, answer }),
        }
    }

    async fn send(
        &mut self,
        method: &str,
        params: &Value,
    ) -> Result<(String, Duration, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let mut connection = self.connection.take();
        if let Some(open) = &mut connection
            && open.ready().await.is_err()
        {
            connection = None;
        }
        let mut connection = match connection {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.proxy).await?;
                stream.set_nodelay(true)?;
                let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(driver);
                sender
            }
        };
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Request::post("/")
            .header(header::HOST, self.proxy.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(call.to_string()))?;
        let begun = Instant::now();
        let (parts, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let took = begun.elapsed();
        self.connection = Some(connection);
        let cache_status = parts.headers.get("cache-status").map(|status| status.to_str());
        Ok((cache_status.transpose()?.unwrap_or_default().to_owned(), took, body))
    }
}
