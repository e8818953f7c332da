//! One limit for all bytes that are being read or fetched at a time.
//!
//! Bodies and answers each have a limit of their own; a thousand of them together would still be
//! too much. Whoever reads takes a [`Lease`] and lets it grow with what it holds. Growing never
//! waits: readers that wait for each other's bytes could wait for ever.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The grain of the accounting: what a semaphore of 32-bit permits can count.
const UNIT: usize = 1024;

/// Bytes that may be held together.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<Semaphore>);

/// Bytes held by one reader; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    budget: ByteBudget,
    permit: Option<OwnedSemaphorePermit>,
    held: usize,
}

/// All bytes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many bytes are being read at once")]
pub struct Exhausted;

// === impl ByteBudget ===

impl ByteBudget {
    /// Allows `bytes` at a time, rounded up to whole KiB.
    pub fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes.div_ceil(UNIT as u64)).unwrap_or(usize::MAX);
        Self(Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))))
    }

    /// A lease of nothing yet.
    pub fn lease(&self) -> Lease {
        Lease { budget: self.clone(), permit: None, held: 0 }
    }
}

// === impl Lease ===

impl Lease {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// If they are not to be had now; what was held stays held.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let held = self.held.saturating_add(bytes);
        let units = held.div_ceil(UNIT) - self.held.div_ceil(UNIT);
        if units > 0 {
            let units = u32::try_from(units).map_err(|_| Exhausted)?;
            let more = self.budget.0.clone().try_acquire_many_owned(units).map_err(|_| Exhausted)?;
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            }
        }
        self.held = held;
        Ok(())
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
}
