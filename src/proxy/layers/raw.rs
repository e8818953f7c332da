//! Answers calls for encoded content: asks the inner layers for the content, and encodes it.
//!
//! A node that lacks these methods still serves ordinary blocks and receipts, so clients that need encoded content
//! work with any provider. If the content cannot be encoded and proved, the node answers the call itself.

use std::task::{Context, Poll};

use alloy_primitives::hex;
use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, try_join_all};
use tower::{Layer, Service};

use super::deadline::Limit;
use crate::{
    eth::{Block, Part, Query, RawCall, RawForm, SingleTransaction, header_of_block},
    jsonrpc::{self, Answer, Params},
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            read_call::ReadCall,
            request::Request,
            slice::NULL,
        },
        error::CallError,
    },
    upstream::{Call, Upstream},
    verify::{Failure, Overdue, Verifier, prove::raw},
};

/// Codes of nodes for a method that they do not have, or do not serve under this plan.
const LACKING: [i64; 2] = [-32601, -32004];

/// Number of times that content is encoded for one call, if the chain changes meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Puts a [`Raw`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct RawLayer {
    pub(crate) verifier: Verifier,
    pub(crate) upstream: Upstream,
    pub(crate) limit: Limit,
}

/// Encodes content that the inner service answers with.
#[derive(Clone, Debug)]
pub(crate) struct Raw<S> {
    inner: S,
    layer: RawLayer,
}

/// The content of an answer that is encoded on the proof threads.
enum Whole {
    Block { block: Bytes, uncles: Vec<Bytes> },
    Receipts { receipts: Bytes, block: Bytes },
}

/// Reason for not encoding content.
enum Unencoded {
    /// The content does not have the hash or root that must cover it.
    Unprovable,
    Failed(CallError),
}

// === impl RawLayer ===

impl<S> Layer<S> for RawLayer {
    type Service = Raw<S>;

    fn layer(&self, inner: S) -> Raw<S> {
        Raw { inner, layer: self.clone() }
    }
}

// === impl Raw ===

impl<S> Service<Request> for Raw<S>
where
    S: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    type Response = Answered;
    type Error = CallError;
    type Future = Either<S::Future, BoxFuture<'static, Result<Answered, CallError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match request.call().raw.as_deref() {
            None => Either::Left(self.inner.call(request)),
            Some(raw) => {
                let (raw, this) = (*raw, self.clone());
                let limit = this.layer.limit.clone();
                Either::Right(Box::pin(limit.within(async move { this.answer(request, raw).await })))
            }
        }
    }
}

