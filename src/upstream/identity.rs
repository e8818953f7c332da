//! Which chain an endpoint serves, and whether it still does.
//!
//! Chain id and genesis are read at first contact and pinned, by the first endpoint that says them; every
//! other endpoint must say the same. Whenever contact was lost they are read again before anything else
//! is asked: what comes back after a restart may be another node. Once known, nothing is asked until a
//! call needs it.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use serde::Deserialize;
use tokio::{
    sync::{Notify, watch},
    time,
};
use tracing::{error, info, warn};

use super::{Call, UpstreamError};
use crate::{
    eth::BlockHash,
    jsonrpc::{Answer, Params},
};

/// Between attempts while an endpoint cannot be reached: soon at first, then not too often.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// The same, while another endpoint of the chain is known: providers bill also for this.
const SPARE_PAUSE: Duration = Duration::from_secs(60);

/// A call that wants an answer may hurry an attempt, but not more often than this.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// Chains that are started anew at will: another genesis there is no stranger.
const DEVELOPMENT: [u64; 2] = [31337, 1337];

/// Is this a chain that is started anew at will?
pub fn is_development(chain_id: u64) -> bool {
    DEVELOPMENT.contains(&chain_id)
}

/// Who the upstream says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhoIs {
    /// The chain.
    pub chain_id: u64,
    /// The hash of block 0, where the node has it.
    pub genesis: Option<BlockHash>,
    /// The node's own answers, served on its behalf.
    chain_id_answer: Bytes,
    net_version_answer: Option<Bytes>,
}

/// An upstream of another chain. It is never used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// Another chain id than configured, or than before.
    #[error("the upstream serves chain {got}, not {expected}")]
    ChainId {
        /// The chain it should serve.
        expected: u64,
        /// The chain it serves.
        got: u64,
    },
    /// The same chain id over another history.
    #[error("the upstream's genesis block is {got}, not {expected}")]
    Genesis {
        /// The genesis known before.
        expected: BlockHash,
        /// The one it shows now.
        got: BlockHash,
    },
}

/// What is known of an endpoint, or of all of them together.
#[derive(Clone, Debug)]
pub enum IdentityState {
    /// Nothing yet; the reason is that of the last attempt.
    Unknown(Option<UpstreamError>),
    /// It is who it should be.
    Known(Arc<WhoIs>),
    /// It is not.
    Stranger(Stranger),
}

/// Why nobody can be asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IdentityError {
    /// It is not who it should be.
    #[error(transparent)]
    Stranger(Stranger),
    /// It does not say who it is.
    #[error(transparent)]
    Upstream(UpstreamError),
}

/// What all endpoints must agree on.
#[derive(Debug)]
pub(super) struct Pin {
    expected: Option<u64>,
    /// Who said it, by its name, and what.
    pinned: Mutex<Option<(Arc<str>, Arc<WhoIs>)>>,
}

#[derive(Clone, Debug)]
struct Progress {
    attempts: u64,
    state: IdentityState,
    /// Contact was lost since the last attempt began.
    doubted: bool,
    /// How often it was.
    doubts: u64,
    /// How often it had been when the last attempt began.
    begun: u64,
    /// It is no longer one of the endpoints: nobody asks it any more.
    retired: bool,
}

/// What is known of one endpoint.
#[derive(Debug)]
pub(super) struct Recognition {
    name: Arc<str>,
    pin: Arc<Pin>,
    progress: watch::Sender<Progress>,
    wanted: Notify,
}

// === impl Pin ===

