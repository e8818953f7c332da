//! Compares the disk tier with a model of a few maps, over random steps.

use std::collections::{HashMap, HashSet};

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk,
        tier::{ChainKey, Part, Tier},
    },
    eth::BlockNumber,
};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::{CHAIN, Directory, OTHER, content::Content, found, has};
use crate::support::cases;

const NUMBERS: u64 = 12;
const VARIANTS: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(ChainKey, Part, (u64, u64)),
    Remove(ChainKey, Part, (u64, u64)),
    /// Drops the hints of several numbers.
    DropHints(ChainKey, (u64, u64)),
    Reopen,
}

/// The expected state of one chain.
#[derive(Debug, Default)]
struct Model {
    parts: HashMap<(u64, u64), HashSet<Part>>,
    /// The newest header at each number.
    hints: HashMap<u64, u64>,
}

fn step() -> impl Strategy<Value = Step> {
    let chain = || prop_oneof![4 => Just(CHAIN), 1 => Just(OTHER)];
    let part = || prop::sample::select(&Part::ALL[..]);
    let block = || (0..NUMBERS, 0..VARIANTS);
    prop_oneof![
        12 => (chain(), part(), block()).prop_map(|(chain, part, block)| Step::Put(chain, part, block)),
        3 => (chain(), part(), block()).prop_map(|(chain, part, block)| Step::Remove(chain, part, block)),
        1 => (chain(), block()).prop_map(|(chain, block)| Step::DropHints(chain, block)),
        2 => Just(Step::Reopen),
    ]
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Returns the blocks whose hints a [`Step::DropHints`] drops.
fn dropped((number, variant): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    (number..number + 3).map(move |number| (number, variant))
}

// === impl Model ===

impl Model {
    fn take(&mut self, step: Step) {
        match step {
            Step::Put(_, part, block) => {
                self.parts.entry(block).or_default().insert(part);
                if part == Part::Header {
                    self.hints.insert(block.0, block.1);
                }
            }
            Step::Remove(_, part, block) => self.remove(part, block),
            Step::DropHints(_, block) => dropped(block).for_each(|block| self.remove(Part::Header, block)),
            Step::Reopen => {}
        }
    }

    fn remove(&mut self, part: Part, block: (u64, u64)) {
        self.parts.entry(block).or_default().remove(&part);
        if part == Part::Header && self.hints.get(&block.0) == Some(&block.1) {
            self.hints.remove(&block.0);
        }
    }

    async fn agrees(&self, disk: &Disk, chain: ChainKey) {
        let hint = |number| Some(Content::variant(number, *self.hints.get(&number)?).home.block);
        let hints = disk.hints(chain, BlockNumber(0), NUMBERS as usize).await.unwrap();
        assert_eq!(hints, (0..NUMBERS).map(hint).collect::<Vec<_>>());
        for block in (0..NUMBERS).flat_map(|number| (0..VARIANTS).map(move |variant| (number, variant))) {
            let (content, parts) = (Content::variant(block.0, block.1), self.parts.get(&block));
            let expected = |part| parts.is_some_and(|parts| parts.contains(&part));
            for part in Part::ALL {
                assert_eq!(found(disk, chain, part, &content).await, expected(part), "{part:?} of {block:?}");
            }
            let transactions = if expected(Part::Block) { content.transactions.len() } else { 0 };
            let count = parts.map_or(0, HashSet::len);
            assert_eq!(has(disk, chain, &content).await, (count, transactions), "{block:?}");
        }
    }
}

async fn take(disk: &Disk, step: Step) {
    match step {
        Step::Put(chain, part, (number, variant)) => {
            disk.put(chain, Content::variant(number, variant).record(part)).await.unwrap();
        }
        Step::Remove(chain, part, (number, variant)) => {
            disk.remove(chain, part, Content::variant(number, variant).home.block).await.unwrap();
        }
        Step::DropHints(chain, block) => {
            let homes = dropped(block).map(|(number, variant)| Content::variant(number, variant).home);
            disk.drop_hints(chain, homes.collect()).await.unwrap();
        }
        Step::Reopen => {}
    }
}

fn chains(step: Step) -> &'static [ChainKey] {
    match step {
        Step::Put(chain, ..) | Step::Remove(chain, ..) | Step::DropHints(chain, _) => {
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
                    if matches!(step, Step::Reopen | Step::DropHints(..)) {
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
    let hints = disk.hints(chain, BlockNumber(0), NUMBERS as usize).await.unwrap();
    for (number, hint) in (0..NUMBERS).zip(hints) {
        let variants = [0, 1].map(|variant| Content::variant(number, variant));
        let is_known = |hash| variants.iter().any(|content| content.home.block == hash);
        assert!(hint.is_none_or(is_known), "{hint:?} at {number}");
        for content in &variants {
            has(disk, chain, content).await;
        }
    }
}
