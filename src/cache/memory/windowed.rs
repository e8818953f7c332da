//! Entries by key, bounded by bytes: half of them new entries, half those that clients read most.
//!
//! ```text
//! insert ──→ queue, half of the bytes ──→ main, the other half
//!            oldest entries leave first   admits entries that clients read more often than those that must go
//! ```
//!
//! Main is moka with its TinyLFU policy, which counts reads of all keys, also of those that it does not have.
//!
//! - An LRU alone lets a scan of cold blocks evict all others. Here a scan passes through the queue, and main refuses it.
//! - TinyLFU alone refuses new entries: clients would miss the newest block, and an old block that they read transaction by
//!   transaction. In the queue they find them, and so does an indexer that follows another at some distance.
//! - Reads of queued entries do not count, or a scan that reads each block ten times in a row would pass for popular.
//!   Blocks near the head are the exception: clients follow the head, and read them again after they left the queue.
//! - Entries near the head have a tenth of all bytes to themselves, so that no scan drives the newest blocks out.
//!
//! `benches/ratios.rs` shows what comes of these shares.

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

/// Readers of different entries seldom meet.
const SHARDS: usize = 64;

/// The queue has one in so many of all bytes. A smaller one serves indexers that walk the same blocks at a distance worse, a
/// larger one leaves main too little for the hot blocks.
const QUEUE: u64 = 2;

/// Entries near the head have one in so many of all bytes in the queue before others drive them out.
const NEAR_QUEUE: u64 = 10;

/// Blocks this close to the head are near it: those that are not final yet.
const NEAR: u64 = 64;

/// The head is not known, and no block is near it.
const NO_HEAD: u64 = u64::MAX;

/// The entries.
pub(super) struct Windowed {
    capacity: u64,
    queue_capacity: u64,
    head: AtomicU64,
    /// Held during each change: an entry that moves from the queue to main must not come back after it was removed or replaced.
    /// Readers do not take it.
    queue: Mutex<Queue>,
    queued: Box<[RwLock<HashTable<Queued>>]>,
    hasher: DefaultHashBuilder,
    /// Keys are hashes already; the hasher is seeded all the same, and a fourth of the cost of the usual one.
    main: sync::Cache<Key, Entity, DefaultHashBuilder>,
    removed: Box<OnRemoval>,
}

/// Called with each entry that leaves, and whether it made room for others.
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

/// Keys by the turn at which they came, and the bytes of their entries.
#[derive(Default)]
struct Order {
    keys: BTreeMap<u64, Key>,
    bytes: u64,
}

// === impl Windowed ===

impl Windowed {
    /// Holds up to `capacity` bytes, and calls `removed` once for each entry that leaves.
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

    /// Sets the head that new entries are near to, or not.
    pub(super) fn set_head(&self, head: Option<BlockNumber>) {
        self.head.store(head.map_or(NO_HEAD, |head| head.0), Relaxed);
    }

    /// Returns an entry that a client reads.
    pub(super) fn get(&self, key: &Key) -> Option<Entity> {
        let queued = self.queued(key, |queued| (queued.entity.clone(), queued.is_near));
        let Some((entity, is_near)) = queued else {
            // Once more into the queue: it may have been replaced there after the first look.
            return self.main.get(key).or_else(|| self.queued(key, |queued| queued.entity.clone()));
        };
        if is_near {
            // Not there: this counts the read.
            self.main.get(key);
        }
        Some(entity)
    }

    /// Returns an entry that no client reads. Where it is absent or queued, this does not count as a read.
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
            // Only now: readers look into the queue before main and after it, and find one or the other.
            self.main.invalidate(&key);
            replaced
        } else {
            // Never replaced: moka 0.12 miscounts an entry that is replaced and then removed at once.
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
            // First: readers look into the queue before, and find it at every moment.
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

    /// Returns all entries, and counts no read of them. An entry that moves meanwhile may come twice.
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

    /// Bytes that there may be.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Lets evictions that are due happen now; otherwise they happen along with other work.
    pub(super) fn run_pending_tasks(&self) {
        self.main.run_pending_tasks();
    }

    /// Takes an entry out of the queue.
    fn take(&self, key: &Key, queue: &mut Queue) -> Option<Queued> {
        // Most keys that are invalidated are not there: readers need not wait for that.
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

    /// Puts an entry into the queue, and returns the one before it.
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
        // By bits that tables do not tell their entries apart by: those use the lowest and the highest.
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

    /// Appends a key, and returns its turn.
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

    /// Returns the oldest entry; among those near the head only if they have more than their own bytes.
    fn next_to_leave(&self, own_bytes: u64) -> Option<Key> {
        let near = self.near.keys.first_key_value().filter(|_| self.near.bytes > own_bytes);
        let oldest = near.into_iter().chain(self.other.keys.first_key_value()).min_by_key(|(turn, _)| **turn);
        oldest.map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests;
