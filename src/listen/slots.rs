//! Enforces the cap on open connections.
//!
//! There is no cap per client while the listener has free slots, because all clients of a sidecar share one address.
//! Once the listener is full, [`victim`] decides which connection a newcomer displaces.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    Metrics,
    activity::{Activity, Closed},
    victim::{Class, Connection, Group, Open, spare, victim},
};

/// Value of [`Slot::counted_as`] before the first request.
const NO_REQUEST: u64 = u64::MAX;

/// Returns whether a peer is a trusted proxy in the current configuration.
pub(super) type Trusted = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// All slots of a listener.
pub(super) struct Slots {
    pub(super) max: usize,
    trusted: Trusted,
    metrics: Metrics,
    state: Mutex<State>,
}

/// One connection's slot, released on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    pub(super) peer: IpAddr,
    /// The key that the connection counts for, as [`Activity::key`] returns it.
    counted_as: AtomicU64,
    pub(super) activity: Arc<Activity>,
}

#[derive(Default)]
struct State {
    opened: u64,
    open: Open,
    /// The groups of all open connections.
    groups: HashSet<Arc<Group>>,
    /// Number of displaced connections that have not ended. They hold a file descriptor until then.
    ending: usize,
}

// === impl Slots ===

impl Slots {
    pub(super) fn new(max: usize, trusted: Trusted, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self { max, trusted, metrics, state: Mutex::default() })
    }

    /// Takes a slot for a new connection from `peer`. May displace another connection.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Slot {
        let is_proxy = (self.trusted)(peer);
        let class = if is_proxy { Class::Proxy } else { Class::New };
        let activity = Arc::new(Activity::new(is_proxy));
        let mut state = self.state.lock();
        let id = state.opened;
        state.opened += 1;
        state.insert(id, class, peer, &activity);
        self.displace(&mut state, Some(id));
        self.metrics.accepted.inc();
        self.metrics.open.inc();
        Slot { slots: self.clone(), id, peer, counted_as: NO_REQUEST.into(), activity }
    }

    /// Returns whether a new connection must wait: if the listener is full, and the network of this peer has many
    /// connections without a request. Each newcomer of a crowd that reconnects displaces another connection of the crowd,
    /// which then reconnects.
    pub(super) fn must_wait(&self, peer: IpAddr) -> bool {
        let (state, group) = (self.state.lock(), Group::of(Class::New, peer, 0)[0]);
        let newcomers = state.groups.get(&group).map_or(0, |group| Arc::strong_count(group) - 1);
        state.open.len() >= self.max && newcomers >= spare(self.max) / 8
    }

    /// Closes a connection that is not busy, if there is one, to free a file descriptor.
    pub(super) fn give_up_one(&self) {
        self.displace(&mut self.state.lock(), None);
    }

    /// Closes a connection if `newcomer` makes one too many, or if there is no newcomer.
    fn displace(&self, state: &mut State, newcomer: Option<u64>) {
        let victim = victim(&state.open, newcomer, self.max).and_then(|id| state.remove(id));
        if let Some(victim) = victim {
            self.metrics.closed(Closed::Displaced);
            // Connections that finish a request hold their file descriptors for longest.
            victim.activity.displace(state.ending < spare(self.max) / 2);
            state.ending += 1;
        }
    }
}

// === impl State ===

impl State {
    fn insert(&mut self, id: u64, class: Class, peer: IpAddr, activity: &Arc<Activity>) {
        let groups = Group::of(class, peer, activity.key()).into_iter().map(|group| {
            let group = self.groups.get(&group).cloned().unwrap_or_else(|| Arc::new(group));
            self.groups.insert(group.clone());
            group
        });
        let groups = groups.collect();
        self.open.insert(id, Connection { class, groups, activity: activity.clone() });
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let removed = self.open.remove(&id)?;
        for group in &removed.groups {
            // One reference belongs to the set, and one to the removed connection.
            if Arc::strong_count(group) == 2 {
                self.groups.remove(group);
            }
        }
        Some(removed)
    }
}

// === impl Slot ===

impl Slot {
    /// Counts the connection against the cap from its first request on, and for the key that a request has sent.
    /// Called after the service has seen the head of a request.
    pub(super) fn count_request(&self) {
        let key = self.activity.key();
        if self.counted_as.swap(key, Relaxed) == key {
            return;
        }
        let mut state = self.slots.state.lock();
        // A displaced connection is no longer counted.
        let Some(Connection { class: before, .. }) = state.remove(self.id) else { return };
        let class = before.max(if key == 0 { Class::Keyless } else { Class::Keyed });
        state.insert(self.id, class, self.peer, &self.activity);
        if before == Class::New {
            self.slots.displace(&mut state, Some(self.id));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        if state.remove(self.id).is_none() {
            state.ending -= 1;
        }
        self.slots.metrics.open.dec();
    }
}

#[cfg(test)]
mod tests;
