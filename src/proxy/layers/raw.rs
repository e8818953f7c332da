//! Answers calls for encoded content: asks the cache and the upstream for the content, and encodes it.
//!
//! A node that lacks these methods still serves ordinary blocks and receipts, so clients that need encoded content
//! work with any provider. If the content cannot be encoded and proved, the node answers the call itself.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use tower::Service;

use super::raw_content::{Named, WholeContent, is_lacking, is_nothing, quoted, unknown};
use crate::{
    eth::{At, BlockHash, Home, Part, Query, RawCall, RawForm, Tag, header_of_block},
    jsonrpc::{Answer, Params},
    proxy::{
        call::{
            caller::Caller,
            client_limit::ClientConcurrency,
            outcome::{Answered, Outcome},
            request::Request,
        },
        error::CallError,
        head::{SharedView, Since},
    },
    verify::{Failure, Verifier, prove::raw},
    workers::{Patience, Workers},
};

/// Number of times that content is encoded for one call, if the chain changes meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Bytes of encoded blocks and receipts to keep. Encoding proves the content again, so without them each repetition of a
/// call would cost as much CPU as the first. A few blocks are enough, because clients read each block once.
const ENCODED: u64 = 16 << 20;

/// The components that encode and check content.
#[derive(Clone, Debug)]
pub(crate) struct RawTools {
    verifier: Verifier,
    view: Arc<SharedView>,
    concurrency: ClientConcurrency,
    workers: Arc<Workers>,
    /// Encoded blocks and receipts by block hash. They never change.
    encoded: moka::sync::Cache<(RawForm, BlockHash), Bytes>,
}

/// Encodes the content that `C` answers with.
#[derive(Debug)]
pub(super) struct Encoder<C> {
    content: C,
    tools: RawTools,
}

/// Reason for not encoding content.
enum Unencoded {
    /// Nothing proves the content, or there is none.
    Unproved,
    /// The node's error about another part of the content.
    Refused(Answer),
    Failed(CallError),
}

// === impl RawTools ===

impl RawTools {
    pub(crate) fn new(
        verifier: Verifier,
        view: Arc<SharedView>,
        concurrency: ClientConcurrency,
        workers: Arc<Workers>,
    ) -> Self {
        let encoded = moka::sync::Cache::builder()
            .weigher(|_, encoded: &Bytes| u32::try_from(encoded.len()).unwrap_or(u32::MAX))
            .max_capacity(ENCODED)
            .build();
        Self { verifier, view, concurrency, workers, encoded }
    }

    /// Encodes a block or a list of receipts, on threads that clients use in turn.
    async fn encode_whole(&self, caller: &Caller, whole: WholeContent) -> Result<Bytes, Unencoded> {
        let encoding = self.workers.run(whole.len(), Patience::Unlimited, move || whole.encode());
        let encoded = self.concurrency.within(caller.client, encoding).await;
        Ok(encoded.map_err(|_| CallError::Overloaded)??)
    }
}

// === impl Encoder ===

