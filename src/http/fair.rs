//! Bytes that are held for clients, of what they ask and of answers that wait to be taken: one limit for all together, and
//! when much of it is taken, one for each client.

use super::{
    HttpError,
    crowd::{Crowd, Seats, share},
};
use crate::{
    budget::{ByteBudget, Lease, SMALL},
    proxy::Client,
};

/// How many bytes may be held. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FairBytes {
    bytes: ByteBudget,
    crowd: Crowd,
}

/// What is held for one client; given back when dropped.
#[derive(Debug)]
pub(super) struct FairLease {
    lease: Lease,
    /// Of what came while it was crowded; `None` if it is nobody in particular.
    seats: Option<Seats>,
}

/// Why there are no bytes to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All are taken.
    All,
    /// The client has its share of them.
    Share,
}

// === impl Full ===

impl From<Full> for HttpError {
    fn from(full: Full) -> Self {
        match full {
            Full::All => Self::Overloaded,
            Full::Share => Self::OverShare,
        }
    }
}

// === impl FairBytes ===

impl FairBytes {
    pub(super) fn new(bytes: ByteBudget) -> Self {
        Self { bytes, crowd: Crowd::default() }
    }

    /// Nothing yet.
    pub(super) fn lease(&self, client: Option<Client>) -> FairLease {
        FairLease { lease: self.bytes.lease(), seats: client.map(|client| self.crowd.seats(client)) }
    }
}

// === impl FairLease ===

