//! The leaf that asks a node over HTTP.

use std::{
    error::Error,
    io, iter,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use reqwest::{Client, ClientBuilder, redirect};
use tokio::task;
use tower::{BoxError, Service, layer::layer_fn};

use super::{
    super::{Answers, Call, Calls, Config, EndpointConfig, UpstreamError},
    EndpointUrl, Reach,
    direct::{Direct, Failure, unpack},
    reconnect as contact,
    redact::{self, Secrets},
    url::UrlError,
    wire::{self, Ids, Incoming, Outgoing},
};
use crate::{
    budget::{ByteBudget, ByteLease, LeasedBuffer},
    client::Client as ForWhom,
    secret::SecretError,
};

/// Connections kept open while nothing is asked: shorter than the idle time-out of common nodes and
/// balancers (geth 120 s, AWS 60 s), so that a call seldom meets a connection just being closed.
pub(in crate::upstream) const POOL_IDLE: Duration = Duration::from_secs(50);

/// An HTTP/2 connection is pinged after a fourth of an attempt's time without a frame, and has as long
/// to answer: it is found dead before its call is given up. A node that is merely slow answers pings.
const PING_PART: u32 = 4;

/// Who we say we are.
pub(in crate::upstream) const AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// How much of the announced length is believed before the bytes are there.
const TRUSTED_LENGTH: usize = 1 << 20;

/// Answers up to this length are searched for secrets on the thread that reads them.
const REDACTED_INLINE: usize = 64 * 1024;

/// Headers about the connection, or about how long and how packed a body is. A value out of the configuration would
/// not be true of each request, and the node would wait for bytes that never come, say. `host` is not among them: it
/// names one of several behind an address.
const OF_THE_CLIENT: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

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

/// An endpoint that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not where the configuration says.
    #[error("url: {0}")]
    UrlSecret(#[source] SecretError),
    /// Not a URL.
    #[error("url: {0}")]
    Url(#[source] UrlError),
    /// Not where the configuration says.
    #[error("ws: {0}")]
    WsSecret(#[source] SecretError),
    /// Not the URL of a WebSocket.
    #[error("ws: {0}")]
    Ws(#[source] UrlError),
    /// Not a name for a header.
    #[error("headers: {name:?} is not the name of an HTTP header")]
    HeaderName {
        /// The name as given.
        name: String,
    },
    /// Not where the configuration says.
    #[error("headers.{name}: {source}")]
    HeaderSecret {
        /// The header's name.
        name: String,
        /// What is wrong.
        #[source]
        source: SecretError,
    },
    /// Two that cannot both be sent.
    #[error(
        "the url holds a user or a password, and headers.authorization is set: only one of them can be sent; \
         remove the other"
    )]
    TwoCredentials,
    /// Has a line break in it, say. The value is not repeated.
    #[error("headers.{name}: the value cannot stand in an HTTP header")]
    HeaderValue {
        /// The header's name.
        name: String,
    },
    /// One that the client sets itself, by what it sends.
    #[error("headers.{name}: is set by Holdfast itself, to fit what it sends; leave it out")]
    HeaderNotYours {
        /// The header's name.
        name: String,
    },
    /// No share at all.
    #[error(
        "weight: must be at least 1; a node that is asked only when others fail has a higher priority than theirs"
    )]
    Weight,
    /// No call at all.
    #[error("rate.{key}: must be at least 1; leave rate out if there is no limit")]
    Rate {
        /// Which of its numbers.
        key: &'static str,
    },
    /// No TLS to be had.
    #[error("cannot set up the HTTP client: {0}")]
    Client(#[source] Arc<dyn Error + Send + Sync>),
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

/// Makes connections, and lets it be known.
#[derive(Clone, Debug)]
struct Noticed<S>(S);

impl<S: Service<R>, R> Service<R> for Noticed<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> S::Future {
        contact::connects();
        self.0.call(to)
    }
}

pub(in crate::upstream) fn client(
    url: &EndpointUrl,
    headers: HeaderMap,
    config: &Config,
) -> reqwest::Result<Client> {
    install_tls();
    let built = client_builder(url, headers.clone(), config).build();
    if built.is_err() && !url.is_https() {
        // A small container has no certificates to go by, and needs none.
        return client_builder(url, headers, config).tls_certs_only([]).build();
    }
    built
}

#[expect(clippy::disallowed_methods, reason = "the one place that builds a client, with its time-outs set")]
fn client_builder(url: &EndpointUrl, headers: HeaderMap, config: &Config) -> ClientBuilder {
    let mut builder = Client::builder()
        // The whole attempt has its time in `stack`.
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        // Innermost of what makes a connection, and only then: a call that finds one open does not come by here.
        .connector_layer(layer_fn(Noticed))
        .tcp_nodelay(true)
        // All calls share an HTTP/2 connection: if the other end falls silent on it, each of them would
        // wait in vain, and none would lead to another connection.
        .http2_keep_alive_interval(config.timeout / PING_PART)
        .http2_keep_alive_timeout(config.timeout / PING_PART)
        .gzip(true)
        .zstd(true)
        // A node that redirects is not the node that was configured, and would get its credentials.
        .redirect(redirect::Policy::none())
        .referer(false)
        .user_agent(AGENT)
        .default_headers(headers);
    if url.is_loopback() {
        builder = builder.no_proxy();
    }
    builder
}

/// One provider of cryptography for all.
pub(in crate::upstream) fn install_tls() {
    // Fails if it was installed before, which is just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The headers that the configuration names.
pub(in crate::upstream) fn headers(endpoint: &EndpointConfig) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &endpoint.headers {
        let owned = || name.clone();
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| EndpointError::HeaderName { name: owned() })?;
        if OF_THE_CLIENT.contains(&header) {
            return Err(EndpointError::HeaderNotYours { name: owned() });
        }
        let value =
            value.resolve().map_err(|source| EndpointError::HeaderSecret { name: owned(), source })?;
        let mut value =
            HeaderValue::from_str(&value).map_err(|_| EndpointError::HeaderValue { name: owned() })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
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
                    Err(error) => Err(error.redacted(&leaf.secrets)),
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

/// The innermost cause: "connection refused" rather than "error sending request".
pub(in crate::upstream) fn root_cause(error: &(dyn Error + 'static)) -> Arc<dyn Error + Send + Sync> {
    let message = match causes(error).last() {
        Some(cause) if is_no_tls(cause) => NO_TLS.to_owned(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    Arc::from(Box::<dyn Error + Send + Sync>::from(message))
}

/// An error and what it was caused by, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// In words that say what to do, where the library's are about its messages.
const NO_TLS: &str =
    "what listens there does not speak TLS; if the node speaks plain http, its url begins with http://";

/// Did the other side answer a handshake with something else?
fn is_no_tls(cause: &(dyn Error + 'static)) -> bool {
    // An `io::Error` does not name what it holds as its source, and may hold another.
    if let Some(inner) = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_no_tls(inner);
    }
    matches!(
        cause.downcast_ref(),
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
    )
}

#[cfg(test)]
mod tests {
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
        upstream::{Call, call::Held},
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
