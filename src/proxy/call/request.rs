//! A call on its way through, and what came of it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderValue;

use crate::{
    cache::{Deflated, tier::TierKind},
    client::Client,
    eth::{MethodLabel, ParamError, Part, Query},
    jsonrpc::{Answer, Call, MethodName, Params, RawId},
    proxy::call::{packet::PacketContext, policy::Policy, rate::Bucket},
};

/// A call, where it stands in its packet: it goes through all layers, and is not carried along.
#[derive(Clone, Debug)]
pub struct Request {
    packet: Arc<PacketContext>,
    index: usize,
}

/// A call whose meaning has been made out, once for all who want to know it.
#[derive(Clone, Debug)]
pub struct ReadCall {
    /// `None` for a notification.
    pub id: Option<RawId>,
    /// The method's name.
    pub method: MethodName,
    /// The parameters.
    pub params: Params,
    pub(in crate::proxy) label: MethodLabel,
    /// The content that it asks for; `None` if memory cannot have it.
    pub(in crate::proxy) query: Option<Result<Query, ParamError>>,
}

/// What is known of a client, and what it may do.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The `origin` header: a web page makes this call from a person's browser.
    pub origin: Option<HeaderValue>,
    /// Which methods it may call.
    pub policy: Arc<Policy>,
    /// How often; as often as it likes, if `None`.
    pub bucket: Option<Bucket>,
    /// Who it is; nobody in particular, if `None`.
    pub client: Option<Client>,
    /// Would it rather have answers as gzip?
    pub gzip: bool,
}

/// An answer and where it came from.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Goes to the client.
    pub answer: Answer,
    /// Goes to the log, the counters and the `cache-status` header.
    pub outcome: Outcome,
    /// The same answer deflated, for a caller who takes gzip, where there is such a form.
    pub deflated: Option<Arc<Deflated>>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// From memory.
    Hit(Source),
    /// From memory, cut out of something larger than what was asked for.
    Derived(Source),
    /// From a tier behind memory.
    Restored(TierKind),
    /// The upstream was asked, and what it said is kept.
    Stored,
    /// The upstream was asked, and what it said is not kept.
    Miss,
    /// Somebody else had asked already.
    Joined,
    /// Not for the cache: forwarded as it is.
    Bypass,
}

/// What in memory gave the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A cached entry with this part of a block.
    Cached(Part),
    /// What is known of the chain: a height, or that there is nothing.
    View,
    /// Who the upstream is.
    Identity,
}

// === impl Request ===

impl Request {
    /// A call that came alone.
    pub fn alone(caller: Caller, call: ReadCall) -> Self {
        Self { packet: Arc::new(PacketContext::alone(caller, call)), index: 0 }
    }

    pub(in crate::proxy) fn of(packet: Arc<PacketContext>, index: usize) -> Self {
        Self { packet, index }
    }

    /// What is asked.
    pub fn call(&self) -> &ReadCall {
        &self.packet.calls()[self.index]
    }

    /// Who asks, and what else.
    pub fn packet(&self) -> &Arc<PacketContext> {
        &self.packet
    }
}

// === impl Caller ===

impl Caller {
    /// Takes a call out of what it may still do.
    ///
    /// # Errors
    /// If there is none left: how long until there is.
    pub fn charge(&self) -> Result<(), Duration> {
        self.bucket.as_ref().map_or(Ok(()), Bucket::take)
    }
}

// === impl Answered ===

impl Answered {
    /// An answer in its plain form.
    pub fn new(answer: Answer, outcome: Outcome) -> Self {
        Self { answer, outcome, deflated: None }
    }

    /// A result out of memory.
    pub(in crate::proxy) fn hit(result: Bytes, source: Source) -> Self {
        Self::new(Answer::Result(result), Outcome::Hit(source))
    }
}

// === impl ReadCall ===

impl From<Call> for ReadCall {
    fn from(Call { id, method, params }: Call) -> Self {
        let label = MethodLabel::of(method.as_str());
        let query = Query::read(method.as_str(), &params);
        Self { id, method, params, label, query }
    }
}

// === impl Outcome ===

impl Outcome {
    /// What clients are told; whether it had to be cut is of no use to them.
    pub const NAMES: [&str; 5] = ["hit", "stored", "miss", "joined", "bypass"];

    /// Its place among the names.
    pub fn index(self) -> usize {
        match self {
            Self::Hit(_) | Self::Derived(_) | Self::Restored(_) => 0,
            Self::Stored => 1,
            Self::Miss => 2,
            Self::Joined => 3,
            Self::Bypass => 4,
        }
    }

    /// The `cache-status` (RFC 9211) of a response that holds this answer alone.
    pub fn cache_status(self) -> &'static str {
        match self {
            Self::Hit(source) | Self::Derived(source) => source.cache_status(),
            Self::Restored(TierKind::Disk) => "holdfast; hit; detail=disk",
            Self::Restored(TierKind::Redis) => "holdfast; hit; detail=redis",
            Self::Stored => "holdfast; fwd=miss; stored",
            Self::Miss => "holdfast; fwd=miss",
            Self::Joined => "holdfast; fwd=miss; collapsed",
            Self::Bypass => "holdfast; fwd=bypass",
        }
    }
}

// === impl Source ===

impl Source {
    fn cache_status(self) -> &'static str {
        match self {
            Self::Cached(Part::Block) => "holdfast; hit; detail=block",
            Self::Cached(Part::BlockWithHashes) => "holdfast; hit; detail=head",
            Self::Cached(Part::Receipts) => "holdfast; hit; detail=receipts",
            Self::Cached(Part::Transaction) => "holdfast; hit; detail=transaction",
            Self::Cached(Part::Receipt) => "holdfast; hit; detail=receipt",
            // No entry is a number.
            Self::View | Self::Cached(Part::TransactionCount | Part::UncleCount | Part::Number) => {
                "holdfast; hit; detail=view"
            }
            Self::Identity => "holdfast; hit; detail=identity",
        }
    }
}
