//! Entries by key, bounded by bytes: half for new entries, half for the entries that clients read most.
//!
//! ```text
//! insert ──→ queue, half of the bytes ──→ main, the other half
//!            oldest entries leave first   admits entries that clients read more often than those it would evict
//! ```
//!
//! Main is a moka cache with the TinyLFU policy, which counts reads of all keys, including absent ones.
//!
//! - An LRU alone lets a scan of cold blocks evict all others. Here a scan passes through the queue, and main refuses it.
//! - TinyLFU alone refuses new entries: clients would miss the newest block, and an old block that they read transaction
//!   by transaction. The queue has both, and also serves an indexer that follows another one at some distance.
//! - Reads of queued entries do not count; otherwise a scan that reads each block ten times in a row would seem popular.
//!   Blocks near the head are the exception: clients follow the head and read them again after they left the queue.
//! - Entries near the head have a tenth of all bytes to themselves, so that no scan evicts the newest blocks.
//!
//! `benches/ratios.rs` shows the hit ratios that result from these shares.

use std::{
    collections::BTreeMap,
    fmt,
    hash::BuildHasher,
    mem,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::{DefaultHashBuilder, HashTable};
use moka::{notification::RemovalCause, policy::EvictionPolicy, sync};
use parking_lot::{Mutex, RwLock};

use super::entity::{Entity, Key};
use crate::eth::BlockNumber;

/// Number of shards: enough that readers of different entries rarely contend.
const SHARDS: usize = 64;

/// Divisor of the queue's share of all bytes. A smaller queue serves indexers that follow each other worse; a larger
/// one leaves main too little for the hot blocks.
const QUEUE: u64 = 2;

/// Divisor of the share of all bytes that entries near the head keep in the queue.
const NEAR_QUEUE: u64 = 10;

/// Distance up to which a block is near the head: about the blocks that are not final yet.
const NEAR: u64 = 64;

/// Value for an unknown head, which no block is near.
const NO_HEAD: u64 = u64::MAX;

/// The entries, in the queue and in main.
pub(super) struct Windowed {
    capacity: u64,
    queue_capacity: u64,
    head: AtomicU64,
    /// Writers hold this lock during each change, so that an entry that moves from the queue to main does not come back
    /// after it was removed or replaced. Readers do not take it.
    queue: Mutex<Queue>,
    queued: Box<[RwLock<HashTable<Queued>>]>,
    hasher: DefaultHashBuilder,
    /// Keys are hashes already. This hasher is seeded all the same, at a fourth of the cost of the standard one.
    main: sync::Cache<Key, Entity, DefaultHashBuilder>,
    removed: Box<OnRemoval>,
}

/// Callback for each entry that leaves, with whether it was evicted to make room.
type OnRemoval = dyn Fn(&Entity, Evicted) + Send + Sync;
type Evicted = bool;

/// An entry in the queue.
struct Queued {
    key: Key,
    entity: Entity,
    weight: u64,
    turn: u64,
    is_near: bool,
}

/// The order of the queue: of entries near the head, and of others.
#[derive(Default)]
struct Queue {
    near: Order,
    other: Order,
    next: u64,
}

/// Keys in the order of insertion, and the bytes of their entries.
#[derive(Default)]
struct Order {
    keys: BTreeMap<u64, Key>,
    bytes: u64,
}

// === impl Windowed ===

impl Windowed {
    /// Creates a store of up to `capacity` bytes that calls `removed` once for each entry that leaves.
    pub(super) fn new(
        capacity: u64,
        removed: impl Fn(&Entity, Evicted) + Clone + Send + Sync + 'static,
    ) -> Self {
        let queue_capacity = capacity / QUEUE;
        let listener = removed.clone();
        let main = sync::Cache::builder()
            .max_capacity(capacity - queue_capacity)
            .weigher(|_: &Key, entity: &Entity| u32::try_from(entity.weight()).unwrap_or(u32::MAX))
            .eviction_policy(EvictionPolicy::tiny_lfu())
            .eviction_listener(move |_, entity: Entity, cause: RemovalCause| {
                listener(&entity, cause == RemovalCause::Size);
            })
            .build_with_hasher(DefaultHashBuilder::default());
        Self {
            capacity,
            queue_capacity,
            head: AtomicU64::new(NO_HEAD),
            queue: Mutex::default(),
            queued: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            main,
            removed: Box::new(removed),
        }
    }

    /// Sets the head, to which new entries are near or not.
    pub(super) fn set_head(&self, head: Option<BlockNumber>) {
        self.head.store(head.map_or(NO_HEAD, |head| head.0), Relaxed);
    }

    /// Returns an entry for a client. Counts the read, unless the entry is queued and far from the head.
    pub(super) fn get(&self, key: &Key) -> Option<Entity> {
        let queued = self.queued(key, |queued| (queued.entity.clone(), queued.is_near));
        let Some((entity, is_near)) = queued else {
            // Look into the queue again: a replacement may have moved the entry there after the first look.
            return self.main.get(key).or_else(|| self.queued(key, |queued| queued.entity.clone()));
        };
        if is_near {
            // Main does not have the entry; this only counts the read.
            self.main.get(key);
        }
        Some(entity)
    }

    /// Returns an entry without a client. Counts as a read only if the entry is in main.
    pub(super) fn peek(&self, key: &Key) -> Option<Entity> {
        let queued = self.queued(key, |queued| queued.entity.clone());
        queued.or_else(|| if self.main.contains_key(key) { self.main.get(key) } else { None })
    }

    /// Inserts or replaces an entry.
    pub(super) fn insert(&self, key: Key, entity: Entity) {
        let weight = entity.weight() as u64;
        let head = self.head.load(Relaxed);
        let is_near = head != NO_HEAD && entity.home.number.0.saturating_add(NEAR) >= head;
        let mut queue = self.queue.lock();
        let replaced = if weight <= self.queue_capacity {
            let turn = queue.push(key, weight, is_near);
            let replaced = self.replace(Queued { key, entity, weight, turn, is_near });
            if let Some(replaced) = &replaced {
                queue.remove(replaced);
            }
            // After the insertion: readers look into the queue before and after main, so they find one of the two.
            self.main.invalidate(&key);
            replaced
        } else {
            // Remove before inserting: moka 0.12 miscounts an entry that is replaced and then removed at once.
            self.main.invalidate(&key);
            self.main.insert(key, entity);
            self.take(&key, &mut queue)
        };
        while queue.bytes() > self.queue_capacity
            && let Some(key) = queue.next_to_leave(self.capacity / NEAR_QUEUE)
        {
            self.move_to_main(&key, &mut queue);
        }
        drop(queue);
        self.leave(replaced);
    }

    fn move_to_main(&self, key: &Key, queue: &mut Queue) {
        if let Some(entity) = self.queued(key, |queued| queued.entity.clone()) {
            // Insert first: readers look into the queue before main, so they find the entry at every moment.
            self.main.insert(*key, entity);
        }
        self.take(key, queue);
    }

    pub(super) fn invalidate(&self, key: &Key) {
        let mut queue = self.queue.lock();
        let removed = self.take(key, &mut queue);
        self.main.invalidate(key);
        drop(queue);
        self.leave(removed);
    }

    pub(super) fn invalidate_all(&self) {
        let mut queue = self.queue.lock();
        let removed: Vec<_> = self.queued.iter().map(|shard| mem::take(&mut *shard.write())).collect();
        *queue = Queue { next: queue.next, ..Queue::default() };
        self.main.invalidate_all();
        drop(queue);
        self.leave(removed.into_iter().flatten());
    }

    /// Returns all entries without counting reads. An entry that moves meanwhile may appear twice.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Entity)> {
        let entry = |queued: &Queued| (queued.key, queued.entity.clone());
        let shards = self.queued.iter().map(RwLock::read);
        let queued: Vec<_> = shards.flat_map(|shard| shard.iter().map(entry).collect::<Vec<_>>()).collect();
        queued.into_iter().chain(self.main.iter().map(|(key, entity)| (*key, entity)))
    }

    /// Number of entries, as far as main has counted its own.
    pub(super) fn entry_count(&self) -> u64 {
        let queued: usize = self.queued.iter().map(|shard| shard.read().len()).sum();
        queued as u64 + self.main.entry_count()
    }

    /// Bytes of all entries, as far as main has counted its own.
    pub(super) fn weighted_size(&self) -> u64 {
        self.queue.lock().bytes() + self.main.weighted_size()
    }

    /// Limit in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Carries out pending evictions now; otherwise they happen along with other work.
    pub(super) fn run_pending_tasks(&self) {
        self.main.run_pending_tasks();
    }

    /// Takes an entry out of the queue.
    fn take(&self, key: &Key, queue: &mut Queue) -> Option<Queued> {
        // Most invalidated keys are absent. Check with a read lock first, so that readers need not wait.
        self.queued(key, |_| ())?;
        let (hash, shard) = self.shard(key);
        let taken = shard.write().find_entry(hash, |queued| queued.key == *key).ok()?.remove().0;
        queue.remove(&taken);
        Some(taken)
    }

    fn leave(&self, removed: impl IntoIterator<Item = Queued>) {
        removed.into_iter().for_each(|queued| (self.removed)(&queued.entity, false));
    }

    /// Reads an entry of the queue.
    fn queued<T>(&self, key: &Key, read_out: impl FnOnce(&Queued) -> T) -> Option<T> {
        let (hash, shard) = self.shard(key);
        shard.read().find(hash, |queued| queued.key == *key).map(read_out)
    }

    /// Puts an entry into the queue, and returns the entry that it replaces.
    fn replace(&self, queued: Queued) -> Option<Queued> {
        let (hash, shard) = self.shard(&queued.key);
        let mut shard = shard.write();
        if let Some(known) = shard.find_mut(hash, |known| known.key == queued.key) {
            return Some(mem::replace(known, queued));
        }
        shard.insert_unique(hash, queued, |queued| self.hasher.hash_one(queued.key));
        None
    }

    fn shard(&self, key: &Key) -> (u64, &RwLock<HashTable<Queued>>) {
        let hash = self.hasher.hash_one(key);
        // A table uses the lowest and the highest bits, so the shard uses bits in between.
        (hash, &self.queued[(hash >> 32) as usize % SHARDS])
    }
}

impl fmt::Debug for Windowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Windowed").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

// === impl Queue ===

impl Queue {
    fn bytes(&self) -> u64 {
        self.near.bytes + self.other.bytes
    }

    fn order(&mut self, is_near: bool) -> &mut Order {
        if is_near { &mut self.near } else { &mut self.other }
    }

    /// Appends a key and returns its place in the order.
    fn push(&mut self, key: Key, weight: u64, is_near: bool) -> u64 {
        let turn = self.next;
        self.next += 1;
        let order = self.order(is_near);
        order.keys.insert(turn, key);
        order.bytes += weight;
        turn
    }

    fn remove(&mut self, Queued { turn, weight, is_near, .. }: &Queued) {
        let order = self.order(*is_near);
        order.keys.remove(turn);
        order.bytes -= weight;
    }

    /// Returns the key of the oldest entry. Skips entries near the head while they take at most `own_bytes`.
    fn next_to_leave(&self, own_bytes: u64) -> Option<Key> {
        let near = self.near.keys.first_key_value().filter(|_| self.near.bytes > own_bytes);
        let oldest = near.into_iter().chain(self.other.keys.first_key_value()).min_by_key(|(turn, _)| **turn);
        oldest.map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests;
