//! Programs that once failed, or that random generation reaches too rarely.

use holdfast::chain::Tracker;

use super::{
    Node, ORDINARY, Setting, run,
    step::{Again, Failure, Finality, LogFilter, LogQuery, Pick, Place, Question, Span, Step},
};

/// The first head of all arrives after a call of the batch was answered from `safe`.
#[test]
fn first_head_after_an_answer_for_safe_fits_it() {
    let steps = [
        // Confirms the chain without a head.
        Step::Ask(Question::TransactionAtHash(286, 0)),
        Step::Mine(1, 0),
        Step::Slow { late: true, millis: 50 },
        Step::Batch(vec![
            Question::BlockByNumber(Place::Latest, true),
            Question::BlockByNumber(Place::Latest, false),
            Question::BlockByNumber(Place::Safe, false),
            Question::RawReceipts(Place::Latest),
        ]),
    ];
    for development in [false, true] {
        run(Setting { development, ..ORDINARY }, &steps).unwrap();
    }
}

/// A rollback that the proxy accepts may lead below the finalized block. The proxy then no longer serves the finalized
/// blocks above the head that it shows.
#[test]
fn final_number_above_the_shown_head_is_not_served() {
    let steps = [
        Step::Mine(1, 1),
        Step::Mine(3, 0),
        Step::Finality(Finality::At(3)),
        // Waits longer than `max_staleness`, so that no later answer is of an older state.
        Step::Wait(1_001),
        Step::Ask(Question::CountByNumber(Place::Finalized)),
        Step::Ask(Question::BlockByNumber(Place::At(1), true)),
        Step::Rollback(2),
        // The node shows a head below the finalized block.
        Step::Lag(2),
        // Waits until the proxy accepts a rollback.
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Wait(70_000),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Ask(Question::BlockByNumber(Place::At(1), true)),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The node rolls back far below the finalized block, as anvil does at `evm_revert`, and then mines other blocks.
#[test]
fn rolled_back_chain_is_not_served_below_finality() {
    let ask_all = || {
        let blocks = (1..20).map(|number| Step::Ask(Question::BlockByNumber(Place::At(number), true)));
        let transactions = (0..40).flat_map(|choice| {
            [Question::Receipt(choice), Question::TransactionByHash(choice)].map(Step::Ask)
        });
        blocks.chain(transactions)
    };
    let mut steps = vec![Step::Mine(20, 1), Step::Finality(Finality::At(2))];
    steps.push(Step::Ask(Question::BlockByNumber(Place::Latest, false)));
    steps.push(Step::Ask(Question::BlockByNumber(Place::Finalized, false)));
    steps.extend(ask_all());
    steps.extend([Step::RollbackBelowFinal(14), Step::Mine(1, 1), Step::Wait(1_001)]);
    steps.push(Step::Ask(Question::BlockByNumber(Place::Latest, false)));
    steps.extend(ask_all());
    // The chain reaches the same numbers with other blocks.
    steps.extend([Step::Mine(18, 1), Step::Wait(1_001)]);
    steps.push(Step::Ask(Question::BlockByNumber(Place::Latest, false)));
    steps.extend(ask_all());
    run(ORDINARY, &steps).unwrap();
}

#[test]
fn reorganised_chain_is_not_served_below_finality() {
    for length in [1, 6, 30] {
        let steps = [
            Step::Mine(20, 1),
            Step::Finality(Finality::At(2)),
            Step::Ask(Question::BlockByNumber(Place::Latest, false)),
            Step::Ask(Question::BlockByNumber(Place::Finalized, false)),
            Step::Ask(Question::BlockByNumber(Place::At(16), true)),
            Step::ReorgBelowFinal { below: 4, length },
            Step::Wait(1_001),
            Step::Ask(Question::BlockByNumber(Place::Latest, false)),
            Step::Ask(Question::BlockByNumber(Place::At(16), true)),
            Step::Ask(Question::BlockByNumber(Place::At(18), true)),
        ];
        run(ORDINARY, &steps).unwrap_or_else(|error| panic!("{length}: {error}"));
    }
}

#[test]
fn answer_overtaken_by_a_new_head_is_discarded() {
    let forms = [
        Question::BlockByNumber(Place::At(1), true),
        Question::BlockByNumber(Place::At(1), false),
        Question::TransactionByHash(0),
        Question::Receipt(0),
        Question::TransactionAtNumber(Place::At(1), 0),
        Question::BlockReceipts(Place::At(1)),
        Question::CountByNumber(Place::At(1)),
    ];
    for question in forms {
        let steps = [
            Step::Mine(1, 1),
            Step::Ask(Question::BlockNumber),
            Step::Overtake { question, depth: 1, length: 1 },
            Step::Join,
        ];
        run(ORDINARY, &steps).unwrap_or_else(|error| panic!("{question:?}: {error}"));
    }
}

/// The tracked window does not help here: the block was above the head when the client asked for it.
#[test]
fn answer_above_a_head_shown_to_another_client_is_discarded() {
    for question in [Question::CountByNumber(Place::Below(0)), Question::BlockReceipts(Place::Below(0))] {
        let steps = [
            Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 1 },
            Step::Mine(2, 0),
            Step::Overtake { question, depth: 2, length: 1 },
        ];
        run(ORDINARY, &steps).unwrap_or_else(|error| panic!("{question:?}: {error}"));
    }
}

/// An answer about a single transaction or receipt does not make a block final, even if the block that it names exists.
#[test]
fn false_block_of_a_final_transaction_is_forgotten() {
    let programs = [true, false].into_iter().flat_map(|receipt| [(receipt, true), (receipt, false)]);
    for ((receipt, orphan), proved) in programs.flat_map(|program| [(program, true), (program, false)]) {
        let steps = [
            Step::Mine(2, 1),
            // The proxy caches the block that then becomes an orphan.
            Step::Ask(Question::BlockByNumber(Place::At(2), true)),
            Step::Reorg { depth: 1, length: 4 },
            Step::Wait(1_001),
            Step::Finality(Finality::At(1)),
            Step::Ask(Question::BlockByNumber(Place::Latest, false)),
            Step::Ask(Question::BlockByNumber(Place::Finalized, false)),
            // After these blocks, the transaction is far below the head, outside the window of canonical blocks.
            Step::Mine(80, 0),
            Step::Finality(Finality::At(1)),
            Step::Wait(70_000),
            Step::Ask(Question::BlockByNumber(Place::Latest, false)),
            Step::Ask(Question::BlockByNumber(Place::Finalized, false)),
            Step::FalsePlace { receipt, transaction: 0, orphan, times: 1, anew: false },
            Step::Wait(1_100),
            Step::Again(Again::Same),
            Step::Again(Again::Block { full: true }),
            Step::Again(Again::Receipts),
        ];
        let setting = Setting { proved, ..ORDINARY };
        run(setting, &steps)
            .unwrap_or_else(|error| panic!("receipt: {receipt}, orphan: {orphan}, {setting:?}: {error}"));
    }
}

#[test]
fn repeated_transaction_is_served_from_the_newest_block() {
    for question in [Question::Receipt(0), Question::TransactionByHash(0)] {
        let steps = [
            Step::Mine(1, 1),
            Step::Ask(Question::BlockByNumber(Place::At(1), true)),
            Step::Ask(question),
            Step::RepeatTransaction(0),
            Step::Ask(Question::BlockByNumber(Place::Latest, true)),
            Step::Ask(question),
            // The transaction is in the older block again.
            Step::Rollback(1),
            Step::Ask(question),
        ];
        run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
    }
}

/// The node denies the block that `latest` meant when the batch arrived.
#[test]
fn one_tag_means_one_block_across_a_reorg() {
    let questions = vec![
        Question::BlockByNumber(Place::Latest, false),
        Question::BlockReceipts(Place::Latest),
        Question::TransactionAtNumber(Place::Latest, 0),
        Question::BlockNumber,
    ];
    let steps = [
        Step::Mine(2, 1),
        Step::Ask(Question::BlockNumber),
        Step::BatchAcross { questions, depth: 1, length: 2 },
        Step::Join,
    ];
    run(Setting { forgets: true, ..ORDINARY }, &steps).unwrap();
}

#[test]
fn safe_is_on_the_branch_of_latest_in_a_batch() {
    let questions =
        vec![Question::BlockByNumber(Place::Latest, false), Question::BlockByNumber(Place::Safe, false)];
    let steps = [
        Step::Mine(4, 1),
        Step::Finality(Finality::At(3)),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::SafeAt(0),
        // The proxy still has the old head, and the safe block of the node is on another branch.
        Step::Reorg { depth: 2, length: 2 },
        Step::Batch(questions),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The node replaces its chain by a lower one, and denies the block that `latest` meant. Then it has no safe block any
/// more, and its new block at the same number is empty.
#[test]
fn missing_transaction_of_latest_is_of_the_branch_of_safe() {
    let chains =
        [ORDINARY, Setting { consistent: true, ..ORDINARY }, Setting { development: true, ..ORDINARY }];
    let chains = chains.into_iter().flat_map(|chain| [chain, Setting { forgets: true, ..chain }]);
    let forms = [Question::TransactionAtNumber, Question::RawTransactionAtNumber];
    for (setting, form) in chains.flat_map(|setting| forms.map(|form| (setting, form(Place::Latest, 0)))) {
        let steps = [
            Step::Ask(Question::BlockByNumber(Place::Below(0), false)),
            Step::Mine(3, 3),
            Step::SafeAt(2),
            Step::BatchAcross {
                questions: vec![Question::BlockByNumber(Place::Safe, false), form],
                depth: 3,
                length: 1,
            },
            Step::BatchAcross {
                questions: vec![Question::BlockByNumber(Place::Latest, false); 2],
                depth: 1,
                length: 2,
            },
            Step::Finality(Finality::Null),
            Step::IncludeDropped,
        ];
        run(setting, &steps).unwrap_or_else(|error| panic!("{form:?}, {setting:?}: {error}"));
    }
}

#[test]
fn count_above_the_head_is_answered_by_the_node() {
    for development in [true, false] {
        let steps = [
            Step::Mine(2, 1),
            Step::Ask(Question::BlockNumber),
            Step::Ask(Question::CountByNumber(Place::At(3))),
            Step::Ask(Question::UncleCount(Place::At(3))),
            Step::Ask(Question::CountByNumber(Place::At(2))),
        ];
        run(Setting { development, ..ORDINARY }, &steps).unwrap();
    }
}

#[test]
fn error_to_another_question_is_not_passed_on() {
    let questions = [
        Question::BlockByNumber(Place::Latest, false),
        Question::BlockByNumber(Place::At(1), false),
        Question::CountByNumber(Place::At(1)),
        Question::TransactionByHash(0),
        Question::Receipt(0),
        Question::TransactionAtNumber(Place::At(1), 0),
    ];
    for question in questions {
        let steps = [
            Step::Mine(2, 2),
            Step::Ask(Question::BlockNumber),
            Step::RefuseWhole { receipts: false, times: 9 },
            Step::RefuseWhole { receipts: true, times: 9 },
            Step::Ask(question),
            Step::AskOften(question),
        ];
        for proved in [false, true] {
            run(Setting { proved, ..ORDINARY }, &steps)
                .unwrap_or_else(|error| panic!("{question:?}: {error}"));
        }
    }
}

/// The node rolls back below the finalized block. Its new head is deep enough that one answer made it final.
#[test]
fn rollback_to_a_head_that_one_answer_made_final_is_noticed() {
    let steps = [
        Step::Mine(7, 0),
        Step::RollbackBelowFinal(6),
        Step::Mine(1, 1),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Again(Again::Block { full: false }),
        Step::Wait(1_001),
        Step::Ask(Question::BlockNumber),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The receipts of an orphan arrive after a client saw the new head: the list is shorter than the new block.
#[test]
fn overtaken_receipts_of_a_development_chain_are_fetched_again() {
    let steps = [
        Step::Mine(1, 0),
        Step::Mine(1, 1),
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 2, length: 3 },
        Step::Overtake { question: Question::BlockReceipts(Place::Below(2)), depth: 3, length: 1 },
        Step::Wait(0),
        Step::IncludeDropped,
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// A raw call takes several steps, and the chain can change between them.
#[test]
fn raw_answer_overtaken_by_a_new_head_is_discarded() {
    let header = [
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 1 },
        Step::Mine(1, 0),
        Step::Overtake { question: Question::Header(Place::Below(0)), depth: 1, length: 1 },
    ];
    run(ORDINARY, &header).unwrap();
    let receipts = [
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Mine(1, 1),
        Step::Overtake { question: Question::RawReceipts(Place::Latest), depth: 1, length: 2 },
        Step::Rollback(2),
    ];
    run(Setting { development: true, ..ORDINARY }, &receipts).unwrap();
}

/// The node restarts with another genesis while raw receipts are fetched.
#[test]
fn raw_call_survives_a_reset_of_the_node() {
    let questions =
        vec![Question::RawReceipts(Place::Earliest), Question::BlockByNumber(Place::Below(0), false)];
    let steps = [
        Step::StartBatch(questions),
        Step::Restart,
        Step::AskOften(Question::BlockByNumber(Place::Below(0), false)),
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// In a batch, a tag means one block, even if the node refuses the content of that block.
#[test]
fn raw_call_of_a_batch_keeps_the_block_of_its_tag() {
    let questions = vec![Question::BlockByNumber(Place::Latest, false), Question::RawReceipts(Place::Latest)];
    let steps = [
        Step::Mine(1, 1),
        Step::Ask(Question::TransactionByHash(0)),
        Step::RefuseWhole { receipts: false, times: 1 },
        Step::BatchAcross { questions, depth: 1, length: 2 },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// A reorg that the proxy has not seen is no reason to refuse a batch.
#[test]
fn batch_after_an_unseen_reorg_is_answered() {
    let steps = [
        Step::Mine(1, 0),
        Step::Slow { late: false, millis: 20 },
        Step::Ask(Question::TransactionByHash(0)),
        Step::Reorg { depth: 1, length: 2 },
        Step::Wait(70000),
        Step::Batch(vec![
            Question::BlockByNumber(Place::Latest, false),
            Question::BlockByNumber(Place::Safe, false),
        ]),
    ];
    run(Setting { switched: true, ..ORDINARY }, &steps).unwrap();
}

/// A lie puts the receipt of one transaction into an orphan, at the place of another transaction.
#[test]
fn receipt_of_another_transaction_at_a_place_is_not_served() {
    let steps = [
        Step::Mine(1, 3),
        Step::RefuseWhole { receipts: true, times: 3 },
        Step::IncludeDropped,
        Step::FalsePlace { receipt: false, transaction: 7629, orphan: false, times: 1, anew: false },
        Step::Slow { late: false, millis: 20 },
        Step::Shuffle { depth: 2, deal: vec![113, 105] },
        Step::FalsePlace { receipt: true, transaction: 50947, orphan: true, times: 1, anew: false },
        Step::Ask(Question::Receipt(49473)),
    ];
    run(Setting { followed: true, ..ORDINARY }, &steps).unwrap();
}

/// Filter that matches every log.
const ALL_LOGS: LogFilter =
    LogFilter { example: 0, address: Pick::Any, topics: [Pick::Any; 4], positions: 0 };

/// Returns a question for all logs of these blocks.
fn all_logs(span: Span) -> Question {
    Question::Logs(LogQuery { span, filter: ALL_LOGS })
}

/// The proxy knows the head of the old branch, and the node searches the new branch, where the same number is not the
/// head.
#[test]
fn logs_up_to_latest_are_those_of_one_branch() {
    let to_latest = all_logs(Span::UpTo { before: 3, tag: Place::Latest });
    for questions in [vec![to_latest], vec![all_logs(Span::Hash(0)), to_latest]] {
        let steps = [
            Step::Mine(1, 1),
            Step::Mine(2, 2),
            Step::Ask(Question::TransactionByHash(0)),
            Step::Shuffle { depth: 1, deal: vec![199, 151] },
            Step::Batch(questions),
        ];
        run(Setting { consistent: true, ..ORDINARY }, &steps).unwrap();
    }
}

/// A lagging node finds no logs above its head, and does not say so.
#[test]
fn logs_above_the_head_of_a_lagging_node_are_not_left_out() {
    let to_latest = all_logs(Span::UpTo { before: 0, tag: Place::Latest });
    let steps = [
        Step::Mine(1, 3),
        Step::Ask(Question::BlockByNumber(Place::Below(0), false)),
        Step::Lag(1),
        Step::AskOften(to_latest),
        Step::Ask(all_logs(Span::Numbers { last: 0, before: 3 })),
    ];
    for followed in [false, true] {
        run(Setting { followed, ..ORDINARY }, &steps).unwrap();
    }
}

/// The node of a development chain denies the block that `latest` meant.
#[test]
fn logs_of_latest_are_those_of_a_head_across_a_reorg() {
    let latest = all_logs(Span::Tags { from: Place::Latest, to: Place::Latest });
    let across = || Step::BatchAcross { questions: vec![latest, latest], depth: 1, length: 2 };
    let steps = [
        Step::Mine(1, 2),
        Step::Ask(all_logs(Span::Numbers { last: 1, before: 0 })),
        across(),
        across(),
        Step::Slow { late: false, millis: 20 },
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// The node begins to lag after the proxy has seen its head.
#[test]
fn logs_of_a_node_that_begins_to_lag_are_not_left_out() {
    let steps = [
        Step::Mine(6, 3),
        Step::Ask(Question::BlockReceipts(Place::Latest)),
        Step::Lag(3),
        Step::Ask(all_logs(Span::Numbers { last: 0, before: 5 })),
    ];
    for followed in [false, true] {
        run(Setting { followed, ..ORDINARY }, &steps).unwrap();
    }
}

/// After its restart the node serves another chain, and then replaces a block whose number is final on the right chain.
#[test]
fn logs_of_the_wrong_chain_may_be_of_two_branches() {
    // Nodes differ about logs without topics, so the node searches the blocks that have some.
    let filter = LogFilter { positions: 1, ..ALL_LOGS };
    let span = Span::Numbers { last: 3, before: 1 };
    let steps = [
        Step::Mine(55, 0),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
        Step::Ask(Question::BlockByNumber(Place::Finalized, false)),
        Step::Restart,
        Step::Start(all_logs(Span::Numbers { last: 0, before: 1 })),
        Step::Mine(2, 3),
        Step::Reorg { depth: 3, length: 5 },
        Step::Ask(Question::Logs(LogQuery { span, filter })),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The node begins to lag after the proxy has cached the logs of its last block.
#[test]
fn logs_below_a_cached_block_are_not_left_out() {
    let latest = |before| all_logs(Span::UpTo { before, tag: Place::Latest });
    for (lag, last) in [(1, latest(4)), (2, latest(4)), (2, all_logs(Span::Numbers { last: 0, before: 4 }))] {
        let steps = [
            Step::Mine(3, 2),
            Step::Ask(Question::BlockByNumber(Place::Latest, false)),
            Step::Wait(1_001),
            Step::Mine(2, 6),
            Step::Ask(latest(0)),
            Step::Lag(lag),
            Step::Ask(last),
        ];
        run(ORDINARY, &steps).unwrap();
    }
}

/// The chain regresses below a block that the node calls finalized, while the proxy still confirms the finalized block
/// before it.
#[test]
fn block_that_was_final_on_a_lost_branch_does_not_become_final() {
    let at_one = || Step::Ask(Question::BlockByNumber(Place::At(1), false));
    let (span, filter) = (Span::Numbers { last: 0, before: 1 }, ALL_LOGS);
    let steps = [
        Step::Mine(1, 3),
        Step::Mine(3, 0),
        Step::Wait(1_001),
        Step::Mine(1, 0),
        Step::BatchAcross {
            questions: vec![
                Question::BlockByNumber(Place::Latest, false),
                Question::BlockReceipts(Place::Finalized),
            ],
            depth: 1,
            length: 2,
        },
        Step::Mine(1, 3),
        Step::ReorgBelowFinal { below: 6, length: 3 },
        at_one(),
        Step::SearchLagging { blocks: 3, lag: 1, query: LogQuery { span, filter } },
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 1 },
        at_one(),
    ];
    for followed in [false, true] {
        run(Setting { followed, ..ORDINARY }, &steps).unwrap();
    }
}

/// While a batch waits for the logs of its `latest`, the chain falls below that block.
#[test]
fn logs_of_a_head_that_fell_are_not_left_out() {
    let questions = vec![
        all_logs(Span::UpTo { before: 2, tag: Place::Latest }),
        all_logs(Span::Tags { from: Place::Latest, to: Place::Latest }),
    ];
    let steps = [
        Step::Mine(1, 3),
        Step::Finality(Finality::At(0)),
        Step::ReorgBelowFinal { below: 1, length: 11 },
        Step::Mine(2, 3),
        Step::Shuffle { depth: 2, deal: vec![64, 88, 130, 86, 105] },
        Step::Mine(1, 3),
        Step::Shuffle { depth: 3, deal: vec![154, 0, 5, 12, 0] },
        Step::Overtake { question: all_logs(Span::Hash(0)), depth: 2, length: 1 },
        Step::Slow { late: false, millis: 20 },
        Step::BatchAcross { questions, depth: 1, length: 1 },
        Step::ReorgBelowFinal { below: 1, length: 1 },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// Two blocks of a range are known from answers for their numbers only, one from before a reorg and one from after it.
#[test]
fn logs_of_a_range_do_not_mix_answers_across_a_reorg() {
    let any = |example| LogFilter { example, address: Pick::Any, topics: [Pick::Any; 4], positions: 0 };
    let logs = |span, example| Question::Logs(LogQuery { span, filter: any(example) });
    let around = |block, before| Span::Around { block, before, after: 0 };
    let steps = [
        Step::Mine(2, 1),
        Step::Mine(34, 0),
        Step::Reorg { depth: 2, length: 0 },
        Step::ReorgBelowFinal { below: 10, length: 5 },
        Step::Mine(35, 0),
        Step::Mine(1, 3),
        Step::Finality(Finality::At(7)),
        Step::Mine(3, 3),
        Step::Wait(1001),
        Step::RollbackBelowFinal(3),
        Step::Batch(vec![logs(around(0, 0), 0), logs(Span::Hash(0), 0)]),
        Step::Mine(2, 5),
        Step::Ask(logs(around(329, 0), 0)),
        Step::Overtake { question: logs(around(0, 1), 20277), depth: 1, length: 1 },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The first look after a reorg comes from a batch, and clears the tag that another call of the batch has just resolved.
#[test]
fn tags_of_a_batch_fit_after_an_unseen_reorg() {
    let steps = [
        Step::Mine(1, 0),
        Step::Ask(Question::BlockByNumber(Place::Earliest, false)),
        Step::BatchAcross {
            questions: vec![
                Question::BlockByNumber(Place::Latest, false),
                Question::BlockByNumber(Place::Latest, false),
            ],
            depth: 1,
            length: 2,
        },
        Step::Wait(70_000),
        Step::Mine(1, 0),
        Step::Batch(vec![
            Question::TransactionAtNumber(Place::Safe, 0),
            Question::BlockByNumber(Place::Latest, true),
        ]),
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// The window has moved past the number of an overtaken answer that names no block.
#[test]
fn overtaken_count_is_discarded() {
    let steps = [
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 1 },
        Step::Mine(2, 3),
        Step::Overtake { question: Question::CountByNumber(Place::Below(0)), depth: 2, length: 1 },
        Step::Mine(20, 0),
    ];
    for switched in [false, true] {
        run(Setting { switched, ..ORDINARY }, &steps).unwrap();
    }
}

/// The logs of `safe` name a block above the head of the view.
#[test]
fn logs_of_safe_are_not_above_the_head() {
    let filter = LogFilter { example: 0, address: Pick::Any, topics: [Pick::Any; 4], positions: 1 };
    let own = LogFilter { example: 3_097, topics: [Pick::Any, Pick::Own, Pick::Any, Pick::Any], ..filter };
    let query = LogQuery { span: Span::Numbers { last: 0, before: 1 }, filter };
    let span = Span::Tags { from: Place::Safe, to: Place::Safe };
    let steps = [
        Step::Wait(30),
        Step::SearchLagging { blocks: 1, lag: 1, query },
        Step::Mine(4, 3),
        Step::Ask(Question::Logs(LogQuery { span, filter: LogFilter { positions: 0, ..own } })),
        Step::Ask(Question::BlockByNumber(Place::Latest, false)),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The node rolls back below its safe block, on which the head rests for a moment.
#[test]
fn head_rests_on_the_safe_block() {
    let steps = [
        Step::Reorg { depth: 1, length: 0 },
        Step::Mine(2, 1),
        Step::Reorg { depth: 2, length: 3 },
        Step::Ask(Question::TransactionByHash(0)),
        Step::Shuffle { depth: 2, deal: vec![73] },
        Step::SafeAt(2),
        Step::BatchAcross {
            questions: vec![Question::RawReceipts(Place::Latest), Question::CountByNumber(Place::Safe)],
            depth: 1,
            length: 1,
        },
        Step::RollbackBelowFinal(1),
        Step::Ask(Question::Receipt(44_039)),
        Step::Batch(vec![
            Question::BlockByNumber(Place::Below(-2), false),
            Question::BlockByNumber(Place::Below(0), false),
        ]),
    ];
    run(Setting { switched: true, ..ORDINARY }, &steps).unwrap();
}

/// The first call of a batch raises the head by more blocks than the view follows, and calls for logs keep that head.
#[test]
fn logs_of_a_head_far_above_the_last_one() {
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let steps = [
        Step::Ask(Question::TransactionByHash(0)),
        Step::Overtake { question: Question::RawReceipts(Place::Below(6)), depth: 1, length: 1 },
        Step::Ask(Question::BlockByNumber(Place::Below(0), true)),
        Step::Mine(2, 0),
        Step::AskOften(Question::Receipt(0)),
        Step::Mine(66, 0),
        Step::StartBatch(vec![
            Question::BlockNumber,
            all_logs(Span::UpTo { before: 0, tag: Place::Safe }),
            all_logs(latest),
        ]),
    ];
    for node in [Node::Whole, Node::FalseHashes, Node::SixMethods(&[])] {
        run(Setting { node, ..ORDINARY }, &steps).unwrap();
    }
}

/// The logs of `latest` arrive after two reorgs, and another client has seen the new head.
#[test]
fn overtaken_logs_of_latest_are_discarded() {
    let overtake = |span, depth, length| Step::Overtake { question: all_logs(span), depth, length };
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let steps = [Step::Mine(1, 2), overtake(Span::Hash(0), 1, 2), overtake(latest, 2, 1)];
    for followed in [false, true] {
        run(Setting { development: true, followed, ..ORDINARY }, &steps).unwrap();
    }
}

/// A slow answer shows an old head, while the node already calls a higher block final.
#[test]
fn head_rests_on_the_finalized_block() {
    let questions =
        vec![Question::BlockByNumber(Place::Latest, false), Question::BlockByNumber(Place::Finalized, false)];
    let steps = [
        Step::Mine(1, 0),
        Step::Wait(70_000),
        Step::Slow { late: true, millis: 20 },
        Step::BatchAcross { questions, depth: 1, length: 3 },
    ];
    run(Setting { instant: true, ..ORDINARY }, &steps).unwrap();
}

/// A block that an answer for its number places does not link to the final block below it.
#[test]
fn logs_of_blocks_that_do_not_link_are_not_joined() {
    let steps = [
        Step::Mine(2, 0),
        Step::Overtake { question: Question::BlockByNumber(Place::Below(-1), false), depth: 1, length: 4 },
        Step::RollbackBelowFinal(1),
        Step::Mine(2, 3),
        Step::IncludeDropped,
        Step::Mine(2, 0),
        Step::LogsOfKnown {
            query: LogQuery { span: Span::Numbers { last: 2, before: 2 }, filter: ALL_LOGS },
            receipts: false,
        },
    ];
    for node in [Node::Whole, Node::FalseHashes] {
        run(Setting { node, ..ORDINARY }, &steps).unwrap();
    }
}

/// The chain of an unknown id restarts, and the proxy doubts the new one for a while.
#[test]
fn restart_of_an_unknown_chain_is_a_doubt() {
    let latest = Question::BlockByNumber(Place::Latest, false);
    let steps = [
        Step::Reorg { depth: 1, length: 0 },
        Step::Ask(Question::BlockNumber),
        Step::Mine(20, 0),
        Step::Reorg { depth: 3, length: 1 },
        Step::Send,
        Step::ReorgBelowFinal { below: 3, length: 11 },
        Step::Mine(2, 0),
        Step::BatchAcross { questions: vec![latest, latest], depth: 1, length: 4 },
        Step::AskOften(all_logs(Span::Tags { from: Place::Finalized, to: Place::Latest })),
        Step::Restart,
        Step::Finality(Finality::Null),
        Step::Again(Again::Same),
        Step::Overtake { question: all_logs(Span::Hash(0)), depth: 1, length: 1 },
    ];
    run(Setting { node: Node::SixMethods(&[]), ..ORDINARY }, &steps).unwrap();
}

/// The head falls below the block of a tag that another call of the batch has used: its number is now another block, or none.
#[test]
fn logs_of_a_tag_above_a_fallen_head_are_not_searched_by_number() {
    let query = LogQuery { span: Span::Numbers { last: 0, before: 1 }, filter: ALL_LOGS };
    let steps = [
        Step::SearchLagging { blocks: 2, lag: 2, query },
        Step::Mine(1, 0),
        Step::Mine(2, 0),
        Step::BatchAcross {
            questions: vec![
                all_logs(Span::UpTo { before: 3, tag: Place::Latest }),
                all_logs(Span::Tags { from: Place::Safe, to: Place::Latest }),
            ],
            depth: 3,
            length: 1,
        },
        Step::AskOften(Question::TransactionAtNumber(Place::Below(0), 0)),
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// The chain grows by more than the window between the requests for two tags of a batch.
#[test]
fn tags_may_be_apart_after_growth_beyond_the_window() {
    let steps = [
        Step::Overtake { question: Question::BlockByNumber(Place::Finalized, false), depth: 1, length: 1 },
        Step::Mine(20, 0),
        Step::Batch(vec![Question::BlockReceipts(Place::Safe), Question::Header(Place::Latest)]),
    ];
    run(Setting { switched: true, ..ORDINARY }, &steps).unwrap();
}

/// Two calls of a batch find the same block of a tag, before and after a jump beyond the window clears it.
#[test]
fn calls_by_one_tag_survive_a_jump_beyond_the_window() {
    let latest = Span::Numbers { last: 0, before: 0 };
    let steps = [
        Step::Batch(vec![all_logs(latest), all_logs(Span::Hash(0))]),
        Step::Mine(66, 0),
        Step::Batch(vec![
            Question::CountByNumber(Place::Finalized),
            Question::BlockReceipts(Place::Finalized),
        ]),
    ];
    for development in [true, false] {
        run(Setting { development, ..ORDINARY }, &steps).unwrap();
    }
}

/// In a doubt, the node goes back below the finalized block. While it answers a request for a later `finalized`, it no longer
/// has the block, which it has not pruned.
#[test]
fn denial_of_a_node_that_has_gone_back_does_not_end_a_doubt() {
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let to_finalized = Span::UpTo { before: 0, tag: Place::Finalized };
    let of_new = LogQuery { span: Span::Numbers { last: 0, before: 1 }, filter: ALL_LOGS };
    let steps = [
        Step::Mine(2, 0),
        Step::Ask(Question::BlockNumber),
        Step::BatchAcross {
            questions: vec![
                Question::BlockByNumber(Place::Latest, false),
                Question::RawReceipts(Place::Latest),
            ],
            depth: 1,
            length: 1,
        },
        Step::Join,
        Step::BatchAcross { questions: vec![all_logs(latest), all_logs(latest)], depth: 1, length: 4 },
        Step::ReorgBelowFinal { below: 1, length: 4 },
        Step::Finality(Finality::At(0)),
        Step::Overtake { question: all_logs(to_finalized), depth: 1, length: 1 },
        Step::ClearFaults,
        Step::RollbackBelowFinal(4),
        Step::Wait(70000),
        Step::SearchLagging { blocks: 1, lag: 1, query: of_new },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// A node calls a block of another branch final, which is the head in a doubt. Final blocks stay readable until it is over.
#[test]
fn final_blocks_stay_in_a_doubt_below_a_head_of_another_branch() {
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let steps = [
        Step::Mine(20, 0),
        Step::Ask(Question::BlockNumber),
        Step::BatchAcross {
            questions: vec![
                Question::BlockByNumber(Place::Safe, false),
                Question::RawReceipts(Place::Latest),
            ],
            depth: 1,
            length: 1,
        },
        Step::Join,
        Step::BatchAcross { questions: vec![all_logs(latest), all_logs(latest)], depth: 1, length: 2 },
        Step::ReorgBelowFinal { below: 6, length: 22 },
        Step::Finality(Finality::At(0)),
        Step::Wait(0),
        Step::Slow { late: false, millis: 20 },
        Step::RollbackBelowFinal(11),
        Step::RollbackBelowFinal(10),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// A node goes back below its safe block in two changes of the same moment. The head may rest on that block for a moment.
#[test]
fn head_rests_on_the_safe_block_of_a_state_before_the_last() {
    let steps = [
        Step::Fail(Failure::Reset, 1),
        Step::Mine(2, 1),
        Step::SearchLagging {
            blocks: 2,
            lag: 1,
            query: LogQuery { span: Span::Numbers { last: 0, before: 1 }, filter: ALL_LOGS },
        },
        Step::Start(Question::Logs(LogQuery {
            span: Span::UpTo { before: 3, tag: Place::Safe },
            filter: ALL_LOGS,
        })),
        Step::Ask(Question::Logs(LogQuery { span: Span::Hash(0), filter: ALL_LOGS })),
        Step::Reorg { depth: 4, length: 2 },
        Step::Rollback(2),
        Step::Ask(Question::TransactionByHash(6138)),
        Step::StartBatch(vec![
            Question::TransactionAtNumber(Place::Below(-1), 0),
            Question::BlockByNumber(Place::Below(0), false),
        ]),
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The first head of all arrives while logs of a batch are read from `safe` to `latest`, and `safe` is resolved anew.
#[test]
fn safe_of_a_range_may_move_while_latest_is_in_use() {
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let both = Span::Tags { from: Place::Safe, to: Place::Latest };
    let steps = [
        Step::BatchAcross {
            questions: vec![Question::BlockByNumber(Place::Latest, true), all_logs(latest), all_logs(both)],
            depth: 1,
            length: 1,
        },
        Step::Mine(1, 0),
        Step::ClearFaults,
        Step::Slow { late: false, millis: 20 },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The chain grows while a batch resolves `latest` and `safe`. The blocks of a longer gap are not fetched, so that no parent
/// hashes link `safe` to the head before it.
#[test]
fn tags_are_in_order_after_growth_by_a_gap_that_is_fetched() {
    for growth in [Tracker::MAX_GAP as usize + 1, Tracker::MAX_GAP as usize + 2] {
        let steps = [
            Step::Ask(Question::BlockByNumber(Place::Below(0), false)),
            Step::Mine(growth, 0),
            Step::StartBatch(vec![
                Question::BlockByNumber(Place::Safe, false),
                Question::Header(Place::Latest),
            ]),
        ];
        run(Setting { followed: true, ..ORDINARY }, &steps)
            .unwrap_or_else(|error| panic!("{growth}: {error}"));
        let questions =
            vec![Question::BlockByNumber(Place::Latest, false), Question::BlockByNumber(Place::Safe, true)];
        let steps = [
            Step::Send,
            Step::BatchAcross { questions, depth: 1, length: 1 },
            Step::Mine(growth, 0),
            Step::Ask(Question::BlockNumber),
            Step::Wait(0),
        ];
        run(Setting { development: true, ..ORDINARY }, &steps)
            .unwrap_or_else(|error| panic!("{growth}: {error}"));
    }
}

/// A node that denies orphans is on another branch than the final block of the view, which therefore keeps its head.
#[test]
fn logs_of_a_tag_that_the_node_denies_in_a_doubt_are_not_searched_by_number() {
    let known = LogQuery { span: Span::Numbers { last: 0, before: 2 }, filter: ALL_LOGS };
    let steps = [
        Step::Mine(1, 1),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Reorg { depth: 1, length: 3 },
        Step::LogsOfKnown { query: known, receipts: true },
        Step::Wait(70_000),
        Step::Mine(2, 3),
        Step::ClearFaults,
        Step::ReorgBelowFinal { below: 1, length: 5 },
        Step::BatchAcross {
            questions: vec![
                all_logs(Span::Tags { from: Place::Latest, to: Place::Latest }),
                Question::BlockByNumber(Place::Latest, false),
            ],
            depth: 1,
            length: 1,
        },
        Step::Finality(Finality::Trailing),
    ];
    run(Setting { forgets: true, ..ORDINARY }, &steps).unwrap();
}

/// The node calls a block final that is above its safe block. The batch has them in order.
#[test]
fn logs_between_two_tags_keep_their_order() {
    let both = Span::Tags { from: Place::Finalized, to: Place::Safe };
    let steps = [
        Step::SafeAt(0),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Mine(20, 0),
        Step::Wait(0),
        Step::Slow { late: false, millis: 1_500 },
        Step::StartBatch(vec![
            Question::BlockByNumber(Place::Below(0), false),
            Question::BlockByHash(22, false),
        ]),
        Step::Join,
        Step::LogsOfKnown { query: LogQuery { span: both, filter: ALL_LOGS }, receipts: false },
    ];
    run(ORDINARY, &steps).unwrap();
}

/// The node can neither read a list of receipts nor search logs, so its error is the answer.
#[test]
fn logs_of_a_batch_are_refused_in_front_of_six_methods() {
    let up_to_latest = LogQuery { span: Span::UpTo { before: 1, tag: Place::Latest }, filter: ALL_LOGS };
    let steps = [
        Step::Mine(1, 3),
        Step::Batch(vec![Question::Logs(up_to_latest), all_logs(Span::Hash(0))]),
        Step::Wait(0),
    ];
    run(Setting { node: Node::SixMethods(&[]), ..ORDINARY }, &steps).unwrap();
}

/// In a doubt, the node goes back below the block that it has just called final. That block is the head until the doubt is
/// over.
#[test]
fn latest_rests_on_the_finalized_block_while_a_doubt_lasts() {
    let around = Span::Around { block: 0, before: 1, after: 0 };
    let steps = [
        Step::Mine(5, 1),
        Step::StartBatch(vec![all_logs(around), all_logs(Span::Hash(0))]),
        Step::Rollback(1),
        Step::ReorgBelowFinal { below: 1, length: 14 },
        Step::ReorgBelowFinal { below: 10, length: 1 },
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 1 },
    ];
    run(Setting { forgets: true, ..ORDINARY }, &steps).unwrap();
}

/// In a doubt, the node denies the finalized block while its head is below it. When the answer arrives, the node calls a
/// higher block final, but has not pruned the block.
#[test]
fn late_denial_of_the_finalized_block_does_not_end_a_doubt() {
    let first = LogQuery { span: Span::Numbers { last: 1, before: 0 }, filter: ALL_LOGS };
    let steps = [
        Step::Mine(2, 0),
        Step::Overtake { question: Question::BlockByNumber(Place::Below(0), false), depth: 1, length: 2 },
        Step::ReorgBelowFinal { below: 4, length: 3 },
        Step::RollbackBelowFinal(2),
        Step::Mine(1, 3),
        Step::Overtake { question: Question::Logs(first), depth: 1, length: 1 },
        Step::Mine(3, 0),
        Step::Wait(70_000),
        Step::Again(Again::Same),
    ];
    run(Setting { instant: true, ..ORDINARY }, &steps).unwrap();
}

/// In a doubt, the node denies the block of `latest`. A search at its number would find the logs of another block than that
/// of `latest` on either branch.
#[test]
fn logs_of_a_denied_latest_are_those_of_the_nodes_own_latest() {
    let latest = Span::Tags { from: Place::Latest, to: Place::Latest };
    let steps = [
        Step::Mine(1, 1),
        Step::ReorgBelowFinal { below: 1, length: 7 },
        Step::Mine(2, 1),
        Step::AskOften(Question::TransactionByHash(4517)),
        Step::ReorgBelowFinal { below: 1, length: 6 },
        Step::Ask(all_logs(latest)),
    ];
    run(Setting { forgets: true, ..ORDINARY }, &steps).unwrap();
}

/// The block of `latest` leaves the chain after a call of the batch was answered from it. Another call of the batch then fetches
/// the blocks below its number, which do not link to it.
#[test]
fn logs_of_a_tag_that_does_not_link_are_not_searched_by_number() {
    let query = LogQuery { span: Span::Numbers { last: 0, before: 1 }, filter: ALL_LOGS };
    let filter = LogFilter { address: Pick::Other(3_035), ..ALL_LOGS };
    let steps = [
        Step::Mine(1, 3),
        Step::Restart,
        Step::Mine(58, 0),
        Step::SearchLagging { blocks: 4, lag: 1, query },
        Step::Mine(1, 1),
        Step::Mine(32, 0),
        Step::Send,
        Step::SearchLagging { blocks: 16, lag: 1, query },
        Step::Reorg { depth: 3, length: 2 },
        Step::RepeatTransaction(8_798),
        Step::BatchAcross {
            questions: vec![
                Question::Logs(LogQuery { span: Span::UpTo { before: 2, tag: Place::Latest }, filter }),
                all_logs(Span::Tags { from: Place::Latest, to: Place::Latest }),
            ],
            depth: 2,
            length: 1,
        },
        Step::Mine(4, 3),
        Step::Ask(Question::TransactionAtNumber(Place::Below(1), 0)),
        Step::Shuffle { depth: 3, deal: vec![140] },
        Step::Wait(0),
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// The node lags behind a block that an answer named, and then replaces the head while it is asked whether it has that block.
#[test]
fn latest_of_one_node_is_no_block_that_an_answer_named() {
    let steps = [
        Step::Ask(Question::BlockNumber),
        Step::Mine(1, 1),
        Step::Mine(1, 0),
        Step::Ask(Question::TransactionByHash(0)),
        Step::Lag(2),
        Step::BatchAcross { questions: vec![Question::BlockNumber], depth: 1, length: 3 },
    ];
    run(Setting { development: true, ..ORDINARY }, &steps).unwrap();
}

/// In a doubt, the final block is of the old branch, and the answer for the number above it is of the new one. The small
/// cache has evicted that block, so that only the view knows its parent.
#[test]
fn logs_of_an_evicted_block_are_not_joined_with_another_branch() {
    let up_to = |last, before| LogQuery { span: Span::Numbers { last, before }, filter: ALL_LOGS };
    let head = Question::BlockNumber;
    let around = Span::Around { block: 26_864, before: 1, after: 0 };
    let steps = [
        Step::ReorgBelowFinal { below: 1, length: 1 },
        Step::Mine(52, 0),
        Step::Overtake { question: head, depth: 3, length: 1 },
        Step::Ask(Question::BlockByHash(1_674, false)),
        Step::RollbackBelowFinal(4),
        Step::SearchLagging { blocks: 4, lag: 2, query: up_to(0, 23) },
        Step::Reorg { depth: 2, length: 3 },
        Step::AskOften(Question::Receipt(54_896)),
        Step::Send,
        Step::Ask(all_logs(around)),
        Step::BatchAcross {
            questions: vec![Question::BlockByNumber(Place::Latest, true)],
            depth: 2,
            length: 4,
        },
        Step::Overtake { question: head, depth: 3, length: 1 },
        Step::Mine(2, 0),
        Step::BatchAcross { questions: vec![Question::RawReceipts(Place::Latest)], depth: 1, length: 3 },
        Step::Mine(2, 4),
        Step::LogsOfKnown { query: up_to(5, 4), receipts: true },
        Step::Again(Again::Same),
    ];
    run(Setting { switched: true, ..ORDINARY }, &steps).unwrap();
}

/// The reorg replaces the block at the number while the node is asked for a transaction that the block does not have.
#[test]
fn raw_null_of_a_replaced_block_is_discarded() {
    let latest = || Question::BlockByNumber(Place::Latest, false);
    let steps = [
        Step::Mine(1, 0),
        Step::Batch(vec![all_logs(Span::Around { block: 0, before: 1, after: 0 }), all_logs(Span::Hash(0))]),
        Step::Mine(3, 3),
        Step::Overtake { question: all_logs(Span::Hash(0)), depth: 3, length: 1 },
        Step::Finality(Finality::Trailing),
        Step::BatchAcross { questions: vec![latest(), latest()], depth: 2, length: 1 },
        Step::Mine(1, 0),
        Step::Overtake {
            question: Question::RawTransactionAtNumber(Place::Below(1), 0),
            depth: 1,
            length: 1,
        },
    ];
    run(ORDINARY, &steps).unwrap();
}
