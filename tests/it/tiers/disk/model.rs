//! Compares the disk tier with a model of a few maps, over random steps.

use std::collections::{HashMap, HashSet};

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk,
        tier::{ChainKey, Part, Tier},
    },
    eth::{BlockHash, BlockNumber, TxPosition},
};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::{CHAIN, Directory, OTHER, content::Content, found};
use crate::support::cases;

const NUMBERS: u64 = 12;
const VARIANTS: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(ChainKey, Part, (u64, u64)),
    Remove(ChainKey, Part, (u64, u64)),
    Forget(ChainKey),
    Finalize(ChainKey, u64),
    Reopen,
}

/// The expected state of one chain.
#[derive(Debug, Default)]
struct Model {
    parts: HashMap<(u64, u64), HashSet<Part>>,
    /// Blocks whose number and transactions are indexed.
    standing: HashSet<(u64, u64)>,
    numbers: HashMap<u64, u64>,
    finalized: Option<(BlockNumber, BlockHash)>,
}

fn step() -> impl Strategy<Value = Step> {
    let chain = || prop_oneof![4 => Just(CHAIN), 1 => Just(OTHER)];
    let part = || prop_oneof![Just(Part::Block), Just(Part::Receipts)];
    let block = || (0..NUMBERS, 0..VARIANTS);
    prop_oneof![
        12 => (chain(), part(), block()).prop_map(|(chain, part, block)| Step::Put(chain, part, block)),
        3 => (chain(), part(), block()).prop_map(|(chain, part, block)| Step::Remove(chain, part, block)),
        1 => chain().prop_map(Step::Forget),
        2 => (chain(), 0..NUMBERS).prop_map(|(chain, number)| Step::Finalize(chain, number)),
        2 => Just(Step::Reopen),
    ]
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

// === impl Model ===

impl Model {
    fn take(&mut self, step: Step) {
        match step {
            Step::Put(_, part, block) => {
                self.parts.entry(block).or_default().insert(part);
                if part == Part::Block && self.standing.insert(block) {
                    self.numbers.insert(block.0, block.1);
                }
            }
            Step::Remove(_, part, block) => {
                self.parts.entry(block).or_default().remove(&part);
                if part == Part::Block
                    && self.standing.remove(&block)
                    && self.numbers.get(&block.0) == Some(&block.1)
                {
                    self.numbers.remove(&block.0);
                }
            }
            Step::Forget(_) => {
                self.standing.clear();
                self.numbers.clear();
                self.finalized = None;
            }
            Step::Finalize(_, number) => {
                let content = Content::variant(number, 0);
                if self.finalized.is_none_or(|(known, _)| known < content.number) {
                    self.finalized = Some((content.number, content.hash));
                }
            }
            Step::Reopen => self.drop_above_finalized(),
        }
    }

    /// Drops blocks above the finalized block, because no node has confirmed them. Without a finalized block, forgets
    /// all canonicity.
    fn drop_above_finalized(&mut self) {
        let Some((finalized, _)) = self.finalized else {
            self.standing.clear();
            self.numbers.clear();
            return;
        };
        self.numbers.retain(|number, _| *number <= finalized.0);
        for block in self.standing.extract_if(|block| block.0 > finalized.0) {
            self.parts.entry(block).or_default().remove(&Part::Block);
        }
    }

    async fn agrees(&self, disk: &Disk, chain: ChainKey) {
        assert_eq!(disk.finalized(chain).await.unwrap(), self.finalized);
        for number in 0..NUMBERS {
            let hash = self.numbers.get(&number).map(|variant| Content::variant(number, *variant).hash);
            // Numbers above the finalized block are not served.
            let hash = hash.filter(|_| self.finalized.is_some_and(|(at, _)| number <= at.0));
            assert_eq!(disk.hash_at(chain, BlockNumber(number)).await.unwrap(), hash, "number {number}");
            for variant in 0..VARIANTS {
                let (block, content) = ((number, variant), Content::variant(number, variant));
                for part in Part::ALL {
                    let expected = self.parts.get(&block).is_some_and(|parts| parts.contains(&part));
                    assert_eq!(found(disk, chain, part, &content).await, expected, "{part:?} of {block:?}");
                }
                for (nth, transaction) in (0..).zip(&content.transactions) {
                    let expected =
                        self.standing.contains(&block).then_some((content.number, TxPosition(nth)));
                    assert_eq!(disk.place_of(chain, *transaction).await.unwrap(), expected, "{block:?}");
                }
            }
        }
    }
}

async fn take(disk: &Disk, step: Step) {
    match step {
        Step::Put(chain, part, (number, variant)) => {
            disk.put(chain, Content::variant(number, variant).record(part)).await.unwrap();
        }
        Step::Remove(chain, part, (number, variant)) => {
            disk.remove(chain, part, Content::variant(number, variant).hash).await.unwrap();
        }
        Step::Forget(chain) => disk.forget_canonicity(chain).await.unwrap(),
        Step::Finalize(chain, number) => {
            let content = Content::variant(number, 0);
            disk.note_finalized(chain, content.number, content.hash).await.unwrap();
        }
        Step::Reopen => {}
    }
}

fn chains(step: Step) -> &'static [ChainKey] {
    match step {
        Step::Put(chain, ..) | Step::Remove(chain, ..) | Step::Forget(chain) | Step::Finalize(chain, _) => {
            if chain == CHAIN {
                &[CHAIN]
            } else {
                &[OTHER]
            }
        }
        Step::Reopen => &[CHAIN, OTHER],
    }
}