impl Pin {
    /// Nothing is pinned yet; with `expected`, only that chain will do.
    pub(super) fn new(expected: Option<u64>) -> Self {
        Self { expected, pinned: Mutex::default() }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub(super) fn pinned(&self) -> Option<Arc<WhoIs>> {
        self.lock().as_ref().map(|(_, who)| who.clone())
    }

    /// Is this who all must be? The first one that is asked decides.
    fn judge(&self, name: &Arc<str>, who: WhoIs) -> Result<Arc<WhoIs>, Stranger> {
        let mut pinned = self.lock();
        let expected = self.expected.or(pinned.as_ref().map(|(_, pinned)| pinned.chain_id));
        if let Some(expected) = expected.filter(|expected| *expected != who.chain_id) {
            return Err(Stranger::ChainId { expected, got: who.chain_id });
        }
        let Some((by, before)) = pinned.as_ref() else {
            let who = Arc::new(who);
            *pinned = Some((name.clone(), who.clone()));
            return Ok(who);
        };
        // A development chain is started anew at will; two at a time are two chains all the same.
        let may_change = is_development(who.chain_id) && by == name;
        if let (Some(expected), Some(got)) = (before.genesis, who.genesis)
            && expected != got
            && !may_change
        {
            return Err(Stranger::Genesis { expected, got });
        }
        let who = who.completed(Some(before));
        let who = if who == **before { before.clone() } else { Arc::new(who) };
        let by = by.clone();
        *pinned = Some((by, who.clone()));
        Ok(who)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Arc<str>, Arc<WhoIs>)>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Recognition ===

impl Recognition {
    pub(super) fn new(name: Arc<str>, pin: Arc<Pin>) -> Self {
        let state = IdentityState::Unknown(None);
        let progress = Progress { attempts: 0, state, doubted: false, doubts: 0, begun: 0, retired: false };
        Self { name, pin, progress: watch::Sender::new(progress), wanted: Notify::new() }
    }

    /// What is known now.
    pub(super) fn state(&self) -> IdentityState {
        self.progress.borrow().state.clone()
    }

    /// Is it who it should be, and nothing has happened since that speaks against it?
    pub(super) fn is_sure(&self) -> bool {
        let progress = self.progress.borrow();
        matches!(progress.state, IdentityState::Known(_)) && !progress.doubted
    }

    /// Resolves once it is known to be who it should be.
    pub(super) async fn known(&self) {
        let known = |progress: &Progress| matches!(progress.state, IdentityState::Known(_));
        let _ = self.progress.subscribe().wait_for(known).await;
    }

    /// Contact was lost: who answers next must say who it is.
    pub(super) fn doubt(&self) {
        self.progress.send_if_modified(|progress| {
            progress.doubted = true;
            progress.doubts += 1;
            false
        });
    }

    /// It is no longer one of the endpoints: whoever waits for it waits in vain, and is told so.
    pub(super) fn retire(&self) {
        self.progress.send_modify(|progress| progress.retired = true);
    }

    /// Asks soon, if it must be asked.
    pub(super) fn hurry(&self) {
        self.wanted.notify_one();
    }

    /// Makes sure of it: at once if it is known, else by the next attempt.
    pub(super) async fn confirm(&self) -> Result<Arc<WhoIs>, IdentityError> {
        let mut progress = self.progress.subscribe();
        let (attempts, doubts) = {
            let now = progress.borrow_and_update();
            match &now.state {
                IdentityState::Known(who) if !now.doubted => return Ok(who.clone()),
                _ => (now.attempts, now.doubts),
            }
        };
        // Kept for the next attempt, if one is under way.
        self.wanted.notify_one();
        // One that had begun before the doubt does not settle it.
        let settled = |progress: &Progress| {
            progress.retired || (progress.attempts > attempts && progress.begun >= doubts)
        };
        let next = progress.wait_for(settled).await.map(|progress| progress.clone());
        if next.as_ref().is_ok_and(|next| next.retired) {
            return Err(IdentityError::Upstream(UpstreamError::Empty));
        }
        match next.map(|next| next.state) {
            Ok(IdentityState::Known(who)) => Ok(who),
            Ok(IdentityState::Stranger(stranger)) => Err(IdentityError::Stranger(stranger)),
            Ok(IdentityState::Unknown(error)) => {
                Err(IdentityError::Upstream(error.unwrap_or(UpstreamError::Empty)))
            }
            Err(_) => Err(IdentityError::Upstream(UpstreamError::Busy)),
        }
    }

    /// Asks who it is until it says so, and again whenever it is wanted after a doubt.
    pub(super) async fn watch<F>(&self, ask: impl Fn(Call) -> F)
    where
        F: Future<Output = Result<Answer, UpstreamError>>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            let doubts = self.progress.borrow().doubts;
            self.conclude(who_is(&ask).await, doubts);
            let sure = matches!(self.progress.borrow().state, IdentityState::Known(_));
            if sure {
                pause = FIRST_PAUSE;
                // Free when idle: only a call that finds it doubted wakes this.
                self.wanted.notified().await;
            } else {
                time::sleep(LEAST_PAUSE).await;
                let _ = time::timeout(pause, self.wanted.notified()).await;
                // Where another endpoint is known, nobody waits for this one.
                let last = if self.pin.pinned().is_some() { SPARE_PAUSE } else { LAST_PAUSE };
                pause = (pause * 2).min(last);
            }
        }
    }

