//! Decides what is demanded of an answer, and sees to its checks.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
};

use bytes::Bytes;
use tokio::{sync::Semaphore, task, time::Instant};
use tracing::{error, warn};

use super::{
    Asked, AskedBlock, Check, Checked, Config, Demand, Failure, Known, Metrics, OnMismatch, Verdict,
    Verified, provability::Provability, prove, structural,
};
use crate::{
    eth::{Block, BlockHash, BlockNumber, Header, LoneTransaction, Receipts, ThinBlock},
    seldom::Seldom,
};

/// What is checked in less time than it takes to hand it to another thread and back.
const SMALL: usize = 8 << 10;

/// Sees to checks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    metrics: Metrics,
    chain: Mutex<Chain>,
    /// What `chain` comes to, for those who only look.
    in_force: AtomicU8,
    /// As many checks at a time as there are cores: more would only take longer each.
    cores: Semaphore,
    said: Seldom,
}

/// What is known of a chain's rules.
#[derive(Debug)]
struct Chain {
    id: Option<u64>,
    /// Its block 0, where that is sure.
    genesis: Option<BlockHash>,
    blocks: Provability,
    receipts: Provability,
}

/// What is in force, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What is demanded by the configuration.
    pub configured: Demand,
    /// What is demanded of blocks.
    pub blocks: Demand,
    /// What is demanded of receipts.
    pub receipts: Demand,
    /// Why.
    pub why: &'static str,
}

/// What came of a proof.
enum Judged<T> {
    Passed(Verified<T>),
    Unproved(Failure, Verified<T>),
    Wrong(Failure),
}

/// What can turn out not to be provable on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blocks,
    Receipts,
}

// === impl Verifier ===

