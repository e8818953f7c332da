//! Reasons to refuse a request, or to leave out a call of a batch.

use std::time::Duration;

use bytes::Bytes;

use super::sender::host::HostError;
use crate::{
    budget::Exhausted,
    display::{Time, Wait},
    jsonrpc::PacketError,
};

/// Reason why a request is refused as a whole.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpError {
    /// The request is for a host that the listener does not serve.
    #[error(transparent)]
    Host(HostError),
    /// A key is required, and the request has none.
    #[error(
        "a key is needed here: send it as authorization: Bearer KEY, as x-api-key: KEY, or in the path /k/KEY"
    )]
    NoKey,
    /// The request contains only unknown keys.
    #[error("unknown key; ask the operator of this service for a valid one")]
    BadKey,
    /// The method is not POST.
    #[error("send JSON-RPC calls with POST")]
    MethodNotAllowed,
    /// The request holds no call: it is answered with a text for people, and is not refused.
    #[error("send JSON-RPC calls with POST")]
    Visit {
        /// The text.
        hint: Bytes,
    },
    /// The request asks for an upgrade to WebSocket.
    #[error("WebSocket is not served here; send JSON-RPC calls with POST")]
    WebSocket,
    /// The content type is not that of JSON-RPC, or a web page sends none.
    #[error("send the header content-type: application/json")]
    ContentType,
    /// The body is compressed.
    #[error("send the body uncompressed, without content-encoding")]
    ContentEncoding,
    /// The body, or the length that the request announces, is too large.
    #[error("the body is larger than {max} bytes; send it in parts")]
    BodyTooLarge {
        /// The limit in force.
        max: u64,
    },
    /// The body did not arrive in time.
    #[error("the body did not arrive within {}", Time(*after))]
    BodyTimeout {
        /// The limit in force.
        after: Duration,
    },
    /// The body ended early or was malformed.
    #[error("the body is incomplete or malformed")]
    BodyBroken,
    /// The body is not a JSON-RPC packet.
    #[error(transparent)]
    Packet(PacketError),
    /// The request contains no readable packet, and its client is over its rate limit.
    #[error("too many calls; come back in {}", Wait(*wait))]
    RateLimited {
        /// Time until the client may send the next call.
        wait: Duration,
    },
    /// Too many requests without a valid key came from one address.
    #[error("too many requests without a valid key; send one, or come back in {}", Wait(*wait))]
    TooManyUnauthenticated {
        /// Time until the address may send another request without a valid key.
        wait: Duration,
    },
    /// Too many requests are in flight, or too many bytes of answers wait for clients to read them.
    #[error("too many requests at once; try again shortly")]
    Overloaded,
    /// Too many bytes of requests and of upstream answers are being read.
    #[error("too many bytes are being read at once; try again shortly")]
    BytesExhausted,
    /// The client has used up its own share of requests or bytes.
    #[error("too many requests from this client at once; read their answers first, or send fewer")]
    ClientLimit,
}

/// Reason why a batch leaves out the answer to a call. Either the call did not begin, or its answer does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LeftOut {
    /// The answers exceed the limit of a batch.
    #[error("the answers of this batch exceed {max} bytes; send fewer calls at once")]
    BatchTooLarge {
        /// The limit in force.
        max: u64,
    },
    /// The unread answers of all clients exceed the limit.
    #[error("too many answers wait for their clients; try again shortly")]
    Overloaded,
    /// The unread answers of this client exceed its share.
    #[error("too many answers wait for this client; read them first, or send fewer calls at once")]
    ClientLimit,
    /// The batch has run for too long.
    #[error("not started: the batch has run for over {}; send fewer calls at once", Time(*after))]
    BatchTimeout {
        /// The limit in force.
        after: Duration,
    },
}

// === impl HttpError ===

impl HttpError {
    /// Names of all reasons in logs and metrics.
    pub const REASONS: [&str; 17] = [
        "host",
        "no_key",
        "bad_key",
        "too_many_unauthenticated",
        "http_method",
        "websocket",
        "content_type",
        "content_encoding",
        "body_too_large",
        "body_timeout",
        "body_broken",
        "parse_error",
        "invalid_request",
        "rate_limited",
        "overloaded",
        "bytes_exhausted",
        "client_limit",
    ];

    /// Returns the reason's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::NoKey => "no_key",
            Self::BadKey => "bad_key",
            Self::TooManyUnauthenticated { .. } => "too_many_unauthenticated",
            Self::MethodNotAllowed | Self::Visit { .. } => "http_method",
            Self::WebSocket => "websocket",
            Self::ContentType => "content_type",
            Self::ContentEncoding => "content_encoding",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::BodyTimeout { .. } => "body_timeout",
            Self::BodyBroken => "body_broken",
            Self::Packet(error) => error.code().as_str(),
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::BytesExhausted => "bytes_exhausted",
            Self::ClientLimit => "client_limit",
        }
    }
}

// === impl LeftOut ===

impl LeftOut {
    /// Names of all reasons in metrics.
    pub const REASONS: [&str; 4] = ["batch_too_large", "overloaded", "client_limit", "batch_timeout"];

    /// Returns the reason's name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl From<Exhausted> for LeftOut {
    fn from(full: Exhausted) -> Self {
        match full {
            Exhausted::Total => Self::Overloaded,
            Exhausted::Client => Self::ClientLimit,
        }
    }
}
