//! Decides which connection a full listener closes for a newcomer.
//!
//! A connection counts against `connections.max` from its first request on. Until then, it takes a place that is free,
//! or one of a few [extra](spare) places, and can displace only others that have sent no request.

use std::{
    array,
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::activity::{Activity, Phase};

/// Classes of connections, in the order in which a full listener closes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Class {
    /// No request has arrived.
    New,
    /// No request had a valid key.
    Keyless,
    /// A request had a valid key.
    Keyed,
    /// The peer is a trusted proxy.
    Proxy,
}

/// Connections of one class that count together: of an IPv4 address, of an IPv6 network, or with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// The length of the network's prefix, and the prefix.
    Network(Class, u8, u128),
    Key(u64),
}

/// What the rule knows of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) class: Class,
    /// The groups of the connection, the widest first. Each connection of a group holds a clone, and
    /// [`Slots`](super::slots::Slots) holds one.
    pub(super) groups: Vec<Arc<Group>>,
    pub(super) activity: Arc<Activity>,
}

/// Open connections in the order in which the listener accepted them.
pub(super) type Open = BTreeMap<u64, Connection>;

/// Returns the number of connections without a request that always have a place, and of those that exceed
/// `connections.max` because none may be closed for them.
pub(super) fn spare(max: usize) -> usize {
    (max / 8).clamp(8, 64)
}

/// Returns the connection to close now that `newcomer` has connected or sent its first request; `None` if there is
/// room. Without a newcomer, returns the connection that is closed to free a file descriptor, and never a busy one.
pub(super) fn victim(open: &Open, newcomer: Option<u64>, max: usize) -> Option<u64> {
    let known = newcomer.and_then(|id| open.get(&id));
    let least_harm = || {
        let others = open.iter().filter(|(id, _)| Some(**id) != newcomer);
        others.filter_map(|(id, other)| Some((other.harm(known)?, *id))).min().map(|(_, id)| id)
    };
    let Some(known) = known else { return least_harm() };
    let new = open.values().filter(|connection| connection.class == Class::New).count();
    let counted = open.len() - new;
    if known.class == Class::New {
        let places = spare(max).max(max.saturating_sub(counted));
        // On the extra places, a network that connects often displaces its own connections. On free places, the oldest
        // ones go, so that a client which opens many connections at once keeps them.
        let held = |new: &Connection| (places == spare(max)).then(|| Reverse(new.held()));
        let all = open.iter().filter(|(_, connection)| connection.class == Class::New);
        let first = all.min_by_key(|(id, new)| (held(new), **id)).map(|(id, _)| *id);
        return first.filter(|_| new > places);
    }
    if counted <= max {
        return None;
    }
    least_harm().or_else(|| newcomer.filter(|_| counted > max + spare(max)))
}

// === impl Group ===

impl Group {
    /// Returns the groups of a connection, the widest first. A provider may give a client an IPv6 /48, /56 or /64.
    pub(super) fn of(class: Class, peer: IpAddr, key: u64) -> Vec<Self> {
        match (class, peer.to_canonical()) {
            (Class::Keyed, _) => vec![Self::Key(key)],
            (_, IpAddr::V4(peer)) => vec![Self::Network(class, 32, peer.to_bits().into())],
            (_, IpAddr::V6(peer)) => [48, 56, 64]
                .map(|length| Self::Network(class, length, peer.to_bits() >> (128 - length)))
                .into(),
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Returns the harm of closing this connection for `newcomer`, the least first; `None` if it must stay.
    fn harm(&self, newcomer: Option<&Self>) -> Option<impl Ord> {
        let phase = self.activity.phase();
        let is_busy = matches!(phase, Phase::Busy | Phase::Stalled);
        let holds = newcomer.map_or(Ordering::Equal, |newcomer| self.compare(newcomer));
        // A busy connection yields only to a smaller group. If equal ones were enough, two groups could cut off each
        // other's requests in turn.
        let yields = if is_busy { holds.is_gt() } else { holds.is_ge() };
        let may_close = match self.class {
            Class::New => newcomer.is_none(),
            Class::Keyless if phase == Phase::Head => true,
            Class::Keyless => yields || newcomer.is_some_and(|newcomer| newcomer.class > self.class),
            Class::Keyed => yields && newcomer.is_none_or(|newcomer| newcomer.class == self.class),
            Class::Proxy => !is_busy,
        };
        let is_ranked = self.class == Class::Keyless && phase != Phase::Head;
        let stage = u8::from(is_ranked) * (1 + u8::from(is_busy));
        let idle_ticks = Reverse(self.activity.idle_ticks.load(Relaxed));
        may_close.then(|| (self.class, stage, Reverse(self.held()), is_busy, idle_ticks))
    }

    /// Returns the number of connections in each of the groups.
    fn held(&self) -> [usize; 3] {
        array::from_fn(|at| Arc::strong_count(&self.groups[at.min(self.groups.len() - 1)]))
    }

    /// Compares the number of connections in the widest groups that differ.
    fn compare(&self, other: &Self) -> Ordering {
        let mut groups = self.groups.iter().zip(&other.groups);
        let differ = groups.find(|(own, other)| !Arc::ptr_eq(own, other));
        differ.map_or(Ordering::Equal, |(own, other)| Arc::strong_count(own).cmp(&Arc::strong_count(other)))
    }
}

#[cfg(test)]
mod tests;
