//! The best plan: the minimum number of upstream calls for a workload.
//!
//! The plan knows all future requests and obeys the caching rules of Holdfast. It does not know the block of a
//! transaction before it has read the transaction. It makes no call before a request needs it, but chooses the call
//! with regard to later requests:
//!
//! - A request that names a block (the block in either form, a transaction by index, all receipts) costs one call for
//!   the block or for its receipts. From then on, everything in the block, or in the receipts, is free. A head that
//!   upkeep has read is free in the form with hashes.
//! - The first transaction or receipt of an unknown block is fetched alone, which costs one call. From then on the
//!   plan knows the block, and fetches it whole (or all its receipts) with the next request that needs it. The plan
//!   knows without a call which later requests are in that block, so no real cache can match it.
//! - A head that upkeep has read tells where its transactions are.
//! - A null receipt is valid under one head for `max_staleness`, but neither across a write nor within
//!   `max_staleness` after it. The first poll after that time fetches the receipt again.
//! - Pending transactions and forwarded methods cost one call each.
//!
//! Calls that track the chain (heads, finality, chain id) are upkeep and free here, so numbers above the head
//! and the meaning of tags cost nothing. The cache has no size limit.
//!
//! [`Foresight::Prefetch`] goes further: if a later request names a block, it fetches that block before the first
//! request for one of its transactions. It is the lower bound of all plans.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use alloy_primitives::{B256, TxHash};

/// Content that a request needs, according to the chain at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Only the tracked head.
    View,
    /// A block by number or hash; `with_hashes` if transaction hashes are enough.
    Block {
        block: B256,
        with_hashes: bool,
    },
    Receipts {
        block: B256,
    },
    Transaction {
        block: B256,
        hash: TxHash,
    },
    Receipt {
        block: B256,
        hash: TxHash,
    },
    /// A receipt that does not exist.
    NoReceipt {
        hash: TxHash,
    },
    /// A forwarded call.
    Forward,
    /// A forwarded call that also invalidates the head.
    Write,
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at: Duration,
    /// The head at that time; `reads_head` is whether the answer depends on it.
    pub head: B256,
    pub reads_head: bool,
    pub need: Need,
}

/// How far ahead the plan may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foresight {
    Choose,
    Prefetch,
}

/// The parts of a block that the plan has fetched.
#[derive(Clone, Debug, Default)]
struct Held {
    block: bool,
    receipts: bool,
    /// Whether upkeep has read the block as a head, with the hashes of its transactions.
    with_hashes: bool,
    /// Whether the plan has read a part of the block, and so knows which block to fetch.
    known: bool,
    alone: HashSet<(bool, TxHash)>,
}

/// The calls of a plan by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    pub blocks: u64,
    pub receipts: u64,
    /// Transactions and receipts fetched alone.
    pub alone: u64,
    /// Receipts that do not exist.
    pub nulls: u64,
    pub forwarded: u64,
}

/// Time of the call that returned `null`, and the head at that time.
type Null = (Duration, B256);

pub fn best(events: &[Event], staleness: Duration, foresight: Foresight) -> Plan {
    let mut held: HashMap<B256, Held> = HashMap::new();
    let mut nulls: HashMap<TxHash, Null> = HashMap::new();
    let mut plan = Plan::default();
    let mut wrote: Option<Duration> = None;
    if foresight == Foresight::Prefetch {
        for event in events {
            match event.need {
                Need::Block { block, with_hashes: false } => {
                    held.entry(block).or_default().take_block(&mut plan);
                }
                Need::Receipts { block } => held.entry(block).or_default().take_receipts(&mut plan),
                _ => {}
            }
        }
    }
    for event in events {
        if event.reads_head {
            let head = held.entry(event.head).or_default();
            (head.with_hashes, head.known) = (true, true);
        }
        match event.need {
            Need::View => {}
            Need::Forward => plan.forwarded += 1,
            Need::Write => {
                wrote = Some(event.at);
                nulls.clear();
                plan.forwarded += 1;
            }
            Need::NoReceipt { hash } => {
                let holds = |&(sent, head): &Null| head == event.head && event.at - sent <= staleness;
                if !nulls.get(&hash).is_some_and(holds) {
                    plan.nulls += 1;
                    if wrote.is_none_or(|wrote| event.at - wrote >= staleness) {
                        nulls.insert(hash, (event.at, event.head));
                    }
                }
            }
            Need::Block { block, with_hashes } => {
                let held = held.entry(block).or_default();
                if !(with_hashes && held.with_hashes) {
                    held.take_block(&mut plan);
                }
            }
            Need::Receipts { block } => held.entry(block).or_default().take_receipts(&mut plan),
            Need::Transaction { block, hash } => {
                held.entry(block).or_default().take_one(&mut plan, false, hash);
            }
            Need::Receipt { block, hash } => held.entry(block).or_default().take_one(&mut plan, true, hash),
        }
    }
    plan
}

// === impl Plan ===

impl Plan {
    pub fn calls(&self) -> u64 {
        self.blocks + self.receipts + self.alone + self.nulls + self.forwarded
    }
}

// === impl Held ===

impl Held {
    fn take_block(&mut self, plan: &mut Plan) {
        self.known = true;
        plan.blocks += u64::from(!std::mem::replace(&mut self.block, true));
    }

    fn take_receipts(&mut self, plan: &mut Plan) {
        self.known = true;
        plan.receipts += u64::from(!std::mem::replace(&mut self.receipts, true));
    }

    fn take_one(&mut self, plan: &mut Plan, receipt: bool, hash: TxHash) {
        if self.alone.contains(&(receipt, hash)) {
            return;
        }
        match (self.known, receipt) {
            (true, false) => self.take_block(plan),
            (true, true) => self.take_receipts(plan),
            (false, _) => {
                self.known = true;
                self.alone.insert((receipt, hash));
                plan.alone += 1;
            }
        }
    }
}
