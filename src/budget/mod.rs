//! One limit for all bytes that are being read or fetched at a time, and shares of it.
//!
//! Bodies and answers each have a limit of their own; a thousand of them together would still be
//! too much. Whoever reads takes a [`Lease`] and lets it grow with what it holds. Growing never
//! waits: readers that wait for each other's bytes could wait for ever.

mod buffer;
mod crowd;
mod fair;

pub use self::{
    buffer::LeasedBuffer,
    crowd::{Crowd, Full, Seats, Share},
    fair::{FairBytes, FairLease},
};

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// So few are always to be had by whoever reads: others limit how many read at a time.
pub const SMALL: usize = 64 << 10;

/// Bytes that may be held together.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: u64,
    held: AtomicU64,
}

/// Bytes held by one reader; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    budget: ByteBudget,
    held: u64,
}

/// All bytes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bytes are being read at once")]
pub struct Exhausted;

// === impl ByteBudget ===

impl ByteBudget {
    /// Allows `bytes` at a time.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(Shared { max: bytes, held: AtomicU64::new(0) }))
    }

    /// A lease of nothing yet.
    pub fn lease(&self) -> Lease {
        Lease { budget: self.clone(), held: 0 }
    }

    /// How many there may be.
    pub fn max(&self) -> u64 {
        self.0.max
    }

    /// How many are held by all together.
    pub fn held(&self) -> u64 {
        self.0.held.load(Relaxed)
    }
}

// === impl Lease ===

impl Lease {
    /// Takes `bytes` more; says how many were held before, by all together.
    ///
    /// # Errors
    /// If they are not to be had now; what was held stays held.
    pub fn grow(&mut self, bytes: usize) -> Result<u64, Exhausted> {
        let Shared { max, held } = &*self.budget.0;
        let bytes = bytes as u64;
        // What is too much is there for a moment, and somebody else may find too little meanwhile: they are as near to
        // the limit as this one.
        let before = held.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > *max {
            held.fetch_sub(bytes, Relaxed);
            return Err(Exhausted);
        }
        self.held += bytes;
        Ok(before)
    }

    /// What it is a lease of.
    pub fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    /// How many bytes are held.
    pub fn held(&self) -> usize {
        usize::try_from(self.held).unwrap_or(usize::MAX)
    }

    /// Holds just so many bytes from here on, whatever the limit: they are there. Others find less, or nothing.
    pub fn hold(&mut self, bytes: usize) {
        let held = &self.budget.0.held;
        let bytes = bytes as u64;
        match bytes.checked_sub(self.held) {
            Some(more) => held.fetch_add(more, Relaxed),
            None => held.fetch_sub(self.held - bytes, Relaxed),
        };
        self.held = bytes;
    }

    /// Takes over what another lease of the same budget holds.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "a lease of the same budget");
        self.held += std::mem::take(&mut other.held);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.held > 0 {
            self.budget.0.held.fetch_sub(self.held, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_share_the_budget_and_give_back() {
        let budget = ByteBudget::new(4096);
        let (mut one, mut two) = (budget.lease(), budget.lease());
        one.grow(1).unwrap();
        one.grow(1023).unwrap();
        two.grow(3072).unwrap();
        assert_eq!(one.grow(1), Err(Exhausted));
        drop(two);
        one.grow(3072).unwrap();
        drop(one);
        budget.lease().grow(4096).unwrap();
    }

    #[test]
    fn what_is_there_is_held_whatever_the_limit() {
        let budget = ByteBudget::new(10);
        let (mut one, mut two) = (budget.lease(), budget.lease());
        one.hold(8);
        two.hold(8);
        assert_eq!(budget.lease().grow(1), Err(Exhausted));
        one.absorb(two);
        assert_eq!(one.held(), 16);
        one.hold(9);
        assert_eq!(one.grow(2), Err(Exhausted));
        one.grow(1).unwrap();
        drop(one);
        budget.lease().grow(10).unwrap();
    }

    #[test]
    fn what_was_refused_is_not_held() {
        let budget = ByteBudget::new(10);
        let mut lease = budget.lease();
        lease.grow(4).unwrap();
        for _ in 0..100 {
            assert_eq!(lease.grow(7), Err(Exhausted));
        }
        lease.grow(6).unwrap();
    }
}
