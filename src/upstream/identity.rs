//! Which chain an endpoint serves, and whether it still does.
//!
//! Chain id and genesis are read at first contact and pinned, by the first in order that says them; every
//! other endpoint must say the same. Those that come later in order wait for the ones before, but not for long: one
//! that is down does not keep the others from serving, and what they say is pinned then. A genesis that the first
//! does not say, since it has pruned it, is that of the next that does. Whenever contact was lost they are read again
//! before anything else is asked: what comes back after a restart may be another node. Once known, nothing is asked
//! until a call needs it.
//!
//! What is pinned stays pinned while the program runs, whoever is taken away: what is in memory is of that chain. Only
//! on development chains, where all that is in memory is forgotten with the chain, may the one that pinned it start
//! another; if all that agreed with it are gone, whoever comes in their place may.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::{
    sync::{Notify, watch},
    time::{self, Instant},
};
use tracing::{error, info, warn};

use super::{Call, UpstreamError, endpoint::EndpointId, genesis, limited, redact::Secrets};
use crate::{
    eth::BlockHash,
    jsonrpc::{Answer, Params},
};

/// Between attempts while an endpoint cannot be reached: soon at first, then not too often.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// The same, while another endpoint of the chain is known: providers bill also for this.
const SPARE_PAUSE: Duration = Duration::from_secs(60);

/// How long those that come before in order are waited for at first contact. A node that is up has said who it is
/// long before, wherever it is; one that hangs must not keep the others from serving.
const PRECEDENCE: Duration = Duration::from_secs(1);

/// Whoever wants to know whether an endpoint is back may have it asked so often: a page that watches readiness is to
/// learn it soon, and must not become a load.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

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
    pinned: Mutex<Option<Pinned>>,
}

#[derive(Clone, Debug)]
struct Pinned {
    /// Who said it. `None` if it is gone, and all that agreed with it.
    by: Option<EndpointId>,
    who: Arc<WhoIs>,
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
    id: EndpointId,
    name: Arc<str>,
    secrets: Secrets,
    pin: Arc<Pin>,
    progress: watch::Sender<Progress>,
    wanted: Notify,
    /// Somebody wants to know whether it answers, though nothing speaks against who it is.
    probed: AtomicBool,
    /// When somebody last did.
    last_probe: Mutex<Option<Instant>>,
}

// === impl Pin ===

impl Pin {
    /// Nothing is pinned yet; with `expected`, only that chain will do.
    pub(super) fn new(expected: Option<u64>) -> Self {
        Self { expected, pinned: Mutex::default() }
    }

    /// The chain as last known, though nobody may be in reach now.
    pub(super) fn pinned(&self) -> Option<Arc<WhoIs>> {
        self.lock().as_ref().map(|pinned| pinned.who.clone())
    }

    /// Is there nothing left to pin?
    fn is_settled(&self) -> bool {
        self.lock().as_ref().is_some_and(|pinned| pinned.by.is_some() && pinned.who.genesis.is_some())
    }

    /// Some endpoints are gone. Another that has said the same takes the place of the one that pinned it.
    /// Who that is must be found without the lock: what an endpoint has said stands behind one of its own, under which
    /// others come here.
    pub(super) fn retain(
        &self,
        is_there: impl Fn(EndpointId) -> bool,
        agrees: impl FnOnce() -> Option<EndpointId>,
    ) {
        let agrees = agrees();
        if let Some(pinned) = &mut *self.lock()
            && !pinned.by.is_some_and(is_there)
        {
            pinned.by = agrees;
        }
    }

