//! Why a request has no packet of replies.

use std::time::Duration;

use bytes::Bytes;

use super::sender::host::HostError;
use crate::{
    budget::Exhausted,
    display::{Time, Wait},
    jsonrpc::PacketError,
};

/// A request that could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpError {
    /// For a host that is not served.
    #[error(transparent)]
    Host(HostError),
    /// Keys are wanted, and it has none.
    #[error(
        "a key is needed here: send it as authorization: Bearer KEY, as x-api-key: KEY, or in the path /k/KEY"
    )]
    NoKey,
    /// It has one that is not known.
    #[error("the key is not known here; ask whoever runs this service for one")]
    BadKey,
    /// Not POST.
    #[error("send JSON-RPC calls with POST")]
    MethodNotAllowed {
        /// A browser is looking: it gets this, which is for people.
        hint: Option<Bytes>,
    },
    /// An upgrade to WebSocket.
    #[error("WebSocket is not served here; send JSON-RPC calls with POST")]
    WebSocket,
    /// Anything but `application/json`.
    #[error("send the header content-type: application/json")]
    ContentType,
    /// A packed body.
    #[error("send the body unpacked, without content-encoding")]
    ContentEncoding,
    /// Announced or found to be too large.
    #[error("the body is larger than {max} bytes; send it in parts")]
    BodyTooLarge {
        /// The limit in force.
        max: u64,
    },
    /// It did not arrive.
    #[error("the body did not arrive within {}", Time(*after))]
    BodyTimeout {
        /// The limit in force.
        after: Duration,
    },
    /// It broke off.
    #[error("the body broke off")]
    BodyBroken,
    /// It is no packet.
    #[error(transparent)]
    Packet(PacketError),
    /// It held no call, and its client may not send more of these either.
    #[error("too many calls; come back in {}", Wait(*wait))]
    RateLimited {
        /// Until it may.
        wait: Duration,
    },
    /// Without a key that is known, too often from one address.
    #[error("too many requests without a key that is known here; come back with one, or in {}", Wait(*wait))]
    TooManyUnauthenticated {
        /// Until one more is looked at.
        wait: Duration,
    },
    /// Too many requests, or answers that wait to be taken, are in hand already.
    #[error("too many requests at once; try again shortly")]
    Overloaded,
    /// Too many bytes of requests and of the upstream's answers are being read.
    #[error("too much is being read at once; try again shortly")]
    BytesExhausted,
    /// Its client has too much in hand already, and others are to have a place, too.
    #[error("too many requests of yours at once; take their answers first, or send fewer")]
    ClientLimit,
}

/// Why a call of a batch has no answer while others of it have: it was not begun, or what came does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// The answers are more than a batch may have.
    #[error("the answers of this batch exceed {max} bytes; ask for fewer at once")]
    BatchTooLarge {
        /// The limit in force.
        max: u64,
    },
    /// The answers that wait to be taken, everybody's together, are more than there may be.
    #[error("too many answers wait to be taken; try again shortly")]
    Overloaded,
    /// Those of its client are, and others are to have room, too.
    #[error("too many answers of yours wait to be taken; take them first, or ask for fewer at once")]
    ClientLimit,
    /// What the batch has done by now took too long.
    #[error("not begun within {}, since the batch takes too long; send fewer calls at once", Time(*after))]
    BatchTimeout {
        /// The limit in force.
        after: Duration,
    },
}

// === impl HttpError ===

impl HttpError {
    /// Every reason, as it is named in logs and metrics.
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

    /// The reason's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::NoKey => "no_key",
            Self::BadKey => "bad_key",
            Self::TooManyUnauthenticated { .. } => "too_many_unauthenticated",
            Self::MethodNotAllowed { .. } => "http_method",
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
    /// Every reason, as it is named in metrics.
    pub const REASONS: [&str; 4] = ["batch_too_large", "overloaded", "client_limit", "batch_timeout"];

    /// The reason's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BatchTooLarge { .. } => "batch_too_large",
            Self::Overloaded => "overloaded",
            Self::ClientLimit => "client_limit",
            Self::BatchTimeout { .. } => "batch_timeout",
        }
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
