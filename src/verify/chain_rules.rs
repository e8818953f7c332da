//! Decides which checks the content of the current chain must pass. Content of a chain that does not follow Ethereum's
//! rules must pass fewer checks.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use alloy_trie::EMPTY_ROOT_HASH;
use parking_lot::Mutex;
use tracing::warn;

use super::{Config, Demand, Failure, provability::Provability, structural};
use crate::eth::{BlockHash, BlockNumber, Header, Part};

/// Knowledge of the current chain's rules, and the checks that follow from it.
pub(super) struct ChainRules {
    /// Configured demand.
    level: Demand,
    ethereum_chains: Vec<u64>,
    chain: Mutex<Chain>,
    /// Whether content is unprovable, indexed by [`Kind`]. This summary of `chain` can be read without its lock.
    lacking: [AtomicBool; 3],
    /// Called when content that passed without a proof turns out to be of a kind that can be proved.
    on_first_proof: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The current chain, and whether its content can be proved.
#[derive(Debug)]
struct Chain {
    id: Option<u64>,
    anchor: Option<Anchor>,
    /// Whether content can be proved, indexed by [`Kind`].
    parts: [Provability; 3],
    /// Whether content passed without a proof while that was undecided, indexed by [`Kind`].
    passed: [bool; 3],
    /// Whether a proof of a listed chain succeeded; `None` before the first proof.
    matches_its_id: Option<bool>,
}

/// Demands in force, and the reason for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Configured demand.
    pub configured: Demand,
    /// Demand on headers.
    pub headers: Demand,
    /// Demand on full blocks and transactions.
    pub blocks: Demand,
    /// Demand on receipts.
    pub receipts: Demand,
    /// The reason, shown in the status.
    pub why: &'static str,
}

/// Facts about a chain that do not depend on a node's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Chain id that transactions must name.
    pub chain_id: u64,
    /// Hash of block 0, if known.
    pub genesis: Option<BlockHash>,
}

/// A kind of content. Each kind may be provable or unprovable on a chain. The proof of a kind needs the proofs of the
/// kinds before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Block headers.
    Header,
    /// Transactions, and with them full blocks and lists of transaction hashes.
    Transactions,
    /// Receipts.
    Receipts,
}

// === impl ChainRules ===

impl ChainRules {
    /// Returns rules for a chain that is not known yet.
    pub(super) fn new(config: &Config) -> Self {
        let undecided = || Provability::Undecided(Vec::new());
        let parts = Kind::ALL.map(|_| undecided());
        let chain = Chain { id: None, anchor: None, parts, passed: [false; 3], matches_its_id: None };
        Self {
            level: config.level,
            ethereum_chains: config.ethereum_chains.clone(),
            chain: Mutex::new(chain),
            lacking: Default::default(),
            on_first_proof: OnceLock::new(),
        }
    }

    /// Calls `notify` when content that passed without a proof turns out to be of a kind that can be proved. Only the
    /// first call of this method has an effect.
    pub(super) fn on_first_proof(&self, notify: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_first_proof.set(Box::new(notify));
    }

    /// Sets the chain that answers belong to from now on. `anchor` is `None` for a chain that can restart at any time
    /// or that continues another chain's history.
    pub(super) fn follow(&self, chain_id: u64, anchor: Option<Anchor>) {
        let mut chain = self.chain.lock();
        chain.anchor = anchor;
        if chain.id == Some(chain_id) {
            return;
        }
        let parts = Kind::ALL.map(|_| Provability::new(chain_id, &self.ethereum_chains));
        *chain = Chain { id: Some(chain_id), anchor, parts, passed: [false; 3], matches_its_id: None };
        for lacking in &self.lacking {
            lacking.store(false, Relaxed);
        }
    }

    /// Returns the demand on content of this kind: the configured demand or, if the kind is unprovable, structural
    /// checks.
    pub(super) fn demands(&self, kind: Kind) -> Demand {
        if self.lacking[kind as usize].load(Relaxed) { Demand::Structural } else { self.level }
    }

