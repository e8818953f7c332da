//! A call on its way through, and what came of it.

use http::HeaderValue;

use crate::jsonrpc::{Answer, Call};

/// A call and who makes it.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// Who asks.
    pub caller: Caller,
}

/// What is known of a client.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The `origin` header: a web page makes this call from a person's browser.
    pub origin: Option<HeaderValue>,
}

/// An answer and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Goes to the client.
    pub answer: Answer,
    /// Goes to the log and the counters.
    pub outcome: Outcome,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Known here for good.
    Local,
    /// The upstream was asked.
    Forwarded,
}

// === impl Outcome ===

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 2] = [Self::Local, Self::Forwarded];

    /// Its name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Forwarded => "forwarded",
        }
    }
}
