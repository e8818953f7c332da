//! A store of entries by key, with a limit in bytes. Half of the bytes are for new entries, half for the entries that
//! clients read most.
//!
//! ```text
//! insert ──→ queue, half of the bytes ──→ main, the other half
//!            oldest entries leave first   admits entries that clients read more often than those it would evict
//! ```
//!
//! Main is a moka cache with the TinyLFU policy, which counts reads of all keys, including absent ones.
//!
//! - With an LRU alone, a scan of rarely read blocks would evict all others. Here, the scanned blocks pass through the
//!   queue, and main does not admit them.
//! - With TinyLFU alone, the store would not admit new entries. Clients would miss the newest block, and an old block
//!   that they read transaction by transaction. The queue has both. It also serves a second indexer that reads the same
//!   blocks some time after the first.
//! - TinyLFU does not count reads of queued entries; otherwise, blocks that a scan reads ten times in a row would seem
//!   popular. Blocks near the head are the exception, because clients follow the head and read these blocks again after
//!   they left the queue.
//! - A tenth of all bytes is reserved for entries near the head, so that no scan evicts the newest blocks.
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

/// Number of shards. It is high enough that readers of different entries rarely contend.
const SHARDS: usize = 64;

/// The capacity of the queue is the capacity of the store divided by this number. A smaller queue loses more blocks
/// before a second indexer reads them. A larger queue leaves main too little room for frequently read blocks.
const QUEUE: u64 = 2;

/// The part of the queue that is reserved for entries near the head is the capacity of the store divided by this
/// number.
const NEAR_QUEUE: u64 = 10;

/// Largest distance from the head, in blocks, at which a block is near the head. Such blocks are mostly not final yet.
const NEAR: u64 = 64;

/// Value of `head` while the head is unknown. No block is near the head then.
const NO_HEAD: u64 = u64::MAX;

/// The entries, in the queue and in main.
pub(super) struct Windowed {
    capacity: u64,
    queue_capacity: u64,
    head: AtomicU64,
    /// The order of the queue. Writers hold this lock during each change. Otherwise, an entry that moves from the queue
    /// to main could come back after another writer removed or replaced it. Readers do not take this lock.
    queue: Mutex<Queue>,
    queued: Box<[RwLock<HashTable<Queued>>]>,
    hasher: DefaultHashBuilder,
    /// The entries that clients read most. The hasher takes a fourth of the time of the standard hasher, and is seeded
    /// as well.
    main: sync::Cache<Key, Entity, DefaultHashBuilder>,
    removed: Box<OnRemoval>,
}

/// Callback for each entry that leaves the store. The flag says whether the store evicted the entry to make room.
type OnRemoval = dyn Fn(&Entity, Evicted) + Send + Sync;
type Evicted = bool;

/// An entry in the queue.
struct Queued {
    key: Key,
    entity: Entity,
    weight: u64,
    /// Place in the order of insertion.
    turn: u64,
    is_near: bool,
}

/// The order of the queue, separately for entries near the head and for others.
#[derive(Default)]
struct Queue {
    near: Order,
    other: Order,
    next: u64,
}

/// Keys in the order of insertion, and the total bytes of their entries.
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

    /// Sets the head. Later insertions use it to decide whether an entry is near the head.
    pub(super) fn set_head(&self, head: Option<BlockNumber>) {
        self.head.store(head.map_or(NO_HEAD, |head| head.0), Relaxed);
    }

    /// Returns an entry for a client. Counts the read, unless the entry is queued and far from the head.
    pub(super) fn get(&self, key: &Key) -> Option<Entity> {
        let queued = self.queued(key, |queued| (queued.entity.clone(), queued.is_near));
        let Some((entity, is_near)) = queued else {
            // Look into the queue again: after the first look, a writer may have put a new entry there and removed the
            // old one from main.
            return self.main.get(key).or_else(|| self.queued(key, |queued| queued.entity.clone()));
        };
        if is_near {
            // Main does not have the entry, but the lookup makes TinyLFU count the read.
            self.main.get(key);
        }
        Some(entity)
    }

    /// Returns an entry for an internal check. Counts as a read only if the entry is in main.
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
            // Remove the old entry from main after the insertion. Readers look into the queue before and after main, so
            // they find one of the two entries.
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
            // Insert into main before removing from the queue. Readers look into the queue before main, so they find
            // the entry at every moment.
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

    /// Number of entries. The number of entries in main may lag behind recent changes.
    pub(super) fn entry_count(&self) -> u64 {
        let queued: usize = self.queued.iter().map(|shard| shard.read().len()).sum();
        queued as u64 + self.main.entry_count()
    }

    /// Bytes of all entries. The bytes of main may lag behind recent changes.
    pub(super) fn weighted_size(&self) -> u64 {
        self.queue.lock().bytes() + self.main.weighted_size()
    }

    /// Limit in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Carries out pending evictions now. Without this call, later reads and writes carry them out.
    pub(super) fn run_pending_tasks(&self) {
        self.main.run_pending_tasks();
    }

    /// Takes an entry out of the queue.
    fn take(&self, key: &Key, queue: &mut Queue) -> Option<Queued> {
        // Most keys to remove are absent. Check this with a read lock first, so that readers need not wait.
        self.queued(key, |_| ())?;
        let (hash, shard) = self.shard(key);
        let taken = shard.write().find_entry(hash, |queued| queued.key == *key).ok()?.remove().0;
        queue.remove(&taken);
        Some(taken)
    }

    fn leave(&self, removed: impl IntoIterator<Item = Queued>) {
        removed.into_iter().for_each(|queued| (self.removed)(&queued.entity, false));
    }

    /// Applies `read_out` to an entry of the queue.
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
