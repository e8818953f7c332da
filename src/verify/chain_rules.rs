//! What is demanded of the content of the chain that is followed: of one with rules of its own, less.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use alloy_trie::EMPTY_ROOT_HASH;
use parking_lot::Mutex;
use tracing::warn;

use super::{Config, Demand, Failure, provability::Provability, structural};
use crate::eth::{BlockHash, BlockNumber, Header, Part};

/// What is known of the rules of the chain that is followed, and so what its content must come up to.
#[derive(Debug)]
pub(super) struct ChainRules {
    /// As it is configured.
    level: Demand,
    ethereum_chains: Vec<u64>,
    chain: Mutex<Chain>,
    /// Whether nothing of a kind can be proved, by [`Kind`]: a summary of `chain` for readers without its lock.
    lacking: [AtomicBool; 3],
}

/// The chain, and whether its content can be proved.
#[derive(Debug)]
struct Chain {
    id: Option<u64>,
    anchor: Option<Anchor>,
    /// By [`Kind`].
    parts: [Provability; 3],
}

/// What is in force, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What is demanded by the configuration.
    pub configured: Demand,
    /// What is demanded of headers.
    pub headers: Demand,
    /// What is demanded of whole blocks and of transactions.
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

/// A part of a chain's content that is provable or not, whatever the others are; each is proved by those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Headers of blocks.
    Header,
    /// Transactions, and so whole blocks and lists of hashes.
    Transactions,
    /// Receipts.
    Receipts,
}

// === impl ChainRules ===

impl ChainRules {
    /// For a chain that is not known yet.
    pub(super) fn new(config: &Config) -> Self {
        let undecided = || Provability::Undecided(Vec::new());
        let chain = Chain { id: None, anchor: None, parts: Kind::ALL.map(|_| undecided()) };
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
        let mut chain = self.chain.lock();
        chain.anchor = anchor;
        if chain.id == Some(chain_id) {
            return;
        }
        let provability = || Provability::new(chain_id, &self.ethereum_chains);
        *chain = Chain { id: Some(chain_id), anchor, parts: Kind::ALL.map(|_| provability()) };
        for lacking in &self.lacking {
            lacking.store(false, Relaxed);
        }
    }

    /// What is demanded of content of this kind: what is configured or, where nothing can be proved, less.
    pub(super) fn demands(&self, kind: Kind) -> Demand {
        if self.lacking[kind as usize].load(Relaxed) { Demand::Structural } else { self.level }
    }

    /// Returns whether content of this kind has been proved, or the chain is listed as Ethereum's.
    pub(super) fn is_sure(&self, kind: Kind) -> bool {
        self.level != Demand::Structural && self.provability(kind).is_sure()
    }

    /// What is in force, and why.
    pub(super) fn in_force(&self) -> InForce {
        let configured = self.level;
        let chain = self.chain.lock();
        let [headers, blocks, receipts] = Kind::ALL.map(|kind| self.demands(kind));
        let [header, transactions, _] = &chain.parts;
        let why = match (header, transactions) {
            _ if configured == Demand::Structural => "it is configured so",
            _ if chain.id.is_none() => "the chain is not known yet",
            (Provability::Known, _) => "the chain is known to keep Ethereum's rules",
            (Provability::Undecided(_), _) => {
                "no block of this chain has been proved yet: its first ones decide"
            }
            (Provability::Lacking, _) => {
                "no block of this chain could be proved, at three heights: it has rules of its own"
            }
            (Provability::Shown, Provability::Lacking) => {
                "headers of this chain have been proved, but its transactions keep rules of their own"
            }
            (Provability::Shown, Provability::Undecided(_)) => {
                "headers of this chain have been proved, its transactions not yet: its first blocks decide"
            }
            _ if receipts == Demand::Structural => {
                "blocks of this chain have been proved, but its receipts keep rules of their own"
            }
            _ => "blocks of this chain have been proved",
        };
        InForce { configured, headers, blocks, receipts, why }
    }

    /// A block proves itself, also one of another chain: of block 0 it is known which it must be.
    pub(super) fn recognise(&self, header: &Header) -> Result<(), Failure> {
        match self.chain.lock().anchor.and_then(|anchor| anchor.genesis) {
            Some(genesis) if header.number == BlockNumber(0) => structural::hash(genesis, header.hash),
            _ => Ok(()),
        }
    }

