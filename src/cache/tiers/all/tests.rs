use std::{
    collections::HashMap,
    io,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use alloy_primitives::B256;
use tokio::{sync::Semaphore, task};

use super::*;
use crate::{
    budget::ByteBudget,
    cache::tier::{Record, Tiered, Usage},
    eth::{Home, TxPosition},
};

/// Limit of the byte budget.
const BUDGET: u64 = 1 << 20;

const CHAIN: ChainKey = ChainKey { id: 1, genesis: B256::ZERO };

/// A tier whose writes wait for a permit.
#[derive(Debug)]
struct Slow {
    kind: TierKind,
    /// Whether noting a finalized block and forgetting fail.
    is_full: AtomicBool,
    value: Mutex<Option<Sealed>>,
    /// Whether reads of content never end.
    hangs: AtomicBool,
    numbers: Mutex<HashMap<BlockNumber, BlockHash>>,
    finalized: Mutex<Option<(BlockNumber, BlockHash)>>,
    lets: Semaphore,
}

impl Slow {
    fn numbers(&self) -> MutexGuard<'_, HashMap<BlockNumber, BlockHash>> {
        self.numbers.lock().unwrap()
    }
}

impl Tier for Slow {
    fn kind(&self) -> TierKind {
        self.kind
    }

    fn get(&self, _: ChainKey, _: Part, _: BlockHash) -> Tiered<'_, Option<Sealed>> {
        Box::pin(async {
            if self.hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            Ok(self.value.lock().unwrap().clone())
        })
    }

    fn hash_at(&self, _: ChainKey, number: BlockNumber) -> Tiered<'_, Option<BlockHash>> {
        Box::pin(async move { Ok(self.numbers().get(&number).copied()) })
    }

    fn place_of(&self, _: ChainKey, _: TxHash) -> Tiered<'_, Option<(BlockNumber, TxPosition)>> {
        Box::pin(async { Ok(None) })
    }

    fn finalized(&self, _: ChainKey) -> Tiered<'_, Option<(BlockNumber, BlockHash)>> {
        Box::pin(async { Ok(*self.finalized.lock().unwrap()) })
    }

    fn put(&self, _: ChainKey, record: Record) -> Tiered<'_, bool> {
        Box::pin(async move {
            self.lets.acquire().await.unwrap().forget();
            self.numbers().insert(record.number, record.hash);
            Ok(true)
        })
    }

    fn note_finalized(&self, _: ChainKey, number: BlockNumber, hash: BlockHash) -> Tiered<'_, ()> {
        Box::pin(async move {
            if self.is_full.load(SeqCst) {
                return Err(io::Error::from(io::ErrorKind::StorageFull).into());
            }
            *self.finalized.lock().unwrap() = Some((number, hash));
            Ok(())
        })
    }

    fn remove(&self, _: ChainKey, _: Part, _: BlockHash) -> Tiered<'_, bool> {
        Box::pin(async { Ok(false) })
    }

    fn forget_number(&self, _: ChainKey, number: BlockNumber) -> Tiered<'_, ()> {
        Box::pin(async move {
            if self.is_full.load(SeqCst) {
                return Err(io::Error::from(io::ErrorKind::StorageFull).into());
            }
            self.numbers().remove(&number);
            Ok(())
        })
    }

    fn forget_canonicity(&self, _: ChainKey) -> Tiered<'_, ()> {
        Box::pin(async {
            if self.is_full.load(SeqCst) {
                return Err(io::Error::from(io::ErrorKind::StorageFull).into());
            }
            self.numbers().clear();
            *self.finalized.lock().unwrap() = None;
            Ok(())
        })
    }

    fn knows_what_it_has(&self) -> bool {
        true
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }
}

fn hash(byte: u8) -> BlockHash {
    BlockHash(B256::repeat_byte(byte))
}

fn checkpoint(number: u64, byte: u8, generation: Generation) -> Checkpoint {
    Checkpoint { chain: CHAIN, block: (BlockNumber(number), hash(byte)), generation }
}

fn parcel(number: u64, byte: u8, generation: Generation) -> Parcel {
    Parcel {
        home: Home { block: hash(byte), number: BlockNumber(number) },
        part: Part::Block,
        transactions: Vec::new(),
        text: Bytes::from_static(b"{}"),
        checkpoint: checkpoint(number, byte, generation),
        from: None,
    }
}

fn slow(kind: TierKind) -> Arc<Slow> {
    Arc::new(Slow {
        kind,
        is_full: false.into(),
        value: Mutex::default(),
        hangs: false.into(),
        numbers: Mutex::default(),
        finalized: Mutex::default(),
        lets: Semaphore::new(0),
    })
}

