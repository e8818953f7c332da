//! The node under the program's hand, and everything that was ever true of it.

mod truth;

use bytes::Bytes;
use holdfast::devchain::{Config, DevChain, Fault, Finality as Mode};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::{self, Instant};

use super::step::{Failure, Finality, Place, Question, Step};

type Hash = alloy_primitives::B256;

/// What a client could see of the node from one moment until the next state.
#[derive(Clone, Debug)]
pub struct State {
    pub since: Instant,
    /// Canonical hashes by number, up to what lag lets see.
    pub visible: Arc<Vec<Hash>>,
    lag: u64,
    safe: Option<u64>,
    finalized: Option<u64>,
    /// The highest number that had been called final, be it that this was replaced.
    called_final: u64,
    mempool: Vec<Hash>,
}

/// The node and its history.
pub struct World {
    pub chain: DevChain,
    pub states: Vec<State>,
    /// Every block and every transaction that ever was, in order of appearance.
    blocks: Vec<Hash>,
    transactions: Vec<Hash>,
    /// What was in the blocks of a chain that is no more.
    archive: HashMap<Hash, Archived>,
    dropped: Vec<Hash>,
    /// The highest number that was called final: below it nothing is reorganised. Lower, once what was is replaced.
    pub floor: u64,
    /// The highest that ever was: who has not heard of the replacement takes for final what stands there now.
    pub called_final: u64,
    /// Faults were set since …
    pub faulty: bool,
    /// Another genesis stands behind the same handle than at first.
    pub restarted: bool,
    mode: (Mode, Mode),
    lag: u64,
}

/// A block of a chain that is no more.
struct Archived {
    full: Bytes,
    thin: Bytes,
    receipts: Bytes,
    transactions: Vec<(Hash, Bytes, Bytes)>,
}

/// A call with its arguments.
#[derive(Clone, Debug)]
pub struct Call {
    pub question: Question,
    pub method: &'static str,
    pub params: Value,
    subject: Subject,
}

#[derive(Clone, Copy, Debug)]
enum Subject {
    Number(u64),
    Tag(Place),
    Block(Hash),
    Transaction(Hash),
    Nothing,
}

impl Call {
    pub fn has_its_own_time(&self) -> bool {
        matches!(self.subject, Subject::Tag(Place::Safe | Place::Finalized))
    }

    /// The block that is asked for by its hash.
    pub fn block(&self) -> Option<Hash> {
        match self.subject {
            Subject::Block(hash) => Some(hash),
            Subject::Number(_) | Subject::Tag(_) | Subject::Transaction(_) | Subject::Nothing => None,
        }
    }

    /// Is the head what it asks about?
    pub fn names_the_head(&self) -> bool {
        matches!(self.subject, Subject::Tag(Place::Latest) | Subject::Nothing)
    }

    /// Does the answer name the head?
    pub fn shows_the_head(&self) -> bool {
        matches!((self.question, self.subject), (Question::BlockByNumber(..), Subject::Tag(Place::Latest)))
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        let chain = DevChain::new(config);
        let mut world = Self {
            chain,
            states: Vec::new(),
            blocks: Vec::new(),
            transactions: Vec::new(),
            archive: HashMap::new(),
            dropped: Vec::new(),
            floor: 0,
            called_final: 0,
            faulty: false,
            restarted: false,
            mode: (Mode::Trailing, Mode::Trailing),
            lag: 0,
        };
        world.note();
        world
    }

    /// Notes what is true from now on.
    pub fn note(&mut self) {
        let head = self.chain.head();
        let canonical: Vec<_> = (0..=head.number).map(|number| self.chain.hash_at(number).unwrap()).collect();
        for hash in &canonical {
            if !self.blocks.contains(hash) {
                self.blocks.push(*hash);
                for transaction in self.chain.transactions_of(*hash) {
                    if !self.transactions.contains(&transaction) {
                        self.transactions.push(transaction);
                    }
                }
            }
        }
        for transaction in self.chain.mempool() {
            if !self.transactions.contains(&transaction) {
                self.transactions.push(transaction);
            }
        }
        let seen = canonical.len().saturating_sub(usize::try_from(self.lag).unwrap()).max(1);
        let trailing = |mode: Mode, distance: u64| {
            let top = seen as u64 - 1;
            match mode {
                Mode::Trailing => Some(top.saturating_sub(distance)),
                Mode::At(number) => Some(number.min(top)),
                Mode::Null | Mode::Error => None,
            }
        };
        let config = self.chain.config();
        let finalized = trailing(self.mode.1, config.finalized_distance);
        self.floor = self.floor.max(finalized.unwrap_or(0));
        self.called_final = self.called_final.max(self.floor);
        self.states.push(State {
            since: Instant::now(),
            lag: self.lag,
            safe: trailing(self.mode.0, config.safe_distance),
            finalized,
            called_final: self.called_final,
            mempool: self.chain.mempool(),
            visible: Arc::new(canonical[..seen].to_vec()),
        });
    }

