//! Whether what a tier says of numbers counts.
//!
//! That a number has this hash is a tier's own word. It counts only where the highest final block that this very tier was told
//! of has been held against the upstream, and only until it is told to forget, or is doubted. Before the one nothing is
//! written there, so that what is final now does not stand for what was so before; and what was known before the other is not
//! written after it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::{Mutex, MutexGuard};

use crate::eth::BlockNumber;

/// The time between two moments in which tiers were told to forget, or were doubted: what was known in one says nothing in
/// the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Era(u64);

/// Counts them, for all tiers together.
#[derive(Debug, Default)]
pub(super) struct Eras(AtomicU64);

/// Whose word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// That of those who were held against the upstream.
    Confirmed,
    /// That of any: there is no upstream since the start.
    Any,
}

/// Where one tier stands.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What was known before does not count for it.
    since: Era,
    /// It was told to forget, and has not done so yet.
    has_to_forget: bool,
    /// What it says was held against the upstream in this era.
    is_confirmed: bool,
    /// The number of the highest final block that this tier had noted when it was confirmed.
    noted: Option<BlockNumber>,
}

// === impl Eras ===

impl Eras {
    /// The one that it is.
    pub(super) fn now(&self) -> Era {
        Era(self.0.load(SeqCst))
    }

    /// Begins another.
    pub(super) fn next(&self) -> Era {
        Era(self.0.fetch_add(1, SeqCst) + 1)
    }
}

// === impl Standing ===

impl Standing {
    /// Does what it says of numbers count?
    pub(super) fn counts(&self, word: Word) -> bool {
        self.lock().counts(word)
    }

    /// Does it take what was known in this era?
    pub(super) fn takes(&self, era: Era) -> bool {
        let state = self.lock();
        state.counts(Word::Confirmed) && era >= state.since
    }

    /// The era that it is in. What is found out of it from here on holds for no other.
    pub(super) fn since(&self) -> Era {
        self.lock().since
    }

    /// Its word does not count from this era on, before it is held against the upstream again.
    pub(super) fn doubt(&self, from: Era) {
        self.lock().doubt(from);
    }

    /// Its word does not count from this era on, and it has to forget.
    pub(super) fn disown(&self, from: Era) {
        let mut state = self.lock();
        state.doubt(from);
        state.has_to_forget = true;
    }

    /// Has it to forget?
    pub(super) fn has_to_forget(&self) -> bool {
        self.lock().has_to_forget
    }

    /// It has. Also if it was told to once more meanwhile: as long as it has to, nothing is written.
    pub(super) fn forgot(&self) {
        self.lock().has_to_forget = false;
    }

    /// Records that the upstream has the block that this tier had noted as the highest final one, in the era that began at
    /// `since`.
    pub(super) fn confirm(&self, since: Era, noted: Option<BlockNumber>) {
        let mut state = self.lock();
        if state.since == since {
            (state.is_confirmed, state.noted) = (true, noted);
        }
    }

    /// The number of the highest final block that this tier had noted when it was confirmed.
    pub(super) fn noted(&self) -> Option<BlockNumber> {
        self.lock().noted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

// === impl State ===

impl State {
    fn doubt(&mut self, from: Era) {
        self.since = self.since.max(from);
        (self.is_confirmed, self.noted) = (false, None);
    }

    fn counts(&self, word: Word) -> bool {
        !self.has_to_forget && (word == Word::Any || self.is_confirmed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What can happen around a tier, in any order. What takes time begins and ends.
    #[derive(Clone, Debug)]
    enum Step {
        /// The history is another one now. Nobody has noticed yet.
        Replace,
        /// That is noticed: the alarm.
        Notice,
        /// A client had it replaced, through us.
        RollBack,
        /// Another of the fleet noticed.
        Doubt,
        /// Something is found to be final.
        Know,
        /// It is written, as the writer does: one after the other, and not while it forgets.
        BeginToWrite(prop::sample::Index),
        EndOfWriting,
        BeginToForget,
        EndOfForgetting,
        /// It is looked whether what the tier has still stands.
        BeginToConfirm,
        EndOfConfirming,
        /// What was final is gone: evicted, or damaged.
        LoseMark,
        Restart,
    }

    /// What a tier says is found to be so, not to be so, or cannot be held to anything.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Finding {
        Stands,
        Changed,
        Unmarked,
    }

    /// Histories are numbered.
    #[derive(Default)]
    struct World {
        history: u32,
        /// The one that the program takes for it.
        known: u32,
        /// Of which the tier has something.
        kept: Vec<u32>,
        has_mark: bool,
        eras: Eras,
        standing: Standing,
        final_things: Vec<(Era, u32)>,
        writing: Option<u32>,
        forgetting: bool,
        confirming: Option<(Era, Finding)>,
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
            let Self { history, known, kept, eras, standing, .. } = self;
            match step {
                Step::Replace => *history += 1,
                Step::Notice => {
                    *known = *history;
                    standing.disown(eras.next());
                }
                Step::RollBack => {
                    *history += 1;
                    standing.doubt(eras.next());
                    *known = *history;
                }
                Step::Doubt => standing.doubt(eras.next()),
                Step::Know => self.final_things.push((eras.now(), *known)),
                Step::BeginToWrite(which) => {
                    if let Some((era, of)) = which.get_if(&self.final_things)
                        && standing.takes(*era)
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
                    self.forgetting = standing.has_to_forget();
                    if self.forgetting {
                        kept.clear();
                    }
                }
                Step::EndOfForgetting => {
                    if std::mem::take(&mut self.forgetting) {
                        standing.forgot();
                    }
                }
                // What is being written is waited for.
                Step::BeginToConfirm if standing.counts(Word::Any) && self.writing.is_none() => {
                    // It is asked: what the program takes for the history is held against it, too.
                    let stands = kept.iter().all(|of| of == history) && known == history;
                    let finding = match stands {
                        _ if !self.has_mark && known == history => Finding::Unmarked,
                        true => Finding::Stands,
                        false => Finding::Changed,
                    };
                    self.confirming = Some((standing.since(), finding));
                }
                Step::BeginToConfirm => {}
                Step::EndOfConfirming => match self.confirming.take() {
                    Some((since, Finding::Stands)) => standing.confirm(since, None),
                    Some((since, Finding::Unmarked)) => {
                        kept.clear();
                        standing.confirm(since, None);
                    }
                    Some((_, Finding::Changed)) => {
                        *known = *history;
                        standing.disown(eras.next());
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
        fn what_counts_is_of_the_history_that_is_known(steps in prop::collection::vec(step(), 0..80)) {
            let mut world = World::default();
            for step in steps {
                world.happens(&step);
                let counts = world.standing.counts(Word::Confirmed);
                prop_assert!(!counts || world.kept.iter().all(|of| *of >= world.known), "{step:?}");
            }
        }
    }

    #[test]
    fn it_counts_again_when_it_has_forgotten_and_was_confirmed() {
        let (eras, standing) = (Eras::default(), Standing::default());
        standing.confirm(standing.since(), None);
        assert!(standing.takes(eras.now()));
        standing.disown(eras.next());
        assert!(!standing.counts(Word::Any));
        assert!(standing.has_to_forget());
        standing.forgot();
        assert!(standing.counts(Word::Any) && !standing.counts(Word::Confirmed));
        standing.confirm(standing.since(), None);
        assert!(standing.takes(eras.now()));
    }
}
