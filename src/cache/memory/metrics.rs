//! Metrics of the cache in memory, by kind of entry.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::entity::{Entity, KINDS};
use crate::labels::Labels;

/// Metrics of the cache. The default is not registered with any registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    entries: Family<Labels<1>, Gauge>,
    bytes: Family<Labels<1>, Gauge>,
    evictions: Family<Labels<1>, Counter>,
    capacity: Gauge,
    /// The same metrics by kind, for access without a lock.
    by_kind: [Counted; KINDS.len()],
}

#[derive(Clone, Debug)]
struct Counted {
    entries: Gauge,
    bytes: Gauge,
    evictions: Counter,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        let (entries, bytes, evictions) =
            (Family::<_, Gauge>::default(), Family::<_, Gauge>::default(), Family::<_, Counter>::default());
        let by_kind = KINDS.map(|kind| {
            let labels = [("kind", kind)];
            Counted {
                entries: entries.get_or_create_owned(&labels),
                bytes: bytes.get_or_create_owned(&labels),
                evictions: evictions.get_or_create_owned(&labels),
            }
        });
        Self { entries, bytes, evictions, capacity: Gauge::default(), by_kind }
    }
}

impl Metrics {
    /// Registers `cache_entries{kind}`, `cache_bytes{kind}`, `cache_evictions_total{kind}` and `cache_capacity_bytes`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("cache_entries", "Entries in the memory cache", metrics.entries.clone());
        registry.register("cache_bytes", "Bytes of the memory cache, with overhead", metrics.bytes.clone());
        registry.register(
            "cache_evictions",
            "Entries evicted from the memory cache to make room; excludes replaced and invalidated entries",
            metrics.evictions.clone(),
        );
        registry.register("cache_capacity_bytes", "Memory cache limit in bytes", metrics.capacity.clone());
        metrics
    }

    pub(super) fn evictions(&self) -> u64 {
        self.by_kind.iter().map(|counted| counted.evictions.get()).sum()
    }

    pub(super) fn may_be(&self, bytes: u64) {
        self.capacity.set(signed(bytes));
    }

    pub(super) fn came(&self, entity: &Entity) {
        let counted = &self.by_kind[entity.kind()];
        counted.entries.inc();
        counted.bytes.inc_by(signed(entity.weight() as u64));
    }

    pub(super) fn went(&self, entity: &Entity, evicted: bool) {
        let counted = &self.by_kind[entity.kind()];
        counted.entries.dec();
        counted.bytes.dec_by(signed(entity.weight() as u64));
        if evicted {
            counted.evictions.inc();
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