fn over(tiers: &[&Arc<Slow>]) -> Tiers {
    let tiers = tiers.iter().map(|tier| (Arc::clone(tier) as Arc<dyn Tier>, Duration::from_secs(1)));
    Tiers::new(tiers.collect(), ByteBudget::new(BUDGET, None), Metrics::default())
}

async fn confirm(tiers: &Tiers) {
    for unconfirmed in tiers.unconfirmed(CHAIN).await {
        tiers.confirm(unconfirmed, checkpoint(0, 0, tiers.generation())).await;
    }
}

/// Confirms twice, because the first attempt only makes the tier forget its index.
async fn confirm_after_forgetting(tiers: &Tiers) {
    confirm(tiers).await;
    tiers.settle().await;
    confirm(tiers).await;
}

async fn told(tiers: &Tiers, number: u64) -> Option<BlockHash> {
    tiers.hash_at(CHAIN, BlockNumber(number), Accept::Any).await
}

#[tokio::test]
async fn queued_writes_do_not_survive_forget() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    confirm(&tiers).await;
    let before = tiers.generation();
    for number in 1..=3 {
        tiers.put(parcel(number, 1, before));
    }
    // The tier is now writing the first block.
    task::yield_now().await;
    tiers.forget(CHAIN, &TierKind::ALL);
    // This block was found final before the tiers forgot, but is queued after.
    tiers.put(parcel(4, 1, before));
    tiers.note_finalized(checkpoint(4, 1, before));
    slow.lets.add_permits(10);
    for _ in 0..100 {
        for number in 1..=4 {
            assert_eq!(told(&tiers, number).await, None);
        }
        task::yield_now().await;
    }
    tiers.settle().await;
    assert!(slow.numbers().is_empty());
    assert_eq!(tiers.finalized(CHAIN).await, None);
    // The tier accepts blocks of the new generation.
    confirm(&tiers).await;
    tiers.put(parcel(1, 2, tiers.generation()));
    tiers.settle().await;
    assert_eq!(told(&tiers, 1).await, Some(hash(2)));
}

#[tokio::test]
async fn tier_is_not_written_or_trusted_before_confirmation() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.numbers().insert(BlockNumber(1), hash(1));
    *slow.finalized.lock().unwrap() = Some((BlockNumber(1), hash(1)));
    slow.lets.add_permits(10);
    let confirmed = async || tiers.hash_at(CHAIN, BlockNumber(1), Accept::Confirmed).await;
    tiers.note_finalized(checkpoint(9, 9, tiers.generation()));
    tiers.put(parcel(9, 9, tiers.generation()));
    tiers.settle().await;
    assert_eq!(tiers.finalized(CHAIN).await, Some((BlockNumber(1), hash(1))));
    assert!(!slow.numbers().contains_key(&BlockNumber(9)));
    assert_eq!(confirmed().await, None);
    confirm(&tiers).await;
    assert_eq!(confirmed().await, Some(hash(1)));
    tiers.doubt();
    assert_eq!(confirmed().await, None);
}

#[tokio::test(start_paused = true)]
async fn full_tier_is_not_written_and_still_answers() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.lets.add_permits(10);
    confirm(&tiers).await;
    tiers.put(parcel(1, 1, tiers.generation()));
    tiers.settle().await;
    slow.is_full.store(true, SeqCst);
    for number in 2..10 {
        tiers.note_finalized(checkpoint(number, 1, tiers.generation()));
        tiers.put(parcel(number, 1, tiers.generation()));
        tiers.settle().await;
        let confirmed = tiers.hash_at(CHAIN, BlockNumber(1), Accept::Confirmed).await;
        assert_eq!(confirmed, Some(hash(1)));
    }
    assert_eq!(slow.numbers().len(), 1);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(tiers.remove(CHAIN, hash(2)).await.is_empty(), "there is nothing to remove");
    assert!(!tiers.status()[0].writes, "a removal of nothing does not show that the tier is writable");
    slow.is_full.store(false, SeqCst);
    // There was no separate `note_finalized` for this block.
    tiers.put(parcel(10, 1, tiers.generation()));
    tiers.settle().await;
    assert_eq!(told(&tiers, 10).await, Some(hash(1)));
    assert_eq!(tiers.finalized(CHAIN).await, Some((BlockNumber(10), hash(1))));
    assert!(tiers.status()[0].writes);
}

