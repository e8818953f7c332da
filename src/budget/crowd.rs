//! Who has how much of what is scarce, when it is crowded: one client must not have all that is left.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::client::Client;

/// When no more than a half of all is free, it is crowded …
const CROWDED: u64 = 2;

/// … and then a client may have a fourth of all, beside what it had before: there is room for others.
const SHARE: u64 = 4;

/// When no more than an eighth is free, that is for those who have next to nothing: clients that fill the rest together, and
/// come back at once when they are made to go, must not keep everybody else out.
const FULL: u64 = 8;
const LAST_SHARE: u64 = 64;

/// How much each client has, of what was taken while it was crowded. Looked at only then. Clones share it.
///
/// Of places or of bytes: it only counts. Who has nothing is not in it.
#[derive(Clone, Debug, Default)]
pub struct Crowd(Arc<Mutex<HashMap<Client, u64>>>);

/// What one client has of it; given back when dropped.
#[derive(Debug)]
pub struct Seats {
    crowd: Crowd,
    client: Client,
    taken: u64,
}

/// What a client may have when it is crowded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Now.
    most: u64,
    /// While there is room. Who has less and gets no more has no reason to be told so: there is none to be had.
    fair: u64,
}

/// Why there is no more to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All is taken.
    All,
    /// The client has its share.
    Share,
}

// === impl Share ===

impl Share {
    /// What a client may have where so much of `max` is taken already: as much as there is, if `None`.
    pub fn of(taken: u64, max: u64) -> Option<Self> {
        let free = max.saturating_sub(taken);
        let share = match free {
            _ if free <= max / FULL => LAST_SHARE,
            _ if free <= max / CROWDED => SHARE,
            _ => return None,
        };
        Some(Self { most: (max / share).max(1), fair: (max / SHARE).max(1) })
    }
}

// === impl Crowd ===

impl Crowd {
    /// None yet.
    pub fn seats(&self, client: Client) -> Seats {
        Seats { crowd: self.clone(), client, taken: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, u64>> {
        self.0.lock()
    }

    #[cfg(test)]
    pub(crate) fn of(&self, client: Client) -> u64 {
        self.lock().get(&client).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

// === impl Seats ===

impl Seats {
    /// Takes so many more.
    ///
    /// # Errors
    /// If its client would have more than that share then.
    pub fn take(&mut self, count: u64, Share { most, fair }: Share) -> Result<(), Full> {
        let mut clients = self.crowd.lock();
        let taken = clients.get(&self.client).copied().unwrap_or(0).saturating_add(count);
        // Who is refused is not put in: those who have nothing could be very many.
        match taken {
            _ if count == 0 => {}
            _ if taken <= most => {
                clients.insert(self.client, taken);
                self.taken += count;
            }
            _ if taken <= fair => return Err(Full::All),
            _ => return Err(Full::Share),
        }
        Ok(())
    }

    /// Takes so many more, whatever the share: they are there.
    pub fn hold(&mut self, count: u64) {
        let _ = self.take(count, Share { most: u64::MAX, fair: u64::MAX });
    }

    /// Gives back so many, or as many as there are.
    pub fn give_back(&mut self, count: u64) {
        let count = count.min(self.taken);
        if count == 0 {
            return;
        }
        self.taken -= count;
        let mut clients = self.crowd.lock();
        if let Some(taken) = clients.get_mut(&self.client) {
            *taken -= count;
            if *taken == 0 {
                clients.remove(&self.client);
            }
        }
    }

    /// Takes over what others of the same client hold.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert_eq!(self.client, other.client, "seats of the same client");
        self.taken += std::mem::take(&mut other.taken);
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_not_remembered() {
        let crowd = Crowd::default();
        let mut seats = crowd.seats(Client::Key(1));
        let share = Share { most: 4, fair: 8 };
        assert_eq!(seats.take(5, share), Err(Full::All));
        assert_eq!(seats.take(9, share), Err(Full::Share));
        assert!(crowd.is_empty());
        assert_eq!((seats.take(4, share), seats.take(1, share)), (Ok(()), Err(Full::All)));
        assert_eq!(crowd.of(Client::Key(1)), 4);
        drop(seats);
        assert!(crowd.is_empty());
    }

    #[test]
    fn it_is_crowded_from_the_half_on() {
        let most = |taken, max| Share::of(taken, max).map(|share| share.most);
        assert_eq!([0, 1, 31].map(|taken| most(taken, 64)), [None; 3]);
        assert_eq!([32, 55].map(|taken| most(taken, 64)), [Some(16); 2]);
        assert_eq!([56, 64, 99].map(|taken| most(taken, 64)), [Some(1); 3]);
        // Where there is one place, it is anybody's.
        assert_eq!(most(0, 1), None);
        assert_eq!(most(1, 2), Some(1));
    }
}
