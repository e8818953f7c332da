//! Per-client usage counts.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::client::Client;

/// Usage of each client. A client without usage has no entry.
#[derive(Debug, Default)]
pub struct ClientCounts(Mutex<HashMap<Client, u64>>);

/// The limit that a caller would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The limit of all clients together.
    Total,
    /// The limit of the client itself.
    Client,
}

// === impl ClientCounts ===

impl ClientCounts {
    /// Adds `count` to the client's usage.
    ///
    /// # Errors
    /// If the client's usage would exceed `max`.
    pub fn add(&self, client: Client, count: u64, max: u64) -> Result<(), Exhausted> {
        let mut counts = self.0.lock();
        let sum = counts.get(&client).copied().unwrap_or(0).saturating_add(count);
        if sum > max {
            return Err(Exhausted::Client);
        }
        counts.insert(client, sum);
        Ok(())
    }

    /// Subtracts `count`, which an earlier [`add`](Self::add) added.
    pub fn subtract(&self, client: Client, count: u64) {
        let mut counts = self.0.lock();
        if let Some(sum) = counts.get_mut(&client) {
            *sum = sum.saturating_sub(count);
            if *sum == 0 {
                counts.remove(&client);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(&self, client: Client) -> u64 {
        self.0.lock().get(&client).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_client_is_not_remembered() {
        let counts = ClientCounts::default();
        let client = Client::Key(1);
        assert_eq!(counts.add(client, 5, 4), Err(Exhausted::Client));
        assert!(counts.is_empty());
        assert_eq!((counts.add(client, 4, 4), counts.add(client, 1, 4)), (Ok(()), Err(Exhausted::Client)));
        assert_eq!(counts.of(client), 4);
        counts.subtract(client, 4);
        assert!(counts.is_empty());
    }
}