    /// Is this who all must be? The first one that is asked decides.
    fn judge(&self, id: EndpointId, who: WhoIs) -> Result<Arc<WhoIs>, Stranger> {
        let mut pinned = self.lock();
        if let Some(expected) = self.expected.filter(|expected| *expected != who.chain_id) {
            return Err(Stranger::ChainId { expected, got: who.chain_id });
        }
        let Some(Pinned { by, who: before }) = pinned.clone() else {
            let who = Arc::new(who);
            *pinned = Some(Pinned { by: Some(id), who: who.clone() });
            return Ok(who);
        };
        // A development chain is started anew at will; two at a time are two chains all the same.
        let are_development = is_development(who.chain_id) && is_development(before.chain_id);
        let may_change = are_development && by.is_none_or(|by| by == id);
        let is_orphaned = are_development && by.is_none();
        if before.chain_id != who.chain_id && !is_orphaned {
            return Err(Stranger::ChainId { expected: before.chain_id, got: who.chain_id });
        }
        if let (Some(expected), Some(got)) = (before.genesis, who.genesis)
            && expected != got
            && !may_change
        {
            return Err(Stranger::Genesis { expected, got });
        }
        let who = who.completed(Some(&before));
        let who = if who == *before { before } else { Arc::new(who) };
        *pinned = Some(Pinned { by: by.or(Some(id)), who: who.clone() });
        Ok(who)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Pinned>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Recognition ===

impl Recognition {
    pub(super) fn new(id: EndpointId, name: Arc<str>, secrets: Secrets, pin: Arc<Pin>) -> Self {
        let state = IdentityState::Unknown(None);
        let progress = Progress { attempts: 0, state, doubted: false, doubts: 0, begun: 0, retired: false };
        Self {
            id,
            name,
            secrets,
            pin,
            progress: watch::Sender::new(progress),
            wanted: Notify::new(),
            probed: AtomicBool::new(false),
            last_probe: Mutex::default(),
        }
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

    /// Was it who it should be, until something happened that speaks against it?
    pub(super) fn is_doubted(&self) -> bool {
        let progress = self.progress.borrow();
        matches!(progress.state, IdentityState::Known(_)) && progress.doubted
    }

    /// Resolves once it was asked, whatever came of it.
    async fn attempted(&self) {
        let _ = self.progress.subscribe().wait_for(|progress| progress.attempts > 0).await;
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

    /// Asks soon, whatever is known of it, and lets nobody wait for that: one that still does not answer stays who it
    /// was. Does nothing if that was wanted just now.
    pub(super) fn probe(&self) {
        let now = Instant::now();
        let mut last = self.last_probe.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now < last + PROBE_PAUSE) {
            return;
        }
        *last = Some(now);
        self.probed.store(true, Relaxed);
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

    /// Asks who it is until it says so, and again whenever it is wanted after a doubt. Those `before` it in order
    /// come first in saying which chain this is.
    pub(super) async fn watch<F>(&self, before: Vec<&Self>, ask: impl Fn(Call) -> F)
    where
        F: Future<Output = Result<Answer, UpstreamError>>,
    {
        let mut pause = FIRST_PAUSE;
        let mut known = self.is_sure();
        loop {
            if known {
                pause = FIRST_PAUSE;
                // Free when idle: only a call that finds it doubted wakes this.
                self.wanted.notified().await;
                if !self.probed.swap(false, Relaxed) && self.is_sure() {
                    continue;
                }
            }
            let doubts = self.progress.borrow().doubts;
            let who = who_is(&ask, &self.secrets).await;
            if !self.pin.is_settled() {
                let before = before.iter().map(|before| before.attempted());
                let _ = time::timeout(PRECEDENCE, join_all(before)).await;
            }
            self.conclude(who, doubts);
            known = matches!(self.progress.borrow().state, IdentityState::Known(_));
            if !known {
                time::sleep(LEAST_PAUSE).await;
                let _ = time::timeout(pause, self.wanted.notified()).await;
                // Where another endpoint is known, nobody waits for this one.
                let last = if self.pin.pinned().is_some() { SPARE_PAUSE } else { LAST_PAUSE };
                pause = (pause * 2).min(last);
            }
        }
    }

    fn conclude(&self, answered: Result<WhoIs, UpstreamError>, doubts: u64) {
        // Before the progress is changed, and not under its lock; see [`Pin::retain`].
        let state = match answered {
            Ok(who) => match self.pin.judge(self.id, who) {
                Ok(who) => IdentityState::Known(who),
                Err(stranger) => IdentityState::Stranger(stranger),
            },
            // It was only to be seen whether it answers: it does not, and is no other for that.
            Err(_) if self.is_sure() => return,
            Err(error) => IdentityState::Unknown(Some(error)),
        };
        self.progress.send_modify(|progress| {
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
            let first = who.genesis.map(|genesis| genesis.to_string());
            info!(upstream, chain_id = who.chain_id, genesis = first, "upstream identified");
            if let Some(name) = who.genesis.and_then(|first| genesis::impersonated(who.chain_id, first)) {
                warn!(
                    upstream,
                    chain_id = who.chain_id,
                    "the chain id is that of {name}, and block 0 is not: this is another chain, or the upstream is not \
                     what it says; it is taken at its word. A development chain should have the id 31337 or 1337"
                );
            }
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
async fn who_is<F>(ask: &impl Fn(Call) -> F, secrets: &Secrets) -> Result<WhoIs, UpstreamError>
where
    F: Future<Output = Result<Answer, UpstreamError>>,
{
    let ask = |method: &'static str, params: &'static str| ask(Call::new(method, Params::from_own(params)));
    let (chain_id, net_version, genesis) = tokio::join!(
        ask("eth_chainId", "[]"),
        ask("net_version", "[]"),
        ask("eth_getBlockByNumber", r#"["0x0",false]"#),
    );
    let chain_id_answer = match chain_id.or_else(UpstreamError::into_answer)? {
        Answer::Result(answer) => answer,
        // A node that is still starting says so with an error, and so does one that wants another key.
        Answer::Error(error) => return Err(UpstreamError::node_error(&error)),
    };
    let chain_id = serde_json::from_slice::<String>(&chain_id_answer)
        .ok()
        .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
        .ok_or_else(|| {
            UpstreamError::malformed(
                "eth_chainId",
                "a quantity such as \"0x1\"",
                &secrets.redact(&chain_id_answer),
            )
        })?;
    let net_version_answer = match net_version.or_else(UpstreamError::into_answer)? {
        Answer::Result(answer) => Some(answer),
        Answer::Error(_) => None,
    };
    // Whoever has none to show says so; whoever cannot tell just now is asked again, and not taken at half a word.
    let genesis = match genesis {
        Ok(Answer::Result(block)) if block == "null" => None,
        Ok(Answer::Result(block)) => Some(block_hash(&block).ok_or_else(|| {
            UpstreamError::malformed("eth_getBlockByNumber", "a block with its hash", &secrets.redact(&block))
        })?),
        Ok(Answer::Error(error)) | Err(UpstreamError::Refused { error, .. })
            if limited::is_absence(&error) =>
        {
            None
        }
        Ok(Answer::Error(error)) => return Err(UpstreamError::node_error(&error)),
        Err(error) => return Err(error),
    };
    Ok(WhoIs { chain_id, genesis, chain_id_answer, net_version_answer })
}

fn block_hash(block: &[u8]) -> Option<BlockHash> {
    #[derive(Deserialize)]
    struct Hashed {
        hash: String,
    }
    serde_json::from_slice::<Hashed>(block).ok()?.hash.parse().ok()
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

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    fn who() -> WhoIs {
        WhoIs {
            chain_id: 1,
            genesis: None,
            chain_id_answer: Bytes::from_static(b"\"0x1\""),
            net_version_answer: None,
        }
    }

    #[test]
    fn those_who_say_who_they_are_and_those_who_change_the_list_do_not_wait_for_each_other() {
        const TIMES: usize = 50_000;
        let pin = Arc::new(Pin::new(None));
        let one =
            Arc::new(Recognition::new(EndpointId::next(), "one".into(), Secrets::default(), pin.clone()));
        let (done, both) = mpsc::sync_channel(2);
        let (saying, said) = (one.clone(), done.clone());
        thread::spawn(move || {
            (0..TIMES).for_each(|_| saying.conclude(Ok(who()), 0));
            said.send(()).unwrap();
        });
        thread::spawn(move || {
            let agrees = || matches!(one.state(), IdentityState::Known(_)).then_some(one.id);
            (0..TIMES).for_each(|_| pin.retain(|_| false, agrees));
            done.send(()).unwrap();
        });
        for _ in 0..2 {
            both.recv_timeout(Duration::from_secs(30)).expect("they hold each other up");
        }
    }

    #[tokio::test]
    async fn only_a_definite_answer_means_that_there_is_no_first_block_to_show() {
        let says = |block: Result<Answer, UpstreamError>| async move {
            let ask = |call: Call| {
                let answer = match call.method.as_str() {
                    "eth_getBlockByNumber" => block.clone(),
                    _ => Ok(Answer::Result(Bytes::from_static(b"\"0x1\""))),
                };
                std::future::ready(answer)
            };
            who_is(&ask, &Secrets::default()).await.map(|who| who.genesis)
        };
        let error = |code, message| Bytes::from(format!(r#"{{"code":{code},"message":"{message}"}}"#));
        let refused = |status, error| {
            Err(UpstreamError::Refused { status: http::StatusCode::from_u16(status).unwrap(), error })
        };
        for none in [
            Ok(Answer::Result(Bytes::from_static(b"null"))),
            Ok(Answer::Error(error(4444, "pruned history unavailable"))),
            Ok(Answer::Error(error(-32601, "the method does not exist"))),
            Ok(Answer::Error(error(-32602, "block number out of range"))),
            Ok(Answer::Error(error(-32000, "header not found"))),
            Ok(Answer::Error(error(-32001, "resource not found"))),
            Ok(Answer::Error(error(-32000, "unknown block"))),
            refused(403, error(-32000, "archive data is not available on this plan")),
        ] {
            assert!(matches!(says(none.clone()).await, Ok(None)), "{none:?}");
        }
        for unclear in [
            Ok(Answer::Error(error(-32005, "daily request count exceeded, request rate limited"))),
            Ok(Answer::Error(error(-32000, "rate limit exceeded: block not found"))),
            Ok(Answer::Error(error(-32603, "internal error"))),
            Ok(Answer::Error(error(-32000, "request timed out"))),
            Ok(Answer::Result(Bytes::from_static(b"{}"))),
            refused(500, error(-32603, "internal error")),
            refused(401, error(-32600, "Must be authenticated!")),
            Err(UpstreamError::Status(http::StatusCode::BAD_GATEWAY)),
        ] {
            assert!(says(unclear.clone()).await.is_err(), "{unclear:?}");
        }
    }

    #[tokio::test]
    async fn what_is_shown_of_a_malformed_answer_holds_no_key() {
        let url = "http://node.test/v3/SECRET-PATH".parse().unwrap();
        let secrets = Secrets::of(&url, &http::HeaderMap::new());
        let ask =
            |_| std::future::ready(Ok(Answer::Result(Bytes::from_static(b"\"no access for SECRET-PATH\""))));
        let error = who_is(&ask, &secrets).await.unwrap_err().to_string();
        assert!(error.ends_with(r#": "no access for …""#), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_probed_in_vain_stays_who_it_was_and_is_asked_each_time() {
        let pin = Arc::new(Pin::new(None));
        let one = Arc::new(Recognition::new(EndpointId::next(), "one".into(), Secrets::default(), pin));
        one.conclude(Ok(who()), 0);
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (watched, counted) = (one.clone(), asked.clone());
        tokio::spawn(async move {
            let ask = |call: Call| {
                counted.fetch_add(usize::from(call.method.as_str() == "eth_chainId"), Relaxed);
                std::future::ready(Err(UpstreamError::Busy))
            };
            watched.watch(Vec::new(), ask).await;
        });
        for times in 1..4 {
            one.probe();
            time::sleep(Duration::from_secs(1)).await;
            assert_eq!(asked.load(Relaxed), times);
            assert!(one.is_sure());
        }
        one.hurry();
        time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked.load(Relaxed), 3, "it is known who it is");
    }
}
