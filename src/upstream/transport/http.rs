//! The leaf that asks a node over HTTP.

use std::{
    error::Error,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use reqwest::Client;
use tokio::task;
use tower::{BoxError, Service};

use super::{
    super::{Answers, Call, Calls, Config, UpstreamError},
    EndpointError, EndpointUrl, Reach,
    cause::{causes, root_cause},
    client::client,
    direct::{Direct, Failure, unpack},
    redact::{self, Secrets},
    wire::{self, Ids, Incoming, Outgoing},
};
use crate::{
    budget::{ByteBudget, ByteLease, LeasedBuffer},
    client::Client as ForWhom,
};

/// How much of the announced length is believed before the bytes are there.
const TRUSTED_LENGTH: usize = 1 << 20;

/// Answers up to this length are searched for secrets on the thread that reads them.
const REDACTED_INLINE: usize = 64 * 1024;

/// A node reached over HTTP/1.1 or, where it is offered, HTTP/2.
#[derive(Clone, Debug)]
pub struct HttpLeaf(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    way: Way,
    secrets: Secrets,
    ids: Ids,
    timeout: Duration,
    max_answer: usize,
    budget: ByteBudget,
}

/// How it is reached.
#[derive(Debug)]
enum Way {
    Direct(Box<Direct>),
    /// Over TLS, or by way of a proxy.
    Client(Client, EndpointUrl),
}

// === impl HttpLeaf ===

impl HttpLeaf {
    /// Prepares a client for whom this reaches; connects to nothing yet.
    ///
    /// # Errors
    /// If there is no TLS to be had.
    pub fn try_new(reach: &Reach, config: &Config, budget: ByteBudget) -> Result<Self, EndpointError> {
        let headers = reach.headers();
        let client = client(reach.url(), headers.clone(), config)
            .map_err(|error| EndpointError::Client(root_cause(&error)))?;
        let mut secrets = Secrets::from(reach);
        let mut way = None;
        // As the client puts it: a user and a password go into a header.
        if let Ok(sent) = client.post(reach.url().as_url().clone()).build() {
            secrets.add_headers(sent.headers());
            way = Direct::try_new(&sent, reach, config.connect_timeout);
        }
        Ok(Self(Arc::new(Inner {
            way: way
                .map_or_else(|| Way::Client(client, reach.url().clone()), |way| Way::Direct(Box::new(way))),
            secrets,
            ids: Ids::default(),
            timeout: config.timeout,
            max_answer: usize::try_from(config.max_answer.as_u64()).unwrap_or(usize::MAX),
            budget,
        })))
    }
}

impl Service<Calls> for HttpLeaf {
    type Response = Answers;
    type Error = UpstreamError;
    type Future = BoxFuture<'static, Result<Answers, UpstreamError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, calls: Calls) -> Self::Future {
        let leaf = self.0.clone();
        Box::pin(async move {
            let mut outgoing = Outgoing::write(&calls, &leaf.ids);
            let body = std::mem::take(&mut outgoing.body);
            // What they are made for, if it is for anybody, goes with the first of them.
            let mut told = HeaderMap::new();
            if let Some(call) = calls.first() {
                call.origin.tell(&mut told);
            }
            let (incoming, lease) = leaf.send(body, told, calls.len() > 1).await?;
            // What was read waits for a core to be checked on, and is there until then.
            if let Some(held) = calls.first().and_then(|call| call.held.as_ref()) {
                held.hold(lease);
            }
            let answers = outgoing.read(&incoming)?;
            let is_searched = |call: &Call| !redact::is_content(call.method.as_str());
            let is_long = incoming.body.len() > REDACTED_INLINE
                && leaf.secrets.has_long()
                && calls.iter().any(is_searched);
            let redact = move || {
                let redacted = answers.into_iter().zip(&calls).map(|(answer, call)| match answer {
                    Ok(answer) => Ok(leaf.secrets.redact_answer(call.method.as_str(), answer)),
                    Err(error) => Err(leaf.secrets.redact_error(error)),
                });
                redacted.collect()
            };
            if !is_long {
                return Ok(redact());
            }
            task::spawn_blocking(redact).await.map_err(|_| UpstreamError::Cancelled)
        })
    }
}

// === impl Inner ===

impl Inner {
    /// Sends a body, with these headers beside those that are always sent.
    async fn send(
        &self,
        body: Bytes,
        told: HeaderMap,
        together: bool,
    ) -> Result<(Incoming, ByteLease), UpstreamError> {
        match &self.way {
            Way::Direct(direct) => {
                let (response, connection) =
                    direct.send(body, told).await.map_err(|failure| self.failed(failure))?;
                let is_packed = response.headers().contains_key(header::CONTENT_ENCODING);
                let received = if is_packed {
                    let unpacked = unpack(response).await;
                    Box::pin(self.receive(unpacked, together, |error| self.cut_off(error))).await?
                } else {
                    self.receive(response, together, |error| self.cut_off(error.into())).await?
                };
                direct.give_back(connection);
                Ok(received)
            }
            Way::Client(client, url) => {
                let request = client.post(url.as_url().clone()).headers(told).body(body);
                let response = request.send().await.map_err(|error| self.named(error))?;
                self.receive(response.into(), together, |error| self.named(error)).await
            }
        }
    }

