//! More proofs than the proof threads have time for.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, SyncSender},
    },
    time::Duration,
};

use holdfast::{
    config::Config,
    devchain::DevChain,
    eth::{Part, Query, Tag},
    jsonrpc::Answer,
    verify::{Check, OnMismatch, Verifier},
    workers::Limits,
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::support::{
    client::PATIENCE,
    doubles::KnownBlocks,
    eventually,
    in_memory::{self, InMemory},
    method::{BLOCK_BY_HASH, RECEIPTS},
    nodes::hash,
    upstream,
};

/// One proof thread, and room for one proof in its queue.
const TINY: Limits = Limits { threads: 1, waiting: 1, bytes: 1 << 20 };

/// A blocked proof thread.
struct Held {
    release: SyncSender<()>,
    done: JoinHandle<()>,
}

/// The program, its node, and the verifier between them.
struct World {
    chain: DevChain,
    program: InMemory,
    verifier: Verifier,
}

// === impl Held ===

impl Held {
    async fn release(self) {
        self.release.send(()).unwrap();
        self.done.await.unwrap();
    }
}

// === impl World ===

impl World {
    async fn new(on_mismatch: OnMismatch, limits: Limits, change: impl FnOnce(&mut Config)) -> Self {
        let chain = upstream::devchain().config(|config| config.chain_id = 1).blocks(20, 5).chain();
        let mut config = Config::default();
        config.verify.on_mismatch = on_mismatch;
        change(&mut config);
        let mut made = None;
        let program = in_memory::program_verified_by(&chain, &config, |metrics| {
            made.insert(Verifier::with_limits(config.verify.clone(), metrics, limits)).clone()
        });
        // From here on the program knows the chain and its head.
        program.ask(BLOCK_BY_HASH, json!([hash(&chain, 1), true])).await;
        Self { chain, program, verifier: made.unwrap() }
    }

    /// Starts a proof that ends only when it is released.
    async fn hold(&self) -> Held {
        let (begins, begun) = oneshot::channel();
        let (release, released) = mpsc::sync_channel(1);
        let (begins, released) = (Mutex::new(Some(begins)), Mutex::new(released));
        // Blocks the proof thread that looks up a known block.
        let holds = KnownBlocks(move |_| {
            if let Some(begins) = begins.lock().unwrap().take() {
                begins.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            None
        });
        let check = Check::new(self.verifier.clone(), Query::new(Part::Block, Tag::Latest), Arc::new(holds));
        let block = self.chain.block_json(self.chain.head().hash, true).unwrap();
        let done = tokio::spawn(async move {
            check.examine(&"node".into(), &Answer::Result(block)).await.unwrap();
        });
        begun.await.unwrap();
        Held { release, done }
    }

    /// Sends a call without waiting for its answer.
    fn begin(&self, method: &'static str, params: Value) -> JoinHandle<(u16, Value)> {
        let program = self.program.clone();
        tokio::spawn(async move { program.call(method, params).await })
    }

    /// Waits until `count` checks wait for a proof thread.
    async fn waiting(&self, count: u64) {
        eventually("checks that wait", async || self.program.metric("checks_waiting") == count).await;
    }

    fn asked(&self, method: &str) -> usize {
        self.chain.calls().iter().filter(|call| call.method == method).count()
    }

    fn overdue(&self, reason: &str) -> u64 {
        self.program.metric(&format!(r#"checks_overdue_total{{reason="{reason}"}}"#))
    }
}

#[tokio::test]
async fn full_queue_passes_answers_on_without_storing_them() {
    let patience = |config: &mut Config| config.verify.patience = PATIENCE;
    let world = World::new(OnMismatch::Pass, TINY, patience).await;
    let World { chain, program, .. } = &world;
    let held = world.hold().await;
    let first = world.begin(BLOCK_BY_HASH, json!([hash(chain, 2), true]));
    world.waiting(1).await;
    for (method, params) in
        [(BLOCK_BY_HASH, json!([hash(chain, 3), true])), (RECEIPTS, json!([hash(chain, 4)]))]
    {
        let truth: Value = serde_json::from_slice(&chain.answer(method, &params).unwrap()).unwrap();
        for _ in 0..2 {
            let (status, answer) = program.cached(method, params.clone()).await;
            assert_eq!((status.as_str(), &answer), ("holdfast; fwd=miss", &truth));
        }
    }
    assert_eq!((world.overdue("queue_full"), world.overdue("queue_wait")), (4, 0));
    held.release().await;
    assert_eq!(first.await.unwrap().1["result"]["hash"], hash(chain, 2));
    // No check has failed, so the answers are stored once a proof thread is free.
    let (status, _) = program.cached(BLOCK_BY_HASH, json!([hash(chain, 3), false])).await;
    assert_eq!(status, "holdfast; fwd=miss; stored");
    let (status, _) = program.cached(BLOCK_BY_HASH, json!([hash(chain, 3), true])).await;
    assert!(status.starts_with("holdfast; hit"), "{status}");
}

#[tokio::test]
async fn long_wait_in_the_queue_passes_the_answer_on() {
    // Long enough for the proofs before the queue is full, also on a busy machine.
    let patience = |config: &mut Config| config.verify.patience = Duration::from_millis(500);
    let world = World::new(OnMismatch::Pass, TINY, patience).await;
    let held = world.hold().await;
    let (status, block) = world.program.cached(BLOCK_BY_HASH, json!([hash(&world.chain, 2), true])).await;
    assert_eq!((status.as_str(), &block["number"]), ("holdfast; fwd=miss", &json!("0x2")));
    assert_eq!(world.overdue("queue_wait"), 1);
    world.waiting(0).await;
    held.release().await;
}

#[tokio::test]
async fn rejecting_calls_wait_for_proofs_until_their_deadline() {
    let timeout = |config: &mut Config| config.call_timeout = Duration::from_secs(2);
    let world = World::new(OnMismatch::Reject, TINY, timeout).await;
    let World { chain, program, .. } = &world;
    let held = world.hold().await;
    // The first call is in the queue, the second waits for a place in it, and the third shares the fetch of the second.
    let calls = [2, 3, 3].map(|number| world.begin(BLOCK_BY_HASH, json!([hash(chain, number), true])));
    for call in calls {
        let (status, reply) = call.await.unwrap();
        assert_eq!((status, &reply["error"]["code"]), (504, &json!(-32011)), "{reply}");
    }
    assert_eq!(
        world.overdue("queue_full") + world.overdue("queue_wait"),
        0,
        "no answer may be passed on unproved"
    );
    let asked = world.asked(BLOCK_BY_HASH);
    held.release().await;
    // The answers of the failed calls had arrived from the node. The proxy stores them once they are proved.
    world.waiting(0).await;
    for number in [2, 3] {
        let block = program.ask(BLOCK_BY_HASH, json!([hash(chain, number), true])).await;
        assert_eq!(block["hash"], hash(chain, number));
    }
    assert_eq!(world.asked(BLOCK_BY_HASH), asked);
}
