//! The steps of a program.

mod logs;

use proptest::prelude::*;

use self::logs::search_lagging;
pub use self::logs::{LogFilter, LogQuery, Pick, Span, log_question, log_question_about, log_step};
use super::world::Hash;

/// One step of a program. Indexes (`u16`) select among the blocks and transactions that exist when the step runs.
#[derive(Clone, Debug)]
pub enum Step {
    /// Waits this many milliseconds.
    Wait(u64),
    /// Mines a number of blocks with a number of transactions each.
    Mine(usize, usize),
    /// Replaces the last blocks and includes their transactions again in order.
    Reorg {
        depth: u64,
        length: usize,
    },
    /// Replaces the last blocks and redistributes their transactions: each moves lower or higher, or is dropped.
    Shuffle {
        depth: u64,
        deal: Vec<u8>,
    },
    /// Mines the dropped transactions again.
    IncludeDropped,
    /// Mines a canonical transaction once more; only on development chains, where nonces can be set.
    RepeatTransaction(u16),
    /// The node answers as if its head were lower.
    Lag(u64),
    /// Removes this many blocks from the head.
    Rollback(u64),
    /// Replaces all blocks from `below` blocks below the finalized block on, by `length` other blocks.
    ReorgBelowFinal {
        below: u64,
        length: usize,
    },
    /// Removes blocks from the head until it is this many blocks below the finalized block.
    RollbackBelowFinal(u64),
    /// Sets the meaning of `finalized` and `safe`.
    Finality(Finality),
    /// Sets `safe` to the block this far below the head, independently of `finalized`.
    SafeAt(u64),
    /// The node refuses the next calls for full blocks or lists of receipts, as if the answers were too large.
    RefuseWhole {
        receipts: bool,
        times: usize,
    },
    /// The next calls fail, this many times.
    Fail(Failure, u64),
    /// The node delays the next call: before it reads the chain, or after it if `late` is set.
    Slow {
        late: bool,
        millis: u64,
    },
    ClearFaults,
    /// Sends one call and awaits the answer.
    Ask(Question),
    /// Sends the same call repeatedly, because the cache stores entries that are read often as gzip, too.
    AskOften(Question),
    /// Sends a batch and awaits the answers.
    Batch(Vec<Question>),
    /// Sends one call without awaiting the answer.
    Start(Question),
    /// Sends one call whose answer is late. Before it arrives, a reorg happens and a client sees the new head.
    Overtake {
        question: Question,
        depth: u64,
        length: usize,
    },
    /// Sends a batch without awaiting the answers.
    StartBatch(Vec<Question>),
    /// Sends a batch of calls by tag. The node delays the first fetch for it that names a block by number or hash, and
    /// a reorg happens before the node answers.
    BatchAcross {
        questions: Vec<Question>,
        depth: u64,
        length: usize,
    },
    /// Asks for a transaction or its receipt, and lets the node answer `times` times with a false block hash: that of an
    /// orphan at the same number, if `orphan` is set and one exists, else of no block. With `anew`, the proxy restarts
    /// first.
    FalsePlace {
        receipt: bool,
        transaction: u16,
        orphan: bool,
        times: usize,
        anew: bool,
    },
    /// Restarts the proxy with an empty cache.
    StartAnew,
    /// Repeats the last call that was not part of a batch, or asks by number for the block that the call concerns, or
    /// for its receipts.
    Again(Again),
    /// Asks for the blocks of an `eth_getLogs`, or for their receipts, and then for the logs.
    LogsOfKnown {
        query: LogQuery,
        receipts: bool,
    },
    /// Mines blocks with logs, asks for the receipts of the last one, and lets the node lag. Then asks for logs.
    SearchLagging {
        blocks: usize,
        lag: u64,
        query: LogQuery,
    },
    /// Awaits all started calls.
    Join,
    /// Sends a transaction through the proxy.
    Send,
    /// Restarts the node with another genesis.
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub enum Finality {
    Trailing,
    /// The block this many blocks below the head.
    At(u64),
    Null,
    Error,
}

#[derive(Clone, Copy, Debug)]
pub enum Again {
    Same,
    Block { full: bool },
    Receipts,
}

#[derive(Clone, Copy, Debug)]
pub enum Failure {
    Hang,
    Reset,
    Status,
    RateLimited,
    Garbage,
    Truncated,
    WrongId,
}

/// A call whose arguments are chosen when the step runs.
#[derive(Clone, Copy, Debug)]
pub enum Question {
    BlockByNumber(Place, bool),
    BlockByHash(u16, bool),
    TransactionByHash(u16),
    Receipt(u16),
    TransactionAtNumber(Place, u8),
    TransactionAtHash(u16, u8),
    BlockNumber,
    BlockReceipts(Place),
    CountByNumber(Place),
    UncleCount(Place),
    Header(Place),
    RawReceipts(Place),
    RawTransactionAtNumber(Place, u8),
    Logs(LogQuery),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The block this far below the head. A negative number is above the head.
    Below(i8),
    /// This block number.
    At(u64),
    /// The block with this hash.
    Hash(Hash),
    Latest,
    Safe,
    Finalized,
    Earliest,
    Pending,
}

// === impl Question ===

impl Question {
    /// Returns the answer of the node if there is no such content.
    pub fn nothing(self) -> &'static str {
        if matches!(self, Self::RawTransactionAtNumber(..)) { r#""0x""# } else { "null" }
    }
}

// === impl Step ===

impl Step {
    /// Number of times that the call is sent.
    pub fn times(&self) -> usize {
        if matches!(self, Self::AskOften(_)) { 6 } else { 1 }
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        6 => (-2i8..6).prop_map(Place::Below),
        2 => (6i8..90).prop_map(Place::Below),
        4 => Just(Place::Latest),
        1 => Just(Place::Safe),
        1 => Just(Place::Finalized),
        1 => Just(Place::Earliest),
        1 => Just(Place::Pending),
    ]
}

pub fn question() -> impl Strategy<Value = Question> {
    prop_oneof![
        4 => (place(), any::<bool>()).prop_map(|(place, full)| Question::BlockByNumber(place, full)),
        2 => (any::<u16>(), any::<bool>()).prop_map(|(block, full)| Question::BlockByHash(block, full)),
        5 => any::<u16>().prop_map(Question::TransactionByHash),
        6 => any::<u16>().prop_map(Question::Receipt),
        2 => (place(), 0u8..5).prop_map(|(place, index)| Question::TransactionAtNumber(place, index)),
        2 => (any::<u16>(), 0u8..5).prop_map(|(block, index)| Question::TransactionAtHash(block, index)),
        1 => Just(Question::BlockNumber),
        1 => place().prop_map(Question::BlockReceipts),
        1 => place().prop_map(Question::CountByNumber),
        1 => place().prop_map(Question::UncleCount),
        1 => place().prop_map(Question::Header),
        1 => place().prop_map(Question::RawReceipts),
        1 => (place(), 0u8..5).prop_map(|(place, index)| Question::RawTransactionAtNumber(place, index)),
    ]
}

/// Returns questions that name a block by tag.
fn tagged_question() -> impl Strategy<Value = Question> {
    let tag = prop_oneof![5 => Just(Place::Latest), 1 => Just(Place::Safe), 1 => Just(Place::Finalized)];
    prop_oneof![
        3 => (tag.clone(), any::<bool>()).prop_map(|(tag, full)| Question::BlockByNumber(tag, full)),
        1 => (tag.clone(), 0u8..2).prop_map(|(tag, index)| Question::TransactionAtNumber(tag, index)),
        2 => tag.clone().prop_map(Question::BlockReceipts),
        1 => tag.clone().prop_map(Question::CountByNumber),
        1 => tag.clone().prop_map(Question::RawReceipts),
        1 => (tag, 0u8..2).prop_map(|(tag, index)| Question::RawTransactionAtNumber(tag, index)),
        1 => Just(Question::BlockNumber),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        Just(Failure::Hang),
        Just(Failure::Reset),
        Just(Failure::Status),
        Just(Failure::RateLimited),
        Just(Failure::Garbage),
        Just(Failure::Truncated),
        Just(Failure::WrongId),
    ]
}

/// Returns steps that only the model with one node uses. Each aims at one guarantee.
pub fn aimed_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (question(), 1u64..4, 1usize..5)
            .prop_map(|(question, depth, length)| Step::Overtake { question, depth, length }),
        1 => (1u64..12, 1usize..24).prop_map(|(below, length)| Step::ReorgBelowFinal { below, length }),
        1 => (1u64..12).prop_map(Step::RollbackBelowFinal),
        4 => (any::<bool>(), any::<u16>(), any::<bool>(), 1usize..3, any::<bool>()).prop_map(
            |(receipt, transaction, orphan, times, anew)| {
                Step::FalsePlace { receipt, transaction, orphan, times, anew }
            }
        ),
        1 => Just(Step::StartAnew),
        1 => search_lagging(),
        8 => prop_oneof![
            3 => Just(Again::Same),
            2 => any::<bool>().prop_map(|full| Again::Block { full }),
            1 => Just(Again::Receipts),
        ]
        .prop_map(Step::Again),
        2 => any::<u16>().prop_map(Step::RepeatTransaction),
        1 => (0u64..3).prop_map(Step::SafeAt),
        1 => (any::<bool>(), 1usize..4).prop_map(|(receipts, times)| Step::RefuseWhole { receipts, times }),
        1 => proptest::collection::vec(question(), 2..6).prop_map(Step::StartBatch),
        2 => (proptest::collection::vec(tagged_question(), 2..6), 1u64..4, 1usize..5)
            .prop_map(|(questions, depth, length)| Step::BatchAcross { questions, depth, length }),
    ]
}