impl<S> Raw<S>
where
    S: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    /// Answers a call with encoded content. The node answers it as asked if the content does not exist, is pending or
    /// cannot be encoded. If the chain changed meanwhile, starts over.
    async fn answer(mut self, request: Request, raw: RawCall) -> Result<Answered, CallError> {
        let must_prove = self.layer.verifier.must_prove();
        for _ in 0..MAX_ATTEMPTS {
            let request = anew(&request);
            let Answered { answer, outcome, .. } = self.inner.call(request.unencoded()).await?;
            let is_absent = match &answer {
                Answer::Result(content) => *content == NULL || (!must_prove && is_pending(raw.form, content)),
                Answer::Error(_) => false,
            };
            let encoded = match &answer {
                Answer::Result(content) if !is_absent => self.encode(&request, raw.form, content).await,
                _ => Err(Unencoded::Unprovable),
            };
            let answered = match encoded {
                Ok((encoded, with)) => {
                    let outcome = derived(with.unwrap_or(outcome), outcome);
                    let answered = Answered::new(Answer::Result(encoded), outcome);
                    if !raw.form.is_whole() {
                        return Ok(answered);
                    }
                    answered
                }
                Err(Unencoded::Failed(error)) => return Err(error),
                Err(Unencoded::Unprovable) if must_prove && is_absent => {
                    return Ok(Answered::new(unknown(request.call()), outcome));
                }
                Err(Unencoded::Unprovable) if must_prove => return Err(CallError::Unproved),
                Err(Unencoded::Unprovable) => self.forward(&request, raw, is_absent).await?,
            };
            if raw.query.names_hash() || raw.query.transaction().is_some() {
                return Ok(answered);
            }
            // Encoding on the proof threads and forwarding take time, and nothing else checks their answers.
            let now = self.inner.call(anew(&request).unencoded()).await?.answer;
            if now == answer {
                return Ok(match is_absent && has_content(&request, &answered) {
                    true => Answered::new(unknown(request.call()), answered.outcome),
                    false => answered,
                });
            }
        }
        Err(CallError::Changed)
    }

    /// Lets the node answer the call. A tag that the packet has pinned to a block means that block.
    async fn forward(
        &mut self,
        request: &Request,
        raw: RawCall,
        is_absent: bool,
    ) -> Result<Answered, CallError> {
        let packet = request.packet();
        let pinned = raw.query.tag().and_then(|tag| packet.tag(tag));
        let sent = match pinned {
            Some(link) => own(request, raw.of_block(link.hash)),
            None => request.clone(),
        };
        let mut answered = self.inner.call(sent).await?;
        let is_lacking = answered.answer.error_code().is_some_and(|code| LACKING.contains(&code));
        if is_absent && is_lacking {
            answered.answer = unknown(request.call());
        }
        let has_content = has_content(request, &answered);
        match raw.query.tag() {
            // The node denies the block that other calls of the packet were answered from.
            Some(tag) if pinned.is_some() && !has_content && !is_lacking => Err(CallError::Left { tag }),
            // Nothing shows whether this answer is on the branch of the packet's other calls by tag.
            Some(tag) if pinned.is_none() && has_content && packet.has_several_tags(tag) => {
                Err(CallError::Left { tag })
            }
            _ => Ok(answered),
        }
    }

    /// Encodes content, and returns the outcome of the second query, if one was necessary.
    async fn encode(
        &mut self,
        request: &Request,
        form: RawForm,
        content: &Bytes,
    ) -> Result<(Bytes, Option<Outcome>), Unencoded> {
        match form {
            RawForm::JsonHeader => {
                // The hash proves the header, whose members are served as they are.
                raw::header(content)?;
                let text = std::str::from_utf8(content).map_err(|_| Unencoded::Unprovable)?;
                Ok((header_of_block(text).map_err(|_| Unencoded::Unprovable)?, None))
            }
            RawForm::Header => Ok((quoted(&raw::header(content)?), None)),
            RawForm::Transaction => Ok((quoted(&raw::transaction(content)?), None)),
            RawForm::Receipts => {
                let (block, _) = Block::read(content.clone()).map_err(|_| Unencoded::Unprovable)?;
                let receipts = Query::new(Part::Receipts, block.hash());
                let receipts = own(request, (receipts.method(), receipts.params()));
                let Answered { answer, outcome, .. } = self.inner.call(receipts).await?;
                let Answer::Result(receipts) = answer else { return Err(Unencoded::Unprovable) };
                let whole = Whole::Receipts { receipts, block: content.clone() };
                Ok((self.encode_whole(whole).await?, Some(outcome)))
            }
            RawForm::Block => {
                let uncles = if raw::has_uncles(content)? { self.uncles(content).await? } else { Vec::new() };
                let whole = Whole::Block { block: content.clone(), uncles };
                Ok((self.encode_whole(whole).await?, None))
            }
        }
    }

    async fn encode_whole(&self, whole: Whole) -> Result<Bytes, Unencoded> {
        let encoded = self.layer.verifier.encode(whole.len(), move || whole.encode()).await;
        Ok(encoded??)
    }

    /// Fetches the headers of a block's uncles.
    async fn uncles(&self, block: &Bytes) -> Result<Vec<Bytes>, Unencoded> {
        let (block, _) = Block::read(block.clone()).map_err(|_| Unencoded::Unprovable)?;
        let header = *block.header();
        let fetches = (0..header.uncles).map(|index| async move {
            let params = Params::from_own(format!(r#"["{}","{index:#x}"]"#, header.hash));
            let call = Call::new("eth_getUncleByBlockHashAndIndex", params);
            match self.layer.upstream.call(call).await.map_err(CallError::Upstream)? {
                Answer::Result(uncle) => Ok(uncle),
                Answer::Error(_) => Err(Unencoded::Unprovable),
            }
        });
        try_join_all(fetches).await
    }
}

// === impl Whole ===

impl Whole {
    fn len(&self) -> usize {
        match self {
            Self::Block { block, .. } => block.len(),
            Self::Receipts { receipts, block } => receipts.len() + block.len(),
        }
    }

    fn encode(&self) -> Result<Bytes, Failure> {
        match self {
            Self::Block { block, uncles } => raw::block(block, uncles).map(|encoded| quoted(&encoded)),
            Self::Receipts { receipts, block } => {
                let encoded = raw::receipts(receipts, block)?;
                let texts: Vec<_> = encoded.iter().map(hex::encode_prefixed).collect();
                Ok(serde_json::Value::from(texts).to_string().into())
            }
        }
    }
}

// === impl Unencoded ===

impl From<Failure> for Unencoded {
    fn from(_: Failure) -> Self {
        Self::Unprovable
    }
}

impl From<Overdue> for Unencoded {
    fn from(_: Overdue) -> Self {
        Self::Unprovable
    }
}

impl From<CallError> for Unencoded {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the call as one that arrives now, with tags that mean the blocks of now. In a batch, tags keep their meaning.
fn anew(request: &Request) -> Request {
    match request.packet().calls() {
        [call] => Request::alone(request.packet().caller().clone(), call.clone()),
        _ => request.clone(),
    }
}

/// Returns a request of Holdfast's own on behalf of the caller of `request`.
fn own(request: &Request, (method, params): (&'static str, Params)) -> Request {
    let call = jsonrpc::Call { id: None, method: method.into(), params };
    Request::alone(request.packet().caller().clone(), ReadCall::from(call))
}

/// Returns bytes as a JSON string.
fn quoted(bytes: &[u8]) -> Bytes {
    format!("\"{}\"", hex::encode_prefixed(bytes)).into()
}

/// Returns whether the content is a transaction that is in no block yet.
fn is_pending(form: RawForm, content: &Bytes) -> bool {
    form == RawForm::Transaction
        && SingleTransaction::read(content.clone()).is_ok_and(|transaction| transaction.place().is_none())
}

/// Returns the outcome of an answer that is encoded from two contents with these outcomes.
fn derived(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Hit(_) | Outcome::Derived(_), Outcome::Hit(source) | Outcome::Derived(source)) => {
            Outcome::Derived(source)
        }
        (Outcome::Hit(_) | Outcome::Derived(_), other) => other,
        (one, _) => one,
    }
}

/// Returns whether an answer says that the content exists.
fn has_content(request: &Request, answered: &Answered) -> bool {
    answered.answer.is_content() && answered.answer != unknown(request.call())
}

/// Returns geth's answer for content that does not exist.
fn unknown(call: &ReadCall) -> Answer {
    match call.method.as_str() {
        "debug_getRawBlock" => Answer::Error(Bytes::from_static(br#"{"code":-32000,"message":"not found"}"#)),
        "debug_getRawReceipts" | "eth_getHeaderByHash" | "eth_getHeaderByNumber" => Answer::Result(NULL),
        _ => Answer::Result(Bytes::from_static(b"\"0x\"")),
    }
}
