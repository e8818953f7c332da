//! Runs the tracker through random events and compares it with the true chain.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    development, ethereum,
    world::{Question, Step, World},
};
use crate::{
    chain::{Lookup, Rules},
    eth::BlockNumber,
};

fn rules() -> impl Strategy<Value = Rules> {
    let chains = select(vec![ethereum(), ethereum(), development()]);
    (chains, select(vec![2, 6, 24, 1024]), any::<bool>(), any::<bool>()).prop_map(
        |(rules, window, consistent, patient)| {
            let lag_patience = if patient { rules.lag_patience } else { Duration::ZERO };
            Rules { window, consistent, lag_patience, ..rules }
        },
    )
}

fn question() -> impl Strategy<Value = Question> {
    let lost = prop_oneof![9 => Just(None), 1 => (1..9_usize).prop_map(Some)];
    let offset = prop_oneof![3 => -8..4_i64, 1 => -100..4_i64];
    prop_oneof![
        10 => (lost, any::<bool>()).prop_map(|(lost, balanced)| Question::Head { lost, balanced }),
        6 => (offset, any::<bool>()).prop_map(|(offset, whole)| Question::Number { offset, whole }),
        1 => Just(Question::Safe),
        2 => prop::bool::weighted(0.1).prop_map(|null| Question::Finalized { null }),
        1 => Just(Question::Confirm),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let few = || prop_oneof![12 => 1..4_usize, 3 => 1..12_usize, 1 => 60..70_usize];
    let up = || prop_oneof![8 => Just(1_u64), 1 => 1..4_u64];
    prop_oneof![
        4 => select(vec![1, 20, 400, 600, 1000, 5000, 16_000]).prop_map(Step::Wait),
        6 => (few(), up()).prop_map(|(count, step)| Step::Mine(count, step)),
        3 => (few(), few(), up()).prop_map(|(depth, length, step)| Step::Reorg { depth, length, step }),
        1 => (1..4_usize).prop_map(Step::Rollback),
        1 => any::<usize>().prop_map(Step::Turn),
        2 => (1..4_usize).prop_map(Step::Lag),
        2 => few().prop_map(Step::LagBehind),
        2 => Just(Step::CatchUp),
        2 => (0..16_usize).prop_map(Step::Finalize),
        5 => question().prop_map(Step::Ask),
        6 => any::<usize>().prop_map(Step::Advance),
        4 => any::<usize>().prop_map(Step::Finish),
        16 => question().prop_map(Step::Told),
        2 => any::<usize>().prop_map(Step::Fetched),
        1 => Just(Step::Write),
        2 => Just(Step::Arrive),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn tracker_agrees_with_the_model(
        rules in rules(),
        length in 0..120_usize,
        steps in vec(step(), 1..80),
    ) {
        let mut world = World::new(rules, length);
        for step in &steps {
            world.step(step)?;
        }
        world.check_everything()?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A tracker that forgets everything would pass the test above, but not this one.
    #[test]
    fn growing_chain_is_served_from_the_first_head_on(
        growth in vec((0..=65_usize, any::<bool>()), 1..12),
        length in 0..40_usize,
    ) {
        let mut world = World::new(ethereum(), length);
        let refresh = Step::Told(Question::Head { lost: None, balanced: false });
        world.step(&refresh)?;
        let first = length as u64;
        for (count, side) in growth {
            world.step(&Step::Mine(count, 1))?;
            world.step(&Step::Wait(12_000))?;
            world.step(&refresh)?;
            // A reorg of one block does not lose the blocks below it.
            if side && count > 0 {
                world.step(&Step::Reorg { depth: 1, length: 1, step: 1 })?;
                world.step(&refresh)?;
            }
            let arrival = world.model.moment();
            let head = world.model.number(world.model.head());
            for number in first..=head {
                let hash = world.model.at(number).unwrap().hash();
                prop_assert_eq!(
                    world.tracker.lookup(BlockNumber(number), arrival),
                    Lookup::Tracked { hash, fresh: true }
                );
            }
            let above = world.tracker.lookup(BlockNumber(head + 1), arrival);
            prop_assert_eq!(above, Lookup::Above { fresh: true });
        }
    }
}
