//! The transport that sends calls to a node over HTTP.

use std::{
    error::Error,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use reqwest::Client;
use tower::{BoxError, Service};

use super::{
    super::{Answers, Call, Calls, Config, UpstreamError},
    EndpointAddress, EndpointError, EndpointUrl,
    cause::{causes, root_cause},
    client::build_client,
    direct::{DirectClient, SendError, decompress},
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

#[derive(Debug)]
struct HttpTransportInner {
    client: HttpClient,
    secrets: Secrets,
    ids: RequestIds,
    timeout: Duration,
    max_answer: usize,
    budget: ByteBudget,
}

/// The client that sends requests.
#[derive(Debug)]
enum HttpClient {
    /// Plain HTTP/1.1, without a proxy.
    Direct(Box<DirectClient>),
    /// Over TLS, or by way of a proxy.
    Reqwest(Client, EndpointUrl),
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
        let client = build_client(address.url(), headers.clone(), config)
            .map_err(|error| EndpointError::Client(root_cause(&error)))?;
        let mut secrets = Secrets::from(address);
        let mut direct = None;
        // reqwest builds the request, because it turns a user and password in the URL into a header.
        if let Ok(sent) = client.post(address.url().as_url().clone()).build() {
            secrets.add_headers(sent.headers());
            direct = DirectClient::try_new(&sent, address, config.connect_timeout);
        }
        Ok(Self(Arc::new(HttpTransportInner {
            client: direct.map_or_else(
                || HttpClient::Reqwest(client, address.url().clone()),
                |direct| HttpClient::Direct(Box::new(direct)),
            ),
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

impl HttpTransportInner {
    /// Sends a body, with `trace_headers` in addition to the fixed headers.
    async fn send(
        &self,
        body: Bytes,
        trace_headers: HeaderMap,
        is_batch: bool,
    ) -> Result<(WireResponse, ByteLease), UpstreamError> {
        match &self.client {
            HttpClient::Direct(direct) => {
                let (response, connection) =
                    direct.send(body, trace_headers).await.map_err(|failure| self.send_error(failure))?;
                let is_compressed = response.headers().contains_key(header::CONTENT_ENCODING);
                let received = if is_compressed {
                    let decompressed = decompress(response).await;
                    Box::pin(self.receive(decompressed, is_batch, |error| self.body_error(error))).await?
                } else {
                    self.receive(response, is_batch, |error| self.body_error(error.into())).await?
                };
                direct.release(connection);
                Ok(received)
            }
            HttpClient::Reqwest(client, url) => {
                let request = client.post(url.as_url().clone()).headers(trace_headers).body(body);
                let response = request.send().await.map_err(|error| self.reqwest_error(error))?;
                self.receive(response.into(), is_batch, |error| self.reqwest_error(error)).await
            }
        }
    }

    /// Reads a response; `to_error` converts errors of its body.
    async fn receive<B>(
        &self,
        response: Response<B>,
        is_batch: bool,
        to_error: impl Fn(B::Error) -> UpstreamError,
    ) -> Result<(WireResponse, ByteLease), UpstreamError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let status = response.status();
        let retry_after = wire::retry_after(response.headers());
        let (body, lease) = self.read(response.into_body(), is_batch, to_error).await?;
        Ok((WireResponse { status, retry_after, body }, lease))
    }

    /// Reads the body within the limits on its size.
    async fn read<B>(
        &self,
        mut unread: B,
        is_batch: bool,
        to_error: impl Fn(B::Error) -> UpstreamError,
    ) -> Result<(Bytes, ByteLease), UpstreamError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
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
            let Ok(chunk) = frame.map_err(&to_error)?.into_data() else { continue };
            if body.len() + chunk.len() > self.max_answer {
                return Err(too_large());
            }
            body.append(&chunk, &mut lease).map_err(busy)?;
        }
        Ok((body.finish(&mut lease), lease))
    }

    /// Converts an error of reqwest, without its URL.
    fn reqwest_error(&self, error: reqwest::Error) -> UpstreamError {
        let error = error.without_url();
        if error.is_connect() {
            UpstreamError::Connect(root_cause(&error))
        } else if error.is_timeout() {
            UpstreamError::TimedOut { after: self.timeout }
        } else if error.is_decode() {
            UpstreamError::Decompression(root_cause(&error))
        } else {
            UpstreamError::Disconnected(root_cause(&error))
        }
    }

    /// Converts an error that the direct client returns before it has a response.
    fn send_error(&self, failure: SendError) -> UpstreamError {
        match failure {
            SendError::Connect(error) => UpstreamError::Connect(root_cause(&*error)),
            SendError::Broken(error) => self.body_error(error.into()),
        }
    }

    /// Converts an error that the direct client returns while it sends a request or reads a response.
    fn body_error(&self, error: BoxError) -> UpstreamError {
        if !error.is::<hyper::Error>() {
            return UpstreamError::Decompression(root_cause(&*error));
        }
        let is_timeout = |cause: &(dyn Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        if causes(&*error).any(is_timeout) {
            UpstreamError::TimedOut { after: self.timeout }
        } else {
            UpstreamError::Disconnected(root_cause(&*error))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
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

    #[tokio::test]
    async fn both_transports_send_the_same_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let trace_headers =
            || HeaderMap::from_iter([(crate::trace::TRACEPARENT, HeaderValue::from_static("00-1-2-01"))]);
        for (url, headers) in [
            (format!("http://{at}"), &[][..]),
            (format!("http://user:pa%20ss@{at}/v3/KEY?a=b&c=%20#d"), &["x-key"]),
            (format!("http://{at}/"), &["host", "user-agent", "accept-encoding", "authorization"]),
        ] {
            let headers = headers.iter().map(|name| ((*name).to_owned(), Secret::Plain("mine".to_owned())));
            let endpoint = EndpointConfig { headers: headers.collect(), ..EndpointConfig::at(&url) };
            let (address, config) = (EndpointAddress::resolve(&endpoint).unwrap(), Config::default());
            let HttpTransport(transport) =
                HttpTransport::try_new(&address, &config, ByteBudget::new(1 << 20, None)).unwrap();
            let mut transport = Arc::into_inner(transport).unwrap();
            assert!(matches!(transport.client, HttpClient::Direct(_)));
            let body = Bytes::from_static(b"{}");
            let (directly, answered) =
                tokio::join!(overhear(&listener), transport.send(body.clone(), trace_headers(), false));
            assert_eq!(answered.unwrap().0.body, body);
            let client = build_client(address.url(), address.headers().clone(), &config).unwrap();
            transport.client = HttpClient::Reqwest(client, address.url().clone());
            let (otherwise, answered) =
                tokio::join!(overhear(&listener), transport.send(body.clone(), trace_headers(), false));
            assert_eq!(answered.unwrap().0.body, body);
            assert_eq!(directly, otherwise);
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
