//! Whether a chain's content can be proved at all.
//!
//! On a chain that is listed as Ethereum's, content whose hashes do not match is wrong, or newer than this program. Any
//! other chain may have different rules, so its first blocks decide. The first content whose hashes match shows that
//! the chain's content is provable. If the first few blocks fail, at different heights, the verifier checks only the
//! structure from then on. The decision is made once. A chain whose content was shown to be provable may still deviate
//! from Ethereum's rules later, so its content is called unprovable, never wrong, if the hashes do not match.

use crate::eth::BlockNumber;

/// Chains that follow Ethereum's rules: Mainnet, Sepolia, Holesky, Hoodi.
const ETHEREUM: [u64; 4] = [1, 11_155_111, 17_000, 560_048];

/// Number of failed proofs, at different heights and without a success, after which a chain is considered unprovable.
const ENOUGH: usize = 3;

/// Knowledge of whether a chain follows Ethereum's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provability {
    /// The chain follows Ethereum's rules, because it is in the built-in list or the operator listed it.
    Known,
    /// No proof has succeeded yet. Proofs failed at these heights.
    Undecided(Vec<BlockNumber>),
    /// A proof succeeded.
    Shown,
    /// Enough proofs failed, and none succeeded.
    Lacking,
}

// === impl Provability ===

impl Provability {
    pub(super) fn new(chain_id: u64, named: &[u64]) -> Self {
        if ETHEREUM.contains(&chain_id) || named.contains(&chain_id) {
            Self::Known
        } else {
            Self::Undecided(Vec::new())
        }
    }

    /// Records whether a proof at this height succeeded. Returns whether this vote made the chain unprovable.
    pub(super) fn vote(&mut self, at: BlockNumber, proved: bool) -> bool {
        let Self::Undecided(heights) = self else { return false };
        if proved {
            *self = Self::Shown;
            return false;
        }
        if !heights.contains(&at) {
            heights.push(at);
        }
        let decided = heights.len() >= ENOUGH;
        if decided {
            *self = Self::Lacking;
        }
        decided
    }

    /// Returns whether the chain is listed as Ethereum's. If so, content whose hashes do not match is wrong, unless it
    /// is newer than this program.
    pub(super) fn is_known(&self) -> bool {
        *self == Self::Known
    }

    /// Returns whether content can be proved: the chain is listed, or a proof has succeeded.
    pub(super) fn is_sure(&self) -> bool {
        matches!(self, Self::Known | Self::Shown)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_unproved_heights_or_one_proof_decide() {
        let mut foreign = Provability::new(10, &[]);
        assert!(!foreign.vote(BlockNumber(1), false));
        assert!(!foreign.vote(BlockNumber(1), false));
        assert!(!foreign.vote(BlockNumber(2), false));
        assert!(foreign.vote(BlockNumber(3), false));
        assert_eq!(foreign, Provability::Lacking);
        let mut shown = Provability::new(10, &[]);
        shown.vote(BlockNumber(1), false);
        shown.vote(BlockNumber(2), true);
        assert!(shown.is_sure() && !shown.is_known());
    }

    proptest! {
        #[test]
        fn lies_cannot_disable_proofs_of_a_known_chain(
            votes in proptest::collection::vec((0u64..9, any::<bool>()), 0..40), named in any::<bool>()
        ) {
            let mut chain =
                if named { Provability::new(77, &[77]) } else { Provability::new(1, &[]) };
            for (at, proved) in votes {
                prop_assert!(!chain.vote(BlockNumber(at), proved));
                prop_assert!(chain.is_known() && chain.is_sure());
            }
        }

        #[test]
        fn decision_is_permanent(votes in proptest::collection::vec((0u64..9, any::<bool>()), 0..40)) {
            let mut chain = Provability::new(10, &[]);
            let mut decided = 0;
            for (at, proved) in votes {
                let before = chain.clone();
                decided += u32::from(chain.vote(BlockNumber(at), proved));
                if !matches!(before, Provability::Undecided(_)) {
                    prop_assert_eq!(before, chain.clone());
                }
            }
            prop_assert!(decided <= 1);
        }
    }
}
