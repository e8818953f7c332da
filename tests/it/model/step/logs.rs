//! Calls of `eth_getLogs` and the steps that send them.

use proptest::prelude::*;

use super::{Place, Question, Step, question, tagged_question};

/// An `eth_getLogs`. Block and filter are chosen when the step runs.
#[derive(Clone, Copy, Debug)]
pub struct LogQuery {
    pub span: Span,
    pub filter: LogFilter,
}

/// The blocks whose logs a call asks for.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// One block by its hash, canonical or not.
    Hash(u16),
    /// The block this far below the head, and this many blocks before it. A negative number is above the head.
    Numbers { last: i8, before: u8 },
    /// A canonical block with logs, and this many blocks before and after it.
    Around { block: u16, before: u8, after: u8 },
    /// The blocks from this far below the head up to a tag.
    UpTo { before: u8, tag: Place },
    /// The blocks between two tags.
    Tags { from: Place, to: Place },
}

/// A filter around an example: a log that exists, mostly in the blocks of the call.
#[derive(Clone, Copy, Debug)]
pub struct LogFilter {
    pub example: u16,
    pub address: Pick,
    /// Topics by position, of which the first `positions` are sent.
    pub topics: [Pick; 4],
    pub positions: usize,
}

/// The addresses or topics that a filter accepts at one position.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// Any, as `null`.
    Any,
    /// Any, as an empty list.
    Empty,
    /// That of the example.
    Own,
    /// That of the example, or that of another log.
    OwnOr(u16),
    /// That of another log.
    Other(u16),
    /// One that no log has.
    Absent,
}

// The strategies are boxed: their trees are large, and a program with many steps would overflow the stack.

/// Returns the number of blocks before the last one. A node searches ranges of more than 16 cold blocks.
fn before() -> BoxedStrategy<u8> {
    prop_oneof![3 => 0u8..6, 1 => 16u8..24].boxed()
}

fn span() -> BoxedStrategy<Span> {
    prop_oneof![
        4 => any::<u16>().prop_map(Span::Hash),
        4 => (0i8..6, before()).prop_map(|(last, before)| Span::Numbers { last, before }),
        5 => (any::<u16>(), 0u8..4, 0u8..3)
            .prop_map(|(block, before, after)| Span::Around { block, before, after }),
        1 => (-2i8..0, 0u8..6).prop_map(|(last, before)| Span::Numbers { last, before }),
        1 => (6i8..90, 0u8..6).prop_map(|(last, before)| Span::Numbers { last, before }),
        4 => tagged_span(),
    ]
    .boxed()
}

fn tagged_span() -> BoxedStrategy<Span> {
    let tag = prop_oneof![4 => Just(Place::Latest), 1 => Just(Place::Safe), 1 => Just(Place::Finalized)];
    prop_oneof![
        2 => tag.clone().prop_map(|tag| Span::Tags { from: tag, to: tag }),
        4 => (before(), tag.clone()).prop_map(|(before, tag)| Span::UpTo { before, tag }),
        1 => (tag.clone(), tag).prop_map(|(from, to)| Span::Tags { from, to }),
    ]
    .boxed()
}

fn filter() -> BoxedStrategy<LogFilter> {
    let pick = prop_oneof![
        4 => Just(Pick::Any),
        1 => Just(Pick::Empty),
        5 => Just(Pick::Own),
        2 => any::<u16>().prop_map(Pick::OwnOr),
        1 => any::<u16>().prop_map(Pick::Other),
        1 => Just(Pick::Absent),
    ]
    .boxed();
    let positions = prop_oneof![4 => Just(0usize), 4 => Just(1), 2 => Just(2), 1 => Just(3), 1 => Just(4)];
    let topics = [pick.clone(), pick.clone(), pick.clone(), pick.clone()];
    let parts = (any::<u16>(), pick, topics, positions);
    parts
        .prop_map(|(example, address, topics, positions)| LogFilter { example, address, topics, positions })
        .boxed()
}

fn query(span: BoxedStrategy<Span>) -> BoxedStrategy<LogQuery> {
    (span, filter()).prop_map(|(span, filter)| LogQuery { span, filter }).boxed()
}

pub fn log_question() -> BoxedStrategy<Question> {
    log_question_about(span())
}

/// Returns questions for the logs of these blocks.
pub fn log_question_about(span: BoxedStrategy<Span>) -> BoxedStrategy<Question> {
    query(span).prop_map(Question::Logs).boxed()
}

/// Returns searches of a range up to the head, by a node that begins to lag.
pub fn search_lagging() -> BoxedStrategy<Step> {
    let before = prop_oneof![1u8..7, 16u8..24];
    let span = (before, any::<bool>()).prop_map(|(before, is_tagged)| match is_tagged {
        true => Span::UpTo { before, tag: Place::Latest },
        false => Span::Numbers { last: 0, before },
    });
    (prop_oneof![3 => 1usize..5, 1 => 16usize..20], 1u64..4, query(span.boxed()))
        .prop_map(|(blocks, lag, query)| Step::SearchLagging { blocks, lag, query })
        .boxed()
}

/// Returns the steps that ask for logs, or mine blocks with many of them.
pub fn log_step() -> BoxedStrategy<Step> {
    let tagged = prop_oneof![log_question_about(tagged_span()), tagged_question()].boxed();
    let mixed = proptest::collection::vec(prop_oneof![log_question(), question()].boxed(), 2..8).boxed();
    prop_oneof![
        3 => (1usize..5, 3usize..6).prop_map(|(blocks, transactions)| Step::Mine(blocks, transactions)),
        8 => log_question().prop_map(Step::Ask),
        1 => log_question().prop_map(Step::AskOften),
        4 => (query(span()), any::<bool>())
            .prop_map(|(query, receipts)| Step::LogsOfKnown { query, receipts }),
        3 => log_question().prop_map(Step::Start),
        2 => mixed.clone().prop_map(Step::Batch),
        1 => mixed.prop_map(Step::StartBatch),
        2 => (log_question(), 1u64..4, 1usize..5)
            .prop_map(|(question, depth, length)| Step::Overtake { question, depth, length }),
        2 => (proptest::collection::vec(tagged, 2..6), 1u64..4, 1usize..5)
            .prop_map(|(questions, depth, length)| Step::BatchAcross { questions, depth, length }),
    ]
    .boxed()
}