/// Returns the steps of the model with one node.
pub fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![10 => step(), 3 => aimed_step(), 3 => log_step()]
}

pub fn step() -> impl Strategy<Value = Step> {
    let finality = prop_oneof![
        Just(Finality::Trailing),
        (0u64..12).prop_map(Finality::At),
        Just(Finality::Null),
        Just(Finality::Error),
    ];
    prop_oneof![
        // Some waits are shorter than `max_staleness`. Others are longer, or long enough for new finalized blocks, or
        // for the proxy to become idle.
        6 => prop_oneof![Just(0u64), Just(30), Just(300), Just(700), Just(1_001), Just(6_000), Just(70_000)]
            .prop_map(Step::Wait),
        8 => (1usize..3, 0usize..4).prop_map(|(blocks, transactions)| Step::Mine(blocks, transactions)),
        1 => (20usize..80).prop_map(|blocks| Step::Mine(blocks, 0)),
        4 => (1u64..5, 0usize..6).prop_map(|(depth, length)| Step::Reorg { depth, length }),
        3 => (1u64..5, proptest::collection::vec(any::<u8>(), 1..8)).prop_map(|(depth, deal)| Step::Shuffle { depth, deal }),
        1 => Just(Step::IncludeDropped),
        1 => (0u64..4).prop_map(Step::Lag),
        1 => (1u64..4).prop_map(Step::Rollback),
        2 => finality.prop_map(Step::Finality),
        1 => (failure(), 1u64..4).prop_map(|(failure, times)| Step::Fail(failure, times)),
        2 => (any::<bool>(), prop_oneof![Just(20u64), Just(500), Just(1_500), Just(4_000)])
            .prop_map(|(late, millis)| Step::Slow { late, millis }),
        1 => Just(Step::ClearFaults),
        24 => question().prop_map(Step::Ask),
        4 => question().prop_map(Step::AskOften),
        5 => proptest::collection::vec(question(), 2..8).prop_map(Step::Batch),
        6 => question().prop_map(Step::Start),
        4 => Just(Step::Join),
        2 => Just(Step::Send),
        1 => Just(Step::Restart),
    ]
}
