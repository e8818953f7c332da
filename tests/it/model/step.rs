//! The steps that programs are made of.

use proptest::prelude::*;

/// One step of a program. Numbers choose among what there is when the step is run.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time passes.
    Wait(u64),
    /// So many blocks of so many transactions.
    Mine(usize, usize),
    /// The last blocks are replaced, their transactions included again in order.
    Reorg {
        depth: u64,
        length: usize,
    },
    /// The last blocks are replaced, and their transactions dealt out anew: moved lower, higher, or dropped.
    Shuffle {
        depth: u64,
        deal: Vec<u8>,
    },
    /// What was dropped before is mined again.
    IncludeDropped,
    /// The node answers as if its head were lower.
    Lag(u64),
    /// The head goes down.
    Rollback(u64),
    /// What `finalized` and `safe` stand for.
    Finality(Finality),
    /// The next calls fail.
    Fail(Failure, u64),
    /// The next call takes time: before it is carried out, or after.
    Slow {
        late: bool,
        millis: u64,
    },
    ClearFaults,
    /// One call, awaited.
    Ask(Question),
    /// The same call over and over: what is in use comes in other forms.
    AskOften(Question),
    /// Several in one packet, awaited.
    Batch(Vec<Question>),
    /// One call that is not awaited yet.
    Start(Question),
    /// All calls that were started are awaited.
    Join,
    /// A transaction is sent through the proxy.
    Send,
    /// The node starts anew with another genesis.
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub enum Finality {
    Trailing,
    /// So many blocks below the head.
    At(u64),
    Null,
    Error,
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

/// A call, its arguments still to be chosen.
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
}

#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// So far below the head; negative is above it.
    Below(i8),
    /// This one, whatever the head.
    At(u64),
    Latest,
    Safe,
    Finalized,
    Earliest,
    Pending,
}

// === impl Step ===

impl Step {
    /// How often the same is asked.
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

pub fn step() -> impl Strategy<Value = Step> {
    let finality = prop_oneof![
        Just(Finality::Trailing),
        (0u64..12).prop_map(Finality::At),
        Just(Finality::Null),
        Just(Finality::Error),
    ];
    prop_oneof![
        // Below and above `max_staleness`, beyond finality, and beyond idleness.
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
