//! Enforces the cap on open connections. Each open connection holds a slot; a new connection is a *newcomer*.
//!
//! There is no cap per address while the listener has free slots, because all clients of a sidecar share one address.
//! Once the listener is full, a newcomer displaces a connection of the address that holds the most connections. So an
//! address that opens ever more connections displaces its own, and a newcomer from any other address soon gets a slot.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::activity::{Activity, EvictionClass};
use crate::client::network;

/// Displaced connections hold a file descriptor until they end. So the listener limits the number of those that have
/// not ended to the number of slots divided by this. At the limit, newcomers wait.
const ENDING_PART: usize = 16;

/// Minimum value of the limit that [`ENDING_PART`] describes, for listeners with few slots.
const MIN_ENDING: usize = 8;

/// The search for a connection to displace stops after about this many connections if one of them is idle, because it
/// would cost too much to search all connections for each of many newcomers. The next search starts after the last
/// displaced connection.
const SAMPLE: usize = 16;

/// Returns whether a peer is a trusted proxy in the current configuration.
pub(super) type Trusted = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// All slots of a listener.
pub(super) struct Slots {
    max: usize,
    trusted: Trusted,
    state: Mutex<State>,
    freed: Notify,
}

/// One connection's slot, released on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    holder: AddressConnections,
    id: u64,
    pub(super) activity: Arc<Activity>,
}

/// The holder of slots: an IPv4 address, or an IPv6 /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AddressConnections {
    /// `None` if the peer's address is unknown.
    network: Option<IpAddr>,
    is_trusted: bool,
}

#[derive(Default)]
struct State {
    taken: usize,
    /// Number of displaced connections that have not ended.
    ending: usize,
    opened: u64,
    /// Id of the connection at which the next search for one to displace starts.
    cursor: u64,
    /// The connections of each holder, oldest first.
    holders: HashMap<AddressConnections, OpenConnections>,
}

/// Connections in the order in which they were opened.
type OpenConnections = BTreeMap<u64, Arc<Activity>>;

// === impl Slots ===

impl Slots {
    pub(super) fn new(max: usize, trusted: Trusted) -> Self {
        Self { max, trusted, state: Mutex::default(), freed: Notify::new() }
    }

    /// Takes a slot for a new connection from `peer`: a free slot, or the slot of a connection that it displaces.
    /// Returns `None` if every connection that it could displace is busy, or if too many displaced connections have
    /// not ended.
    pub(super) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Slot> {
        let holder = self.holder(peer);
        let mut state = self.state.lock();
        if state.taken < self.max {
            state.taken += 1;
        } else if self.is_full_of_ending(&state) {
            return None;
        } else {
            // `taken` stays the same, because the newcomer takes over the slot before the displaced connection ends.
            state.displace(Some(holder))?;
        }
        let activity = Arc::new(Activity::new(holder.is_trusted));
        let id = state.opened;
        state.opened += 1;
        state.holders.entry(holder).or_default().insert(id, activity.clone());
        Some(Slot { slots: self.clone(), holder, id, activity })
    }

    /// Returns whether too many displaced connections have not ended. If so, a newcomer cannot displace another one.
    pub(super) fn is_settling(&self) -> bool {
        self.is_full_of_ending(&self.state.lock())
    }

    fn is_full_of_ending(&self, state: &State) -> bool {
        state.ending >= MIN_ENDING.max(self.max / ENDING_PART)
    }

    /// Closes a connection that is not busy, if there is one, to free a file descriptor.
    pub(super) fn give_up_one(&self) {
        let mut state = self.state.lock();
        if state.displace(None).is_some() {
            state.taken -= 1;
        }
    }

    /// Resolves once a connection has ended.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn holder(&self, peer: Option<IpAddr>) -> AddressConnections {
        let is_trusted = peer.is_some_and(|peer| (self.trusted)(peer));
        AddressConnections { network: peer.map(network), is_trusted }
    }
}

// === impl State ===

impl State {
    /// Closes one connection in favour of `newcomer`. Tries the address with the most connections first. If none of
    /// its connections can be closed, tries the newcomer's own address and the addresses that hold more than it, those
    /// with the most connections first. Trusted proxies come last, because one of their connections may serve many
    /// clients. Without a newcomer, any address may lose a connection.
    fn displace(&mut self, newcomer: Option<AddressConnections>) -> Option<()> {
        // Of two addresses with equally many connections, the newcomer's own ranks higher.
        let rank =
            |holder: &AddressConnections, held: usize| (!holder.is_trusted, held, Some(*holder) == newcomer);
        let ranked = |(holder, held): &(&AddressConnections, &OpenConnections)| rank(holder, held.len());
        let (&most, _) = self.holders.iter().max_by_key(ranked)?;
        let (holder, id) = self.candidate(most, newcomer).or_else(|| {
            let may_give = |holder: &AddressConnections| {
                newcomer.is_none_or(|new| new == *holder || self.is_behind(new, *holder))
            };
            let mut others: Vec<_> =
                self.holders.iter().filter(|(holder, _)| **holder != most && may_give(holder)).collect();
            others.sort_by_key(|other| Reverse(ranked(other)));
            others.into_iter().find_map(|(&holder, _)| self.candidate(holder, newcomer))
        })?;
        self.cursor = id + 1;
        self.remove(holder, id)?.displace();
        self.ending += 1;
        Some(())
    }

    /// Returns the connection of this holder whose closing does the least harm; `None` if none may be closed.
    fn candidate(
        &self,
        holder: AddressConnections,
        newcomer: Option<AddressConnections>,
    ) -> Option<(AddressConnections, u64)> {
        let held = self.holders.get(&holder)?;
        // A busy connection is cut off only in favour of an address that holds fewer connections.
        let may_cut_off = !holder.is_trusted
            && newcomer.is_some_and(|newcomer| newcomer != holder && self.is_behind(newcomer, holder));
        let mut best = None;
        let from_cursor = held.range(self.cursor..).chain(held.range(..self.cursor));
        for (at, (&id, activity)) in from_cursor.enumerate() {
            let (standing, age) = activity.standing();
            // Ranks by the harm done. Within a class, the connection whose phase has lasted longest comes first.
            let rank = (standing, Reverse(age));
            if (may_cut_off || standing != EvictionClass::Busy) && best.is_none_or(|(known, _)| rank < known)
            {
                best = Some((rank, id));
            }
            if at >= SAMPLE && best.is_some_and(|((standing, _), _)| standing == EvictionClass::Idle) {
                break;
            }
        }
        best.map(|(_, id)| (holder, id))
    }

    /// Returns whether the newcomer will still hold fewer connections than `other` after it gets one more. If equal
    /// numbers were enough, two addresses could displace each other's connections in turn.
    fn is_behind(&self, newcomer: AddressConnections, other: AddressConnections) -> bool {
        let held = |holder| self.holders.get(&holder).map_or(0, BTreeMap::len);
        held(newcomer) + 1 < held(other)
    }

    fn remove(&mut self, holder: AddressConnections, id: u64) -> Option<Arc<Activity>> {
        let held = self.holders.get_mut(&holder)?;
        let activity = held.remove(&id);
        if held.is_empty() {
            self.holders.remove(&holder);
        }
        activity
    }
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        match state.remove(self.holder, self.id) {
            Some(_) => state.taken -= 1,
            // A displaced connection has already lost its slot.
            None => state.ending -= 1,
        }
        drop(state);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
