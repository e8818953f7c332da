//! Programs that are stopped, killed and started again over a directory, and share a Redis: in real time, for both are real.
//!
//! What is called final is even replaced at times, which must not happen. A program that runs may then tell what it took to be
//! final until it has given the alarm, and one that has no node may. One that has been started since must not.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use holdfast::{
    budget::{ByteBudget, FairBytes},
    cache::{
        Disk, DiskConfig, Tiers,
        redis::{Redis as RedisTier, RedisConfig},
        tier::Tier,
    },
    config::Config,
    devchain::{self, DevChain, Fault},
    jsonrpc::{Answer, read_answers},
    upstream::EndpointConfig,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    time::{self, Instant},
};

use super::{
    FAILURES, check_programs, request, shorten,
    step::{Finality, Place, Question, Step, question, step},
    world::{Call, World},
};
use crate::support::{
    in_memory::{self, InMemory},
    program::file,
    redis::{Redis, redis},
};

const STALENESS: Duration = Duration::from_millis(40);

/// How long a tier is waited for: so long that none is skipped for the sake of a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
enum Happens {
    Step(Step, usize),
    /// Something that is likely to be final.
    AskFinal(Question, usize),
    /// What is final is asked for, and so becomes known.
    Finalized(usize),
    /// Stopped in order, or killed, and started again.
    Restart {
        which: usize,
        killed: bool,
    },
    /// Started while there is no node, and asked; then the node comes back.
    RestartAlone {
        which: usize,
        asked: Vec<Question>,
    },
    Flush,
    KillRedis,
    StartRedis,
    DamageFile(u64),
    DamageValue(u64),
    /// What was final is replaced.
    Replace {
        below: u64,
        more: usize,
    },
}

/// What was seen in all programs.
#[derive(Debug, Default)]
struct Seen {
    steps: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64,
    restarts: AtomicU64,
    alone: AtomicU64,
    replaced: AtomicU64,
    alarms: AtomicU64,
    disk: AtomicU64,
    redis: AtomicU64,
}

/// One of those who share.
struct Node {
    program: InMemory,
    /// All that it does; it ends with this.
    runtime: Option<Runtime>,
    directory: PathBuf,
    /// What was final was replaced since it was started, when it had given so many alarms.
    replaced: Option<u64>,
}

struct Run<'a> {
    world: World,
    config: Config,
    nodes: Vec<Node>,
    redis: Option<&'a mut Redis>,
    at: Option<RedisConfig>,
    redis_runs: bool,
    seen: &'a Seen,
}

fn final_question() -> impl Strategy<Value = Question> {
    let place = (16i8..28).prop_map(Place::Below);
    prop_oneof![
        3 => (place.clone(), any::<bool>()).prop_map(|(place, full)| Question::BlockByNumber(place, full)),
        2 => place.clone().prop_map(Question::BlockReceipts),
        1 => (place, 0u8..3).prop_map(|(place, index)| Question::TransactionAtNumber(place, index)),
        2 => any::<u16>().prop_map(|choice| Question::TransactionByHash(choice | 1)),
        2 => any::<u16>().prop_map(|choice| Question::Receipt(choice | 1)),
    ]
}

fn happens() -> impl Strategy<Value = Happens> {
    // Nothing that takes more time than it is worth, and nobody who is somebody else.
    let step = step().prop_filter("too slow", |step| {
        let slow = matches!(step, Step::Wait(millis) if *millis > 300);
        let other =
            matches!(step, Step::Fail(..) | Step::Slow { .. } | Step::Lag(_) | Step::Start(_) | Step::Join);
        let finality = matches!(step, Step::Finality(Finality::Null | Finality::Error));
        !slow && !other && !finality && !matches!(step, Step::Send | Step::Restart | Step::Rollback(_))
    });
    let which = 0usize..2;
    prop_oneof![
        30 => (step, which.clone()).prop_map(|(step, which)| Happens::Step(step, which)),
        60 => (final_question(), which.clone()).prop_map(|(question, which)| Happens::AskFinal(question, which)),
        6 => which.clone().prop_map(Happens::Finalized),
        5 => (which.clone(), any::<bool>()).prop_map(|(which, killed)| Happens::Restart { which, killed }),
        2 => (which, proptest::collection::vec(prop_oneof![question(), final_question()], 1..6))
            .prop_map(|(which, asked)| Happens::RestartAlone { which, asked }),
        1 => Just(Happens::Flush),
        1 => Just(Happens::KillRedis),
        2 => Just(Happens::StartRedis),
        1 => any::<u64>().prop_map(Happens::DamageFile),
        2 => any::<u64>().prop_map(Happens::DamageValue),
        1 => (1u64..30, 0usize..40).prop_map(|(below, more)| Happens::Replace { below, more }),
    ]
}

// === impl Node ===

