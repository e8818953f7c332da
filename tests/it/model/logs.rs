//! Checks that the model itself tells true logs from lies.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use holdfast::{
    devchain::{Config, Lie, NodeResponse},
    jsonrpc::{Answer, read_answers},
};
use proptest::{collection::vec, prelude::*};
use tokio::runtime;

use super::{
    check::check_programs,
    request,
    step::log_question,
    world::{Call, World},
};

/// Returns the answer of the node itself, with its faults.
async fn told(world: &World, call: &Call) -> Bytes {
    let response = world.chain.serve(request(call, 1).to_string().into()).await;
    let NodeResponse::Reply { body, .. } = response else { panic!("the node did not answer") };
    match read_answers(&body).unwrap().remove(0).answer.unwrap() {
        Answer::Result(text) | Answer::Error(text) => text,
    }
}

/// The node answers with a filter of its own, which the model does not use.
#[test]
fn model_allows_true_logs_and_no_lies() {
    let lie = prop_oneof![
        any::<u64>().prop_map(Lie::MissingLog),
        (any::<u64>(), any::<bool>()).prop_map(|(choice, altered)| Lie::AddedLog { choice, altered }),
        any::<u64>().prop_map(Lie::ShuffledLogs),
        (1u64..4).prop_map(Lie::LaggingLogs),
    ];
    let mut world = World::new(Config::default());
    world.mine(6, 4);
    world.reorg(3, 2);
    world.mine(2, 5);
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let lies = AtomicUsize::new(0);
    let ran = check_programs(400, &vec((log_question(), lie), 1..20), &"logs", |asked| {
        for (question, lie) in asked {
            let call = world.call(*question);
            let state = world.states.last().unwrap();
            let truth = runtime.block_on(told(&world, &call));
            if !world.allows(&call, state, &truth) {
                return Err(format!("{} {truth:?} is true", call.params));
            }
            world.chain.fail(lie.clone()).once();
            let lied = runtime.block_on(told(&world, &call));
            world.chain.clear_faults();
            let is_lie = lied != truth;
            if is_lie && world.allows(&call, state, &lied) {
                return Err(format!("{} {lied:?} is a lie", call.params));
            }
            let by_hash = call.block().is_some();
            if by_hash && (!world.is_true(&call, &truth) || is_lie && world.is_true(&call, &lied)) {
                return Err(format!("{} {truth:?} is true, {lied:?} is a lie", call.params));
            }
            lies.fetch_add(usize::from(is_lie), Relaxed);
        }
        Ok(())
    });
    ran.must_cover("the node lies", 2, lies.load(Relaxed));
}
