//! Subscribes to new heads of a node over a WebSocket.
//!
//! An event only signals that the head has changed. Holdfast ignores its content and fetches the head itself from
//! the primary, like any other data.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message, client::IntoClientRequest, handshake::client::Request, protocol::WebSocketConfig,
    },
};

use super::{
    super::{Config, EndpointConfig, UpstreamError},
    EndpointError, EndpointUrl,
    address::headers,
    client::install_tls,
    redact::Secrets,
    url::UrlError,
};

/// Maximum size of a message. A header is 2 KB, but some nodes (anvil) send whole blocks.
const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// Holdfast pings a connection that is silent for this long, and gives it up if it stays silent for as long again. A
/// node that was cut off from the network cannot close the connection.
const SILENCE: Duration = Duration::from_secs(30);

/// The only call on a connection.
const SUBSCRIBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#;
const SUBSCRIBE_ID: &str = "1";

/// The feed of new heads of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadFeed {
    url: EndpointUrl,
    headers: HeaderMap,
    connect_timeout: Duration,
    timeout: Duration,
}

/// A subscription to new heads. Ends when dropped.
#[derive(Debug)]
pub struct Subscription<S = MaybeTlsStream<TcpStream>> {
    socket: WebSocketStream<S>,
}

/// The reason why a subscription fails or ends.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The connection could not be opened, or it broke.
    #[error("{0}")]
    Socket(#[source] Box<tungstenite::Error>),
    /// The node closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// Connecting or subscribing took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// No message came for a long time, not even a reply to a ping.
    #[error("no message for {0:?}")]
    Silent(Duration),
    /// The node rejected the subscription.
    #[error("{0}")]
    Refused(#[source] UpstreamError),
}

/// The relevant members of a message.
#[derive(Deserialize)]
struct SocketMessage<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The kind of a message.
#[derive(Debug, PartialEq, Eq)]
enum MessageKind<'a> {
    Subscribed,
    Refused(&'a str),
    Event,
    Other,
}

// === impl HeadFeed ===

impl HeadFeed {
    /// Returns the feed of an endpoint, if it has one; does not connect yet.
    ///
    /// # Errors
    /// If a secret, the WebSocket URL or a header is invalid.
    pub fn try_new(endpoint: &EndpointConfig, config: &Config) -> Result<Option<Self>, EndpointError> {
        let Some(ws) = &endpoint.ws else { return Ok(None) };
        let url = ws.resolve().map_err(EndpointError::WsSecret)?;
        let feed = Self {
            url: EndpointUrl::parse_ws(&url).map_err(EndpointError::Ws)?,
            headers: headers(endpoint)?,
            connect_timeout: config.connect_timeout,
            timeout: config.timeout,
        };
        feed.request().map_err(|_| EndpointError::Ws(UrlError::Malformed))?;
        Ok(Some(feed))
    }

    /// Returns the URL.
    pub fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Connects and subscribes.
    ///
    /// # Errors
    /// If connecting or subscribing fails, or exceeds its time-out.
    pub async fn subscribe(&self) -> Result<Subscription, FeedError> {
        install_tls();
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let connecting = connect_async_with_config(self.request()?, Some(config), true);
        let connected = time::timeout(self.connect_timeout, connecting).await;
        let (socket, _) = connected.map_err(|_| FeedError::TimedOut(self.connect_timeout))??;
        let mut subscription = Subscription { socket };
        let secrets = Secrets::of(&self.url, &self.headers);
        let subscribed = time::timeout(self.timeout, subscription.begin(&secrets)).await;
        subscribed.map_err(|_| FeedError::TimedOut(self.timeout))??;
        Ok(subscription)
    }

    fn request(&self) -> Result<Request, FeedError> {
        let mut request = self.url.as_url().as_str().into_client_request()?;
        let agent = HeaderValue::from_static(concat!("holdfast/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(header::USER_AGENT, agent);
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

// === impl Subscription ===

impl<S: AsyncRead + AsyncWrite + Unpin> Subscription<S> {
    /// Resolves at the next event. Dropping this future loses no event.
    ///
    /// # Errors
    /// If the subscription has ended.
    pub async fn event(&mut self) -> Result<(), FeedError> {
        loop {
            if read(&self.message().await?) == MessageKind::Event {
                return Ok(());
            }
        }
    }

    async fn begin(&mut self, secrets: &Secrets) -> Result<(), FeedError> {
        self.socket.send(Message::text(SUBSCRIBE)).await?;
        loop {
            let message = self.message().await?;
            match read(&message) {
                MessageKind::Subscribed => return Ok(()),
                MessageKind::Refused(error) => {
                    return Err(FeedError::Refused(UpstreamError::node_error(
                        &secrets.redact(&Bytes::copy_from_slice(error.as_bytes())),
                    )));
                }
                MessageKind::Event | MessageKind::Other => {}
            }
        }
    }

    /// Returns the next text message. Answers pings meanwhile, and pings the node if the connection is silent.
    async fn message(&mut self) -> Result<tungstenite::Utf8Bytes, FeedError> {
        let mut is_pinged = false;
        loop {
            match time::timeout(SILENCE, self.socket.next()).await {
                Ok(Some(Ok(Message::Text(text)))) => return Ok(text),
                Ok(Some(Ok(Message::Close(_))) | None) => return Err(FeedError::Closed),
                Ok(Some(Ok(_))) => is_pinged = false,
                Ok(Some(Err(error))) => return Err(error.into()),
                Err(_) if is_pinged => return Err(FeedError::Silent(2 * SILENCE)),
                Err(_) => {
                    let ping = self.socket.send(Message::Ping(Default::default()));
                    time::timeout(SILENCE, ping).await.map_err(|_| FeedError::Silent(2 * SILENCE))??;
                    is_pinged = true;
                }
            }
        }
    }
}

fn read(message: &str) -> MessageKind<'_> {
    match serde_json::from_str(message) {
        Ok(SocketMessage { id: Some(id), error: Some(error), .. }) if id.get() == SUBSCRIBE_ID => {
            MessageKind::Refused(error.get())
        }
        Ok(SocketMessage { id: Some(id), .. }) if id.get() == SUBSCRIBE_ID => MessageKind::Subscribed,
        Ok(SocketMessage { method: Some(method), .. }) if method == "eth_subscription" => MessageKind::Event,
        _ => MessageKind::Other,
    }
}

// === impl FeedError ===

impl From<tungstenite::Error> for FeedError {
    fn from(error: tungstenite::Error) -> Self {
        Self::Socket(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::DuplexStream, time::Instant};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;
    use crate::secret::Secret;

    /// A subscription, and the node at the other end.
    async fn subscribed() -> (Subscription<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (near, far) = tokio::io::duplex(65_536);
        let socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        (Subscription { socket }, WebSocketStream::from_raw_socket(far, Role::Server, None).await)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_is_closed() {
        let (mut subscription, _node) = subscribed().await;
        let begun = Instant::now();
        assert!(matches!(subscription.event().await, Err(FeedError::Silent(_))));
        assert_eq!(begun.elapsed(), 2 * SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_node_that_answers_pings_stays_subscribed() {
        let (mut subscription, mut node) = subscribed().await;
        tokio::spawn(async move {
            let news = time::sleep(Duration::from_secs(3600));
            tokio::pin!(news);
            loop {
                tokio::select! {
                    // Reading answers pings.
                    message = node.next() => drop(message.unwrap().unwrap()),
                    () = &mut news => {
                        node.send(Message::text(r#"{"method":"eth_subscription"}"#)).await.unwrap();
                        return;
                    }
                }
            }
        });
        let begun = Instant::now();
        subscription.event().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 3600);
        assert!(matches!(subscription.event().await, Err(FeedError::Socket(_) | FeedError::Closed)));
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_answered() {
        let (mut subscription, mut node) = subscribed().await;
        let listening = tokio::spawn(async move { subscription.event().await });
        node.send(Message::Ping("there?".into())).await.unwrap();
        assert_eq!(node.next().await.unwrap().unwrap(), Message::Pong("there?".into()));
        drop(node);
        assert!(listening.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn refused_subscription_shows_no_key() {
        let (mut subscription, mut node) = subscribed().await;
        let refusal = r#"{"id":1,"error":{"code":-32600,"message":"no access for SECRET-PATH"}}"#;
        node.send(Message::text(refusal)).await.unwrap();
        let url = EndpointUrl::parse_ws("ws://node.test/v3/SECRET-PATH").unwrap();
        let refused = subscription.begin(&Secrets::of(&url, &HeaderMap::new())).await.unwrap_err();
        assert_eq!(refused.to_string(), "the node answers with an error: no access for …");
    }

    #[tokio::test]
    async fn websocket_handshake_times_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ws = format!("ws://{}/SECRET", listener.local_addr().unwrap());
        let endpoint =
            EndpointConfig { ws: Some(Secret::Plain(ws)), ..EndpointConfig::at("http://127.0.0.1:1") };
        let config = Config { connect_timeout: Duration::from_millis(20), ..Config::default() };
        let feed = HeadFeed::try_new(&endpoint, &config).unwrap().unwrap();
        assert!(matches!(feed.subscribe().await, Err(FeedError::TimedOut(_))));
        drop(listener);
        let feed = HeadFeed::try_new(&endpoint, &Config::default()).unwrap().unwrap();
        let error = feed.subscribe().await.unwrap_err();
        assert!(matches!(error, FeedError::Socket(_)) && !error.to_string().contains("SECRET"), "{error}");
        assert!(!format!("{feed:?}").contains("SECRET"));
    }

    #[test]
    fn message_kinds_are_recognized() {
        for (message, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":"0xcd0"}"#, MessageKind::Subscribed),
            (r#"{"jsonrpc":"2.0","result":"0xcd0","id":1,"error":null}"#, MessageKind::Subscribed),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}"#,
                MessageKind::Refused(r#"{"code":-32601}"#),
            ),
            (r#"{"jsonrpc":"2.0","id":7,"result":"0xcd0"}"#, MessageKind::Other),
            (
                r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}"#,
                MessageKind::Event,
            ),
            (r#"{"jsonrpc":"2.0","method":"eth\u005fsubscription","params":[]}"#, MessageKind::Event),
            ("[]", MessageKind::Other),
            ("garbage", MessageKind::Other),
        ] {
            assert_eq!(read(message), kind, "{message}");
        }
        let deep = format!(r#"{{"method":"eth_subscription","params":{}"#, "[".repeat(1_000_000));
        assert_eq!(read(&deep), MessageKind::Other);
    }
}
