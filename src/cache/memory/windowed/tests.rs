use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use alloy_primitives::{B256, U256};
use alloy_trie::EMPTY_ROOT_HASH;
use proptest::prelude::*;

use super::*;
use crate::{
    cache::memory::entity::Value,
    eth::{At, BlockHash, Home, Tag},
    verify::{self, Content},
};

/// The store, and the number of entries that have not left it.
struct Counted {
    entries: Windowed,
    live: Arc<AtomicI64>,
}

impl Counted {
    fn new(capacity: u64) -> Self {
        let live = Arc::<AtomicI64>::default();
        let left = live.clone();
        let removed = move |_: &Entity, _| {
            left.fetch_sub(1, SeqCst);
        };
        Self { entries: Windowed::new(capacity, removed), live }
    }

    fn insert(&self, number: u64, version: u64, size: usize) {
        self.live.fetch_add(1, SeqCst);
        self.entries.insert(key(number), entity(number, version, size));
    }

    fn get(&self, number: u64) -> Option<u64> {
        self.entries.get(&key(number)).map(|entity| version(&entity))
    }
}

fn hash(number: u64) -> BlockHash {
    BlockHash(B256::from(U256::from(number + 1)))
}

fn key(number: u64) -> Key {
    Key::Block(hash(number))
}

/// Returns a block of about `size` bytes. Its timestamp is its version.
fn entity(number: u64, version: u64, size: usize) -> Entity {
    let (hash, padding) = (hash(number), "5".repeat(size.saturating_sub(1_000)));
    let json = format!(
        r#"{{"hash":"{hash}","parentHash":"{hash}","number":"{number:#x}","transactionsRoot":"{EMPTY_ROOT_HASH}",
            "uncles":[],"timestamp":"{version:#x}","transactions":[],"padding":"{padding}"}}"#
    );
    let block = verify::block(json.as_bytes(), At::Tag(Tag::Latest)).unwrap();
    let home = Arc::new(Home { block: hash, number: BlockNumber(number) });
    Entity { home, value: Value::Content(Content::Block(Arc::new(block))) }
}

fn version(entity: &Entity) -> u64 {
    match &entity.value {
        Value::Content(Content::Block(block)) => block.header().timestamp.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn entry_that_moves_to_main_is_found_and_not_evicted() {
    let counted = Counted::new(100_000);
    for number in 0..16 {
        counted.insert(number, 1, 5_000);
        assert!(counted.entries.queue.lock().bytes() <= 50_000);
    }
    counted.entries.run_pending_tasks();
    assert!((0..16).all(|number| counted.get(number) == Some(1)));
    assert_eq!(counted.live.load(SeqCst), 16);
    assert_eq!(counted.entries.entry_count(), 16);
    let weights = counted.entries.iter().map(|(_, entity)| entity.weight() as u64).sum::<u64>();
    assert_eq!(counted.entries.weighted_size(), weights);
}

#[test]
fn blocks_near_the_head_are_found_during_a_scan() {
    let counted = Counted::new(200_000);
    counted.entries.set_head(Some(BlockNumber(10_000)));
    counted.insert(10_001, 1, 5_000);
    counted.insert(9_936, 1, 5_000);
    for number in 0..500 {
        // A scan does not read a block more often than this.
        for _ in 0..20 {
            counted.get(number);
        }
        counted.insert(number, 1, 5_000);
        counted.entries.run_pending_tasks();
    }
    assert_eq!((counted.get(10_001), counted.get(9_936)), (Some(1), Some(1)));
    assert!(counted.entries.weighted_size() <= 200_000);
}

#[test]
fn an_entry_larger_than_the_queue_goes_to_main() {
    let counted = Counted::new(80_000);
    counted.insert(1, 1, 3_000);
    counted.insert(1, 2, 40_000);
    counted.entries.run_pending_tasks();
    assert_eq!((counted.get(1), counted.live.load(SeqCst)), (Some(2), 1));
    counted.insert(1, 3, 3_000);
    counted.entries.run_pending_tasks();
    assert_eq!((counted.get(1), counted.live.load(SeqCst)), (Some(3), 1));
    // Main refuses an entry larger than the whole store.
    counted.insert(2, 1, 200_000);
    counted.entries.run_pending_tasks();
    assert_eq!((counted.get(2), counted.live.load(SeqCst)), (None, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_entry_is_stale_or_reappears(
        steps in proptest::collection::vec((0u64..12, 0usize..20, 1_000usize..30_000), 0..300)
    ) {
        let counted = Counted::new(50_000);
        counted.entries.set_head(Some(BlockNumber(69)));
        let mut newest = HashMap::<u64, u64>::new();
        for (step, (number, action, size)) in steps.into_iter().enumerate() {
            match action {
                0..10 => {
                    counted.insert(number, step as u64, size);
                    newest.insert(number, step as u64);
                }
                10..12 => {
                    counted.entries.invalidate(&key(number));
                    newest.remove(&number);
                }
                12 => {
                    counted.entries.invalidate_all();
                    newest.clear();
                }
                13 => counted.entries.run_pending_tasks(),
                _ => drop(counted.get(number)),
            }
            for number in 0..12 {
                let found = counted.entries.peek(&key(number)).map(|entity| version(&entity));
                prop_assert!(found.is_none() || found.as_ref() == newest.get(&number), "{:?}", found);
            }
        }
        counted.entries.run_pending_tasks();
        let all: Vec<_> = counted.entries.iter().collect();
        prop_assert_eq!(all.len() as i64, counted.live.load(SeqCst));
        prop_assert_eq!(all.len() as u64, counted.entries.entry_count());
        let weights = all.iter().map(|(_, entity)| entity.weight() as u64).sum::<u64>();
        prop_assert_eq!(counted.entries.weighted_size(), weights);
        prop_assert!(weights <= 50_000);
    }
}

#[test]
fn threads_see_no_stale_entry_and_every_entry_leaves_once() {
    const KEYS: u64 = 16;
    const ROUNDS: u64 = 1_000;
    let counted = Counted::new(60_000);
    // For each key, the version that its only writer inserted last; 0 after the writer removed the entry.
    let newest: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for writer in 0..2 {
            let (counted, newest) = (&counted, &newest);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let number = (round * 7 + writer) % (KEYS / 2) * 2 + writer;
                    if round % 5 == 0 {
                        counted.entries.invalidate(&key(number));
                        newest[number as usize].store(0, SeqCst);
                        assert_eq!(counted.get(number), None, "a removed entry came back");
                    } else {
                        counted.insert(number, round, 2_000 + (round % 4 * 1_000) as usize);
                        newest[number as usize].store(round, SeqCst);
                        let found = counted.get(number);
                        assert!(found.is_none_or(|found| found == round), "{found:?} after {round}");
                    }
                }
            });
        }
        for _ in 0..2 {
            let (counted, newest) = (&counted, &newest);
            scope.spawn(move || {
                for round in 0..ROUNDS * 4 {
                    let number = round % KEYS;
                    let before = newest[number as usize].load(SeqCst);
                    let found = counted.get(number).unwrap_or(u64::MAX);
                    assert!(found >= before, "{found} is older than {before}");
                    if round % 64 == 0 {
                        counted.entries.run_pending_tasks();
                    }
                }
            });
        }
    });
    counted.entries.run_pending_tasks();
    assert_eq!(counted.entries.iter().count() as i64, counted.live.load(SeqCst));
    counted.entries.invalidate_all();
    counted.entries.run_pending_tasks();
    assert_eq!(counted.live.load(SeqCst), 0);
}
