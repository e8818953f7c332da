//! Trust in the number and transaction index of one tier.
//!
//! No hash proves which block is canonical at a number. So Holdfast trusts the index of a tier only after the upstream
//! has confirmed the highest finalized block noted in this tier:
//!
//! ```text
//!                     confirm
//!     Unconfirmed ──────────────▶ Confirmed
//!                 ◀──────────────
//!                  doubt, forget
//! ```
//!
//! An unconfirmed tier receives no writes. Holdfast uses its index for hints. Until an upstream has answered for the
//! first time since the start, Holdfast also takes the canonical hash at a number from this index. While a tier must
//! forget its index, the index does not answer at all, and the tier cannot be confirmed.
//!
//! Each doubt whether an index is still right starts a new [`Generation`]. Before Holdfast checks that a block is
//! final, it reads the generation. A tier drops the write of this block if there was a doubt about the tier after that.
//! Likewise, a doubt during a confirmation voids the confirmation.
//!
//! Content by hash needs no trust, because each read verifies it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use parking_lot::Mutex;

use crate::eth::BlockNumber;

/// The number of doubts about any tier so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

/// The current generation, shared by all tiers.
#[derive(Clone, Debug, Default)]
pub(super) struct GenerationCounter(Arc<AtomicU64>);

/// Tiers whose index may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Only confirmed tiers.
    Confirmed,
    /// Unconfirmed tiers too, except those that must forget their index. This is for hints, and for all answers as long
    /// as no upstream has answered since the start.
    Any,
}

/// State machine of the trust in one tier's index.
#[derive(Debug, Default)]
pub(super) struct Trust {
    generations: GenerationCounter,
    current: Mutex<(Generation, State)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unconfirmed {
        /// Whether the tier must forget its index before it can be confirmed.
        must_forget: bool,
    },
    Confirmed {
        /// The highest finalized block that was noted in the tier when the upstream confirmed it.
        noted: Option<BlockNumber>,
    },
}

// === impl Generation ===

impl Generation {
    /// Returns the generation with this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of this generation.
    pub fn number(self) -> u64 {
        self.0
    }
}

// === impl GenerationCounter ===

impl GenerationCounter {
    pub(super) fn current(&self) -> Generation {
        Generation(self.0.load(SeqCst))
    }

    fn advance(&self) -> Generation {
        Generation(self.0.fetch_add(1, SeqCst) + 1)
    }
}

// === impl Trust ===

impl Trust {
    pub(super) fn new(generations: GenerationCounter) -> Self {
        Self { generations, ..Self::default() }
    }

    /// Returns the generation that the last doubt about this tier started, and the current state.
    pub(super) fn current(&self) -> (Generation, State) {
        *self.current.lock()
    }

    /// Returns whether the index may answer.
    pub(super) fn answers(&self, accept: Accept) -> bool {
        match self.current().1 {
            State::Confirmed { .. } => true,
            State::Unconfirmed { must_forget } => accept == Accept::Any && !must_forget,
        }
    }

    /// Returns whether the tier accepts a write whose finality check began in this generation.
    pub(super) fn accepts(&self, generation: Generation) -> bool {
        let (since, state) = self.current();
        matches!(state, State::Confirmed { .. }) && generation >= since
    }

    /// Returns whether the tier must forget its index before it can be confirmed.
    pub(super) fn must_forget(&self) -> bool {
        self.current().1 == State::Unconfirmed { must_forget: true }
    }

    /// Withdraws the confirmation.
    pub(super) fn doubt(&self) {
        self.withdraw(false);
    }

    /// Withdraws the confirmation. The tier must forget its index before it can be confirmed again.
    pub(super) fn forget(&self) {
        self.withdraw(true);
    }

    fn withdraw(&self, forget: bool) {
        let mut current = self.current.lock();
        let must_forget = forget || current.1 == State::Unconfirmed { must_forget: true };
        *current = (self.generations.advance(), State::Unconfirmed { must_forget });
    }

    /// Records that the tier has forgotten its index. This also fulfils a [`forget`](Self::forget) that came while the
    /// tier was forgetting, because the unconfirmed tier received no write in between.
    pub(super) fn forgot(&self) {
        let (_, state) = &mut *self.current.lock();
        if *state == (State::Unconfirmed { must_forget: true }) {
            *state = State::Unconfirmed { must_forget: false };
        }
    }

    /// Records that the upstream confirmed the finalized block noted in the tier. Has no effect if there was a doubt
    /// after `since`.
    pub(super) fn confirm(&self, since: Generation, noted: Option<BlockNumber>) {
        let mut current = self.current.lock();
        if *current == (since, State::Unconfirmed { must_forget: false }) {
            current.1 = State::Confirmed { noted };
        }
    }
}

// === impl State ===

