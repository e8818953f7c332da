//! Forwards calls to the upstream as the client sent them.

use super::{fetcher::is_settled, prove::Prover};
use crate::{
    chain::{Link, Stamp},
    eth::{Home, Tag},
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, Outcome},
            query_call::QueryCall,
        },
        error::CallError,
        head::{SharedView, Since},
    },
    upstream::{AcceptedAnswer, Call, Identity, Requirements, Upstream},
    verify::{Content, Verdict},
};

/// A call that was forwarded.
pub(super) struct Forwarded {
    pub(super) answered: Answered,
    /// Block of the answer, if the answer names one.
    place: Option<Home>,
    since: Since,
}

/// Forwards calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Forwarder {
    prover: Prover,
    upstream: Upstream,
    identity: Identity,
}

// === impl Forwarder ===

impl Forwarder {
    pub(crate) fn new(prover: Prover, upstream: Upstream) -> Self {
        let identity = upstream.identity();
        Self { prover, upstream, identity }
    }

    fn view(&self) -> &SharedView {
        self.prover.fetcher().view()
    }

    /// Forwards the call unchanged, and checks the answer without storing it.
    pub(super) async fn forward_as_asked(
        &self,
        asked: &QueryCall,
        arrival: Stamp,
    ) -> Result<Forwarded, CallError> {
        let (demands_proof, rejects) = (self.prover.demands_proof(asked.query), self.prover.rejects());
        // The same requirements as for other fetches that depend on canonicity.
        let head = self.view().tracker().head().map(|head| head.number);
        let block = asked.query.number().filter(|number| Some(*number) <= head);
        let primary = !asked.query.names_hash();
        // Closer to the head, another endpoint may be on another branch, and its block there is no better than
        // `null`.
        let retry_null = block.is_some_and(|block| is_settled(block, head));
        let need = Requirements { block, primary, retry_null, ..Requirements::default() };
        let call = asked.call().with_requirements(need);
        let since = Since::now(self.view(), asked.query);
        let question = asked.query;
        if !question.is_verifiable() {
            let answered = self.forward(call, Outcome::Miss).await?;
            if asked.query.is_count() && demands_proof && rejects && answered.answer.is_content() {
                return Err(CallError::Unproved);
            }
            return Ok(Forwarded { answered, place: None, since });
        }
        let check = self.prover.fetcher().check(question, since.stamp());
        let accepted = self.prover.fetcher().ask(call, check).await.map_err(CallError::Upstream)?;
        let AcceptedAnswer { answer, verdict, .. } = accepted;
        let content = match verdict {
            Some(Verdict::Passed(content) | Verdict::Unproved(_, Some(content))) => Some(content),
            Some(Verdict::Short) if !self.view().tracker().rules().development => {
                return Err(CallError::Lacking { what: question });
            }
            _ => None,
        };
        let place = content.as_ref().and_then(Content::named_home);
        if let Some(place) = place.filter(|_| primary) {
            self.view().tell(place);
        }
        if !demands_proof || !answer.is_content() {
            return Ok(Forwarded { answered: Answered::new(answer, Outcome::Miss), place, since });
        }
        let proved = match content {
            Some(content) => self.prover.prove(asked.query, &content, arrival, None).await?,
            None if rejects => return Err(CallError::Unproved),
            None => None,
        };
        let answer = proved.map_or(answer, Answer::Result);
        Ok(Forwarded { answered: Answered::new(answer, Outcome::Miss), place, since })
    }

    /// Returns whether the block of a forwarded answer may have left the chain. Refreshes the view before returning
    /// true, because the answer may be newer than the view. If one node showed the same head before and after the answer,
    /// its blocks do not link to each other, and the answer is as canonical as the head.
    pub(super) async fn is_excluded(&self, asked: &QueryCall, forwarded: &Forwarded) -> bool {
        let view = self.view();
        let Forwarded { answered, place, since } = forwarded;
        // `null` is wrong if the view had a block at that number.
        let is_absent = answered.answer.is_null()
            && asked.query.index.is_none()
            && since.knew_block()
            && !view.tracker().rules().development;
        let may_have_left = || match place {
            None if is_absent => Since::now(view, asked.query).knew_block(),
            Some(home) => since.has_left(view, *home),
            None => matches!(answered.answer, Answer::Result(_)) && since.has_changed(view),
        };
        if asked.query.names_hash() || !may_have_left() {
            return false;
        }
        let stands = self.still_shows(since.head()).await;
        stands.is_none_or(|stands| may_have_left() && (is_absent || !stands))
    }

    /// Looks at the head, and returns whether one node still shows `head`: then it has not moved. Several nodes may show
    /// the same head and yet contradict each other. Returns `None` if no node shows a head.
    pub(crate) async fn still_shows(&self, head: Option<Link>) -> Option<bool> {
        let since = self.view().clock().now();
        self.prover.fetcher().canon().head().renew(Tag::Latest, since).await.ok()?;
        let tracker = self.view().tracker();
        Some(tracker.is_at(head) && tracker.refreshed().is_some_and(|sent| !sent.is_before(since)))
    }

    pub(super) async fn forward(&self, call: Call, outcome: Outcome) -> Result<Answered, CallError> {
        let accepted = self.upstream.call(call).await.map_err(CallError::Upstream)?;
        Ok(Answered::new(accepted.answer, outcome))
    }

    /// Returns the requirements of a forwarded call. A lagging node would answer for an older head than clients have
    /// seen, and the answer would not show it.
    pub(super) fn requirements(&self) -> Requirements {
        let head = self.view().tracker().head().map(|head| head.number);
        Requirements { head, forwarded: true, ..Requirements::default() }
    }

    /// Ensures that the upstream serves the expected chain, and that the view follows that chain.
    pub(crate) async fn confirm_chain(&self) -> Result<(), CallError> {
        let who = self.identity.confirm().await?;
        self.view().adopt(&who);
        Ok(())
    }
}