    /// Checks that a block which lists transactions does not have the root of an empty list.
    ///
    /// # Errors
    /// On chains listed as Ethereum's. Others list transactions that are in no root: Polygon its state syncs.
    pub(super) fn check_list(&self, header: &Header, is_empty: bool) -> Result<(), Failure> {
        let is_in_no_root = header.transactions_root == EMPTY_ROOT_HASH && !is_empty;
        if is_in_no_root && self.provability(Kind::Transactions).is_known() {
            return Err(Failure::Emptied("not empty"));
        }
        Ok(())
    }

    /// The chain that transactions must be for, where that is sure.
    pub(super) fn anchored_chain(&self) -> Option<u64> {
        self.chain.lock().anchor.map(|anchor| anchor.chain_id)
    }

    /// Returns whether content of this kind is to be proved, and can be.
    pub(super) fn proves(&self, kind: Kind) -> bool {
        self.demands(kind) != Demand::Structural
    }

    /// Returns what is known of the rules that content of this kind keeps.
    pub(super) fn provability(&self, kind: Kind) -> Provability {
        self.chain.lock().parts[kind as usize].clone()
    }

    /// Content at this height was proved, or failed to be: that may decide whether any can be.
    pub(super) fn vote(&self, kind: Kind, at: Option<BlockNumber>, failure: Option<&Failure>) {
        let Some(at) = at else { return };
        let mut chain = self.chain.lock();
        let id = chain.id.unwrap_or_default();
        if !chain.parts[kind as usize].vote(at, failure.is_none()) {
            return;
        }
        // Nothing but a proved header proves transactions, and nothing but a proved block its receipts.
        for lacking in &self.lacking[kind as usize..] {
            lacking.store(true, Relaxed);
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
}

// === impl Kind ===

impl Kind {
    /// Every kind, each before those that it proves.
    pub const ALL: [Self; 3] = [Self::Header, Self::Transactions, Self::Receipts];

    /// Returns the kind of content that answers a query for this part.
    pub fn of(part: Part) -> Self {
        match part {
            Part::Receipts | Part::Receipt => Self::Receipts,
            _ => Self::Transactions,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Header => "headers",
            Self::Transactions => "transactions",
            Self::Receipts => "receipts",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(ethereum_chains: Vec<u64>) -> ChainRules {
        let rules = ChainRules::new(&Config { ethereum_chains, ..Config::default() });
        rules.follow(77, None);
        rules
    }

    /// A block is proved up to the first part that fails.
    fn vote(rules: &ChainRules, at: u64, fails: Option<Kind>) {
        for kind in Kind::ALL {
            let failure = (fails == Some(kind)).then_some(Failure::Unfounded);
            rules.vote(kind, Some(BlockNumber(at)), failure.as_ref());
            if failure.is_some() {
                return;
            }
        }
    }

    fn votes() -> impl Strategy<Value = Vec<(u64, Option<usize>)>> {
        proptest::collection::vec((0u64..9, proptest::option::of(0usize..3)), 0..40)
    }

    proptest! {
        #[test]
        fn no_liar_can_talk_any_part_of_a_listed_chain_down(votes in votes()) {
            let rules = rules(vec![77]);
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind]));
                for kind in Kind::ALL {
                    prop_assert!(rules.proves(kind) && rules.provability(kind).is_known());
                }
            }
        }

        #[test]
        fn part_that_fails_disables_none_before_it(votes in votes(), part in 0usize..3) {
            let rules = rules(Vec::new());
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind.max(part)]));
                let proves = Kind::ALL.map(|kind| rules.proves(kind));
                prop_assert!(proves[..part].iter().all(|proves| *proves));
                // What is left unproved proves nothing that follows from it.
                prop_assert!(proves.is_sorted_by(|before, after| before >= after));
            }
        }

        #[test]
        fn part_that_was_proved_stays_checked(votes in votes(), part in 0usize..3) {
            let rules = rules(Vec::new());
            vote(&rules, 1, Kind::ALL.get(part + 1).copied());
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind]));
                for kind in &Kind::ALL[..=part] {
                    prop_assert!(rules.proves(*kind));
                    prop_assert!(!rules.provability(*kind).is_known(), "it may deviate, and nobody lied");
                }
            }
        }
    }
}