impl FairLease {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If they are not to be had now, or not by this client; what was held stays held.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        // An answer counts as one that came while it was crowded by what was there before it: where nothing waits, one
        // that is larger than a client's share is as welcome as any.
        let before = self.lease.grow(bytes).map_err(|_| Full::All)?;
        let Some(seats) = &mut self.seats else { return Ok(()) };
        match share(before, self.lease.budget().max()) {
            Some(most) if !seats.take(bytes as u64, most) => {
                self.lease.hold(self.lease.held() - bytes);
                Err(Full::Share)
            }
            _ => Ok(()),
        }
    }

    /// The same for what is being read, of which a [little](SMALL) is always to be had: whoever takes all the rest does
    /// not keep small questions from everybody else.
    ///
    /// # Errors
    /// If it is not little, and not to be had now, or not by this client.
    pub(super) fn grow_reading(&mut self, bytes: usize) -> Result<(), Full> {
        let all = self.held() + bytes;
        if all <= SMALL {
            self.lease.hold(all);
            return Ok(());
        }
        self.grow(bytes)
    }

    /// How many bytes are held.
    pub(super) fn held(&self) -> usize {
        self.lease.held()
    }

    /// Holds just so many bytes from here on, whatever the limits: they are there. Others find less, and so do others of
    /// its client.
    pub(super) fn hold(&mut self, bytes: usize) {
        let (held, before) = (self.lease.held(), self.lease.budget().held());
        self.lease.hold(bytes);
        let Some(seats) = &mut self.seats else { return };
        // What came last goes first.
        seats.give_back(held.saturating_sub(bytes) as u64);
        if share(before, self.lease.budget().max()).is_some() {
            seats.take(bytes.saturating_sub(held) as u64, u64::MAX);
        }
    }

    /// Takes over what else waits for the same client.
    pub(super) fn absorb(&mut self, other: Self) {
        self.lease.absorb(other.lease);
        if let (Some(seats), Some(others)) = (&mut self.seats, other.seats) {
            seats.absorb(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: u64 = 1000;

    fn waiting() -> FairBytes {
        FairBytes::new(ByteBudget::new(MAX))
    }

    /// As many answers of this size as there is room for.
    fn fill(waiting: &FairBytes, client: Option<Client>, bytes: usize) -> Vec<FairLease> {
        let next = || {
            let mut lease = waiting.lease(client);
            lease.grow(bytes).ok().map(|()| lease)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let waiting = waiting();
        let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
        let untaken = fill(&waiting, greedy, 50);
        assert_eq!(untaken.len(), 10 + 5, "a half while there was room, and a fourth when it was crowded");
        assert_eq!(fill(&waiting, modest, 50).len(), 5);
        assert_eq!(fill(&waiting, None, 50).len(), 5);
        drop(untaken);
        assert!(waiting.crowd.is_empty());
        // Who is nobody in particular is not limited.
        assert_eq!(fill(&waiting, None, 50).len(), 20);
    }

    #[test]
    fn one_client_can_have_its_share_read_and_a_little() {
        let bytes = FairBytes::new(ByteBudget::new(16 << 20));
        let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
        let mut held = Vec::new();
        let full = loop {
            let mut lease = bytes.lease(greedy);
            match lease.grow_reading(1 << 20) {
                Ok(()) => held.push(lease),
                Err(full) => break full,
            }
        };
        assert_eq!((full, held.len()), (Full::Share, 8 + 4));
        let mut small = bytes.lease(greedy);
        small.grow_reading(SMALL).unwrap();
        assert_eq!(small.grow_reading(1 << 20), Err(Full::Share));
        bytes.lease(modest).grow_reading(3 << 20).unwrap();
        assert_eq!(bytes.lease(None).grow_reading(4 << 20), Err(Full::All));
        drop((held, small));
        assert!(bytes.crowd.is_empty());
        assert_eq!(bytes.bytes.held(), 0);
    }

    #[test]
    fn where_nothing_waits_an_answer_may_be_large() {
        let waiting = waiting();
        let client = Some(Client::Key(1));
        let mut lease = waiting.lease(client);
        lease.grow(900).unwrap();
        assert!(waiting.crowd.is_empty());
        // It sits down only now.
        lease.grow(50).unwrap();
        assert_eq!(waiting.crowd.of(Client::Key(1)), 50);
        lease.hold(930);
        assert_eq!(waiting.crowd.of(Client::Key(1)), 30);
        drop(lease);
        assert!(waiting.crowd.is_empty());
        assert_eq!(waiting.bytes.held(), 0);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Open(Option<u64>),
        Grow(usize, usize),
        Hold(usize, usize),
        Absorb(usize, usize),
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let at = || 0_usize..20;
        prop_oneof![
            3 => prop::option::of(0_u64..3).prop_map(Step::Open),
            6 => (at(), 0_usize..300).prop_map(|(at, bytes)| Step::Grow(at, bytes)),
            1 => (at(), 0_usize..300).prop_map(|(at, bytes)| Step::Hold(at, bytes)),
            1 => (at(), at()).prop_map(|(at, other)| Step::Absorb(at, other)),
            2 => at().prop_map(Step::Drop),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_shares_are_kept_and_all_is_given_back(steps in prop::collection::vec(step(), 0..80)) {
            let waiting = waiting();
            let mut leases: Vec<(Option<u64>, FairLease)> = Vec::new();
            for step in steps {
                let before = waiting.bytes.held();
                match step {
                    Step::Open(client) => leases.push((client, waiting.lease(client.map(Client::Key)))),
                    Step::Grow(at, bytes) => if let Some((client, lease)) = leases.get_mut(at) {
                        let had = lease.held();
                        let seats = client.map_or(0, |client| waiting.crowd.of(Client::Key(client)));
                        let fits = before + bytes as u64 <= MAX;
                        let crowded = before >= MAX / 2 && client.is_some() && bytes > 0;
                        let may = fits && (!crowded || seats + bytes as u64 <= MAX / 4);
                        prop_assert_eq!(lease.grow(bytes).is_ok(), may);
                        prop_assert_eq!(lease.held(), if may { had + bytes } else { had });
                        let now = client.map_or(0, |client| waiting.crowd.of(Client::Key(client)));
                        prop_assert_eq!(now, if may && crowded { seats + bytes as u64 } else { seats });
                    },
                    Step::Hold(at, bytes) => if let Some((_, lease)) = leases.get_mut(at) {
                        lease.hold(bytes);
                        prop_assert_eq!(lease.held(), bytes);
                    },
                    Step::Absorb(at, other) => if at < other && other < leases.len() && leases[at].0 == leases[other].0 {
                        let (_, other) = leases.remove(other);
                        leases[at].1.absorb(other);
                        prop_assert_eq!(waiting.bytes.held(), before);
                    },
                    Step::Drop(at) => if at < leases.len() {
                        leases.remove(at);
                    },
                }
                let held: usize = leases.iter().map(|(_, lease)| lease.held()).sum();
                prop_assert_eq!(waiting.bytes.held(), held as u64);
                for client in 0..3 {
                    let held: usize =
                        leases.iter().filter(|(of, _)| *of == Some(client)).map(|(_, lease)| lease.held()).sum();
                    prop_assert!(waiting.crowd.of(Client::Key(client)) <= held as u64);
                }
            }
            drop(leases);
            prop_assert_eq!(waiting.bytes.held(), 0);
            prop_assert!(waiting.crowd.is_empty());
        }
    }
}
