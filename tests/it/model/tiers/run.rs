//! Execution of a program with tiers.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::Bytes;
use holdfast::{
    cache::redis::RedisConfig,
    config::Config,
    devchain::{self, DevChain, Fault},
    jsonrpc::{Answer, read_answers},
    upstream::EndpointConfig,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{self, Instant},
};

use super::{
    Happens, STALENESS, Seen, Setting, damage,
    instance::{Instance, PATIENCE},
    judge::Asked,
};
use crate::{
    model::{
        FAILURES, FINAL_MARGIN, request,
        step::{Place, Question, Step},
        world::{Call, World},
    },
    support::{one_node::raw, program::file, redis::Redis},
};

/// Time after a fault during which the proxy may still avoid a node or not know its chain.
const RECOVERY: Duration = Duration::from_secs(12);

pub struct Run<'a> {
    /// One node, or two nodes of one chain.
    pub worlds: Vec<World>,
    config: Config,
    pub instances: Vec<Instance>,
    redis: Option<&'a mut Redis>,
    at: Option<RedisConfig>,
    redis_runs: bool,
    started: Vec<(usize, Asked, JoinHandle<Bytes>)>,
    /// Whether no node answers.
    pub alone: bool,
    /// Whether faults are in force.
    faulty: bool,
    /// Time at which the last fault ended.
    troubled: Option<Instant>,
    pub seen: &'a Seen,
}

// === impl Run ===

impl<'a> Run<'a> {
    pub async fn new(setting: Setting, mut redis: Option<&'a mut Redis>, seen: &'a Seen) -> Self {
        let Setting { nodes, demand } = setting;
        let mut config = Config::default();
        config.verify.level = demand;
        config.chain.max_staleness = STALENESS;
        config.chain.final_margin = FINAL_MARGIN;
        config.chain.lag_patience = 3 * STALENESS;
        // The cache is small, so that the proxy reads the tiers again.
        config.cache.size = bytesize::ByteSize::kib(12);
        // The timeout is short, because these tests run in real time.
        config.upstream.timeout = Duration::from_millis(300);
        config.upstream.endpoints = vec![EndpointConfig::at(""); nodes];
        config.methods.allow.push("debug_setHead".to_owned());
        let node = devchain::Config { chain_id: 7_331_117, keep_calls: 0, ..Default::default() };
        let mut worlds: Vec<_> = (0..nodes).map(|_| World::new(node.clone())).collect();
        worlds.iter_mut().for_each(|world| world.mine(60, 2));
        if let Some(redis) = &mut redis {
            redis.kill();
            redis.start().await;
        }
        let at = redis.as_ref().map(|redis| redis.config());
        let folder = file("here", "");
        let instances = (0..2).map(|which| {
            let directory = folder.with_file_name(format!("data-{which}"));
            Instance::start(&worlds, &config, &directory, at.as_ref())
        });
        let instances = instances.collect();
        Self {
            worlds,
            config,
            instances,
            redis,
            at,
            redis_runs: true,
            started: Vec::new(),
            alone: false,
            faulty: false,
            troubled: None,
            seen,
        }
    }