#[tokio::test]
async fn hanging_tier_does_not_delay_the_others() {
    let (hangs, works) = (slow(TierKind::Disk), slow(TierKind::Redis));
    let tiers = over(&[&hangs, &works]);
    works.lets.add_permits(10);
    confirm(&tiers).await;
    tiers.put(parcel(1, 1, tiers.generation()));
    while works.numbers().is_empty() {
        task::yield_now().await;
    }
    assert_eq!(works.numbers().get(&BlockNumber(1)), Some(&hash(1)));
    assert!(hangs.numbers().is_empty());
}

#[tokio::test]
async fn doubt_during_confirmation_persists() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    let unconfirmed = tiers.unconfirmed(CHAIN).await;
    tiers.doubt();
    for unconfirmed in unconfirmed {
        tiers.confirm(unconfirmed, checkpoint(0, 0, tiers.generation())).await;
    }
    assert!(!tiers.is_confirmed());
    confirm(&tiers).await;
    assert!(tiers.is_confirmed());
}

#[tokio::test]
async fn unpacking_is_bounded_by_the_byte_budget() {
    let slow = slow(TierKind::Redis);
    let tiers = over(&[&slow]);
    // The compressed value is small, but its text is large.
    let keep = |bytes: usize| *slow.value.lock().unwrap() = Sealed::new(&vec![b' '; bytes]);
    let get = async || tiers.get(CHAIN, Part::Block, hash(1), None).await;
    keep(BUDGET as usize * 2);
    assert!(get().await.is_none());
    keep(BUDGET as usize * 3 / 4);
    let first = get().await.unwrap();
    assert_eq!(first.text.len(), BUDGET as usize * 3 / 4);
    assert!(get().await.is_none(), "the first value still has its lease");
    drop(first);
    assert!(get().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn hanging_tier_is_bypassed_despite_in_memory_answers() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.hangs.store(true, SeqCst);
    let get = async || tiers.get(CHAIN, Part::Block, hash(1), None).await;
    for _ in 0..3 {
        assert!(tiers.status()[0].reads);
        assert!(told(&tiers, 1).await.is_none());
        assert!(get().await.is_none());
        tiers.finalized(CHAIN).await;
    }
    assert!(!tiers.status()[0].reads);
    let begun = tokio::time::Instant::now();
    assert!(get().await.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO, "the open breaker fails at once");
    slow.hangs.store(false, SeqCst);
    *slow.value.lock().unwrap() = Sealed::new(b"{}");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(!tiers.status()[0].reads, "the breaker is half-open, not closed");
    // A miss neither closes the breaker nor blocks the next read.
    let value = slow.value.lock().unwrap().take();
    assert!(get().await.is_none());
    *slow.value.lock().unwrap() = value;
    assert!(get().await.is_some());
    assert!(tiers.status()[0].reads);
}

#[tokio::test(start_paused = true)]
async fn index_with_an_orphan_that_cannot_be_removed_is_forgotten() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.lets.add_permits(10);
    confirm(&tiers).await;
    for number in 1..=2 {
        tiers.put(parcel(number, 1, tiers.generation()));
    }
    tiers.settle().await;
    slow.is_full.store(true, SeqCst);
    tiers.drop_final(CHAIN, BlockNumber(1), hash(1));
    tiers.settle().await;
    confirm(&tiers).await;
    assert_eq!(told(&tiers, 1).await, None, "the index still has the orphan");
    slow.is_full.store(false, SeqCst);
    tokio::time::advance(Duration::from_secs(60)).await;
    confirm_after_forgetting(&tiers).await;
    assert!(tiers.is_confirmed());
    assert_eq!((told(&tiers, 1).await, slow.numbers().len()), (None, 0));
}

#[tokio::test]
async fn index_is_forgotten_if_the_queue_has_no_room_for_an_orphan() {
    let slow = slow(TierKind::Disk);
    let tiers = over(&[&slow]);
    confirm(&tiers).await;
    slow.numbers().insert(BlockNumber(1), hash(1));
    // The first write waits for its permit, and the others fill the queue.
    tiers.put(parcel(2, 2, tiers.generation()));
    task::yield_now().await;
    while tiers.rungs()[0].writer.try_tell(Work::NoteFinalized(checkpoint(2, 2, tiers.generation()))) {}
    tiers.drop_final(CHAIN, BlockNumber(1), hash(1));
    assert_eq!(told(&tiers, 1).await, None);
    slow.lets.add_permits(1);
    tiers.settle().await;
    confirm_after_forgetting(&tiers).await;
    assert_eq!((tiers.is_confirmed(), told(&tiers, 1).await), (true, None));
}