impl Node {
    fn start(chain: &DevChain, config: &Config, directory: &Path, redis: Option<&RedisConfig>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let endpoint = in_memory::endpoint(chain, "devchain", EndpointConfig::at(""));
        let open = |metrics| {
            let mut tiers: Vec<(Arc<dyn Tier>, Duration)> = Vec::new();
            // One has nothing but the Redis, where there is one.
            if redis.is_none() || !directory.ends_with("data-1") {
                tiers.push((Arc::new(disk(directory)), PATIENCE));
            }
            if let Some(redis) = redis {
                tiers.push((Arc::new(RedisTier::try_new(redis).unwrap()), PATIENCE));
            }
            Tiers::new(tiers, FairBytes::new(ByteBudget::new(1 << 30)), metrics)
        };
        let program = {
            let _within = runtime.enter();
            in_memory::program_with(vec![endpoint], config, open)
        };
        Self { program, runtime: Some(runtime), directory: directory.to_owned(), replaced: None }
    }

    async fn send(&self, body: String) -> Bytes {
        let program = self.program.clone();
        let sending = self.runtime.as_ref().unwrap().spawn(async move { program.send(body).await.1 });
        sending.await.unwrap()
    }

    fn alarms(&self) -> u64 {
        self.program.metric("finality_alarms_total")
    }