    /// Returns whether content of this kind has been proved, or the chain is listed as Ethereum's. Always `false` if
    /// the configuration asks only for structural checks.
    pub(super) fn is_sure(&self, kind: Kind) -> bool {
        self.level != Demand::Structural && self.provability(kind).is_sure()
    }

    /// Returns the demands in force, and the reason for them.
    pub(super) fn in_force(&self) -> InForce {
        let configured = self.level;
        let chain = self.chain.lock();
        let [headers, blocks, receipts] = Kind::ALL.map(|kind| self.demands(kind));
        let [header, transactions, _] = &chain.parts;
        let why = match (header, transactions) {
            _ if configured == Demand::Structural => "set by verify.level",
            _ if chain.id.is_none() => "the chain is not known yet",
            (Provability::Known, _) if chain.matches_its_id == Some(false) => {
                "nothing is cached: the node's blocks cannot be proved by the rules of this chain id. Update Holdfast \
                 after a fork; for a test chain with this id, use --verify structural"
            }
            (Provability::Known, _) => "the chain is listed as following Ethereum's rules",
            (Provability::Undecided(_), _) => {
                "no block of this chain has been proved yet; until its first blocks decide, unproved content stays \
                 in memory"
            }
            (Provability::Lacking, _) => {
                "blocks at three heights could not be proved: the chain does not follow Ethereum's rules"
            }
            (Provability::Shown, Provability::Lacking) => {
                "headers of this chain have been proved, but its transactions do not follow Ethereum's rules"
            }
            (Provability::Shown, Provability::Undecided(_)) => {
                "headers of this chain have been proved, but not yet its transactions; its first blocks decide"
            }
            _ if receipts == Demand::Structural => {
                "blocks of this chain have been proved, but its receipts do not follow Ethereum's rules"
            }
            _ => "blocks of this chain have been proved",
        };
        InForce { configured, headers, blocks, receipts, why }
    }

    /// If this is the header of block 0, checks that it is the known genesis. A proof cannot show that, because a block
    /// of another chain passes its proof, too.
    pub(super) fn recognise(&self, header: &Header) -> Result<(), Failure> {
        match self.chain.lock().anchor.and_then(|anchor| anchor.genesis) {
            Some(genesis) if header.number == BlockNumber(0) => structural::hash(genesis, header.hash),
            _ => Ok(()),
        }
    }

    /// Checks that a block that lists transactions does not have the root of an empty list.
    ///
    /// # Errors
    /// If the check fails on a chain listed as Ethereum's. Some other chains list transactions that no root covers,
    /// such as Polygon's state syncs.
    pub(super) fn check_list(&self, header: &Header, is_empty: bool) -> Result<(), Failure> {
        let is_in_no_root = header.transactions_root == EMPTY_ROOT_HASH && !is_empty;
        if is_in_no_root && self.provability(Kind::Transactions).is_known() {
            return Err(Failure::Emptied("not empty"));
        }
        Ok(())
    }

    /// Returns the chain id that transactions must name, if the chain has an anchor.
    pub(super) fn anchored_chain(&self) -> Option<u64> {
        self.chain.lock().anchor.map(|anchor| anchor.chain_id)
    }

    /// Returns whether the verifier tries to prove content of this kind: proofs are configured, and the kind was not
    /// found to be unprovable.
    pub(super) fn proves(&self, kind: Kind) -> bool {
        self.demands(kind) != Demand::Structural
    }

    /// Returns whether content of this kind passes although its proof failed: the kind is unprovable, or that is
    /// undecided and no proof is required.
    pub(super) fn passes_unproved(&self, kind: Kind) -> bool {
        let mut chain = self.chain.lock();
        match chain.parts[kind as usize] {
            Provability::Lacking => true,
            Provability::Undecided(_) if self.level == Demand::Auto => {
                chain.passed[kind as usize] = true;
                true
            }
            Provability::Undecided(_) | Provability::Shown | Provability::Known => false,
        }
    }

