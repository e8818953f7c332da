//! The node that a program controls, and the history of its states.

mod logs;
mod truth;

use bytes::Bytes;
use holdfast::devchain::{Config, DevChain, Fault, Lie, TagTarget as Mode};
use serde_json::{Value, json};
use std::{cell::RefCell, collections::HashMap, iter, sync::Arc, time::Duration};
use tokio::time::{self, Instant};

use self::logs::{TrueLog, bounds_in};
use super::{
    judge::UNREST,
    step::{Again, Failure, Finality, LogQuery, Place, Question, Step},
};
use crate::support::{chains, doubles::Disguise};

pub type Hash = alloy_primitives::B256;

/// The error with which the node refuses answers that are too large.
pub const TOO_BIG: (i64, &str) = (-32008, "Response is too big");

/// The state of the node from `since` until the next state.
#[derive(Clone, Debug)]
pub struct State {
    pub since: Instant,
    /// Canonical hashes by number, up to the head that the node shows.
    pub visible: Arc<Vec<Hash>>,
    lag: u64,
    safe: Option<u64>,
    pub finalized: Option<u64>,
    /// Highest number that the node ever called final, even if a reorg replaced its block.
    pub called_final: u64,
    /// Whether the newest finalized block is no longer canonical.
    pub regressed: bool,
    /// Whether the finalized block of the state before is not on the chain.
    pub replaces_final: bool,
    mempool: Vec<Hash>,
}

impl State {
    /// Returns whether the head is below the safe or the finalized block of another state.
    pub fn is_below_tags_of(&self, other: &State) -> bool {
        other.safe.max(other.finalized) >= Some(self.visible.len() as u64)
    }

    /// Returns this state, and the states whose heads are its safe and its finalized block.
    pub fn heads(&self) -> impl Iterator<Item = State> {
        let tagged = [self.safe, self.finalized].into_iter().flatten();
        let length = tagged.map(|number| usize::try_from(number).unwrap() + 1);
        let lower: Vec<_> = length.filter(|length| *length < self.visible.len()).collect();
        let until = |length| State { visible: Arc::new(self.visible[..length].to_vec()), ..self.clone() };
        let lower = lower.into_iter().map(until);
        iter::once(self.clone()).chain(lower)
    }
}

/// The node and its history.
pub struct World {
    pub chain: DevChain,
    pub states: Vec<State>,
    /// All blocks and transactions that ever existed, in order of appearance.
    pub blocks: Vec<Hash>,
    transactions: Vec<Hash>,
    /// Content of the blocks before a restart of the node.
    archive: HashMap<Hash, Archived>,
    /// Logs of the blocks, read from their receipts when needed.
    logs: RefCell<HashMap<Hash, Arc<Vec<TrueLog>>>>,
    dropped: Vec<Hash>,
    /// Highest finalized number. Ordinary reorgs do not go below it, and a reorg below the finalized block lowers it.
    pub floor: u64,
    /// Newest finalized block. The next finalized block of at least the same height replaces it.
    final_block: (u64, Hash),
    /// Highest number that the node ever called final. A proxy that has not noticed a reorg below the finalized block
    /// treats the blocks that are now at these numbers as final.
    pub called_final: u64,
    /// Whether logs match as geth decides. If the proxy must prove all answers, it does not ask for the opinion of the
    /// node.
    pub matches_as_geth: bool,
    /// Whether the program has set faults.
    pub faulty: bool,
    /// Whether the node has refused whole blocks or lists of receipts.
    pub refused: bool,
    /// Whether the node has restarted with another genesis.
    pub restarted: bool,
    mode: (Mode, Mode),
    lag: u64,
    /// Exchanges hashes of blocks for others, if `is_disguised` is set.
    disguise: Disguise,
    is_disguised: bool,
}

/// A block from before a restart of the node.
struct Archived {
    full: Bytes,
    with_hashes: Bytes,
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
    /// The blocks between two bounds, both included.
    Range(Bound, Bound),
    Nothing,
}

/// A bound of a range.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Number(u64),
    Tag(Place),
}

impl Call {
    pub fn has_its_own_time(&self) -> bool {
        self.tags().iter().any(|tag| matches!(tag, Place::Safe | Place::Finalized))
    }

    /// Returns whether the call asks for logs.
    pub fn asks_for_logs(&self) -> bool {
        matches!(self.question, Question::Logs(_))
    }

    /// Returns whether the call names a range of blocks.
    pub fn is_range(&self) -> bool {
        matches!(self.subject, Subject::Range(..))
    }

