//! Transports to an endpoint: HTTP, a WebSocket for new heads, or a node in this process.

mod address;
mod cause;
mod check;
mod client;
mod error;
mod http;
mod in_process;
#[cfg(feature = "otlp")]
mod post;
mod reconnect;
mod redact;
mod service;
mod url;
mod wire;
mod ws_heads;

#[cfg(feature = "otlp")]
pub use self::post::Poster;
pub use self::{
    address::EndpointAddress,
    check::check_endpoint,
    error::EndpointError,
    http::HttpTransport,
    in_process::{InProcessNode, InProcessResponse, InProcessTransport},
    service::Transport,
    url::EndpointUrl,
    ws_heads::{FeedError, HeadFeed, Subscription},
};
pub(crate) use self::{
    cause::{causes, is_no_tls, root_cause},
    client::instance_client,
};
pub(super) use self::{
    reconnect::ConnectionMonitor,
    redact::Secrets,
    service::{TransportSettings, with_deadline},
};
