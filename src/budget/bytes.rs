//! A byte budget and its leases.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::clients::{ClientCounts, Exhausted};
use crate::client::{Client, ClientLimit};

/// Size in bytes up to which a request body or a response does not count against the budget. The limit on concurrent
/// requests bounds the number of such small texts. So even if the budget is exhausted, small calls succeed, and a
/// client learns the result of a transaction that it sent.
pub const SMALL: usize = 64 << 10;

/// Limit on the total bytes of all leases. A lease of a [small](SMALL) size usually does not count. Clones share one
/// budget.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: ClientLimit,
    held: AtomicU64,
    clients: ClientCounts,
}

/// Bytes that a caller has taken from a [`ByteBudget`], usually for one client. Dropping the lease returns them to the
/// budget.
#[derive(Debug)]
pub struct ByteLease {
    budget: ByteBudget,
    /// The client and its limit in bytes; `None` if only the total limit applies.
    client: Option<(Client, u64)>,
    /// Size up to which the lease does not count against the budget.
    free: usize,
    held: usize,
    counted: u64,
}

// === impl ByteBudget ===

impl ByteBudget {
    /// Creates a budget of `max` bytes. Of these, one client may hold `per_client` bytes, or the [default
    /// share](ClientLimit) if `per_client` is `None`.
    pub fn new(max: u64, per_client: Option<u64>) -> Self {
        let limit = ClientLimit::new(max, per_client);
        Self(Arc::new(Inner { limit, held: AtomicU64::new(0), clients: ClientCounts::default() }))
    }

    /// Number of bytes that all leases together count against the budget now.
    pub fn held(&self) -> u64 {
        self.0.held.load(Relaxed)
    }

    /// Returns an empty lease for `client`. If `client` is `None`, only the total limit applies.
    pub fn lease(&self, client: Option<Client>) -> ByteLease {
        let client = self.0.limit.below_total(client);
        ByteLease { budget: self.clone(), client, free: SMALL, held: 0, counted: 0 }
    }

    /// Returns an empty lease that counts [small](SMALL) sizes too. Use it for parts of a batch, because one batch can
    /// have many small parts.
    pub fn lease_of_part(&self, client: Option<Client>) -> ByteLease {
        let mut lease = self.lease(client);
        lease.free = 0;
        lease
    }
}

// === impl Inner ===

impl Inner {
    fn take(&self, bytes: u64, client: Option<(Client, u64)>) -> Result<(), Exhausted> {
        if let Some((client, max)) = client {
            self.clients.add(client, bytes, max)?;
        }
        // Between this addition and `give_back`, `held` exceeds the limit, so the budget may refuse another lease that
        // would fit. A refusal is acceptable; exceeding the limit is not.
        let before = self.held.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.limit.total() {
            self.give_back(bytes, client);
            return Err(Exhausted::Total);
        }
        Ok(())
    }

    /// Takes bytes regardless of the limits.
    fn force(&self, bytes: u64, client: Option<(Client, u64)>) {
        self.held.fetch_add(bytes, Relaxed);
        if let Some((client, _)) = client {
            let _ = self.clients.add(client, bytes, u64::MAX);
        }
    }

    fn give_back(&self, bytes: u64, client: Option<(Client, u64)>) {
        self.held.fetch_sub(bytes, Relaxed);
        if let Some((client, _)) = client {
            self.clients.subtract(client, bytes);
        }
    }
}

// === impl ByteLease ===

impl ByteLease {
    /// Number of bytes this lease holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Grows the lease by `bytes`.
    ///
    /// # Errors
    /// If the lease would exceed the total limit or the client's limit. The lease is then unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.resize(self.held.saturating_add(bytes))
    }

    /// Sets the lease to `bytes`. Shrinking never fails.
    ///
    /// # Errors
    /// If the lease would grow beyond the total limit or the client's limit. The lease is then unchanged.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        if let Some(more) = self.counts(bytes).checked_sub(self.counted).filter(|more| *more > 0) {
            self.budget.0.take(more, self.client)?;
            self.counted += more;
        }
        self.hold(bytes);
        Ok(())
    }

    /// Sets the lease to `bytes` regardless of the limits. Use it for bytes that are already in memory; fewer bytes
    /// then remain for other leases.
    pub fn hold(&mut self, bytes: usize) {
        let (before, counted) = (self.counted, self.counts(bytes));
        (self.held, self.counted) = (bytes, counted);
        if counted > before {
            self.budget.0.force(counted - before, self.client);
        } else if counted < before {
            self.budget.0.give_back(before - counted, self.client);
        }
    }

    /// Takes over the bytes of another lease of the same client.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "leases of different budgets");
        debug_assert_eq!(self.client, other.client, "leases of different clients");
        self.held += other.held;
        self.counted += std::mem::take(&mut other.counted);
    }

    fn counts(&self, bytes: usize) -> u64 {
        if bytes <= self.free { 0 } else { bytes as u64 }
    }
}

impl Drop for ByteLease {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.budget.0.give_back(self.counted, self.client);
        }
    }
}

#[cfg(test)]
mod tests;
