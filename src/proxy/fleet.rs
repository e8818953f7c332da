//! Takes turns with others who share a tier: what one of a fleet asks for, the others wait for.

use std::{sync::Arc, time::Duration};

use tokio::time::{self, Instant};

use super::{
    fetch::{Fetch, Fetched, Fetcher},
    restore::{Restorer, Upstreams},
};
use crate::{
    cache::tier::{Lease, Part, Turn, Wanted},
    chain::Lookup,
};

/// Whether we are the one of a fleet who asks.
pub(super) enum Turned {
    /// We are.
    Ours(Option<Lease>),
    /// Somebody else was, and this is what came.
    Brought(Fetched),
}

/// So long another one of the fleet is waited for, which is longer than most upstreams take …
const TURN_PATIENCE: Duration = Duration::from_secs(3);
/// … and so often it is looked whether it is there: soon at first, and then less often.
const TURN_LOOKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// Whoever waited so long for nothing waits for nobody for a while: turns may not end here as they should.
const TURN_PAUSE: Duration = Duration::from_secs(30);

// === impl Restorer ===

impl Restorer {
    fn is_waiting_in_vain(&self) -> bool {
        let last = *self.waited_in_vain.lock();
        last.is_some_and(|last| last.elapsed() < TURN_PAUSE)
    }

    fn waited_in_vain(&self) {
        *self.waited_in_vain.lock() = Some(Instant::now());
    }
}

// === impl Fetcher ===

impl Fetcher {
    /// Waits while somebody else of a fleet asks for the same.
    pub(super) async fn take_turn(self: &Arc<Self>, fetch: Fetch) -> Turned {
        let ours = Turned::Ours(None);
        if self.restorer.tiers.is_empty() {
            return ours;
        }
        let (part, wanted) = match fetch {
            Fetch::Block(hash) => (Part::Block, Wanted::Hash(hash)),
            Fetch::BlockAt(number) => (Part::Block, Wanted::Number(number)),
            Fetch::Receipts(hash) => (Part::Receipts, Wanted::Hash(hash)),
            Fetch::ReceiptsAt(number) => (Part::Receipts, Wanted::Number(number)),
            _ => return ours,
        };
        let Some(chain) = self.view.stored_as().filter(|_| self.is_to_be_shared(part, wanted)) else {
            return ours;
        };
        if self.restorer.is_waiting_in_vain() {
            return ours;
        }
        let begun = Instant::now();
        let mut look = TURN_LOOKS[0];
        loop {
            let turn = self.restorer.tiers.turn(chain, part, wanted).await;
            if let Turn::Ours(None) = turn {
                return ours;
            }
            // It may have come since it was looked for.
            if let Some(fetched) = self.recover(fetch).await {
                return Turned::Brought(fetched);
            }
            match turn {
                Turn::Ours(lease) => return Turned::Ours(lease),
                Turn::Theirs if begun.elapsed() > TURN_PATIENCE => {
                    self.restorer.waited_in_vain();
                    return ours;
                }
                Turn::Theirs => time::sleep(look).await,
            }
            look = look.mul_f32(1.5).min(TURN_LOOKS[1]);
        }
    }

    /// Will what comes be written where others look? Only if it is final, and receipts only if their block is there to prove
    /// them; else they would wait in vain.
    fn is_to_be_shared(&self, part: Part, wanted: Wanted) -> bool {
        let now = self.view.clock().now();
        let final_hash = |number| match self.view.tracker().lookup(number, now) {
            Lookup::Final(hash) => Some(hash),
            _ => None,
        };
        match (part, wanted) {
            (Part::Block, Wanted::Number(number)) => self.view.tracker().is_final(number),
            (Part::Block, Wanted::Hash(hash)) => {
                let known = self.cache.thin(hash).map(|thin| thin.header().number);
                known.is_some_and(|number| final_hash(number) == Some(hash))
            }
            // By their block, which is at hand or is not.
            (Part::Receipts, wanted) => {
                let hash = match wanted {
                    Wanted::Hash(hash) => Some(hash),
                    Wanted::Number(number) => final_hash(number),
                };
                let block = hash.and_then(|hash| self.cache.block(hash));
                block.is_some_and(|block| final_hash(block.header().number) == Some(block.hash()))
            }
        }
    }

    /// Others wait until what came is where they look.
    pub(super) fn end_turn(&self, lease: Option<Lease>) {
        if let Some(lease) = lease {
            self.restorer.tiers.end_turn(lease);
        }
    }

    /// Brings back what this would fetch, if a tier has it.
    pub(super) async fn recover(self: &Arc<Self>, fetch: Fetch) -> Option<Fetched> {
        if self.restorer.tiers.is_empty() {
            return None;
        }
        self.bring(fetch, Upstreams::Answer).await?;
        self.in_memory(fetch)
    }

    fn in_memory(&self, fetch: Fetch) -> Option<Fetched> {
        let hash = match fetch {
            Fetch::Block(hash) | Fetch::Receipts(hash) => hash,
            Fetch::BlockAt(number) | Fetch::ReceiptsAt(number) => {
                match self.view.tracker().lookup(number, self.view.clock().now()) {
                    Lookup::Final(hash) => hash,
                    _ => return None,
                }
            }
            _ => return None,
        };
        match fetch {
            Fetch::Block(_) | Fetch::BlockAt(_) => {
                self.good_block(hash, Upstreams::Answer).map(Fetched::Block)
            }
            _ => self.good_receipts(hash, Upstreams::Answer).map(Fetched::Receipts),
        }
    }
}