    pub fn lag(&self) -> u64 {
        self.lag
    }

    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    // ## Changes

    /// What happens to the node, whoever asks it what.
    pub async fn undergo(&mut self, change: &Step) {
        match change {
            Step::Wait(millis) => time::sleep(Duration::from_millis(*millis)).await,
            Step::Mine(blocks, transactions) => self.mine(*blocks, *transactions),
            Step::Reorg { depth, length } => self.reorg(*depth, *length),
            Step::Shuffle { depth, deal } => self.shuffle(*depth, deal),
            Step::IncludeDropped => self.include_dropped(),
            Step::Lag(lag) => self.set_lag(*lag),
            Step::Rollback(depth) => self.rollback(*depth),
            Step::Finality(finality) => self.set_finality(*finality),
            Step::Fail(failure, times) => self.fail(*failure, *times),
            Step::Slow { late, millis } => self.slow(*late, Duration::from_millis(*millis)),
            Step::ClearFaults => self.chain.clear_faults(),
            Step::Ask(_)
            | Step::AskOften(_)
            | Step::Batch(_)
            | Step::Start(_)
            | Step::Join
            | Step::Send
            | Step::Restart => {
                unreachable!("not a change of the node")
            }
        }
    }

    pub fn mine(&mut self, blocks: usize, transactions: usize) {
        self.chain.mine_many(blocks, transactions);
        self.note();
    }

    /// How deep a reorganisation may go: not below what was called final.
    fn deepest(&self, depth: u64) -> u64 {
        depth.min(self.chain.head().number.saturating_sub(self.floor))
    }

    pub fn reorg(&mut self, depth: u64, length: usize) {
        let depth = self.deepest(depth);
        if depth > 0 && length > 0 {
            self.chain.reorg(depth, length);
            self.note();
        }
    }

    /// What was called final is replaced, which must not happen: so far below what may be, with as many blocks and some more.
    pub fn replace(&mut self, below: u64, more: usize) {
        self.set_lag(0);
        let head = self.chain.head().number;
        let depth = (head.saturating_sub(self.floor) + below).min(head - 1);
        self.chain.reorg(depth, usize::try_from(depth).unwrap() + more);
        self.floor = head - depth;
        self.note();
    }

    pub fn shuffle(&mut self, depth: u64, deal: &[u8]) {
        let depth = self.deepest(depth);
        if depth == 0 {
            return;
        }
        let head = self.chain.head().number;
        let mut blocks = vec![Vec::new(); usize::try_from(depth).unwrap() + usize::from(deal[0] % 3)];
        let mut cards = deal.iter().cycle();
        for number in head - depth + 1..=head {
            for hash in self.chain.transactions_of(self.chain.hash_at(number).unwrap()) {
                let transaction = self.chain.transaction(hash).unwrap();
                let place = usize::from(*cards.next().unwrap()) % (blocks.len() + 1);
                match blocks.get_mut(place) {
                    Some(block) => block.push(transaction),
                    // Of two branches it may have been dropped from both.
                    None if self.dropped.contains(&hash) => {}
                    None => self.dropped.push(hash),
                }
            }
        }
        self.chain.reorg_with(depth, blocks);
        self.note();
    }

    pub fn include_dropped(&mut self) {
        let canonical = |hash: &Hash| self.chain.location(*hash).is_some();
        let again: Vec<_> = self.dropped.iter().filter(|hash| !canonical(hash)).copied().collect();
        self.dropped.clear();
        let transactions = again.iter().filter_map(|hash| self.chain.transaction(*hash)).collect();
        let block = self.chain.build_on(self.chain.head().hash, transactions);
        self.chain.set_head(block);
        self.note();
    }

    pub fn set_lag(&mut self, lag: u64) {
        self.lag = lag.min(self.chain.head().number);
        self.chain.lag(self.lag);
        self.note();
    }

    pub fn rollback(&mut self, depth: u64) {
        let depth = self.deepest(depth);
        if depth > 0 {
            self.set_lag(0);
            self.chain.rollback(depth);
            self.note();
        }
    }

    pub fn set_finality(&mut self, finality: Finality) {
        let head = self.chain.head().number;
        let mode = match finality {
            Finality::Trailing => Mode::Trailing,
            Finality::At(below) => Mode::At(head.saturating_sub(below)),
            Finality::Null => Mode::Null,
            Finality::Error => Mode::Error,
        };
        self.chain.set_finalized(mode);
        self.chain.set_safe(mode);
        self.mode = (mode, mode);
        self.note();
    }

