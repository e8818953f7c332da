//! The transport that sends calls to a node over HTTP.

use std::{
    error::Error,
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use http_body::Body;
use http_body_util::BodyExt;
use reqwest::{Client, Request};
use tower::Service;

use super::{
    super::{Answers, Call, Calls, Config, UpstreamError},
    EndpointAddress, EndpointError,
    cause::{causes, root_cause},
    client::build_client,
    redact::{self, Secrets},
    wire::{self, RequestIds, WireRequest, WireResponse},
};
use crate::{
    blocking,
    budget::{ByteBudget, ByteLease, LeasedBuffer},
    context::CallContext,
};

/// Maximum number of bytes allocated for an announced length before the bytes arrive.
const MAX_PREALLOCATION: usize = 1 << 20;

/// Maximum length of an answer that is searched for secrets on the thread that reads it. Longer answers are searched
/// on another thread.
const INLINE_REDACTION_LIMIT: usize = 64 * 1024;

/// A node reached over HTTP/1.1 or, where it is offered, HTTP/2.
#[derive(Clone, Debug)]
pub struct HttpTransport(Arc<HttpTransportInner>);

struct HttpTransportInner {
    client: Client,
    /// The request without its body, built once. reqwest turns a user and password in the URL into a header.
    head: Request,
    secrets: Secrets,
    ids: RequestIds,
    timeout: Duration,
    max_answer: usize,
    budget: ByteBudget,
}

// === impl HttpTransport ===

impl HttpTransport {
    /// Prepares a client for `address`; does not connect yet.
    ///
    /// # Errors
    /// If the TLS setup fails.
    pub fn try_new(
        address: &EndpointAddress,
        config: &Config,
        budget: ByteBudget,
    ) -> Result<Self, EndpointError> {
        let headers = address.headers();
        let unusable = |error: reqwest::Error| EndpointError::Client(root_cause(&error));
        let client = build_client(address.url(), headers.clone(), config).map_err(unusable)?;
        let head = client.post(address.url().as_url().clone()).build().map_err(unusable)?;
        let mut secrets = Secrets::from(address);
        secrets.add_headers(head.headers());
        Ok(Self(Arc::new(HttpTransportInner {
            client,
            head,
            secrets,
            ids: RequestIds::default(),
            timeout: config.timeout,
            max_answer: usize::try_from(config.max_answer.as_u64()).unwrap_or(usize::MAX),
            budget,
        })))
    }
}

impl Service<Calls> for HttpTransport {
    type Response = Answers;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Answers, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, calls: Calls) -> Self::Future {
        let transport = self.0.clone();
        Box::pin(async move {
            let mut outgoing = WireRequest::write(&calls, &transport.ids);
            let body = std::mem::take(&mut outgoing.body);
            // The first call carries the trace context of the request.
            let mut trace_headers = HeaderMap::new();
            if let Some(call) = calls.first() {
                call.origin.tell(&mut trace_headers);
                if call.requirements.closes {
                    trace_headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
            }
            let (incoming, lease) = transport.send(body, trace_headers, calls.len() > 1).await?;
            // The response's bytes stay in memory until the answers are checked, and the lease counts them until then.
            if let Some(answer_lease) = calls.first().and_then(|call| call.answer_lease.as_ref()) {
                answer_lease.hold(lease);
            }
            let answers = outgoing.read(&incoming).map_err(|error| transport.secrets.redact_error(error))?;
            let is_searched = |call: &Call| !redact::is_content(call.method.as_str());
            let is_long = incoming.body.len() > INLINE_REDACTION_LIMIT
                && transport.secrets.has_long()
                && calls.iter().any(is_searched);
            let redact = move || {
                let redacted = answers.into_iter().zip(&calls).map(|(answer, call)| match answer {
                    Ok(answer) => Ok(transport.secrets.redact_answer(call.method.as_str(), answer)),
                    Err(error) => Err(transport.secrets.redact_error(error)),
                });
                redacted.collect()
            };
            if !is_long {
                return Ok(redact());
            }
            blocking::run(redact).await.map_err(|_| UpstreamError::Abandoned)
        })
    }
}

// === impl HttpTransportInner ===

impl fmt::Debug for HttpTransportInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request head may hold a key.
        f.debug_struct("HttpTransportInner").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl HttpTransportInner {
    /// Sends a body, with `trace_headers` in addition to the fixed headers, and reads the response.
    async fn send(
        &self,
        body: Bytes,
        trace_headers: HeaderMap,
        is_batch: bool,
    ) -> Result<(WireResponse, ByteLease), UpstreamError> {
        let mut request = self.head.try_clone().expect("a request without a body can be cloned");
        *request.body_mut() = Some(body.into());
        request.headers_mut().extend(trace_headers);
        let response = self.client.execute(request).await.map_err(|error| self.error(error))?;
        let status = response.status();
        let retry_after = wire::retry_after(response.headers());
        let (body, lease) = self.read(response.into(), is_batch).await?;
        Ok((WireResponse { status, retry_after, body }, lease))
    }

    /// Reads the body within the limits on its size.
    async fn read(
        &self,
        mut unread: reqwest::Body,
        is_batch: bool,
    ) -> Result<(Bytes, ByteLease), UpstreamError> {
        let too_large = || UpstreamError::TooLarge { limit: self.max_answer as u64, is_batch };
        let announced = unread.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        if announced.is_some_and(|length| length > self.max_answer) {
            return Err(too_large());
        }
        let mut lease = self.budget.lease(CallContext::client());
        let mut body = LeasedBuffer::new(self.max_answer);
        let busy = |_| UpstreamError::Busy;
        body.reserve(announced.unwrap_or(0).min(MAX_PREALLOCATION), &mut lease).map_err(busy)?;
        while let Some(frame) = unread.frame().await {
            // Ignores trailers.
            let Ok(chunk) = frame.map_err(|error| self.error(error))?.into_data() else { continue };
            if body.len() + chunk.len() > self.max_answer {
                return Err(too_large());
            }
            body.append(&chunk, &mut lease).map_err(busy)?;
        }
        Ok((body.finish(&mut lease), lease))
    }

    /// Converts an error of reqwest, without its URL.
    fn error(&self, error: reqwest::Error) -> UpstreamError {
        let error = error.without_url();
        if error.is_connect() {
            UpstreamError::Connect(root_cause(&error))
        } else if error.is_timeout() {
            UpstreamError::TimedOut { after: self.timeout }
        } else if error.is_body() && !causes(&error).any(<dyn Error>::is::<hyper::Error>) {
            // hyper has read the body, so it could not be decompressed.
            UpstreamError::Decompression(root_cause(&error))
        } else {
            UpstreamError::Disconnected(root_cause(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time,
    };
    use tower::ServiceExt;

    use super::*;
    use crate::{
        devchain::{self, DevChain, DevNode},
        jsonrpc::{Answer, Params},
        secret::Secret,
        upstream::{EndpointConfig, call::AnswerLease},
    };

    /// Answers one request, and returns its lines in sorted order.
    async fn overhear(listener: &TcpListener) -> Vec<String> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n{}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        let mut lines: Vec<_> = String::from_utf8(request).unwrap().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    fn transport(endpoint: &EndpointConfig) -> HttpTransport {
        let address = EndpointAddress::resolve(endpoint).unwrap();
        HttpTransport::try_new(&address, &Config::default(), ByteBudget::new(1 << 20, None)).unwrap()
    }

    #[tokio::test]
    async fn request_has_the_configured_headers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let host = format!("host: {at}");
        for (url, headers, expected) in [
            (
                format!("http://{at}"),
                &[][..],
                &["POST / HTTP/1.1", &host, "traceparent: 00-1-2-01", "content-type: application/json"][..],
            ),
            (
                format!("http://user:pa%20ss@{at}/v3/KEY?a=b&c=%20#d"),
                &["x-key"],
                &["POST /v3/KEY?a=b&c=%20 HTTP/1.1", "authorization: Basic dXNlcjpwYSBzcw==", "x-key: mine"],
            ),
            (
                format!("http://{at}/"),
                &["host", "user-agent", "authorization"],
                &["host: mine", "user-agent: mine", "authorization: mine"],
            ),
        ] {
            let headers = headers.iter().map(|name| ((*name).to_owned(), Secret::Plain("mine".to_owned())));
            let HttpTransport(transport) =
                transport(&EndpointConfig { headers: headers.collect(), ..EndpointConfig::at(&url) });
            let trace_headers =
                HeaderMap::from_iter([(crate::trace::TRACEPARENT, HeaderValue::from_static("00-1-2-01"))]);
            let body = Bytes::from_static(b"{}");
            let (lines, answered) =
                tokio::join!(overhear(&listener), transport.send(body.clone(), trace_headers, false));
            assert_eq!(answered.unwrap().0.body, body);
            for line in expected {
                assert!(lines.iter().any(|sent| sent == line), "{line} is not in {lines:?}");
            }
            let names: Vec<_> =
                lines.iter().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
            let mut once = names.clone();
            once.dedup();
            assert_eq!(names, once, "a header was sent twice");
        }
    }

    #[tokio::test]
    async fn answer_before_the_whole_request_was_read_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let HttpTransport(transport) = transport(&EndpointConfig::at(&url));
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                stream.read_buf(&mut head).await.unwrap();
                stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                open.push(stream);
            }
        });
        // The first body is larger than the socket buffers.
        for body in [vec![b' '; 32 << 20], b"{}".to_vec()] {
            let sent = transport.send(body.into(), HeaderMap::new(), false);
            let (response, _) =
                time::timeout(Duration::from_secs(5), sent).await.expect("an answer").unwrap();
            assert_eq!(response.status, 413);
        }
    }

    #[tokio::test]
    async fn answer_bytes_are_counted_until_the_check_is_done() {
        let chain = DevChain::new(devchain::Config::default());
        // Makes the block larger than the amount that the budget does not count.
        chain.mine(500);
        let node = DevNode::start(chain, ([127, 0, 0, 2], 0).into()).await.unwrap();
        let address = EndpointAddress::resolve(&EndpointConfig::at(node.url())).unwrap();
        let budget = ByteBudget::new(1 << 20, None);
        let transport = HttpTransport::try_new(&address, &Config::default(), budget.clone()).unwrap();
        let answer_lease = AnswerLease::default();
        let mut call = Call::new("eth_getBlockByNumber", Params::from_own(r#"["latest",true]"#));
        call.set_answer_lease(&answer_lease);
        let answers = transport.oneshot(vec![call]).await.unwrap();
        assert!(matches!(answers[..], [Ok(Answer::Result(_))]));
        assert!(budget.lease(None).grow(1 << 20).is_err(), "the answer still counts");
        drop(answer_lease);
        assert!(budget.lease(None).grow(1 << 20).is_ok(), "the lease has ended");
    }
}
