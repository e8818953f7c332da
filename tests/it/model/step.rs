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
    /// A transaction of the canonical chain is mined once more; on development chains only, where nonces can be set.
    RepeatTransaction(u16),
    /// The node answers as if its head were lower.
    Lag(u64),
    /// The head goes down.
    Rollback(u64),
    /// The finalized block is replaced: all from so many blocks below it, by so many blocks.
    ReorgBelowFinal {
        below: u64,
        length: usize,
    },
    /// The head goes down to so many blocks below the finalized block.
    RollbackBelowFinal(u64),
    /// What `finalized` and `safe` stand for.
    Finality(Finality),
    /// `safe` stands for the block so far below the head, wherever `finalized` is.
    SafeAt(u64),
    /// The node refuses so many whole blocks or lists of receipts, as if they were too large.
    RefuseWhole {
        receipts: bool,
        times: usize,
    },
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
    /// One call that is not awaited, and late; before it is answered the chain is reorganised and the new head shown.
    Overtake {
        question: Question,
        depth: u64,
        length: usize,
    },
    /// Several calls in one packet that is not awaited yet.
    StartBatch(Vec<Question>),
    /// Several calls in one packet, all by tag. The node takes its time with the first of them, and before it answers the
    /// chain is reorganised.
    BatchAcross {
        questions: Vec<Question>,
        depth: u64,
        length: usize,
    },
    /// A transaction or its receipt is asked for, and named with a false block hash so often: the hash of an orphan at its
    /// number, if one is wanted and there is one, else of no block. The proxy may be started anew before.
    FalsePlace {
        receipt: bool,
        transaction: u16,
        orphan: bool,
        times: usize,
        anew: bool,
    },
    /// The proxy is started anew, and knows nothing of the chain.
    StartAnew,
    /// The last call that was alone in its packet is sent again, or the block that it is about is asked for by number.
    Again(Again),
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
    UncleCount(Place),
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
        1 => place().prop_map(Question::UncleCount),
    ]
}

/// A question about the block that a tag means.
fn tagged_question() -> impl Strategy<Value = Question> {
    let tag = prop_oneof![5 => Just(Place::Latest), 1 => Just(Place::Safe), 1 => Just(Place::Finalized)];
    prop_oneof![
        3 => (tag.clone(), any::<bool>()).prop_map(|(tag, full)| Question::BlockByNumber(tag, full)),
        1 => (tag.clone(), 0u8..2).prop_map(|(tag, index)| Question::TransactionAtNumber(tag, index)),
        2 => tag.clone().prop_map(Question::BlockReceipts),
        1 => tag.prop_map(Question::CountByNumber),
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

/// Steps that only the model of one node has: they aim at one promise each.
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

/// Steps of the model of one node.
pub fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![10 => step(), 3 => aimed_step()]
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