    pub fn fail(&mut self, failure: Failure, times: u64) {
        self.faulty = true;
        let fault = match failure {
            Failure::Hang => Fault::Hang,
            Failure::Reset => Fault::Reset,
            Failure::Status => Fault::Status(500),
            Failure::RateLimited => Fault::RateLimited { retry_after: None },
            Failure::Garbage => Fault::Garbage,
            Failure::Truncated => Fault::Truncated,
            Failure::WrongId => Fault::WrongId,
        };
        self.chain.fail(fault).any().times(usize::try_from(times).unwrap());
    }

    pub fn slow(&mut self, late: bool, wait: Duration) {
        // Several of these in a row are more than a call has time for.
        self.faulty |= wait >= Duration::from_secs(1);
        let fault = if late { Fault::Delay(wait) } else { Fault::Queue(wait) };
        self.chain.fail(fault).on("eth_get*").once();
    }

    pub fn restart(&mut self) {
        for hash in self.blocks.clone() {
            if let (Some(full), Some(thin), Some(receipts)) = (
                self.chain.block_json(hash, true),
                self.chain.block_json(hash, false),
                self.chain.receipts_json(hash),
            ) {
                let hashes = self.chain.transactions_of(hash);
                let transactions = hashes.into_iter().enumerate().map(|(index, transaction)| {
                    let json = self.chain.transaction_json(hash, index).unwrap();
                    (transaction, json, self.chain.receipt_json(hash, index).unwrap())
                });
                let archived = Archived { full, thin, receipts, transactions: transactions.collect() };
                self.archive.insert(hash, archived);
            }
        }
        let mut config = self.chain.config();
        config.seed += 1_000_003;
        self.chain.restart(config);
        self.lag = 0;
        self.mode = (Mode::Trailing, Mode::Trailing);
        (self.floor, self.called_final) = (0, 0);
        self.chain.mine_many(3, 1);
        self.note();
        self.restarted = true;
    }

    // ## Questions

    pub fn call(&self, question: Question) -> Call {
        let head = self.chain.head().number;
        let block = |choice: u16| self.blocks[usize::from(choice) % self.blocks.len()];
        // The newest are the ones that matter: most choices fall on them.
        let transaction = |choice: u16| match self.transactions.len() {
            0 => Hash::repeat_byte(0xee),
            _ if choice % 16 == 15 => Hash::repeat_byte(0xee),
            count if choice.is_multiple_of(2) => {
                self.transactions[count - 1 - usize::from(choice / 2) % count.min(6)]
            }
            count => self.transactions[usize::from(choice) % count],
        };
        let place = |place: Place| match place {
            Place::Below(below) => {
                let number = head.saturating_add_signed(-i64::from(below));
                (json!(format!("{number:#x}")), Subject::Number(number))
            }
            Place::At(number) => (json!(format!("{number:#x}")), Subject::Number(number)),
            Place::Latest => (json!("latest"), Subject::Tag(place)),
            Place::Safe => (json!("safe"), Subject::Tag(place)),
            Place::Finalized => (json!("finalized"), Subject::Tag(place)),
            Place::Earliest => (json!("earliest"), Subject::Tag(place)),
            Place::Pending => (json!("pending"), Subject::Tag(place)),
        };
        let (method, params, subject) = match question {
            Question::BlockByNumber(at, full) => {
                let (name, subject) = place(at);
                ("eth_getBlockByNumber", json!([name, full]), subject)
            }
            Question::BlockByHash(choice, full) => {
                let hash = block(choice);
                ("eth_getBlockByHash", json!([format!("{hash:#x}"), full]), Subject::Block(hash))
            }
            Question::TransactionByHash(choice) => {
                let hash = transaction(choice);
                ("eth_getTransactionByHash", json!([format!("{hash:#x}")]), Subject::Transaction(hash))
            }
            Question::Receipt(choice) => {
                let hash = transaction(choice);
                ("eth_getTransactionReceipt", json!([format!("{hash:#x}")]), Subject::Transaction(hash))
            }
            Question::TransactionAtNumber(at, index) => {
                let (name, subject) = place(at);
                ("eth_getTransactionByBlockNumberAndIndex", json!([name, index]), subject)
            }
            Question::TransactionAtHash(choice, index) => {
                let hash = block(choice);
                let params = json!([format!("{hash:#x}"), format!("{index:#x}")]);
                ("eth_getTransactionByBlockHashAndIndex", params, Subject::Block(hash))
            }
            Question::BlockNumber => ("eth_blockNumber", json!([]), Subject::Nothing),
            Question::BlockReceipts(at) => {
                let (name, subject) = place(at);
                ("eth_getBlockReceipts", json!([name]), subject)
            }
            Question::CountByNumber(at) => {
                let (name, subject) = place(at);
                ("eth_getBlockTransactionCountByNumber", json!([name]), subject)
            }
        };
        Call { question, method, params, subject }
    }
}
