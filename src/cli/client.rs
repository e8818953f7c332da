//! HTTP client of a running instance.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, Url};

use super::failure::Failure;
use crate::{
    display::Time,
    upstream::{causes, instance_client, is_no_tls, root_cause},
};

/// Client of one listener of an instance. Connections are reused.
pub(super) struct InstanceClient {
    client: Client,
    url: Url,
    timeout: Duration,
    advice: Advice,
}

/// What to do if a listener cannot be reached.
#[derive(Clone, Copy)]
pub(super) struct Advice {
    /// If it does not speak HTTP.
    pub(super) address: &'static str,
    /// If it does not speak TLS.
    pub(super) plain: &'static str,
}

/// Response of an instance.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

// === impl InstanceClient ===

impl InstanceClient {
    /// Prepares a client for this URL of a listener, with a time limit for each request. `any_certificate` accepts every
    /// certificate of the listener.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub(super) fn new(
        url: Url,
        timeout: Duration,
        any_certificate: bool,
        advice: Advice,
    ) -> Result<Self, Failure> {
        let client = instance_client(timeout, any_certificate)
            .map_err(|error| Failure::Other(format!("cannot set up TLS: {}", root_cause(&error))))?;
        Ok(Self { client, url, timeout, advice })
    }

    /// Sends a request to a path of the listener.
    ///
    /// # Errors
    /// If there is no response; the message gives advice, and does not name the URL.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: impl Into<reqwest::Body>,
    ) -> Result<Response, String> {
        let url = self.url.join(path).map_err(|error| error.to_string())?;
        let is_tls = url.scheme() == "https";
        let sent = self.client.request(method, url).headers(headers).body(body).send();
        let response = sent.await.map_err(|error| self.explained(&error.without_url(), is_tls))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|error| self.explained(&error.without_url(), is_tls))?;
        Ok(Response { status, headers, body })
    }

    /// Replaces errors of the HTTP library by advice to the user.
    fn explained(&self, error: &reqwest::Error, is_tls: bool) -> String {
        let Advice { address, plain } = self.advice;
        if error.is_timeout() {
            return format!("no answer within {}", Time(self.timeout));
        }
        if is_tls {
            return match causes(error).any(is_no_tls) {
                true => format!("this address does not speak TLS; {plain}"),
                false => root_cause(error).to_string(),
            };
        }
        match causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
            Some(error) if error.is_parse() => format!("this address does not speak HTTP; {address}"),
            Some(error) if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
                format!("the connection was closed without an answer; {address}")
            }
            _ => root_cause(error).to_string(),
        }
    }
}

// === impl Response ===

impl Response {
    /// Returns the value of the header `retry-after`.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let after = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        after.parse().ok().map(Duration::from_secs)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
