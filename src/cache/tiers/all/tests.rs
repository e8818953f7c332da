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
    cache::tier::{Record, TierError, Tiered, Usage},
};

/// Limit of the byte budget.
const BUDGET: u64 = 1 << 20;

const CHAIN: ChainKey = ChainKey { id: 1, genesis: B256::ZERO };

/// A tier whose writes wait for a permit.
#[derive(Debug)]
struct Slow {
    kind: TierKind,
    /// Whether writes fail.
    is_full: AtomicBool,
    value: Mutex<Option<Sealed>>,
    /// Whether reads of content never end.
    hangs: AtomicBool,
    hints: Mutex<HashMap<BlockNumber, BlockHash>>,
    headers: Mutex<HashMap<BlockHash, Sealed>>,
    lets: Semaphore,
}

impl Slow {
    fn new(kind: TierKind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            is_full: false.into(),
            value: Mutex::default(),
            hangs: false.into(),
            hints: Mutex::default(),
            headers: Mutex::default(),
            lets: Semaphore::new(0),
        })
    }

    fn hints(&self) -> MutexGuard<'_, HashMap<BlockNumber, BlockHash>> {
        self.hints.lock().unwrap()
    }

    fn headers(&self) -> MutexGuard<'_, HashMap<BlockHash, Sealed>> {
        self.headers.lock().unwrap()
    }

    async fn permit(&self) -> Result<(), TierError> {
        self.lets.acquire().await.unwrap().forget();
        if self.is_full.load(SeqCst) {
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        } else {
            Ok(())
        }
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

    fn headers(&self, _: ChainKey, blocks: Vec<BlockHash>) -> Tiered<'_, Vec<Option<Sealed>>> {
        assert!(blocks.len() <= AT_ONCE);
        Box::pin(async move { Ok(blocks.iter().map(|hash| self.headers().get(hash).cloned()).collect()) })
    }

    fn hints(&self, _: ChainKey, from: BlockNumber, count: usize) -> Tiered<'_, Vec<Option<BlockHash>>> {
        assert!(count <= AT_ONCE);
        let numbers = (from.0..).take(count).map(BlockNumber);
        Box::pin(async { Ok(numbers.map(|number| self.hints().get(&number).copied()).collect()) })
    }

    fn home_of(&self, _: ChainKey, _: TxHash) -> Tiered<'_, Option<Home>> {
        Box::pin(async { Ok(None) })
    }

    fn put(&self, _: ChainKey, Record { home, part, .. }: Record) -> Tiered<'_, bool> {
        Box::pin(async move {
            self.permit().await?;
            if part == Part::Header {
                self.hints().insert(home.number, home.block);
            }
            Ok(true)
        })
    }

    fn remove(&self, _: ChainKey, _: Part, hash: BlockHash) -> Tiered<'_, bool> {
        Box::pin(async move { Ok(self.headers().remove(&hash).is_some()) })
    }

    fn drop_hints(&self, _: ChainKey, blocks: Arc<[Home]>) -> Tiered<'_, bool> {
        Box::pin(async move {
            self.permit().await?;
            self.hints().retain(|_, hash| !blocks.iter().any(|home| home.block == *hash));
            Ok(true)
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

fn parcel(number: u64, byte: u8) -> Parcel {
    Parcel {
        chain: CHAIN,
        home: Home { block: hash(byte), number: BlockNumber(number) },
        part: Part::Block,
        transactions: Vec::new(),
        text: Bytes::from_static(b"{}"),
        from: None,
    }
}

fn over(tiers: &[&Arc<Slow>]) -> Tiers {
    let tiers = tiers.iter().map(|tier| (Arc::clone(tier) as Arc<dyn Tier>, Duration::from_secs(1)));
    Tiers::new(tiers.collect(), ByteBudget::new(BUDGET, None), Metrics::default())
}

async fn hint(tiers: &Tiers, number: u64) -> Option<BlockHash> {
    tiers.hint(CHAIN, BlockNumber(number)).await.map(|(_, hash)| hash)
}

#[tokio::test]
async fn hints_of_a_tier_stop_at_the_first_gap() {
    let (disk, redis) = (Slow::new(TierKind::Disk), Slow::new(TierKind::Redis));
    let tiers = over(&[&disk, &redis]);
    for number in (0..600).filter(|number| *number != 300) {
        disk.hints().insert(BlockNumber(number), hash(1));
    }
    for number in [0, 300] {
        redis.hints().insert(BlockNumber(number), hash(2));
    }
    assert_eq!(tiers.hint(CHAIN, BlockNumber(0)).await, Some((TierKind::Disk, hash(1))));
    assert_eq!(tiers.hint(CHAIN, BlockNumber(300)).await, Some((TierKind::Redis, hash(2))));
    assert_eq!(tiers.hint(CHAIN, BlockNumber(600)).await, None);
    for (from, count, found) in
        [(0, 600, 300), (0, 257, 257), (44, 600, 256), (299, 5, 1), (300, 5, 0), (600, 1, 0)]
    {
        let hints = tiers.hints(CHAIN, TierKind::Disk, BlockNumber(from), count).await;
        assert_eq!(hints, vec![hash(1); found], "{count} from {from}");
    }
    assert_eq!(Tiers::default().hints(CHAIN, TierKind::Disk, BlockNumber(0), 5).await, []);
}

#[tokio::test]
async fn damaged_headers_are_removed() {
    let disk = Slow::new(TierKind::Disk);
    let tiers = over(&[&disk]);
    let text = |byte: u8| Bytes::from(vec![byte; 3]);
    for byte in (0..100u8).filter(|byte| !byte.is_multiple_of(5)) {
        disk.headers().insert(hash(byte), Sealed::new(&text(byte)).unwrap());
    }
    disk.headers().insert(hash(7), Sealed::from(Bytes::from_static(b"damaged")));
    let blocks: Vec<_> = (0..100).map(hash).collect();
    let expected = |byte: u8| (!byte.is_multiple_of(5) && byte != 7).then(|| text(byte));
    let headers = tiers.headers(CHAIN, TierKind::Disk, &blocks).await;
    assert_eq!(headers, (0..100).map(expected).collect::<Vec<_>>());
    tiers.settle().await;
    assert!(!disk.headers().contains_key(&hash(7)));
}

#[tokio::test]
async fn dropped_hints_leave_all_tiers_after_queued_writes() {
    let (disk, redis) = (Slow::new(TierKind::Disk), Slow::new(TierKind::Redis));
    let tiers = over(&[&disk, &redis]);
    redis.hints().insert(BlockNumber(2), hash(1));
    tiers.put(parcel(1, 1));
    tiers.put(parcel(3, 2));
    let blocks = [1, 2].map(|number| Home { block: hash(1), number: BlockNumber(number) });
    tiers.drop_hints(CHAIN, Some(TierKind::Redis), &blocks[1..]);
    tiers.drop_hints(CHAIN, None, &blocks[..1]);
    [&disk, &redis].iter().for_each(|tier| tier.lets.add_permits(10));
    tiers.settle().await;
    assert_eq!((hint(&tiers, 1).await, hint(&tiers, 2).await), (None, None));
    assert_eq!(hint(&tiers, 3).await, Some(hash(2)));
}

#[tokio::test(start_paused = true)]
async fn full_tier_is_not_written_and_still_answers() {
    let slow = Slow::new(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.lets.add_permits(100);
    tiers.put(parcel(1, 1));
    tiers.settle().await;
    slow.is_full.store(true, SeqCst);
    for number in 2..10 {
        tiers.put(parcel(number, 1));
        tiers.settle().await;
        assert_eq!(hint(&tiers, 1).await, Some(hash(1)));
    }
    assert_eq!(slow.hints().len(), 1);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(tiers.remove(CHAIN, hash(2)).await.is_empty(), "there is nothing to remove");
    assert!(!tiers.status()[0].writes, "a removal of nothing does not show that the tier is writable");
    slow.is_full.store(false, SeqCst);
    tiers.put(parcel(10, 1));
    tiers.settle().await;
    assert_eq!(hint(&tiers, 10).await, Some(hash(1)));
    assert!(tiers.status()[0].writes);
}

#[tokio::test]
async fn hanging_tier_does_not_delay_the_others() {
    let (hangs, works) = (Slow::new(TierKind::Disk), Slow::new(TierKind::Redis));
    let tiers = over(&[&hangs, &works]);
    works.lets.add_permits(10);
    tiers.put(parcel(1, 1));
    while works.hints().is_empty() {
        task::yield_now().await;
    }
    assert_eq!(works.hints().get(&BlockNumber(1)), Some(&hash(1)));
    assert!(hangs.hints().is_empty());
}

#[tokio::test]
async fn unpacking_is_bounded_by_the_byte_budget() {
    let slow = Slow::new(TierKind::Redis);
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
    let slow = Slow::new(TierKind::Disk);
    let tiers = over(&[&slow]);
    slow.hangs.store(true, SeqCst);
    let get = async || tiers.get(CHAIN, Part::Block, hash(1), None).await;
    for _ in 0..3 {
        assert!(tiers.status()[0].reads);
        assert!(hint(&tiers, 1).await.is_none());
        assert!(get().await.is_none());
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