impl Verifier {
    /// A verifier for a chain that is not known yet.
    pub fn new(config: Config, metrics: Metrics) -> Self {
        let undecided = Provability::Undecided(Vec::new());
        let chain = Chain { id: None, genesis: None, blocks: undecided.clone(), receipts: undecided };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Inner {
            in_force: AtomicU8::new(config.level as u8),
            config,
            metrics,
            chain: Mutex::new(chain),
            cores: Semaphore::new(cores),
            said: Seldom::default(),
        }))
    }

    /// How it was told to check.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(super) fn is_news(&self, reason: &'static str) -> bool {
        self.0.said.is_due(reason)
    }

    /// From here on answers are of this chain, whose block 0 is this one where that is sure.
    pub fn follow(&self, chain_id: u64, genesis: Option<BlockHash>) {
        let mut chain = self.chain();
        if chain.id == Some(chain_id) {
            chain.genesis = genesis;
            return;
        }
        let provability = Provability::new(chain_id, &self.0.config.ethereum_chains);
        *chain = Chain { id: Some(chain_id), genesis, blocks: provability.clone(), receipts: provability };
        self.0.in_force.store(self.0.config.level as u8, Relaxed);
    }

    /// What is demanded of blocks: what is configured or, where nothing can be proved, less.
    pub fn demands(&self) -> Demand {
        match self.0.in_force.load(Relaxed) {
            0 => Demand::Auto,
            1 => Demand::Full,
            _ => Demand::Structural,
        }
    }

    /// Must everything be proved?
    pub fn demands_proof(&self) -> bool {
        self.demands() == Demand::Full
    }

    /// Is what is wrong, or cannot be proved where proof is demanded, to be kept from clients?
    pub fn rejects(&self) -> bool {
        self.0.config.on_mismatch == OnMismatch::Reject
    }

    /// What is in force, and why.
    pub fn in_force(&self) -> InForce {
        let configured = self.0.config.level;
        let chain = self.chain();
        let demanded = |provability: &Provability| {
            if provability.is_lacking() { Demand::Structural } else { configured }
        };
        let (blocks, receipts) = (demanded(&chain.blocks), demanded(&chain.receipts));
        let why = match &chain.blocks {
            _ if configured == Demand::Structural => "it is configured so",
            _ if chain.id.is_none() => "the chain is not known yet",
            Provability::Known => "the chain is known to keep Ethereum's rules",
            Provability::Shown if receipts == Demand::Structural => {
                "blocks of this chain have been proved, but its receipts keep rules of their own"
            }
            Provability::Shown => "blocks of this chain have been proved",
            Provability::Undecided(_) => "no block of this chain has been proved yet: its first ones decide",
            Provability::Lacking => {
                "no block of this chain could be proved, at three heights: it has rules of its own"
            }
        };
        InForce { configured, blocks, receipts, why }
    }

    /// The check for a call's answer.
    pub fn check_for(&self, asked: Asked, known: Arc<dyn Known>) -> Check {
        Check::new(self.clone(), asked, known)
    }

    /// Checks content: small ones here, others where they keep nobody waiting but their own.
    pub(super) async fn check(&self, asked: Asked, result: Bytes, known: Arc<dyn Known>) -> Verdict {
        if result.len() <= SMALL {
            return self.examine(asked, &result, &*known);
        }
        let this = self.clone();
        self.apart(move || this.examine(asked, &result, &*known)).await.unwrap_or(Verdict::Overdue)
    }

    /// Proves receipts that waited for their block; `None` if that cannot be done.
    ///
    /// # Errors
    /// If they are not that block's.
    pub async fn prove_receipts(
        &self,
        receipts: Verified<Receipts>,
        block: Arc<Verified<Block>>,
    ) -> Option<Result<Verified<Receipts>, Failure>> {
        if !self.proves(Kind::Receipts) || !block.is_proved() {
            return None;
        }
        let this = self.clone();
        let number = block.header().number;
        let prove = move |receipts| prove::receipts(receipts, &block);
        let judged = self.apart(move || this.judge(Kind::Receipts, Some(number), receipts, prove)).await?;
        Some(match judged {
            Judged::Passed(receipts) => Ok(receipts),
            Judged::Unproved(failure, _) => {
                self.metrics().unprovable();
                Err(failure)
            }
            Judged::Wrong(failure) => {
                self.metrics().failed(&failure);
                Err(failure)
            }
        })
    }

    /// Runs `work` beside the threads that serve clients; `None` if it died.
    async fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _core = self.0.cores.acquire().await.expect("the semaphore is never closed");
        let done = task::spawn_blocking(work).await;
        done.inspect_err(|died| error!(%died, "a check died: this is a bug")).ok()
    }

    fn examine(&self, asked: Asked, result: &Bytes, known: &dyn Known) -> Verdict {
        let begun = Instant::now();
        let verdict = self.pass(asked, result, known).unwrap_or_else(Verdict::Wrong);
        self.metrics().took(begun.elapsed());
        if let Verdict::Passed(checked) = &verdict {
            self.metrics().passed(checked.level());
        }
        verdict
    }

    /// The error is one of structure: that is wrong on any chain.
    fn pass(&self, asked: Asked, result: &Bytes, known: &dyn Known) -> Result<Verdict, Failure> {
        Ok(match asked {
            Asked::Block(asked) => {
                let block = structural::block(result, asked)?;
                self.recognise(block.header())?;
                self.block(block, known)
            }
            Asked::Thin(asked) => {
                let thin = structural::thin_block(result, asked)?;
                self.recognise(thin.header())?;
                self.thin(thin, known)
            }
            Asked::Receipts(asked) => self.receipts(result, asked, known)?,
            Asked::Transaction(hash) => self.transaction(structural::lone_transaction(result, hash)?, known),
            Asked::TransactionAt(asked, index) => {
                self.transaction(structural::lone_transaction_at(result, asked, index)?, known)
            }
            Asked::Receipt(hash) => {
                let receipt = structural::lone_receipt(result, hash)?;
                let place = receipt.place();
                let settled = known.was_final(place.number);
                Verdict::Passed(Checked::Receipt(receipt.settled(settled)))
            }
        })
    }

    /// A block proves itself, also one of another chain: of block 0 it is known which it must be.
    fn recognise(&self, header: &Header) -> Result<(), Failure> {
        match self.chain().genesis {
            Some(genesis) if header.number == BlockNumber(0) => structural::hash(genesis, header.hash),
            _ => Ok(()),
        }
    }

    fn block(&self, block: Verified<Block>, known: &dyn Known) -> Verdict {
        let header = *block.header();
        if let Some(held) = known.block(header.hash)
            && held.is_proved()
            && held.full() == block.full()
        {
            return Verdict::Passed(Checked::Block((*held).clone()));
        }
        let block = block.settled(known.was_final(header.number));
        let chain_id = self.chain().id;
        self.judge(Kind::Blocks, Some(header.number), block, |block| prove::block(block, chain_id))
            .verdict(Checked::Block)
    }

    fn thin(&self, thin: Verified<ThinBlock>, known: &dyn Known) -> Verdict {
        let header = *thin.header();
        let thin = thin.settled(known.was_final(header.number));
        self.judge(Kind::Blocks, None, thin, prove::thin_block).verdict(Checked::Thin)
    }

    fn transaction(&self, transaction: Verified<LoneTransaction>, known: &dyn Known) -> Verdict {
        let settled = transaction.place().is_some_and(|place| known.was_final(place.number));
        let chain_id = self.chain().id;
        let prove = |transaction| prove::lone_transaction(transaction, chain_id);
        self.judge(Kind::Blocks, None, transaction.settled(settled), prove).verdict(Checked::Transaction)
    }

    fn receipts(&self, result: &Bytes, asked: AskedBlock, known: &dyn Known) -> Result<Verdict, Failure> {
        let first = structural::first_place(result)?;
        let block = match (asked, first) {
            (AskedBlock::ByHash(hash), _) => Some(hash),
            (_, Some(first)) => Some(first.block),
            (AskedBlock::ByNumber(number), None) => known.at(number),
            (AskedBlock::ByTag, None) => None,
        };
        let held = block.and_then(|block| known.block(block));
        let number = held.as_ref().map(|held| held.header().number).or(first.map(|first| first.number));
        // A block without transactions has no receipts either; and neither has a node that lost them.
        let (Some(block), Some(number)) = (block, number) else {
            return Ok(Verdict::Unproved(Failure::Unfounded, None));
        };
        if let AskedBlock::ByNumber(asked) = asked {
            structural::number(asked, number)?;
        }
        let receipts = structural::receipts(result, block, number, held.as_deref())?;
        let wrap = |receipts| Checked::Receipts { block, number, receipts };
        if let Some(before) = known.receipts(block)
            && before.is_proved()
            && before.all() == receipts.all()
        {
            return Ok(Verdict::Passed(wrap((*before).clone())));
        }
        let receipts = receipts.settled(known.was_final(number));
        Ok(match held {
            Some(held) if held.is_proved() => {
                let prove = |receipts| prove::receipts(receipts, &held);
                self.judge(Kind::Receipts, Some(number), receipts, prove).verdict(wrap)
            }
            // They wait for their block.
            _ => Verdict::Passed(wrap(receipts)),
        })
    }

    /// Proves content, as far as this chain's can be. What is at a height of its own also tells whether
    /// it can.
    fn judge<T: Clone>(
        &self,
        kind: Kind,
        at: Option<BlockNumber>,
        value: Verified<T>,
        prove: impl FnOnce(Verified<T>) -> Result<Verified<T>, Failure>,
    ) -> Judged<T> {
        if !self.proves(kind) {
            return Judged::Passed(value);
        }
        let failure = match prove(value.clone()) {
            Ok(proved) => {
                self.vote(kind, at, None);
                return Judged::Passed(proved);
            }
            Err(failure) => failure,
        };
        self.vote(kind, at, Some(&failure));
        let mut chain = self.chain();
        let provability = chain.of(kind);
        if provability.is_lacking() {
            Judged::Passed(value)
        } else if failure.is_unprovable() || !provability.is_sure() {
            Judged::Unproved(failure, value)
        } else {
            Judged::Wrong(failure)
        }
    }

    fn vote(&self, kind: Kind, at: Option<BlockNumber>, failure: Option<&Failure>) {
        let Some(at) = at else { return };
        let mut chain = self.chain();
        let id = chain.id.unwrap_or_default();
        if !chain.of(kind).vote(at, failure.is_none()) {
            return;
        }
        if kind == Kind::Blocks {
            self.0.in_force.store(Demand::Structural as u8, Relaxed);
        }
        if let Some(failure) = failure {
            warn!(
                chain_id = id,
                %failure,
                "{} of this chain cannot be proved by Ethereum's rules: from here on only their structure is \
                 checked. If the chain keeps those rules, name it in verify.ethereum_chains",
                kind.as_str()
            );
        }
    }

    /// Is proof of these asked for, and possible?
    fn proves(&self, kind: Kind) -> bool {
        let mut chain = self.chain();
        self.0.config.level != Demand::Structural
            && !chain.blocks.is_lacking()
            && !chain.of(kind).is_lacking()
    }

    fn chain(&self) -> MutexGuard<'_, Chain> {
        self.0.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Chain ===

impl Chain {
    fn of(&mut self, kind: Kind) -> &mut Provability {
        match kind {
            Kind::Blocks => &mut self.blocks,
            Kind::Receipts => &mut self.receipts,
        }
    }
}

// === impl Kind ===

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Receipts => "receipts",
        }
    }
}

// === impl Judged ===

impl<T> Judged<T> {
    fn verdict(self, wrap: impl FnOnce(Verified<T>) -> Checked) -> Verdict {
        match self {
            Self::Passed(value) => Verdict::Passed(wrap(value)),
            Self::Unproved(failure, value) => Verdict::Unproved(failure, Some(wrap(value))),
            Self::Wrong(failure) => Verdict::Wrong(failure),
        }
    }
}
