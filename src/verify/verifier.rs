//! Runs the checks of upstream answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::{
    Anchor, Config, Content, Demand, Failure, InForce, Kind, Known, Metrics, OnMismatch, Unproved, Verdict,
    Verified,
    chain_rules::ChainRules,
    logs,
    prove::{self, Proof},
    structural,
};
use crate::{
    blocking::WorkPanic,
    eth::{
        At, Block, BlockNumber, BlockWithHashes, Home, LogsCall, Part, Query, Receipts, SingleTransaction,
    },
    log_throttle::LogThrottle,
    workers::{Limits, Overdue, Patience, Workers},
};

/// Size in bytes up to which light checks run in the calling task. Today's largest block with transaction hashes has a
/// tenth of this size, and reading such a block takes no longer than handing it to another thread.
const SMALL: usize = 256 << 10;

/// Runs the checks of upstream answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    metrics: Metrics,
    rules: ChainRules,
    threads: Workers,
    said: LogThrottle,
}

/// Result of a proof.
enum Judged<T> {
    Passed(Verified<T>),
    Unproved(Failure, Verified<T>),
    Wrong(Failure),
}

// === impl Verifier ===

impl Verifier {
    /// Returns a verifier for a chain that is not known yet.
    pub fn new(config: Config, metrics: Metrics) -> Self {
        Self::with_limits(config, metrics, Limits::default())
    }