impl<C> Encoder<C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    pub(super) fn new(content: C, tools: RawTools) -> Self {
        Self { content, tools }
    }

    /// Answers a call with encoded content. The node answers it if the content does not exist, is pending or cannot be
    /// encoded. If the content left the chain meanwhile, starts over.
    pub(super) async fn answer(&self, request: Request, raw: RawCall) -> Result<Answered, CallError> {
        let must_prove = self.tools.verifier.must_prove();
        let is_batch = request.packet().calls().len() > 1;
        if raw.query.at == At::Tag(Tag::Pending) {
            return match must_prove {
                true => Err(CallError::Unproved),
                false => self.forward(&request, raw, &Named::Absent).await,
            };
        }
        for _ in 0..MAX_ATTEMPTS {
            let since = Since::now(&self.tools.view, raw.query);
            let request = request.anew();
            let Answered { answer, outcome, .. } =
                self.content.clone().call(request.for_content(raw.query)).await?;
            let named = Named::of(&answer, raw.form, must_prove);
            let encoded = match &named {
                Named::Content { json, home } if named.fits(raw.query) => {
                    self.encode(&request, raw.form, json, *home).await
                }
                Named::Refused(error) => Err(Unencoded::Refused(error.clone())),
                _ => Err(Unencoded::Unproved),
            };
            let answered = match encoded {
                Ok((encoded, with)) => {
                    let outcome = derived(with.unwrap_or(outcome), outcome);
                    Answered::new(Answer::Result(encoded), outcome)
                }
                Err(Unencoded::Failed(error)) => return Err(error),
                Err(Unencoded::Unproved | Unencoded::Refused(_)) if must_prove => {
                    return match named {
                        Named::Absent => Ok(Answered::new(unknown(request.call()), outcome)),
                        // The client did not ask the question that the node refused.
                        Named::Refused(_) | Named::Content { .. } => Err(CallError::Unproved),
                    };
                }
                Err(Unencoded::Unproved) => self.forward(&request, raw, &named).await?,
                Err(Unencoded::Refused(error)) => {
                    let answered = self.forward(&request, raw, &named).await?;
                    // The node's error about the content says more than that it lacks the method.
                    let answer = if is_lacking(&answered.answer) { error } else { answered.answer };
                    Answered { answer, ..answered }
                }
            };
            // Encoding and forwarding take time, in which the block can leave the chain. In a batch, a tag keeps its
            // meaning. An orphan is served by its hash.
            let depends = match raw.query.at {
                At::Number(_) => true,
                At::Tag(tag) => !is_batch || request.packet().tag(tag).is_none(),
                At::Hash(_) | At::Tx(_) => false,
            };
            // Also the answer that there is no such content is about a block.
            let pinned = raw.query.tag().and_then(|tag| request.packet().tag(tag));
            let pinned = pinned.map(|link| Home { number: link.number, block: link.hash });
            let has_left = match named.home().or(pinned) {
                Some(home) => since.has_left(&self.tools.view, home),
                None => since.has_changed(&self.tools.view),
            };
            // The node denies a block that it has just shown: it was reset, or the block left its chain.
            let is_denied = named.home().is_some() && is_nothing(request.call(), &answered.answer);
            // The content has passed this check; blocks of one node that has not moved need not link to each other.
            let stands = || self.tools.view.tracker().is_at(since.head());
            if depends && (is_denied || (has_left && !stands())) {
                continue;
            }
            return Ok(answered);
        }
        Err(CallError::Changed)
    }

    /// Lets the node answer the call, for the block that the content names or the packet has pinned.
    async fn forward(&self, request: &Request, raw: RawCall, named: &Named) -> Result<Answered, CallError> {
        let (packet, tag) = (request.packet(), raw.query.tag());
        let pinned = tag.and_then(|tag| packet.tag(tag)).map(|link| link.hash);
        let home = named.home().filter(|_| named.fits(raw.query));
        let block = home.map(|home| home.block).or(pinned);
        let sent = match block.filter(|_| raw.query.transaction().is_none()) {
            Some(block) => request.on_behalf(raw.of_block(block)),
            None => request.clone(),
        };
        let mut answered = self.content.clone().call(sent).await?;
        let is_absent = matches!(named, Named::Absent);
        if is_absent && is_lacking(&answered.answer) {
            answered.answer = unknown(request.call());
        }
        let is_unknown = is_nothing(request.call(), &answered.answer);
        let has_content = answered.answer.is_content() && !is_unknown;
        if let Some(tag) = tag {
            // The node denies the block that other calls of the packet may have been answered from, or nothing shows
            // that its answer is on the branch of the packet's other calls by tag.
            let is_denied = !is_absent && pinned.is_some() && is_unknown;
            if is_denied || (block.is_none() && has_content && packet.has_several_tags(tag)) {
                return Err(CallError::Left { tag });
            }
        }
        let is_pending = raw.query.at == At::Tag(Tag::Pending);
        if is_absent && has_content && raw.query.transaction().is_none() && !is_pending {
            // The node has a newer head than the view. Until the view has it, the block does not exist.
            answered.answer = unknown(request.call());
        }
        Ok(answered)
    }

    /// Encodes content, and returns the outcome of the second query, if one was necessary.
    async fn encode(
        &self,
        request: &Request,
        form: RawForm,
        json: &Bytes,
        home: Option<Home>,
    ) -> Result<(Bytes, Option<Outcome>), Unencoded> {
        let caller = request.packet().caller();
        let key = home.map(|home| (form, home.block));
        if let Some(encoded) = key.and_then(|key| self.tools.encoded.get(&key)) {
            return Ok((encoded, None));
        }
        let keep = |encoded: Bytes| {
            if let Some(key) = key {
                self.tools.encoded.insert(key, encoded.clone());
            }
            encoded
        };
        match form {
            RawForm::JsonHeader => {
                // The hash proves the header, whose members are served as they are.
                raw::header(json)?;
                let text = std::str::from_utf8(json).map_err(|_| Unencoded::Unproved)?;
                Ok((header_of_block(text).map_err(|_| Unencoded::Unproved)?, None))
            }
            RawForm::Header => Ok((quoted(&raw::header(json)?), None)),
            RawForm::Transaction => Ok((quoted(&raw::transaction(json)?), None)),
            RawForm::Receipts => {
                let block = home.ok_or(Unencoded::Unproved)?.block;
                let receipts = Query::new(Part::Receipts, block);
                let receipts = request.on_behalf((receipts.method(), receipts.params()));
                let Answered { answer, outcome, .. } = self.content.clone().call(receipts).await?;
                let Answer::Result(receipts) = answer else { return Err(Unencoded::Refused(answer)) };
                let whole = WholeContent::Receipts { receipts, block: json.clone() };
                Ok((self.tools.encode_whole(caller, whole).await.map(keep)?, Some(outcome)))
            }
            RawForm::Block => {
                let block = home.ok_or(Unencoded::Unproved)?.block;
                let uncles = self.uncles(request, json, block).await?;
                let whole = WholeContent::Block { block: json.clone(), uncles };
                Ok((self.tools.encode_whole(caller, whole).await.map(keep)?, None))
            }
        }
    }

    /// Fetches the headers of a block's uncles.
    async fn uncles(
        &self,
        request: &Request,
        json: &Bytes,
        block: BlockHash,
    ) -> Result<Vec<Bytes>, Unencoded> {
        let fetches = (0..raw::uncles(json)?).map(|index| async move {
            let params = Params::from_own(format!(r#"["{block}","{index:#x}"]"#));
            let call = request.on_behalf(("eth_getUncleByBlockHashAndIndex", params));
            match self.content.clone().call(call).await?.answer {
                Answer::Result(uncle) => Ok(uncle),
                Answer::Error(_) => Err(Unencoded::Unproved),
            }
        });
        try_join_all(fetches).await
    }
}

// === impl Unencoded ===

impl From<Failure> for Unencoded {
    fn from(_: Failure) -> Self {
        Self::Unproved
    }
}

impl From<CallError> for Unencoded {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the outcome of an answer that is encoded from two contents with these outcomes.
fn derived(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Hit(_) | Outcome::Derived(_), Outcome::Hit(source) | Outcome::Derived(source)) => {
            Outcome::Derived(source)
        }
        (Outcome::Hit(_) | Outcome::Derived(_) | Outcome::Stale { .. }, other) => other,
        (one, _) => one,
    }
}