impl Default for State {
    fn default() -> Self {
        Self::Unconfirmed { must_forget: false }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events around a tier, which happen in any order. An action that takes time has one step for its start and one
    /// for its end.
    #[derive(Clone, Debug)]
    enum Step {
        /// The chain replaces its finalized history. Holdfast has not noticed yet.
        Replace,
        /// Holdfast notices the replacement, so the tier must forget its index.
        Notice,
        /// A client replaces the history through Holdfast, for example with `evm_revert`.
        RollBack,
        /// Another instance notices the replacement.
        Doubt,
        /// Holdfast learns that a block is final.
        Know,
        /// The writer begins to store a block that `Know` found final. It stores one block at a time, and none while
        /// the tier forgets.
        BeginToWrite(prop::sample::Index),
        EndOfWriting,
        BeginToForget,
        EndOfForgetting,
        /// Holdfast compares the finalized block noted in the tier with the upstream's.
        BeginToConfirm,
        EndOfConfirming,
        /// The tier loses its note of the finalized block, because the note was evicted or damaged.
        LoseMark,
        Restart,
    }

    /// Result of a confirmation: the upstream confirms the noted block, the upstream refutes it, or there is no note.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Finding {
        Stands,
        Changed,
        Unmarked,
    }

    /// The model. A number identifies each history of the chain.
    #[derive(Default)]
    struct World {
        history: u32,
        /// The history that Holdfast takes for the current one.
        known: u32,
        /// The histories of which the tier has entries.
        kept: Vec<u32>,
        has_mark: bool,
        trust: Trust,
        final_things: Vec<(Generation, u32)>,
        writing: Option<u32>,
        forgetting: bool,
        confirming: Option<(Generation, Finding)>,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => Just(Step::Replace),
            2 => Just(Step::Notice),
            2 => Just(Step::RollBack),
            1 => Just(Step::Doubt),
            6 => Just(Step::Know),
            6 => any::<prop::sample::Index>().prop_map(Step::BeginToWrite),
            6 => Just(Step::EndOfWriting),
            4 => Just(Step::BeginToForget),
            4 => Just(Step::EndOfForgetting),
            4 => Just(Step::BeginToConfirm),
            4 => Just(Step::EndOfConfirming),
            1 => Just(Step::LoseMark),
            1 => Just(Step::Restart),
        ]
    }

    impl World {
        fn happens(&mut self, step: &Step) {
            let Self { history, known, kept, trust, .. } = self;
            match step {
                Step::Replace => *history += 1,
                Step::Notice => {
                    *known = *history;
                    trust.forget();
                }
                Step::RollBack => {
                    *history += 1;
                    trust.doubt();
                    *known = *history;
                }
                Step::Doubt => trust.doubt(),
                Step::Know => self.final_things.push((trust.generations.current(), *known)),
                Step::BeginToWrite(which) => {
                    if let Some((generation, of)) = which.get_if(&self.final_things)
                        && trust.accepts(*generation)
                        && self.writing.is_none()
                        && !self.forgetting
                    {
                        self.writing = Some(*of);
                    }
                }
                Step::EndOfWriting => {
                    self.has_mark |= self.writing.is_some();
                    kept.extend(self.writing.take());
                }
                Step::BeginToForget if self.writing.is_some() => {}
                Step::BeginToForget => {
                    self.forgetting = trust.must_forget();
                    if self.forgetting {
                        kept.clear();
                    }
                }
                Step::EndOfForgetting => {
                    if std::mem::take(&mut self.forgetting) {
                        trust.forgot();
                    }
                }
                // Confirmation waits for the write under way.
                Step::BeginToConfirm if trust.answers(Accept::Any) && self.writing.is_none() => {
                    // The upstream answers, so Holdfast also checks whether `known` is the current history.
                    let stands = kept.iter().all(|of| of == history) && known == history;
                    let finding = match stands {
                        _ if !self.has_mark && known == history => Finding::Unmarked,
                        true => Finding::Stands,
                        false => Finding::Changed,
                    };
                    self.confirming = Some((trust.current().0, finding));
                }
                Step::BeginToConfirm => {}
                Step::EndOfConfirming => match self.confirming.take() {
                    Some((since, Finding::Stands)) => trust.confirm(since, None),
                    Some((since, Finding::Unmarked)) => {
                        kept.clear();
                        trust.confirm(since, None);
                    }
                    Some((_, Finding::Changed)) => {
                        *known = *history;
                        trust.forget();
                    }
                    None => {}
                },
                Step::LoseMark => self.has_mark = false,
                Step::Restart => {
                    let (history, kept, has_mark) = (*history, std::mem::take(kept), self.has_mark);
                    *self = Self { history, known: history, kept, has_mark, ..Self::default() };
                }
            }
        }
    }

    trait GetIf {
        fn get_if<'a, T>(&self, of: &'a [T]) -> Option<&'a T>;
    }

    impl GetIf for prop::sample::Index {
        fn get_if<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
            if of.is_empty() { None } else { Some(self.get(of)) }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn confirmed_index_belongs_to_the_known_history(steps in prop::collection::vec(step(), 0..80)) {
            let mut world = World::default();
            for step in steps {
                world.happens(&step);
                let answers = world.trust.answers(Accept::Confirmed);
                prop_assert!(!answers || world.kept.iter().all(|of| *of >= world.known), "{step:?}");
            }
        }
    }

    #[test]
    fn tier_that_forgot_can_be_confirmed_again() {
        let trust = Trust::default();
        let confirm = || trust.confirm(trust.current().0, None);
        let accepts = || trust.accepts(trust.generations.current());
        confirm();
        assert!(accepts());
        trust.forget();
        confirm();
        assert!(!trust.answers(Accept::Any) && trust.must_forget());
        trust.forgot();
        assert!(trust.answers(Accept::Any) && !trust.answers(Accept::Confirmed));
        confirm();
        assert!(accepts());
    }
}