    /// Like [`new`](Self::new), with other limits for the proof threads.
    pub fn with_limits(config: Config, metrics: Metrics, limits: Limits) -> Self {
        Self(Arc::new(Inner {
            rules: ChainRules::new(&config),
            config,
            threads: Workers::new("proof", limits, metrics.waiting()),
            metrics,
            said: LogThrottle::default(),
        }))
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(super) fn is_news(&self, reason: &'static str) -> bool {
        self.0.said.is_due(reason)
    }

    /// Sets the chain that answers belong to from now on. `anchor` is `None` for a chain that can restart at any time
    /// or that continues another chain's history.
    pub fn follow(&self, chain_id: u64, anchor: Option<Anchor>) {
        self.0.rules.follow(chain_id, anchor);
    }

    /// Calls `notify` when content that passed without a proof turns out to be of a kind that can be proved. Only the
    /// first call of this method has an effect.
    pub fn on_first_proof(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.0.rules.on_first_proof(notify);
    }

    /// Returns the demand on content of this kind: the configured demand or, if the kind is unprovable, structural
    /// checks.
    pub fn demands(&self, kind: Kind) -> Demand {
        self.0.rules.demands(kind)
    }

    /// Returns whether content of this kind must be proved even if that takes extra fetches.
    pub fn demands_proof(&self, kind: Kind) -> bool {
        self.demands(kind) == Demand::Full
    }

    /// Returns whether headers of this chain have been proved, or the chain is listed as Ethereum's. Always `false` if
    /// the configuration asks only for structural checks.
    pub fn is_sure(&self) -> bool {
        self.0.rules.is_sure(Kind::Header)
    }

    pub(super) fn rules(&self) -> &ChainRules {
        &self.0.rules
    }

    /// Returns whether clients get an error instead of content that is wrong, or that is not proved where a proof is
    /// required.
    pub fn rejects(&self) -> bool {
        self.0.config.on_mismatch == OnMismatch::Reject
    }

    /// Returns whether clients get proved content only.
    pub fn must_prove(&self) -> bool {
        self.demands_proof(Kind::Header) && self.rejects()
    }

    /// Returns the demands in force, and the reason for them.
    pub fn in_force(&self) -> InForce {
        self.0.rules.in_force()
    }

    /// Checks content. Light checks run in the calling task, and other checks on the proof threads.
    pub(super) async fn check(&self, query: Query, result: Bytes, known: Arc<dyn Known>) -> Verdict {
        let is_light = match query.part {
            Part::BlockWithHashes => true,
            // Recovering a signer takes longer than switching threads.
            Part::Transaction => !self.0.rules.proves(Kind::Transactions),
            Part::Receipt => !self.0.rules.proves(Kind::Receipts),
            Part::Block | Part::Receipts => false,
            Part::TransactionCount | Part::UncleCount | Part::Number => true,
        };
        if is_light && result.len() <= SMALL {
            return self.guarded(|| self.examine(query, &result, &*known));
        }
        let (this, size) = (self.clone(), result.len());
        let examined = self.prove_apart(size, self.patience(), move || this.examine(query, &result, &*known));
        examined.await.unwrap_or_else(Verdict::Overdue)
    }

    /// Runs a check in the calling task. A panic fails only this check, as on the proof threads.
    fn guarded(&self, examine: impl FnOnce() -> Verdict) -> Verdict {
        catch_unwind(AssertUnwindSafe(examine)).unwrap_or_else(|payload| {
            let died = WorkPanic::from(payload);
            error!(%died, "verification of an answer panicked; not caching it (this is a bug)");
            Verdict::Overdue(Overdue::Panicked)
        })
    }

    /// Checks logs. Few logs are checked in the calling task, and many on the proof threads.
    pub(super) async fn check_logs(
        &self,
        call: Arc<LogsCall>,
        result: Bytes,
        known: Arc<dyn Known>,
    ) -> Verdict {
        let (size, is_ethereum) = (result.len(), self.is_ethereum());
        let examine = move || match logs::check(&call, &result, &*known, is_ethereum) {
            Ok(()) => Verdict::Checked,
            Err(failure) => Verdict::Wrong(failure),
        };
        if size <= SMALL {
            return self.guarded(examine);
        }
        self.prove_apart(size, self.patience(), examine).await.unwrap_or_else(Verdict::Overdue)
    }

    /// Returns whether the chain is listed as Ethereum's. Only there is every log in the bloom of its block.
    pub fn is_ethereum(&self) -> bool {
        self.0.rules.provability(Kind::Header).is_known()
    }

    /// Proves receipts that arrived before their block.
    ///
    /// # Errors
    /// If the receipts do not belong to `block`, or if there is no proof that they do.
    pub async fn prove_receipts(
        &self,
        receipts: Verified<Receipts>,
        block: Arc<Verified<Block>>,
    ) -> Result<Verified<Receipts>, Unproved> {
        if !self.0.rules.proves(Kind::Receipts) || !block.is_proved() {
            return Err(Unproved::NotDemanded);
        }
        let (this, size) = (self.clone(), receipts.all().len());
        let (block_hash, number) = (block.hash(), block.header().number);
        let prove = move |receipts| prove::receipts(receipts, &block);
        let judge = move || this.judge(Kind::Receipts, Some(number), receipts, prove);
        match self.prove_apart(size, self.patience(), judge).await {
            Ok(Judged::Passed(receipts)) => Ok(receipts),
            Ok(Judged::Unproved(failure, _)) => {
                self.metrics().unprovable();
                Err(Unproved::Failed(failure))
            }
            Ok(Judged::Wrong(failure)) => {
                self.metrics().failed(&failure);
                let (block, number) = (block_hash, number.0);
                if self.is_news(failure.as_str()) {
                    warn!(%block, number, %failure, "receipts do not match their block, which arrived later; dropping them");
                } else {
                    debug!(%block, number, %failure, "receipts do not match their block, which arrived later; dropping them");
                }
                Err(Unproved::Failed(failure))
            }
            Err(overdue) => {
                self.metrics().overdue(overdue);
                Err(Unproved::Overdue(overdue))
            }
        }
    }

    pub(super) fn anchored_chain(&self) -> Option<u64> {
        self.0.rules.anchored_chain()
    }

    /// Proves an answer of `size` bytes on the proof threads.
    pub(super) async fn prove_apart<T: Send + 'static>(
        &self,
        size: usize,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overdue> {
        self.0.threads.run(size, patience, work).await
    }

    /// Returns how long an answer waits for its proof: if clients must not get it unproved, as long as the client does.
    fn patience(&self) -> Patience {
        if self.rejects() { Patience::Unlimited } else { self.short_patience() }
    }

    /// Returns how long content waits for its proof if there is another way to answer.
    pub(super) fn short_patience(&self) -> Patience {
        Patience::Within(self.0.config.patience)
    }

    fn examine(&self, query: Query, result: &Bytes, known: &dyn Known) -> Verdict {
        let begun = Instant::now();
        let verdict = self.pass(query, result, known).unwrap_or_else(Verdict::Wrong);
        self.metrics().took(begun.elapsed());
        if let Verdict::Passed(content) = &verdict {
            self.metrics().passed(content.level());
        }
        verdict
    }

    /// Checks content. Returns an error if a check other than a proof fails, because the answer is then wrong.
    fn pass(
        &self,
        Query { part, at, index }: Query,
        result: &Bytes,
        known: &dyn Known,
    ) -> Result<Verdict, Failure> {
        Ok(match (part, at) {
            (Part::Block, _) => {
                let block = structural::block(result, at)?;
                self.0.rules.recognise(block.header())?;
                self.block(block, known)?
            }
            (Part::BlockWithHashes, _) => {
                let with_hashes = structural::block_with_hashes(result, at)?;
                self.0.rules.recognise(with_hashes.header())?;
                self.0.rules.check_list(with_hashes.header(), with_hashes.is_empty())?;
                self.block_with_hashes(with_hashes, known)
            }
            (Part::Receipts, _) => self.receipts(result, at, known)?,
            (Part::Transaction, At::Tx(hash)) => {
                self.transaction(structural::single_transaction(result, hash)?, known)?
            }
            (Part::Transaction, _) => {
                self.transaction(structural::single_transaction_at(result, at, index)?, known)?
            }
            (Part::Receipt, At::Tx(hash)) => {
                let receipt = structural::single_receipt(result, hash)?;
                let place = receipt.place();
                let held = known.block(place.block);
                structural::belongs(place, hash, held.as_deref())?;
                let receipt = receipt.settled(known.was_final(place.number));
                match held.filter(|held| held.is_proved()) {
                    Some(held) => self
                        .judge(Kind::Receipts, None, receipt, |receipt| prove::single_receipt(receipt, &held))
                        .verdict(Content::Receipt),
                    None => Verdict::Passed(Content::Receipt(receipt.into())),
                }
            }
            // These answers cannot be checked.
            (Part::Receipt | Part::TransactionCount | Part::UncleCount | Part::Number, _) => {
                Verdict::Unproved(Failure::Unfounded, None)
            }
        })
    }

    fn block(&self, block: Verified<Block>, known: &dyn Known) -> Result<Verdict, Failure> {
        let header = *block.header();
        if let Some(held) = known.block(header.hash)
            && held.is_proved()
            && held.full() == block.full()
        {
            return Ok(Verdict::Passed(Content::Block(held)));
        }
        let block = block.settled(known.was_final(header.number));
        let rules = &self.0.rules;
        let has_rules = rules.proves(Kind::Transactions);
        if !has_rules {
            rules.check_list(&header, block.is_empty())?;
        }
        if !rules.proves(Kind::Header) {
            return Ok(Verdict::Passed(Content::Block(block.into())));
        }
        // A block without transactions does not vote on provability, because its proof succeeds even on chains where
        // the proof of any other block fails.
        let at = (!block.is_empty()).then_some(header.number);
        let proof = prove::block_by_parts(block, rules.anchored_chain(), has_rules);
        Ok(self.judge_parts(at, proof).verdict(Content::Block))
    }

    fn block_with_hashes(&self, with_hashes: Verified<BlockWithHashes>, known: &dyn Known) -> Verdict {
        let header = *with_hashes.header();
        let with_hashes = with_hashes.settled(known.was_final(header.number));
        if !self.0.rules.proves(Kind::Header) {
            return Verdict::Passed(Content::BlockWithHashes(with_hashes.into()));
        }
        self.judge_parts(None, prove::block_with_hashes_by_parts(with_hashes))
            .verdict(Content::BlockWithHashes)
    }

    fn transaction(
        &self,
        transaction: Verified<SingleTransaction>,
        known: &dyn Known,
    ) -> Result<Verdict, Failure> {
        if let Some(place) = transaction.place() {
            structural::belongs(place, transaction.hash(), known.block(place.block).as_deref())?;
        }
        let settled = transaction.place().is_some_and(|place| known.was_final(place.number));
        let chain_id = self.0.rules.anchored_chain();
        let prove = |transaction| prove::single_transaction(transaction, chain_id);
        let judged = self.judge(Kind::Transactions, None, transaction.settled(settled), prove);
        Ok(judged.verdict(Content::Transaction))
    }

    fn receipts(&self, result: &Bytes, asked: At, known: &dyn Known) -> Result<Verdict, Failure> {
        let (receipts, places) = structural::read_receipts(result)?;
        let first = places.first().map(|(_, place)| *place);
        let block = match (asked, first) {
            (At::Hash(hash), _) => Some(hash),
            (_, Some(first)) => Some(first.block),
            (At::Number(number), None) => known.at(number),
            (At::Tag(_) | At::Tx(_), None) => None,
        };
        let held = block.and_then(|block| known.block(block));
        let listed = block.and_then(|block| known.listed(block));
        let number = listed.map(|(number, _)| number).or(first.map(|first| first.number));
        // An empty list means that the block has no transactions, or that the node lost the receipts. Only a known
        // block shows which.
        let (Some(block), Some(number)) = (block, number) else {
            return Ok(Verdict::Unproved(Failure::Unfounded, None));
        };
        if let At::Number(asked) = asked {
            structural::number(asked, number)?;
        }
        if let Some((_, count)) = listed.filter(|(_, count)| *count != receipts.len()) {
            let is_there = match asked {
                At::Hash(_) => known.was_at(number, block),
                _ => known.at(number) == Some(block),
            };
            let is_short = receipts.len() < count && is_there;
            let wrong = Failure::Count { expected: count, got: receipts.len() };
            return if is_short { Ok(Verdict::Short) } else { Err(wrong) };
        }
        let receipts = structural::own_receipts(receipts, &places, Home { block, number }, held.as_deref())?;
        if let Some(before) = known.receipts(block)
            && before.is_proved()
            && before.all() == receipts.all()
        {
            return Ok(Verdict::Passed(Content::Receipts(before)));
        }
        let receipts = receipts.settled(known.was_final(number));
        Ok(match held {
            Some(held) if held.is_proved() => {
                let prove = |receipts| prove::receipts(receipts, &held);
                let at = (!receipts.is_empty()).then_some(number);
                self.judge(Kind::Receipts, at, receipts, prove).verdict(Content::Receipts)
            }
            // `prove_receipts` proves the receipts when their block arrives.
            _ => Verdict::Passed(Content::Receipts(receipts.into())),
        })
    }

    /// Proves content, unless only structural checks apply to this kind. If `at` is set, the result is recorded as a
    /// vote on whether the kind is provable.
    fn judge<T: Clone>(
        &self,
        kind: Kind,
        at: Option<BlockNumber>,
        value: Verified<T>,
        prove: impl FnOnce(Verified<T>) -> Result<Verified<T>, Failure>,
    ) -> Judged<T> {
        if !self.0.rules.proves(kind) {
            return Judged::Passed(value);
        }
        match prove(value.clone()) {
            Ok(proved) => {
                self.0.rules.vote(kind, at, None);
                Judged::Passed(proved)
            }
            Err(failure) => self.judge_failure(kind, at, failure, value),
        }
    }

    /// Judges the proof of a block in parts. Votes on headers and on transactions separately.
    fn judge_parts<T>(&self, at: Option<BlockNumber>, Proof { content, failure }: Proof<T>) -> Judged<T> {
        let rules = &self.0.rules;
        if !matches!(failure, Some((Kind::Header, _))) {
            rules.vote(Kind::Header, at, None);
        }
        match failure {
            Some((kind, failure)) => self.judge_failure(kind, at, failure, content),
            None => {
                if content.is_proved() {
                    rules.vote(Kind::Transactions, at, None);
                }
                Judged::Passed(content)
            }
        }
    }

    /// Judges content whose proof failed. The content passes if its kind is unprovable on this chain, or may be. It is
    /// wrong if the chain is listed as Ethereum's and the failure is conclusive. Otherwise it is unproved.
    fn judge_failure<T>(
        &self,
        kind: Kind,
        at: Option<BlockNumber>,
        failure: Failure,
        content: Verified<T>,
    ) -> Judged<T> {
        let rules = &self.0.rules;
        rules.vote(kind, at, Some(&failure));
        if rules.passes_unproved(kind) {
            return Judged::Passed(content);
        }
        let is_listed = rules.provability(kind).is_known();
        let is_wrong = is_listed && !failure.is_unprovable();
        if is_wrong || (is_listed && kind == Kind::Header) {
            rules.note_mismatch();
        }
        if is_wrong { Judged::Wrong(failure) } else { Judged::Unproved(failure, content) }
    }
}

// === impl Judged ===

impl<T> Judged<T> {
    fn verdict(self, wrap: impl FnOnce(Arc<Verified<T>>) -> Content) -> Verdict {
        match self {
            Self::Passed(value) => Verdict::Passed(wrap(value.into())),
            Self::Unproved(failure, value) => Verdict::Unproved(failure, Some(wrap(value.into()))),
            Self::Wrong(failure) => Verdict::Wrong(failure),
        }
    }
}
