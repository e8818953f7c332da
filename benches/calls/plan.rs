//! The best plan: how few upstream calls a workload could have cost.
//!
//! The plan knows all requests to come, obeys the rules by which things may be served from memory, and
//! does not know where a transaction is before it has read that. It asks for nothing before a request needs
//! it, but then chooses the call by what will follow:
//!
//! - What names a block (a block in either form, a transaction by index, all receipts) costs one call for
//!   the block, or for its receipts, and from there on everything in it is free. With hashes only, a block
//!   that upkeep has read as a head is free.
//! - The first transaction or receipt of a block of which nothing was read is asked alone: one call.
//!   From there on the plan knows that block, and fetches it whole (or all its receipts) with the next
//!   answer that needs it; that it guesses right which of the requests to come are in it, without
//!   having read that, makes the plan better than any that could exist.
//! - A head that was read tells where its transactions are.
//! - That there is no receipt holds under one head for `max_staleness`, and neither across a write nor for
//!   `max_staleness` after it; it is asked for again with the first poll after that.
//! - Pending transactions and forwarded methods are a call each.
//!
//! Whatever keeps the view of the chain (heads, finality, who the node is) is upkeep and free here; so a
//! number that is in no block yet, or a tag's meaning, costs nothing. A memory without limit is assumed.
//!
//! [`Foresight`] goes further: it also fetches a block that will be named before the first transaction of
//! it is asked for, in the hope that it is in there. It is the lower bound of all plans.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use alloy_primitives::{B256, TxHash};

/// What a request needs, by the truth at the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The view only.
    View,
    /// A block by its name; `with_hashes` if hashes of transactions are enough.
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
    /// There is none.
    NoReceipt {
        hash: TxHash,
    },
    /// The node's own answer, each time.
    Forward,
    /// As [`Need::Forward`], and what was known of the chain is known no more.
    Write,
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at: Duration,
    /// The head at that time, and whether the answer depends on it.
    pub head: B256,
    pub reads_head: bool,
    pub need: Need,
}

/// How much of the future may be acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foresight {
    Choose,
    Prefetch,
}

/// What the plan has of a block.
#[derive(Clone, Debug, Default)]
struct Held {
    block: bool,
    receipts: bool,
    /// Read as a head: hashes of its transactions.
    with_hashes: bool,
    /// Something of it was read, so it is known which block to fetch.
    known: bool,
    alone: HashSet<(bool, TxHash)>,
}

/// The calls of a plan, by what they are for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    pub blocks: u64,
    pub receipts: u64,
    /// A transaction or receipt by itself.
    pub alone: u64,
    /// Receipts that are not there.
    pub nulls: u64,
    pub forwarded: u64,
}

/// When a null was asked for, and under which head.
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
