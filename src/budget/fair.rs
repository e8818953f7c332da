//! Bytes that are held for clients, of what they ask, what is fetched for them, and what waits to be taken: one limit for all
//! together, and when much of it is taken, one for each client.

use super::{
    ByteBudget, Lease, SMALL,
    crowd::{Crowd, Full, Seats, Share},
};
use crate::client::Client;

/// This part of all is next to nothing.
const NEXT_TO_NOTHING: u64 = 8;

/// How many bytes may be held. Clones share it.
#[derive(Clone, Debug)]
pub struct FairBytes {
    bytes: ByteBudget,
    crowd: Crowd,
}

/// What is held for one client; given back when dropped.
#[derive(Debug)]
pub struct FairLease {
    lease: Lease,
    /// Of what came while it was crowded; `None` if it is nobody in particular.
    seats: Option<Seats>,
}

/// What a client may have where so much is held, and so much of it by the one who asks for more. Where next to nothing is
/// held besides, what is larger than a client's share is as welcome as any.
fn crowded(held: u64, own: u64, max: u64) -> Option<Share> {
    let besides = held.saturating_sub(own);
    Share::of(if besides <= max / NEXT_TO_NOTHING { besides } else { held }, max)
}

// === impl FairBytes ===

impl FairBytes {
    /// So many as the budget has.
    pub fn new(bytes: ByteBudget) -> Self {
        Self { bytes, crowd: Crowd::default() }
    }

    /// How many bytes are held, for all clients together.
    pub fn held(&self) -> u64 {
        self.bytes.held()
    }

    /// Nothing yet.
    pub fn lease(&self, client: Option<Client>) -> FairLease {
        FairLease { lease: self.bytes.lease(), seats: client.map(|client| self.crowd.seats(client)) }
    }
}

// === impl FairLease ===

impl FairLease {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If they are not to be had now, or not by this client; what was held stays held.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let own = self.lease.held() as u64;
        let before = self.lease.grow(bytes).map_err(|_| Full::All)?;
        let Some(seats) = &mut self.seats else { return Ok(()) };
        let Some(share) = crowded(before, own, self.lease.budget().max()) else { return Ok(()) };
        seats.take(bytes as u64, share).inspect_err(|_| self.lease.hold(own as usize))
    }

    /// The same for what is being read, of which a [little](SMALL) is always to be had: whoever takes all the rest does
    /// not keep small questions, and what a write came to, from everybody else.
    ///
    /// # Errors
    /// If it is not little, and not to be had now, or not by this client.
    pub fn grow_reading(&mut self, bytes: usize) -> Result<(), Full> {
        let all = self.held() + bytes;
        if all <= SMALL {
            self.lease.hold(all);
            return Ok(());
        }
        self.grow(bytes)
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        self.lease.held()
    }

    /// Holds just so many bytes from here on, whatever the limits: they are there. Others find less, and so do others of
    /// its client.
    pub fn hold(&mut self, bytes: usize) {
        let (held, before) = (self.lease.held(), self.lease.budget().held());
        self.lease.hold(bytes);
        let Some(seats) = &mut self.seats else { return };
        // What came last goes first.
        seats.give_back(held.saturating_sub(bytes) as u64);
        if crowded(before, held as u64, self.lease.budget().max()).is_some() {
            seats.hold(bytes.saturating_sub(held) as u64);
        }
    }

    /// Takes over what else waits for the same client.
    pub fn absorb(&mut self, other: Self) {
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
        assert_eq!(fill(&waiting, modest, 50).len(), 3, "what is left is for those who have nothing");
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
        bytes.lease(modest).grow_reading(1 << 20).unwrap();
        assert_eq!(bytes.lease(None).grow_reading(4 << 20), Err(Full::All));
        drop((held, small));
        assert!(bytes.crowd.is_empty());
        assert_eq!(bytes.bytes.held(), 0);
    }

    #[test]
    fn a_little_is_always_to_be_had_and_counts() {
        let bytes = FairBytes::new(ByteBudget::new(4096));
        let mut greedy = bytes.lease(None);
        greedy.grow(4096).unwrap();
        let mut modest = bytes.lease(None);
        modest.grow_reading(100).unwrap();
        modest.grow_reading(SMALL - 100).unwrap();
        assert_eq!(modest.grow_reading(1), Err(Full::All));
        assert_eq!(bytes.bytes.held(), 4096 + SMALL as u64);
        drop((greedy, modest));
        assert_eq!(bytes.bytes.held(), 0);
    }

    #[test]
    fn where_nothing_waits_an_answer_may_be_large() {
        let waiting = waiting();
        let client = Some(Client::Key(1));
        let mut lease = waiting.lease(client);
        lease.grow(900).unwrap();
        assert!(waiting.crowd.is_empty());
        lease.grow(40).unwrap();
        assert!(waiting.crowd.is_empty());
        // Beside it there is room for little.
        let mut beside = waiting.lease(client);
        assert_eq!(beside.grow(20), Err(Full::All), "it has not got its share");
        beside.grow(10).unwrap();
        assert_eq!(waiting.crowd.of(Client::Key(1)), 10);
        beside.hold(4);
        assert_eq!(waiting.crowd.of(Client::Key(1)), 4);
        drop((lease, beside));
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
                        let besides = before - had as u64;
                        let held = if besides <= MAX / 8 { besides } else { before };
                        let seats = client.map_or(0, |client| waiting.crowd.of(Client::Key(client)));
                        let fits = before + bytes as u64 <= MAX;
                        let crowded = held >= MAX / 2 && client.is_some() && bytes > 0;
                        let most = if MAX.saturating_sub(held) <= MAX / 8 { MAX / 64 } else { MAX / 4 };
                        let may = fits && (!crowded || seats + bytes as u64 <= most);
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