    /// Returns the tags that the call contains.
    pub fn tags(&self) -> Vec<Place> {
        match self.subject {
            Subject::Tag(tag) => vec![tag],
            Subject::Range(from, to) => [from, to]
                .into_iter()
                .filter_map(|bound| match bound {
                    Bound::Tag(tag) => Some(tag),
                    Bound::Number(_) => None,
                })
                .collect(),
            Subject::Nothing | Subject::Number(_) | Subject::Block(_) | Subject::Transaction(_) => Vec::new(),
        }
    }

    /// Returns the block hash that the call names.
    pub fn block(&self) -> Option<Hash> {
        match self.subject {
            Subject::Block(hash) => Some(hash),
            Subject::Number(_)
            | Subject::Tag(_)
            | Subject::Transaction(_)
            | Subject::Range(..)
            | Subject::Nothing => None,
        }
    }

    /// Returns whether the node may answer this call with the error for answers that are too large.
    pub fn may_be_refused(&self, code: i64) -> bool {
        let asks_for_all = match self.question {
            Question::BlockByNumber(_, full) | Question::BlockByHash(_, full) => full,
            Question::BlockReceipts(_) => true,
            _ => false,
        };
        asks_for_all && code == TOO_BIG.0
    }

    /// Returns whether `result` says that there is no such content.
    pub fn is_nothing(&self, result: &Bytes) -> bool {
        *result == self.question.nothing()
    }

    /// Returns whether the call names a transaction by its hash.
    pub fn names_transaction(&self) -> bool {
        matches!(self.subject, Subject::Transaction(_))
    }

    /// Returns whether an answer says where a block is: not for a call by block hash or tag.
    pub fn names_place(&self) -> bool {
        matches!(self.subject, Subject::Number(_) | Subject::Transaction(_) | Subject::Range(..))
    }

    /// Returns the tag by which the call names a block, or the only tag of a range; `eth_blockNumber` means `latest`.
    pub fn tag(&self) -> Option<Place> {
        match self.subject {
            Subject::Range(Bound::Number(_), Bound::Tag(tag)) => Some(tag),
            Subject::Range(Bound::Tag(from), Bound::Tag(to)) => {
                (std::mem::discriminant(&from) == std::mem::discriminant(&to)).then_some(to)
            }
            Subject::Tag(tag) => Some(tag),
            Subject::Nothing => Some(Place::Latest),
            Subject::Number(_) | Subject::Block(_) | Subject::Transaction(_) | Subject::Range(..) => None,
        }
    }

    /// Returns whether the call asks about the head.
    pub fn names_the_head(&self) -> bool {
        let names_latest = || self.tags().iter().any(|tag| matches!(tag, Place::Latest));
        matches!(self.subject, Subject::Nothing) || names_latest()
    }

    /// Returns whether the call names a number, or a range that ends at a number, above the visible head of this state.
    pub fn is_above(&self, state: &State) -> bool {
        let (Subject::Number(number) | Subject::Range(_, Bound::Number(number))) = self.subject else {
            return false;
        };
        number >= state.visible.len() as u64
    }

    /// Returns whether the answer identifies the head.
    pub fn shows_the_head(&self) -> bool {
        matches!((self.question, self.subject), (Question::BlockByNumber(..), Subject::Tag(Place::Latest)))
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        let chain = chains::chain(&config, 0, 0);
        let mut world = Self {
            final_block: (0, chain.head().hash),
            chain,
            states: Vec::new(),
            blocks: Vec::new(),
            transactions: Vec::new(),
            archive: HashMap::new(),
            logs: RefCell::default(),
            dropped: Vec::new(),
            floor: 0,
            called_final: 0,
            matches_as_geth: false,
            faulty: false,
            refused: false,
            restarted: false,
            mode: (Mode::Trailing, Mode::Trailing),
            lag: 0,
            disguise: Disguise::default(),
            is_disguised: false,
        };
        world.note();
        world
    }

    /// Gives all blocks, also later ones, other hashes for the clients.
    pub fn put_on_disguise(&mut self) {
        self.is_disguised = true;
        self.blocks.iter().for_each(|hash| self.disguise_block(*hash));
    }

    fn disguise_block(&self, hash: Hash) {
        if self.is_disguised {
            self.disguise.exchange(hash, hash ^ Hash::repeat_byte(0xff));
        }
    }

    pub fn disguise(&self) -> &Disguise {
        &self.disguise
    }