    /// Records that content of a listed chain is wrong, or a header cannot be proved.
    pub(super) fn note_mismatch(&self) {
        let mut chain = self.chain.lock();
        if chain.matches_its_id.is_none() {
            chain.matches_its_id = Some(false);
            warn!(
                chain_id = chain.id.unwrap_or_default(),
                "the node's blocks cannot be proved by the rules of this chain id: nothing is cached until a proof \
                 succeeds. Update Holdfast after a fork; for a test chain with this id, use --verify structural"
            );
        }
    }

    /// Returns how much is known about whether content of this kind can be proved.
    pub(super) fn provability(&self, kind: Kind) -> Provability {
        self.chain.lock().parts[kind as usize].clone()
    }

    /// Records that a proof at this height succeeded or failed, which may decide whether the kind is provable.
    pub(super) fn vote(&self, kind: Kind, at: Option<BlockNumber>, failure: Option<&Failure>) {
        let mut chain = self.chain.lock();
        if failure.is_none() && kind == Kind::Header {
            chain.matches_its_id = Some(true);
        }
        let Some(at) = at else { return };
        let id = chain.id.unwrap_or_default();
        if !chain.parts[kind as usize].vote(at, failure.is_none()) {
            let is_first = failure.is_none() && std::mem::take(&mut chain.passed[kind as usize]);
            drop(chain);
            if let Some(notify) = self.on_first_proof.get().filter(|_| is_first) {
                notify();
            }
            return;
        }
        // The later kinds are unprovable, too: a proof of transactions needs a proved header, and a proof of receipts
        // needs a proved block.
        for lacking in &self.lacking[kind as usize..] {
            lacking.store(true, Relaxed);
        }
        if let Some(failure) = failure {
            warn!(
                chain_id = id,
                %failure,
                "{} of this chain cannot be proved by Ethereum's rules; only checking their structure from now on. If \
                 the chain follows those rules, add its id to verify.ethereum_chains",
                kind.as_str()
            );
        }
    }
}

impl fmt::Debug for ChainRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, chain, .. } = self;
        f.debug_struct("ChainRules").field("level", level).field("chain", chain).finish_non_exhaustive()
    }
}

// === impl Kind ===

impl Kind {
    /// All kinds, each before the kinds whose proofs depend on it.
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

    /// Votes for the parts of one block, up to the first part that fails.
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
        fn lies_cannot_disable_any_check_of_a_listed_chain(votes in votes()) {
            let rules = rules(vec![77]);
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind]));
                for kind in Kind::ALL {
                    prop_assert!(rules.proves(kind) && rules.provability(kind).is_known());
                }
            }
        }

        #[test]
        fn failing_part_disables_no_part_before_it(votes in votes(), part in 0usize..3) {
            let rules = rules(Vec::new());
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind.max(part)]));
                let proves = Kind::ALL.map(|kind| rules.proves(kind));
                prop_assert!(proves[..part].iter().all(|proves| *proves));
                // An unprovable kind makes all later kinds unprovable.
                prop_assert!(proves.is_sorted_by(|before, after| before >= after));
            }
        }

        #[test]
        fn proved_part_stays_checked(votes in votes(), part in 0usize..3) {
            let rules = rules(Vec::new());
            vote(&rules, 1, Kind::ALL.get(part + 1).copied());
            for (at, fails) in votes {
                vote(&rules, at, fails.map(|kind| Kind::ALL[kind]));
                for kind in &Kind::ALL[..=part] {
                    prop_assert!(rules.proves(*kind));
                    prop_assert!(!rules.provability(*kind).is_known(), "a later mismatch need not be a wrong answer");
                }
            }
        }
    }

    #[test]
    fn structural_checks_make_nothing_sure() {
        for (level, is_sure) in [(Demand::Auto, true), (Demand::Full, true), (Demand::Structural, false)] {
            let rules = ChainRules::new(&Config { level, ethereum_chains: vec![77], ..Config::default() });
            rules.follow(77, None);
            assert_eq!(Kind::ALL.map(|kind| rules.is_sure(kind)), [is_sure; 3]);
        }
    }
}