    /// Ends it, whatever it does.
    fn end(&mut self, seen: &Seen) {
        let hits = |tier| self.program.metric(&format!(r#"tier_reads_total{{tier="{tier}",outcome="hit"}}"#));
        seen.disk.fetch_add(hits("disk"), Relaxed);
        seen.redis.fetch_add(hits("redis"), Relaxed);
        seen.alarms.fetch_add(self.alarms(), Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens it once the one before has let go of it.
fn disk(directory: &Path) -> Disk {
    let begun = Instant::now();
    loop {
        match Disk::open(&DiskConfig::new(directory)) {
            Ok(disk) => return disk,
            Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    async fn new(mut redis: Option<&'a mut Redis>, seen: &'a Seen) -> Self {
        let mut config = Config::default();
        config.chain.max_staleness = STALENESS;
        // Much of what was asked for is asked for again.
        config.cache.size = bytesize::ByteSize::kib(12);
        let mut world =
            World::new(devchain::Config { chain_id: 7_331_117, keep_calls: 0, ..Default::default() });
        world.mine(60, 2);
        if let Some(redis) = &mut redis {
            redis.kill();
            redis.start().await;
        }
        let at = redis.as_ref().map(|redis| redis.config());
        let folder = file("here", "");
        let nodes = (0..2).map(|which| {
            let directory = folder.with_file_name(format!("data-{which}"));
            Node::start(&world.chain, &config, &directory, at.as_ref())
        });
        let nodes = nodes.collect();
        Self { world, config, nodes, redis, at, redis_runs: true, seen }
    }

    async fn happens(&mut self, what: &Happens) -> Result<(), String> {
        self.seen.steps.fetch_add(1, Relaxed);
        match what {
            Happens::Step(Step::Ask(question) | Step::AskOften(question), which) => {
                self.ask(*which, &[*question], false).await?;
            }
            Happens::Step(Step::Batch(questions), which) => self.ask(*which, questions, false).await?,
            Happens::Step(change, _) => self.world.undergo(change).await,
            Happens::AskFinal(question, which) => self.ask(*which, &[*question], false).await?,
            Happens::Finalized(which) => {
                for place in [Place::Latest, Place::Finalized] {
                    self.ask(*which, &[Question::BlockByNumber(place, false)], false).await?;
                }
            }
            Happens::Restart { which, killed } => self.restart(*which, *killed).await,
            Happens::RestartAlone { which, asked } => {
                self.world.chain.fail(Fault::Status(503)).any().always();
                self.restart(*which, false).await;
                for question in asked {
                    self.ask(*which, &[*question], true).await?;
                }
                self.world.chain.clear_faults();
                self.is_back(*which).await;
                self.seen.alone.fetch_add(1, Relaxed);
            }
            Happens::Replace { below, more } => {
                self.world.replace(*below, *more);
                for node in &mut self.nodes {
                    node.replaced = Some(node.alarms());
                }
                self.seen.replaced.fetch_add(1, Relaxed);
            }
            Happens::DamageFile(seed) => damage(&self.nodes[(*seed % 2) as usize].directory, *seed),
            redis => self.happens_to_redis(redis).await,
        }
        Ok(())
    }

    async fn happens_to_redis(&mut self, what: &Happens) {
        let Some(redis) = &mut self.redis else { return };
        match what {
            Happens::StartRedis if !self.redis_runs => {
                redis.start().await;
                self.redis_runs = true;
            }
            _ if !self.redis_runs => {}
            Happens::KillRedis => {
                redis.kill();
                self.redis_runs = false;
            }
            Happens::Flush => redis.raw().await.ask::<()>(&[b"FLUSHALL"]).await,
            Happens::DamageValue(seed) => {
                let mut raw = redis.raw().await;
                let mut random = fastrand::Rng::with_seed(*seed);
                let keys = raw.keys().await;
                if keys.is_empty() {
                    return;
                }
                let key = &keys[random.usize(..keys.len())];
                let mut value: Vec<u8> = raw.ask(&[b"GETRANGE", key, b"0", b"-1"]).await;
                if random.bool() {
                    raw.ask::<()>(&[b"DEL", key]).await;
                } else if !value.is_empty() {
                    let at = random.usize(..value.len());
                    value[at] ^= 1 << random.u8(..8);
                    raw.ask::<()>(&[b"SET", key, &value]).await;
                }
            }
            _ => {}
        }
    }

    async fn restart(&mut self, which: usize, killed: bool) {
        let node = &mut self.nodes[which];
        if !killed {
            let tiers = node.program.tiers.clone();
            let _ = time::timeout(PATIENCE, tiers.settle()).await;
        }
        node.end(self.seen);
        let directory = node.directory.clone();
        self.seen.restarts.fetch_add(1, Relaxed);
        let gone = self.nodes.remove(which);
        drop(gone);
        let node = Node::start(&self.world.chain, &self.config, &directory, self.at.as_ref());
        self.nodes.insert(which, node);
    }

    /// Waits until it has seen that the node is there.
    async fn is_back(&mut self, which: usize) {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": ["latest", false] });
        for _ in 0..400 {
            let body = self.nodes[which].send(call.to_string()).await;
            if serde_json::from_slice::<Value>(&body).is_ok_and(|reply| reply["result"].is_object()) {
                return;
            }
            time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the node is not seen again");
    }

    async fn ask(&mut self, which: usize, questions: &[Question], alone: bool) -> Result<(), String> {
        let node = &mut self.nodes[which];
        if node.replaced.is_some_and(|alarms| node.alarms() > alarms) {
            node.replaced = None;
        }
        let believes = node.replaced.is_some() || alone;
        let calls: Vec<_> = questions.iter().map(|question| self.world.call(*question)).collect();
        let body: Vec<_> = calls.iter().zip(0..).map(|(call, id)| request(call, id)).collect();
        let arrived = Instant::now();
        let body = self.nodes[which].send(json!(body).to_string()).await;
        let answers = read_answers(&body).map_err(|error| error.to_string())?;
        for (call, answer) in calls.iter().zip(answers) {
            let answer = answer.answer.ok_or("neither result nor error")?;
            self.judge(call, arrived, &answer, believes).map_err(|error| format!("{which}: {error}"))?;
        }
        Ok(())
    }

    fn judge(&self, call: &Call, arrived: Instant, answer: &Answer, believes: bool) -> Result<(), String> {
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                if value["code"].as_i64().is_some_and(|code| FAILURES.contains(&code)) {
                    self.seen.errors.fetch_add(1, Relaxed);
                    return Ok(());
                }
                error
            }
        };
        self.seen.answers.fetch_add(1, Relaxed);
        let states = &self.world.states;
        let earliest = arrived.checked_sub(STALENESS).unwrap_or(arrived);
        let from = states.iter().rposition(|state| state.since < earliest).unwrap_or(0);
        let from = if believes { 0 } else { from };
        let allows =
            |state| self.world.allows(call, state, result) || self.world.allows_as_head(call, state, result);
        if states[from..].iter().any(allows) {
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\nwhich no state of {from}..{} allows; now the head is {:?}",
            call.method,
            call.params,
            shorten(result),
            states.len(),
            self.world.chain.head(),
        ))
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.end(self.seen);
        }
        if let (false, Some(redis)) = (self.redis_runs, &mut self.redis) {
            redis.kill();
        }
    }
}

/// Turns a bit of a random file.
fn damage(directory: &Path, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.file_name().is_some_and(|name| name != "lock"));
    files.sort();
    if files.is_empty() {
        return;
    }
    let path = &files[random.usize(..files.len())];
    let Ok(mut bytes) = fs::read(path) else { return };
    if !bytes.is_empty() {
        let at = random.usize(..bytes.len());
        bytes[at] ^= 1 << random.u8(..8);
        let _ = fs::write(path, bytes);
    }
}

#[test]
fn every_answer_is_allowed_over_tiers_and_restarts() {
    let seen = Seen::default();
    let server = redis("every_answer_is_allowed_over_tiers_and_restarts");
    let has_redis = server.is_some();
    let server = std::sync::Mutex::new(server);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    check_programs(20, &proptest::collection::vec(happens(), 40..120), &"tiers", |steps| {
        let mut server = server.lock().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(server.as_mut(), &seen).await;
            for (position, step) in steps.iter().enumerate() {
                let happened = run.happens(step).await;
                happened
                    .map_err(|error| format!("step {position} ({step:?}): {error}"))
                    // To shrink it takes long.
                    .inspect_err(|error| println!("{error}"))?;
            }
            Ok(())
        })
    });
    println!("{:?}: {seen:?}", begun.elapsed());
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    assert!(count(&seen.disk) > 20, "the disk is not asked any more");
    assert!(count(&seen.redis) > 20 || !has_redis, "Redis is not asked any more");
    assert!(count(&seen.errors) < count(&seen.answers) / 5, "too much is not answered");
}