    fn conclude(&self, answered: Result<WhoIs, UpstreamError>, doubts: u64) {
        self.progress.send_modify(|progress| {
            let state = match answered {
                Ok(who) => match self.pin.judge(&self.name, who) {
                    Ok(who) => IdentityState::Known(who),
                    Err(stranger) => IdentityState::Stranger(stranger),
                },
                Err(error) => IdentityState::Unknown(Some(error)),
            };
            say(&self.name, &progress.state, &state, progress.attempts);
            progress.attempts += 1;
            progress.begun = doubts;
            // A doubt that came while this was being asked is not answered by it.
            progress.doubted = progress.doubts != doubts;
            progress.state = state;
        });
    }
}

/// One line for each change an operator must know of, none for what goes on as it was.
fn say(upstream: &str, before: &IdentityState, now: &IdentityState, attempts: u64) {
    match (before, now) {
        (IdentityState::Known(before), IdentityState::Known(now)) if before == now => {}
        (_, IdentityState::Known(who)) => {
            let genesis = who.genesis.map(|genesis| genesis.to_string());
            info!(upstream, chain_id = who.chain_id, genesis, "upstream identified");
        }
        (IdentityState::Stranger(before), IdentityState::Stranger(now)) if before == now => {}
        (_, IdentityState::Stranger(stranger)) => error!(upstream, "{stranger}: it is not used"),
        (IdentityState::Unknown(_), IdentityState::Unknown(_)) if attempts > 0 => {}
        (_, IdentityState::Unknown(Some(error))) => {
            warn!(%error, upstream, "the upstream does not say who it is; trying on");
        }
        (_, IdentityState::Unknown(None)) => {}
    }
}

/// Asks for chain id, network id and genesis.
async fn who_is<F>(ask: &impl Fn(Call) -> F) -> Result<WhoIs, UpstreamError>
where
    F: Future<Output = Result<Answer, UpstreamError>>,
{
    let ask = |method: &'static str, params: &'static str| ask(Call::new(method, Params::from_own(params)));
    let (chain_id, net_version, genesis) = tokio::join!(
        ask("eth_chainId", "[]"),
        ask("net_version", "[]"),
        ask("eth_getBlockByNumber", r#"["0x0",false]"#),
    );
    let chain_id_answer = match chain_id? {
        Answer::Result(answer) => answer,
        // A node that is still starting says so with an error, and so does one that wants another key.
        Answer::Error(error) => return Err(UpstreamError::node_error(&error)),
    };
    let chain_id = serde_json::from_slice::<String>(&chain_id_answer)
        .ok()
        .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
        .ok_or(UpstreamError::Empty)?;
    let net_version_answer = match net_version? {
        Answer::Result(answer) => Some(answer),
        Answer::Error(_) => None,
    };
    let genesis = match genesis? {
        Answer::Result(block) => block_hash(&block),
        Answer::Error(_) => None,
    };
    Ok(WhoIs { chain_id, genesis, chain_id_answer, net_version_answer })
}

fn block_hash(block: &[u8]) -> Option<BlockHash> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: String,
    }
    serde_json::from_slice::<Option<Hashed>>(block).ok()??.hash.parse().ok()
}

// === impl WhoIs ===

impl WhoIs {
    /// With what was known before, where this time it was not said: a node that is busy, or that has
    /// pruned its first block, does not change the chain by it.
    fn completed(self, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.chain_id == self.chain_id);
        Self {
            genesis: self.genesis.or(before.and_then(|before| before.genesis)),
            net_version_answer: self
                .net_version_answer
                .or_else(|| before.and_then(|before| before.net_version_answer.clone())),
            ..self
        }
    }

    /// Is this the same chain?
    pub fn is_same_chain(&self, other: &Self) -> bool {
        let same_genesis = match (self.genesis, other.genesis) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        self.chain_id == other.chain_id && same_genesis
    }

    /// The node's own answer to `method`, if it is one that cannot change.
    pub fn answer(&self, method: &str) -> Option<Bytes> {
        match method {
            "eth_chainId" => Some(self.chain_id_answer.clone()),
            "net_version" => self.net_version_answer.clone(),
            _ => None,
        }
    }
}
