//! What is demanded of the content of the chain that is followed: of one with rules of its own, less.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tracing::warn;

use super::{Config, Demand, Failure, provability::Provability, structural};
use crate::eth::{BlockHash, BlockNumber, Header};

/// What is known of the rules of the chain that is followed, and so what its content must come up to.
#[derive(Debug)]
pub(super) struct ChainRules {
    /// As it is configured.
    level: Demand,
    ethereum_chains: Vec<u64>,
    chain: Mutex<Chain>,
    /// Can nothing of a kind be proved? It is what `chain` comes to, for those who only look.
    lacking: [AtomicBool; 2],
}

/// The chain, and whether its content can be proved.
#[derive(Debug)]
struct Chain {
    id: Option<u64>,
    anchor: Option<Anchor>,
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

/// What is sure of a chain, beyond a node's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The chain that transactions must be for.
    pub chain_id: u64,
    /// Its block 0, where that is known.
    pub genesis: Option<BlockHash>,
}

/// What can turn out not to be provable on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Blocks, and the transactions in them.
    Blocks,
    /// Receipts.
    Receipts,
}

// === impl ChainRules ===

impl ChainRules {
    /// For a chain that is not known yet.
    pub(super) fn new(config: &Config) -> Self {
        let undecided = Provability::Undecided(Vec::new());
        let chain = Chain { id: None, anchor: None, blocks: undecided.clone(), receipts: undecided };
        Self {
            level: config.level,
            ethereum_chains: config.ethereum_chains.clone(),
            chain: Mutex::new(chain),
            lacking: Default::default(),
        }
    }

    /// From here on answers are of this chain. Its anchor is what is sure of it, beyond the node's word: on a
    /// chain that is started anew at will, or goes on from another's history, there is none.
    pub(super) fn follow(&self, chain_id: u64, anchor: Option<Anchor>) {
        let mut chain = self.lock();
        chain.anchor = anchor;
        if chain.id == Some(chain_id) {
            return;
        }
        let provability = Provability::new(chain_id, &self.ethereum_chains);
        *chain = Chain { id: Some(chain_id), anchor, blocks: provability.clone(), receipts: provability };
        for lacking in &self.lacking {
            lacking.store(false, Relaxed);
        }
    }

    /// What is demanded of content of this kind: what is configured or, where nothing can be proved, less.
    pub(super) fn demands(&self, kind: Kind) -> Demand {
        if self.lacking[kind as usize].load(Relaxed) { Demand::Structural } else { self.level }
    }

    /// Is it sure that blocks which do not come out are wrong, or newer than this program?
    pub(super) fn is_sure(&self) -> bool {
        self.level != Demand::Structural && self.lock().blocks.is_sure()
    }

    /// What is in force, and why.
    pub(super) fn in_force(&self) -> InForce {
        let configured = self.level;
        let chain = self.lock();
        let (blocks, receipts) = (self.demands(Kind::Blocks), self.demands(Kind::Receipts));
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

    /// A block proves itself, also one of another chain: of block 0 it is known which it must be.
    pub(super) fn recognise(&self, header: &Header) -> Result<(), Failure> {
        match self.lock().anchor.and_then(|anchor| anchor.genesis) {
            Some(genesis) if header.number == BlockNumber(0) => structural::hash(genesis, header.hash),
            _ => Ok(()),
        }
    }

    /// The chain that transactions must be for, where that is sure.
    pub(super) fn anchored_chain(&self) -> Option<u64> {
        self.lock().anchor.map(|anchor| anchor.chain_id)
    }

    /// Is proof of these asked for, and possible?
    pub(super) fn proves(&self, kind: Kind) -> bool {
        let mut chain = self.lock();
        self.level != Demand::Structural && !chain.blocks.is_lacking() && !chain.of(kind).is_lacking()
    }

    /// Can content of this kind be proved?
    pub(super) fn provability(&self, kind: Kind) -> Provability {
        self.lock().of(kind).clone()
    }

    /// Content at this height was proved, or failed to be: that may decide whether any can be.
    pub(super) fn vote(&self, kind: Kind, at: Option<BlockNumber>, failure: Option<&Failure>) {
        let Some(at) = at else { return };
        let mut chain = self.lock();
        let id = chain.id.unwrap_or_default();
        if !chain.of(kind).vote(at, failure.is_none()) {
            return;
        }
        self.lacking[kind as usize].store(true, Relaxed);
        if kind == Kind::Blocks {
            // Nothing but a proved block proves receipts.
            self.lacking[Kind::Receipts as usize].store(true, Relaxed);
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

    fn lock(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
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