    pub async fn happens(&mut self, what: &Happens) -> Result<(), String> {
        self.seen.steps.fetch_add(1, Relaxed);
        match what {
            Happens::Step { step, which, node } => self.step(step, *which, *node % self.worlds.len()).await?,
            Happens::AskFinal(question, which) => self.ask(*which, &[*question]).await?,
            Happens::Finalized(which) => {
                for place in [Place::Latest, Place::Finalized] {
                    self.ask(*which, &[Question::BlockByNumber(place, false)]).await?;
                }
            }
            Happens::Restart { which, killed } => self.restart(*which, *killed).await?,
            Happens::RestartAlone { which, meets, asked } => {
                self.restart_alone(*which, *meets, asked).await?;
            }
            Happens::Replace { below, more } => self.replace(*below, *more),
            Happens::SetHead { which, depth } => {
                self.change(|world| world.rollback(*depth));
                self.tell_of_another_head(*which).await;
            }
            Happens::SetHeadBelowFinal { which, below, asked } => {
                self.pause_redis().await;
                for question in asked {
                    self.start(*which, *question).await;
                }
                // Waits until the proxy reads the tiers.
                time::sleep(Duration::from_millis(5)).await;
                self.replace(*below, 0);
                self.tell_of_another_head(*which).await;
                self.join(|by, _| by == *which).await?;
                for question in asked {
                    self.ask(*which, &[*question]).await?;
                }
            }
            Happens::Stranger { which, node, higher, asked } => {
                self.meet_a_stranger(*which, *node % self.worlds.len(), *higher, asked).await?;
            }
            Happens::DamageFile(seed) => {
                damage::damage_file(&self.instances[(*seed % 2) as usize].directory, *seed);
            }
            Happens::DamageValue(seed) => {
                if let Some(redis) = self.redis.as_ref().filter(|_| self.redis_runs) {
                    damage::damage_value(redis, *seed).await;
                }
            }
            Happens::Flush | Happens::KillRedis | Happens::StartRedis => self.happens_to_redis(what).await,
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step, which: usize, node: usize) -> Result<(), String> {
        match step {
            Step::Ask(question) | Step::AskOften(question) => {
                for _ in 0..step.times() {
                    self.ask(which, &[*question]).await?;
                }
            }
            Step::Batch(questions) => self.ask(which, questions).await?,
            Step::Start(question) => self.start(which, *question).await,
            Step::Join => self.join(|_, _| true).await?,
            Step::Send => self.send(which).await,
            // The model with one node covers these steps.
            Step::Restart
            | Step::Overtake { .. }
            | Step::ReorgBelowFinal { .. }
            | Step::RollbackBelowFinal(_)
            | Step::FalsePlace { .. }
            | Step::Again(_)
            | Step::StartAnew
            | Step::LogsOfKnown { .. }
            | Step::SearchLagging { .. }
            | Step::RepeatTransaction(_)
            | Step::StartBatch(_)
            | Step::BatchAcross { .. }
            | Step::SafeAt(_)
            | Step::RefuseWhole { .. } => {}
            Step::Wait(_) => self.worlds[0].undergo(step).await,
            // These steps change one node.
            Step::Lag(_) | Step::Finality(_) => {
                self.worlds[node].undergo(step).await;
                self.share_floor();
            }
            Step::Fail(..) | Step::Slow { .. } => {
                self.worlds[node].undergo(step).await;
                self.be_faulty();
            }
            Step::ClearFaults => self.clear_faults(),
            // These steps change the chain. Blocks are mined one by one, so that calls in flight can see each of
            // them.
            Step::Mine(blocks, transactions) => {
                (0..*blocks).for_each(|_| self.change(|world| world.mine(1, *transactions)));
            }
            Step::Reorg { depth, length } => self.change(|world| world.reorg(*depth, *length)),
            Step::Shuffle { depth, deal } => self.change(|world| world.shuffle(*depth, deal)),
            Step::IncludeDropped => self.change(World::include_dropped),
            Step::Rollback(depth) => self.change(|world| world.rollback(*depth)),
        }
        Ok(())
    }

    // ## Changes

    /// Changes all nodes in the same way, so that they have the same blocks.
    fn change(&mut self, change: impl Fn(&mut World)) {
        self.worlds.iter_mut().for_each(change);
        self.share_floor();
        let head = self.worlds[0].chain.head();
        assert!(self.worlds.iter().all(|world| world.chain.head() == head), "the nodes have the same head");
    }

    /// Applies the highest finalized number of any node to all nodes.
    fn share_floor(&mut self) {
        let floor = self.worlds.iter().map(|world| world.floor).max().unwrap();
        let called_final = self.worlds.iter().map(|world| world.called_final.max(floor)).max().unwrap();
        self.worlds.iter_mut().for_each(|world| (world.floor, world.called_final) = (floor, called_final));
    }

    fn replace(&mut self, below: u64, more: usize) {
        // Ends the lag, so that both nodes have the same finalized block.
        self.change(|world| world.set_lag(0));
        self.change(|world| world.replace(below, more));
        for instance in &mut self.instances {
            instance.replaced = Some(instance.alarms());
        }
        self.seen.replaced.fetch_add(1, Relaxed);
    }

    fn be_faulty(&mut self) {
        self.faulty = true;
        self.instances.iter_mut().for_each(|instance| instance.troubled = true);
    }

    fn clear_faults(&mut self) {
        self.worlds.iter().for_each(|world| world.chain.clear_faults());
        if self.faulty || self.alone {
            self.troubled = Some(Instant::now());
        }
        (self.faulty, self.alone) = (false, false);
    }

    pub fn may_fail(&self) -> bool {
        self.faulty || self.alone || self.troubled.is_some_and(|troubled| troubled.elapsed() < RECOVERY)
    }

    async fn happens_to_redis(&mut self, what: &Happens) {
        let Some(redis) = &mut self.redis else { return };
        match what {
            Happens::StartRedis if !self.redis_runs => {
                redis.start().await;
                self.redis_runs = true;
            }
            Happens::KillRedis if self.redis_runs => {
                redis.kill();
                self.redis_runs = false;
            }
            Happens::Flush if self.redis_runs => redis.raw().await.ask::<()>(&[b"FLUSHALL"]).await,
            _ => {}
        }
    }

    /// Lets Redis answer no client for 25 ms.
    async fn pause_redis(&mut self) {
        if let Some(redis) = self.redis.as_ref().filter(|_| self.redis_runs) {
            redis.raw().await.ask::<()>(&[b"CLIENT", b"PAUSE", b"25"]).await;
        }
    }

    // ## Starts

    async fn restart(&mut self, which: usize, killed: bool) -> Result<(), String> {
        if killed {
            // The calls in flight get no answer.
            self.started.retain(|(by, ..)| *by != which);
        } else {
            self.join(|by, _| by == which).await?;
            let tiers = self.instances[which].program.tiers.clone();
            let _ = time::timeout(PATIENCE, tiers.settle()).await;
        }
        let mut gone = self.instances.remove(which);
        gone.end(self.seen);
        let directory = gone.directory.clone();
        drop(gone);
        let mut instance = Instance::start(&self.worlds, &self.config, &directory, self.at.as_ref());
        instance.troubled = self.faulty;
        self.instances.insert(which, instance);
        self.seen.restarts.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn restart_alone(&mut self, which: usize, meets: bool, asked: &[Question]) -> Result<(), String> {
        self.join(|by, _| by == which).await?;
        if meets {
            self.restart(which, false).await?;
            // After this call the proxy knows the chain id and nothing else about the chain.
            let call = json!([request_for_nothing()]).to_string();
            self.instances[which].send(call).await;
        }
        self.worlds.iter().for_each(|world| world.chain.fail(Fault::Status(503)).any().always());
        self.alone = true;
        if !meets {
            self.restart(which, false).await?;
        }
        for question in asked {
            self.ask(which, &[*question]).await?;
        }
        self.clear_faults();
        self.is_back(which).await;
        self.seen.alone.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Waits until the proxy has noticed that the node answers.
    async fn is_back(&mut self, which: usize) {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": ["latest", false] });
        for _ in 0..1000 {
            let body = self.instances[which].send(call.to_string()).await;
            if serde_json::from_slice::<Value>(&body).is_ok_and(|reply| reply["result"].is_object()) {
                return;
            }
            time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the proxy does not notice that the node answers again");
    }

    /// Replaces a node for a while by one of another chain, whose answers this proxy must refuse. Does nothing before the
    /// proxy knows the right chain.
    async fn meet_a_stranger(
        &mut self,
        which: usize,
        node: usize,
        higher: usize,
        asked: &[Question],
    ) -> Result<(), String> {
        if !self.instances[which].knows(node) {
            return Ok(());
        }
        // A search that begins before the other chain answers may end after it: nothing shows that its logs are wrong.
        self.join(|by, call| by == which && call.asks_for_logs()).await?;
        let mut config = self.worlds[node].chain.config();
        config.seed += 1;
        let stranger = DevChain::new(config);
        let blocks = usize::try_from(self.worlds[node].chain.head().number).unwrap() + higher;
        stranger.mine_many(blocks, 1);
        self.instances[which].addresses[node].stands(Some(stranger));
        self.be_faulty();
        for question in asked {
            self.ask(which, &[*question]).await?;
        }
        self.instances[which].addresses[node].stands(None);
        self.clear_faults();
        if self.worlds.len() == 1 {
            self.is_back(which).await;
        }
        self.seen.strangers.fetch_add(1, Relaxed);
        Ok(())
    }

    // ## Calls

    async fn ask(&mut self, which: usize, questions: &[Question]) -> Result<(), String> {
        let calls: Vec<_> = questions.iter().map(|question| self.worlds[0].call(*question)).collect();
        let body: Vec<_> = calls.iter().zip(0..).map(|(call, id)| request(call, id)).collect();
        let asked: Vec<_> = calls.into_iter().map(|call| self.asked(which, call)).collect();
        let body = self.instances[which].send(json!(body).to_string()).await;
        self.judge_all(which, &asked, &body)
    }

    async fn start(&mut self, which: usize, question: Question) {
        let call = self.worlds[0].call(question);
        let asked = self.asked(which, call);
        let body = json!([request(&asked.call, 0)]).to_string();
        let sending = self.instances[which].begin_to_send(body);
        self.started.push((which, asked, sending));
        self.seen.started.fetch_add(1, Relaxed);
        tokio::task::yield_now().await;
    }

    pub async fn join(&mut self, is_joined: impl Fn(usize, &Call) -> bool) -> Result<(), String> {
        let started = std::mem::take(&mut self.started);
        for (which, asked, sending) in started {
            if is_joined(which, &asked.call) {
                let body = sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
                self.judge_all(which, &[asked], &body)?;
            } else {
                self.started.push((which, asked, sending));
            }
        }
        Ok(())
    }

    /// Sends a transaction. If one node receives it, the other nodes get it, too.
    async fn send(&mut self, which: usize) {
        let made: Vec<_> = self.worlds.iter().map(|world| world.chain.generate(1).remove(0)).collect();
        let transaction = &made[0];
        let is_written = self.write(which, "eth_sendRawTransaction", json!([raw(transaction)])).await;
        let has_it = |world: &World| world.chain.mempool().contains(transaction.tx_hash());
        if self.worlds.iter().any(has_it) {
            for world in &mut self.worlds {
                if !has_it(world) {
                    world.chain.submit(transaction.clone()).unwrap();
                }
                world.note();
            }
        }
        if is_written {
            self.seen.sent.fetch_add(1, Relaxed);
            self.overtake(which);
        }
    }

    /// Sends `debug_setHead` through this proxy. From then on, the proxy must not serve older answers, not even about
    /// finalized blocks.
    async fn tell_of_another_head(&mut self, which: usize) {
        if !self.write(which, "debug_setHead", json!(["0x1"])).await {
            return;
        }
        self.seen.resets.fetch_add(1, Relaxed);
        self.overtake(which);
        let instance = &mut self.instances[which];
        instance.replaced = None;
        instance.reset.clone_from(&instance.written);
    }

    /// Sends a write and returns whether it reached the node, even if the node answered with an error.
    async fn write(&mut self, which: usize, method: &str, params: Value) -> bool {
        let call = json!([{ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }]);
        let body = self.instances[which].send(call.to_string()).await;
        match read_answers(&body).map(|mut answers| answers.remove(0).answer) {
            Ok(Some(Answer::Result(_))) => true,
            Ok(Some(Answer::Error(error))) => {
                let code = serde_json::from_slice::<Value>(&error).unwrap()["code"].as_i64();
                code.is_some_and(|code| !FAILURES.contains(&code))
            }
            answer => panic!("{answer:?}"),
        }
    }

    /// Makes the current states the oldest that later answers may be of, because clients must read their own writes.
    fn overtake(&mut self, which: usize) {
        self.instances[which].written = self.worlds.iter().map(World::last).collect();
    }
}

fn request_for_nothing() -> Value {
    let hash = format!("{:#x}", alloy_primitives::B256::repeat_byte(0xee));
    json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash", "params": [hash, false] })
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for instance in &mut self.instances {
            instance.end(self.seen);
        }
        if let (false, Some(redis)) = (self.redis_runs, &mut self.redis) {
            redis.kill();
        }
    }
}