    /// Reads a response, and names what goes wrong meanwhile.
    async fn receive<B>(
        &self,
        response: Response<B>,
        together: bool,
        named: impl Fn(B::Error) -> UpstreamError,
    ) -> Result<(Incoming, ByteLease), UpstreamError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let status = response.status();
        let retry_after = wire::retry_after(response.headers());
        let (body, lease) = self.read(response.into_body(), together, named).await?;
        Ok((Incoming { status, retry_after, body }, lease))
    }

    /// Reads the body as far as the limits let it.
    async fn read<B>(
        &self,
        mut unread: B,
        together: bool,
        named: impl Fn(B::Error) -> UpstreamError,
    ) -> Result<(Bytes, ByteLease), UpstreamError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let too_large = || UpstreamError::TooLarge { limit: self.max_answer as u64, together };
        let announced = unread.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        if announced.is_some_and(|length| length > self.max_answer) {
            return Err(too_large());
        }
        let mut lease = self.budget.lease(ForWhom::current());
        let mut body = LeasedBuffer::new(self.max_answer);
        let busy = |_| UpstreamError::Busy;
        body.reserve(announced.unwrap_or(0).min(TRUSTED_LENGTH), &mut lease).map_err(busy)?;
        while let Some(frame) = unread.frame().await {
            // What follows a body is not asked for.
            let Ok(chunk) = frame.map_err(&named)?.into_data() else { continue };
            if body.len() + chunk.len() > self.max_answer {
                return Err(too_large());
            }
            body.append(&chunk, &mut lease).map_err(busy)?;
        }
        Ok((body.finish(&mut lease), lease))
    }

    /// Gives reqwest's error its name here, without the URL that it would show.
    fn named(&self, error: reqwest::Error) -> UpstreamError {
        let error = error.without_url();
        if error.is_connect() {
            UpstreamError::Connect(root_cause(&error))
        } else if error.is_timeout() {
            UpstreamError::TimedOut { after: self.timeout }
        } else if error.is_decode() {
            UpstreamError::Packed(root_cause(&error))
        } else {
            UpstreamError::Broken(root_cause(&error))
        }
    }

    /// The same for a request that got no answer on the direct way.
    fn failed(&self, failure: Failure) -> UpstreamError {
        match failure {
            Failure::Connect(error) => UpstreamError::Connect(root_cause(&*error)),
            Failure::Broken(error) => self.cut_off(error.into()),
        }
    }

    /// And for an answer that ends before its end.
    fn cut_off(&self, error: BoxError) -> UpstreamError {
        if !error.is::<hyper::Error>() {
            return UpstreamError::Packed(root_cause(&*error));
        }
        let is_timeout = |cause: &(dyn Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        if causes(&*error).any(is_timeout) {
            UpstreamError::TimedOut { after: self.timeout }
        } else {
            UpstreamError::Broken(root_cause(&*error))
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
        upstream::{EndpointConfig, call::Held},
    };

    /// Answers one request, and tells what it was, line by line.
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
    async fn what_is_sent_is_the_same_either_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let told =
            || HeaderMap::from_iter([(crate::trace::TRACEPARENT, HeaderValue::from_static("00-1-2-01"))]);
        for (url, headers) in [
            (format!("http://{at}"), &[][..]),
            (format!("http://user:pa%20ss@{at}/v3/KEY?a=b&c=%20#d"), &["x-key"]),
            (format!("http://{at}/"), &["host", "user-agent", "accept-encoding", "authorization"]),
        ] {
            let headers = headers.iter().map(|name| ((*name).to_owned(), Secret::Plain("mine".to_owned())));
            let endpoint = EndpointConfig { headers: headers.collect(), ..EndpointConfig::at(&url) };
            let (reach, config) = (Reach::resolve(&endpoint).unwrap(), Config::default());
            let HttpLeaf(leaf) = HttpLeaf::try_new(&reach, &config, ByteBudget::new(1 << 20, None)).unwrap();
            let mut leaf = Arc::into_inner(leaf).unwrap();
            assert!(matches!(leaf.way, Way::Direct(_)));
            let body = Bytes::from_static(b"{}");
            let (directly, answered) =
                tokio::join!(overhear(&listener), leaf.send(body.clone(), told(), false));
            assert_eq!(answered.unwrap().0.body, body);
            let client = client(reach.url(), reach.headers().clone(), &config).unwrap();
            leaf.way = Way::Client(client, reach.url().clone());
            let (otherwise, answered) =
                tokio::join!(overhear(&listener), leaf.send(body.clone(), told(), false));
            assert_eq!(answered.unwrap().0.body, body);
            assert_eq!(directly, otherwise);
        }
    }

    #[tokio::test]
    async fn the_bytes_of_an_answer_are_counted_until_it_was_checked() {
        let chain = DevChain::new(devchain::Config::default());
        // Larger than what is not counted.
        chain.mine(500);
        let node = DevNode::start(chain, ([127, 0, 0, 2], 0).into()).await.unwrap();
        let reach = Reach::resolve(&EndpointConfig::at(node.url())).unwrap();
        let budget = ByteBudget::new(1 << 20, None);
        let leaf = HttpLeaf::try_new(&reach, &Config::default(), budget.clone()).unwrap();
        let held = Held::default();
        let mut call = Call::new("eth_getBlockByNumber", Params::from_own(r#"["latest",true]"#));
        call.hold_in(&held);
        let answers = leaf.oneshot(vec![call]).await.unwrap();
        assert!(matches!(answers[..], [Ok(Answer::Result(_))]));
        assert!(budget.lease(None).grow(1 << 20).is_err(), "it is still there");
        drop(held);
        assert!(budget.lease(None).grow(1 << 20).is_ok(), "whoever keeps it counts it otherwise");
    }
}