/// Size of a tier with segments of 16 KB. All possible records together fill several of them.
const ROOMY: ByteSize = ByteSize::kib(256);

/// Size of a tier with segments of 1 KB, which is shorter than some records.
const TIGHT: ByteSize = ByteSize::kib(16);

proptest! {
    #![proptest_config(cases(15, 600))]

    #[test]
    fn random_steps_match_the_model(steps in prop::collection::vec(step(), 1..120)) {
        runtime().block_on(async {
            let directory = Directory::new();
            let mut disk = Some(directory.open(ROOMY));
            let mut models: HashMap<ChainKey, Model> = HashMap::new();
            for step in steps {
                if matches!(step, Step::Reopen) {
                    disk = None;
                }
                let disk = disk.get_or_insert_with(|| directory.open(ROOMY));
                take(disk, step).await;
                for chain in chains(step) {
                    let model = models.entry(*chain).or_default();
                    model.take(step);
                    if matches!(step, Step::Reopen | Step::Forget(_)) {
                        model.agrees(disk, *chain).await;
                    }
                }
            }
            let disk = disk.unwrap_or_else(|| directory.open(ROOMY));
            for (chain, model) in &models {
                model.agrees(&disk, *chain).await;
            }
            assert_eq!(disk.usage().evictions, 0, "nothing may be evicted in this test");
            assert_eq!(disk.usage().bytes, Some(directory.bytes()));
        });
    }

    #[test]
    fn tight_limit_is_respected_and_nothing_wrong_is_found(
        steps in prop::collection::vec(step(), 1..160),
    ) {
        runtime().block_on(async {
            let directory = Directory::new();
            let mut disk = Some(directory.open(TIGHT));
            for step in steps {
                if matches!(step, Step::Reopen) {
                    disk = None;
                }
                let disk = disk.get_or_insert_with(|| directory.open(TIGHT));
                take(disk, step).await;
                let bytes = directory.bytes();
                assert!(bytes <= TIGHT.as_u64(), "{bytes} bytes after {step:?}");
                assert_eq!(disk.usage().bytes, Some(bytes));
                if let Step::Put(chain, part, (number, variant)) = step {
                    let content = Content::variant(number, variant);
                    assert!(found(disk, chain, part, &content).await, "the last record is there");
                }
                for chain in [CHAIN, OTHER] {
                    nothing_is_wrong(disk, chain).await;
                }
            }
        });
    }
}

async fn nothing_is_wrong(disk: &Disk, chain: ChainKey) {
    for number in 0..NUMBERS {
        let at = disk.hash_at(chain, BlockNumber(number)).await.unwrap();
        let known = [0, 1].map(|variant| Content::variant(number, variant).hash);
        assert!(at.is_none_or(|hash| known.contains(&hash)), "{at:?} at {number}");
        for variant in 0..VARIANTS {
            let content = Content::variant(number, variant);
            for part in Part::ALL {
                found(disk, chain, part, &content).await;
            }
            for (nth, transaction) in (0..).zip(&content.transactions) {
                let place = disk.place_of(chain, *transaction).await.unwrap();
                assert!(place.is_none_or(|place| place == (content.number, TxPosition(nth))), "{place:?}");
            }
        }
    }
}