    /// Records the current state of the node.
    pub fn note(&mut self) {
        let head = self.chain.head();
        let canonical: Vec<_> = (0..=head.number).map(|number| self.chain.hash_at(number).unwrap()).collect();
        for hash in &canonical {
            if !self.blocks.contains(hash) {
                self.blocks.push(*hash);
                self.disguise_block(*hash);
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
        let lacks_final = |(number, hash): (u64, Hash)| {
            canonical[..seen].get(usize::try_from(number).unwrap()) != Some(&hash)
        };
        let replaces_final = lacks_final(self.final_block);
        if let Some(number) = finalized.filter(|number| *number >= self.final_block.0) {
            self.final_block = (number, canonical[usize::try_from(number).unwrap()]);
        }
        self.states.push(State {
            regressed: lacks_final(self.final_block),
            replaces_final,
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

    /// Returns the newest state at a moment.
    pub fn last_at(&self, at: Instant) -> usize {
        self.states.partition_point(|state| state.since <= at).saturating_sub(1)
    }

    /// Returns whether the chain only grew between two moments and for a while before: the node neither changed its branch
    /// nor lagged, and its head is at least as high as any head before.
    pub fn is_calm(&self, from: Instant, to: Instant) -> bool {
        let from = from.checked_sub(UNREST).map_or(0, |from| self.last_at(from));
        let (before, since) = (&self.states[..from], &self.states[from..=self.last_at(to)]);
        let highest = before.iter().map(|state| state.visible.len()).max().unwrap_or(0);
        since[0].visible.len() >= highest
            && since.iter().all(|state| state.lag == 0)
            && since.windows(2).all(|two| two[1].visible.starts_with(&two[0].visible))
    }

    /// Returns whether the node called a block final that is above its safe block, between two moments.
    pub fn has_unsafe_finality(&self, from: Instant, to: Instant) -> bool {
        let mut since = self.states[self.last_at(from)..=self.last_at(to)].iter();
        since.any(|state| state.safe.is_some() && state.safe < state.finalized)
    }

    /// Returns by how many blocks the chain grew between two moments.
    pub fn grew(&self, from: Instant, to: Instant) -> usize {
        let lengths =
            self.states[self.last_at(from)..=self.last_at(to)].iter().map(|state| state.visible.len());
        lengths.clone().max().unwrap_or(0) - lengths.min().unwrap_or(0)
    }

    /// Returns whether the node showed more than one state between two moments.
    pub fn has_changed(&self, from: Instant, to: Instant) -> bool {
        self.last_at(from) != self.last_at(to)
    }

    // ## Changes

    /// Applies a step that changes the node.
    pub async fn undergo(&mut self, change: &Step) {
        match change {
            Step::Wait(millis) => time::sleep(Duration::from_millis(*millis)).await,
            Step::Mine(blocks, transactions) => self.mine(*blocks, *transactions),
            Step::Reorg { depth, length } => self.reorg(*depth, *length),
            Step::Shuffle { depth, deal } => self.shuffle(*depth, deal),
            Step::IncludeDropped => self.include_dropped(),
            Step::RepeatTransaction(choice) => self.repeat_transaction(*choice),
            Step::Lag(lag) => self.set_lag(*lag),
            Step::Rollback(depth) => self.rollback(*depth),
            Step::ReorgBelowFinal { below, length } => self.reorg_below_final(*below, *length),
            Step::RollbackBelowFinal(below) => self.rollback_below_final(*below),
            Step::Finality(finality) => self.set_finality(*finality),
            Step::SafeAt(below) => self.set_safe(*below),
            Step::RefuseWhole { receipts, times } => self.refuse_whole(*receipts, *times),
            Step::Fail(failure, times) => self.fail(*failure, *times),
            Step::Slow { late, millis } => self.slow(*late, Duration::from_millis(*millis)),
            Step::ClearFaults => self.chain.clear_faults(),
            Step::Ask(_)
            | Step::AskOften(_)
            | Step::Batch(_)
            | Step::Start(_)
            | Step::Overtake { .. }
            | Step::StartBatch(_)
            | Step::BatchAcross { .. }
            | Step::FalsePlace { .. }
            | Step::Again(_)
            | Step::StartAnew
            | Step::LogsOfKnown { .. }
            | Step::SearchLagging { .. }
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

    /// Limits the depth of a reorg so that it keeps the finalized block.
    fn deepest(&self, depth: u64) -> u64 {
        depth.min(self.chain.head().number.saturating_sub(self.floor))
    }

    pub fn reorg(&mut self, depth: u64, length: usize) {
        let depth = self.deepest(depth);
        if depth > 0 && length > 0 {
            self.replace_last(depth, length);
            self.note();
        }
    }

    /// Replaces the last blocks like [`DevChain::reorg`], but includes a repeated transaction only once in a block.
    fn replace_last(&self, depth: u64, length: usize) {
        let head = self.chain.head().number;
        let mut contents: Vec<Vec<_>> = vec![Vec::new(); length];
        for (number, place) in (head - depth + 1..=head).zip(0..) {
            let Some(content) = contents.get_mut(place.min(length.saturating_sub(1))) else { break };
            for hash in self.chain.transactions_of(self.chain.hash_at(number).unwrap()) {
                let transaction = self.chain.transaction(hash).unwrap();
                if !content.contains(&transaction) {
                    content.push(transaction);
                }
            }
        }
        self.chain.reorg_with(depth, contents);
    }

    /// Replaces finalized blocks, which no node may do. Replaces all blocks from `below` blocks below the finalized
    /// block on, by the same number of blocks plus `more`.
    pub fn replace(&mut self, below: u64, more: usize) {
        self.set_lag(0);
        let head = self.chain.head().number;
        let depth = (head.saturating_sub(self.floor) + below).min(head - 1);
        self.chain.reorg(depth, usize::try_from(depth).unwrap() + more);
        self.floor = head - depth;
        self.note();
    }

    /// Replaces the finalized block, which no node may do. Replaces all blocks from `below` blocks below it on, by
    /// `length` blocks.
    pub fn reorg_below_final(&mut self, below: u64, length: usize) {
        self.set_lag(0);
        let depth = self.depth_below_final(below);
        if depth > 0 {
            self.replace_last(depth, length);
            self.floor = self.floor.min(self.chain.head().number - length as u64);
            self.note();
        }
    }

    /// Lowers the head to `below` blocks below the finalized block, as `evm_revert` does.
    pub fn rollback_below_final(&mut self, below: u64) {
        self.reorg_below_final(below, 0);
    }

    fn depth_below_final(&self, below: u64) -> u64 {
        let head = self.chain.head().number;
        (head.saturating_sub(self.floor) + below).min(head)
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
                    // A block includes a repeated transaction only once.
                    Some(block) if block.contains(&transaction) => {}
                    Some(block) => block.push(transaction),
                    // An earlier shuffle may have dropped it from another branch.
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

    /// Mines a canonical transaction once more.
    pub fn repeat_transaction(&mut self, choice: u16) {
        let canonical: Vec<_> =
            self.transactions.iter().filter(|hash| self.chain.location(**hash).is_some()).collect();
        if let Some(hash) = canonical.get(usize::from(choice) % canonical.len().max(1)) {
            let repeated = self.chain.transaction(**hash).unwrap();
            let block = self.chain.build_on(self.chain.head().hash, vec![repeated]);
            self.chain.set_head(block);
            self.note();
        }
    }

    /// Returns whether the node's lag shrank between two states.
    pub fn has_caught_up(&self, from: usize, to: usize) -> bool {
        self.states[from..=to].windows(2).any(|pair| pair[1].lag < pair[0].lag)
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

    pub fn set_safe(&mut self, below: u64) {
        let number = self.chain.head().number.saturating_sub(below);
        self.mode.0 = Mode::At(number);
        self.chain.set_safe(self.mode.0);
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
        // Several of these delays together can exceed the timeout of a call.
        self.faulty |= wait >= Duration::from_secs(1);
        let fault = if late { Fault::Delay(wait) } else { Fault::Queue(wait) };
        self.chain.fail(fault).on("eth_get*").once();
    }

    /// Lets the node refuse the next `times` calls for full blocks or lists of receipts.
    pub fn refuse_whole(&mut self, receipts: bool, times: usize) {
        self.refused = true;
        let (code, message) = TOO_BIG;
        let pattern = if receipts { "eth_getBlockReceipts" } else { "eth_getBlockBy*,true]" };
        self.chain.fail(Fault::Error { code, message: message.to_owned() }).on(pattern).times(times);
    }

    /// Lets the node answer a call about a transaction `times` times with a false block hash.
    pub fn misplace(&mut self, call: &Call, orphan: bool, times: usize) {
        let params = call.params.to_string();
        let pattern = format!("{}{}", call.method, params);
        self.chain.fail(Lie::Misplaced { orphan }).on(pattern).times(times);
    }

    /// Delays the next answer to a call that names a block or transaction by number or hash, and the next answer with
    /// logs.
    pub fn delay_content(&mut self, wait: Duration) {
        self.chain.fail(Fault::Delay(wait)).on("eth_get*[\"0x*").once();
        self.chain.fail(Fault::Delay(wait)).on("eth_getLogs").once();
    }

    /// Delays the next call that names a block or transaction by number or hash, before the node reads the chain.
    pub fn queue_content(&mut self, wait: Duration) {
        self.chain.fail(Fault::Queue(wait)).on("eth_get*[\"0x*").once();
    }

    /// Clears delays that have not delayed a call yet, unless the program has set other faults.
    pub fn end_delays(&mut self) {
        if !self.faulty {
            self.chain.clear_faults();
        }
    }

    pub fn restart(&mut self) {
        for hash in self.blocks.clone() {
            if let (Some(full), Some(with_hashes), Some(receipts)) = (
                self.chain.block_json(hash, true),
                self.chain.block_json(hash, false),
                self.chain.receipts_json(hash),
            ) {
                let hashes = self.chain.transactions_of(hash);
                let transactions = hashes.into_iter().enumerate().map(|(index, transaction)| {
                    let json = self.chain.transaction_json(hash, index).unwrap();
                    (transaction, json, self.chain.receipt_json(hash, index).unwrap())
                });
                let archived = Archived { full, with_hashes, receipts, transactions: transactions.collect() };
                self.archive.insert(hash, archived);
            }
        }
        let mut config = self.chain.config();
        config.seed += 1_000_003;
        self.chain.restart(config);
        self.lag = 0;
        self.mode = (Mode::Trailing, Mode::Trailing);
        (self.floor, self.called_final) = (0, 0);
        self.final_block = (0, self.chain.hash_at(0).unwrap());
        self.chain.mine_many(3, 1);
        self.note();
        self.restarted = true;
    }

    // ## Questions

    /// Returns a question about the block that a call means in the current state, if any.
    pub fn about_its_block(&self, call: &Call, again: Again) -> Option<Question> {
        let (number, _) = self.meant(call, self.states.last()?)?;
        let place = Place::At(number);
        Some(match again {
            Again::Same => return None,
            Again::Block { full } => Question::BlockByNumber(place, full),
            Again::Receipts => Question::BlockReceipts(place),
        })
    }

    /// Returns calls for the blocks of an `eth_getLogs` in the current state, or for their receipts, and then for the logs.
    pub fn logs_of_known(&self, query: LogQuery, receipts: bool) -> Vec<Call> {
        let call = self.log_call(query);
        let place = |hash: &Hash| match call.subject {
            Subject::Range(..) => self.number(*hash).map_or(Place::Latest, Place::At),
            _ => Place::Hash(*hash),
        };
        let blocks = self.blocks_now(call.subject);
        // A range between two tags may be long.
        let places = blocks.iter().rev().take(6).map(place);
        let ask = |place| match (place, receipts) {
            (place, true) => Question::BlockReceipts(place),
            (Place::Hash(hash), false) => Question::BlockByHash(self.choice_of(hash), true),
            (place, false) => Question::BlockByNumber(place, true),
        };
        places.map(|place| self.call(ask(place))).chain([call.clone()]).collect()
    }

    /// Returns the choice that selects this block.
    fn choice_of(&self, hash: Hash) -> u16 {
        let position = self.blocks.iter().position(|block| *block == hash);
        u16::try_from(position.unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the question for the receipt of a transaction.
    pub fn receipt_of(&self, transaction: Hash) -> Option<Question> {
        let is_its = |question: &Question| matches!(self.call(*question).subject, Subject::Transaction(hash) if hash == transaction);
        (0..4096).map(Question::Receipt).find(is_its)
    }

    pub fn call(&self, question: Question) -> Call {
        let head = self.chain.head().number;
        let block = |choice: u16| self.blocks[usize::from(choice) % self.blocks.len()];
        // Half of the choices fall on the newest transactions, which reorgs affect.
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
            Place::Hash(hash) => (json!(format!("{hash:#x}")), Subject::Block(hash)),
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
            Question::UncleCount(at) => {
                let (name, subject) = place(at);
                ("eth_getUncleCountByBlockNumber", json!([name]), subject)
            }
            Question::Header(at) => {
                let (name, subject) = place(at);
                ("eth_getHeaderByNumber", json!([name]), subject)
            }
            Question::RawReceipts(at) => {
                let (name, subject) = place(at);
                ("debug_getRawReceipts", json!([name]), subject)
            }
            Question::RawTransactionAtNumber(at, index) => {
                let (name, subject) = place(at);
                let params = json!([name, format!("{index:#x}")]);
                ("eth_getRawTransactionByBlockNumberAndIndex", params, subject)
            }
            Question::Logs(query) => return self.log_call(query),
        };
        Call { question, method, params, subject }
    }
}
