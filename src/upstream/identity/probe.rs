//! Checks the chain identity of one endpoint, and decides when.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};
use tracing::{error, info, warn};

use super::{
    super::{Call, EndpointId, UpstreamError, WrongChain, transport::Secrets},
    ChainIdentity, PinnedChain,
    chain_identity::fetch_identity,
    genesis,
};
use crate::{backoff::Backoff, eth::chain_name, jsonrpc::Answer};

/// Pauses between attempts while an endpoint is unreachable: short at first, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Maximum pause while another endpoint already serves the chain. It is longer than [`MAX_PAUSE`], because providers
/// bill these calls, too.
const MAX_SPARE_PAUSE: Duration = Duration::from_secs(60);

/// Longest wait at first contact for the endpoints earlier in the configured order, which take precedence in pinning
/// the chain. A node that is up reports its identity much sooner; a node that hangs must not keep later endpoints from
/// serving.
const PRECEDENCE_WAIT: Duration = Duration::from_secs(1);

/// Minimum interval between probes for recovery. Readiness checks trigger probes: they should notice soon that an
/// endpoint is back, but must not become a load.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum pause between attempts, even if calls wait for the next one.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// State of the chain identity of one endpoint, or of all endpoints together.
#[derive(Clone, Debug)]
pub enum IdentityState {
    /// Unknown, with the error of the last attempt.
    Unknown(Option<UpstreamError>),
    /// The endpoint serves the right chain.
    Known(Arc<ChainIdentity>),
    /// The endpoint serves another chain.
    WrongChain(WrongChain),
}

/// The reason why the chain identity is not confirmed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IdentityError {
    /// The endpoint serves another chain.
    #[error(transparent)]
    WrongChain(WrongChain),
    /// The endpoint does not report its identity.
    #[error(transparent)]
    Upstream(UpstreamError),
}

// === impl UpstreamError ===

impl From<IdentityError> for UpstreamError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::WrongChain(wrong_chain) => Self::WrongChain(wrong_chain),
            IdentityError::Upstream(error) => error,
        }
    }
}

#[derive(Clone, Debug)]
struct ProbeProgress {
    attempts: u64,
    state: IdentityState,
    /// Whether a recheck was required since the last attempt began, for example after a lost connection.
    needs_recheck: bool,
    /// Number of rechecks required so far.
    rechecks: u64,
    /// Value of `rechecks` when the last attempt began.
    rechecks_at_start: u64,
    /// Whether the endpoint has served the right chain since it last served a wrong one, so that its answers were
    /// accepted.
    was_known: bool,
    /// Whether a reload has removed the endpoint, so that no further calls go to it.
    retired: bool,
}

/// The chain identity of one endpoint, and its checks.
#[derive(Debug)]
pub(in crate::upstream) struct IdentityProbe {
    id: EndpointId,
    name: Arc<str>,
    secrets: Secrets,
    pinned_chain: Arc<PinnedChain>,
    progress: RwLock<ProbeProgress>,
    /// Wakes the callers that wait for progress, in the order in which they came. A `watch` channel would wake them in
    /// random order.
    progressed: Notify,
    wake: Notify,
    /// Whether a check is requested to see if the endpoint answers, even if its identity is confirmed.
    is_probe_requested: AtomicBool,
    /// Time when [`probe`](Self::probe) last requested a check.
    last_probe: Mutex<Option<Instant>>,
}

// === impl ProbeProgress ===

impl ProbeProgress {
    /// Returns the identity, if the endpoint serves the right chain and needs no recheck.
    fn confirmed(&self) -> Option<&Arc<ChainIdentity>> {
        match &self.state {
            IdentityState::Known(identity) if !self.needs_recheck => Some(identity),
            _ => None,
        }
    }
}

// === impl IdentityProbe ===

impl IdentityProbe {
    pub(in crate::upstream) fn new(
        id: EndpointId,
        name: Arc<str>,
        secrets: Secrets,
        pinned_chain: Arc<PinnedChain>,
    ) -> Self {
        let state = IdentityState::Unknown(None);
        let progress = ProbeProgress {
            attempts: 0,
            state,
            needs_recheck: false,
            rechecks: 0,
            rechecks_at_start: 0,
            was_known: false,
            retired: false,
        };
        Self {
            id,
            name,
            secrets,
            pinned_chain,
            progress: RwLock::new(progress),
            progressed: Notify::new(),
            wake: Notify::new(),
            is_probe_requested: AtomicBool::new(false),
            last_probe: Mutex::default(),
        }
    }

    /// Returns the current state.
    pub(in crate::upstream) fn state(&self) -> IdentityState {
        self.progress.read().state.clone()
    }

    /// Returns whether the endpoint serves the right chain and needs no recheck.
    pub(in crate::upstream) fn is_confirmed(&self) -> bool {
        self.progress.read().confirmed().is_some()
    }

    /// Returns whether the endpoint serves another chain.
    pub(in crate::upstream) fn is_wrong_chain(&self) -> bool {
        matches!(self.progress.read().state, IdentityState::WrongChain(_))
    }

    /// Returns whether the endpoint served the right chain, but needs a recheck.
    pub(in crate::upstream) fn needs_recheck(&self) -> bool {
        let progress = self.progress.read();
        matches!(progress.state, IdentityState::Known(_)) && progress.needs_recheck
    }

    /// Resolves after the first attempt, whether or not it succeeded.
    async fn wait_attempted(&self) {
        self.wait_for(|progress| progress.attempts > 0).await;
    }

    /// Resolves once the endpoint is known to serve the right chain.
    pub(in crate::upstream) async fn wait_known(&self) {
        let known = |progress: &ProbeProgress| matches!(progress.state, IdentityState::Known(_));
        self.wait_for(known).await;
    }

    /// Returns the progress as soon as `condition` holds.
    async fn wait_for(&self, condition: impl Fn(&ProbeProgress) -> bool) -> ProbeProgress {
        loop {
            // Before the check, so that no change between the check and the wait is lost.
            let progressed = self.progressed.notified();
            if let Some(progress) = Some(self.progress.read()).filter(|progress| condition(progress)) {
                return progress.clone();
            }
            progressed.await;
        }
    }

    /// Changes the progress, and wakes the callers that wait for it.
    fn update(&self, change: impl FnOnce(&mut ProbeProgress)) {
        change(&mut self.progress.write());
        self.progressed.notify_waiters();
    }

    /// Requires a check before the next call, for example after a lost connection.
    pub(in crate::upstream) fn require_recheck(&self) {
        let mut progress = self.progress.write();
        progress.needs_recheck = true;
        progress.rechecks += 1;
    }

    /// Marks the endpoint as removed: callers that wait for its identity get an error.
    pub(in crate::upstream) fn retire(&self) {
        self.update(|progress| progress.retired = true);
    }

    /// Wakes the task that checks the identity. It sends a check only if the identity is not confirmed.
    pub(in crate::upstream) fn recheck_now(&self) {
        self.wake.notify_one();
    }

    /// Requests a check to see whether the endpoint answers, even if its identity is confirmed. Does not wait for the
    /// answer. A failed check leaves a confirmed identity as it is. Does nothing if the last probe was less than
    /// `PROBE_INTERVAL` ago.
    pub(in crate::upstream) fn probe(&self) {
        let now = Instant::now();
        let mut last = self.last_probe.lock();
        if last.is_some_and(|last| now < last + PROBE_INTERVAL) {
            return;
        }
        *last = Some(now);
        self.is_probe_requested.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Returns the confirmed identity: at once if it needs no check, otherwise after the next attempt.
    pub(in crate::upstream) async fn confirm(&self) -> Result<Arc<ChainIdentity>, IdentityError> {
        let (attempts, rechecks) = {
            let now = self.progress.read();
            match now.confirmed() {
                Some(identity) => return Ok(identity.clone()),
                None => (now.attempts, now.rechecks),
            }
        };
        // If an attempt is in progress, the notification starts another one after it.
        self.wake.notify_one();
        // An attempt that began before the recheck was required is not sufficient.
        let settled = |progress: &ProbeProgress| {
            progress.retired || (progress.attempts > attempts && progress.rechecks_at_start >= rechecks)
        };
        let next = self.wait_for(settled).await;
        if next.retired {
            return Err(IdentityError::Upstream(UpstreamError::Empty));
        }
        match next.state {
            IdentityState::Known(identity) => Ok(identity),
            IdentityState::WrongChain(wrong_chain) => Err(IdentityError::WrongChain(wrong_chain)),
            IdentityState::Unknown(error) => {
                Err(IdentityError::Upstream(error.unwrap_or(UpstreamError::Empty)))
            }
        }
    }

    /// Checks the identity until it is known, and again whenever a call needs it after a recheck was required. The
    /// endpoints `before` this one in order take precedence in pinning the chain. `is_alone` says whether this is the only
    /// endpoint.
    pub(in crate::upstream) async fn watch<F>(
        &self,
        before: Vec<&Self>,
        is_alone: bool,
        ask: impl Fn(Call) -> F,
    ) where
        F: Future<Output = Result<Answer, UpstreamError>>,
    {
        let is_open = |chain: &ChainIdentity| chain.is_unknown() || chain.genesis.is_none();
        if !is_alone && matches!(self.state(), IdentityState::Known(chain) if is_open(&chain)) {
            // A reload has added an endpoint beside one whose id or genesis is unknown.
            self.require_recheck();
        }
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_SPARE_PAUSE);
        let mut known = self.is_confirmed();
        loop {
            if known {
                backoff.reset();
                // Costs nothing when idle: only a probe, or a call that needs a recheck, wakes this task.
                self.wake.notified().await;
                if !self.is_probe_requested.swap(false, Relaxed) && self.is_confirmed() {
                    continue;
                }
            }
            let rechecks = self.progress.read().rechecks;
            let name = |identity| self.pinned_chain.name(identity, is_alone);
            let identity = fetch_identity(&ask, &self.secrets, name).await;
            if !self.pinned_chain.is_complete() {
                let before = before.iter().map(|before| before.wait_attempted());
                let _ = time::timeout(PRECEDENCE_WAIT, join_all(before)).await;
            }
            self.record(identity, rechecks);
            known = matches!(self.progress.read().state, IdentityState::Known(_));
            if !known {
                time::sleep(MIN_PAUSE).await;
                // If another endpoint serves the chain, no client waits for this one.
                let longest = if self.pinned_chain.pinned().is_some() { MAX_SPARE_PAUSE } else { MAX_PAUSE };
                let pause = backoff.next_pause().min(longest);
                let _ = time::timeout(pause, self.wake.notified()).await;
            }
        }
    }

    /// Records the result of an attempt. When it began, `rechecks` rechecks had been required.
    fn record(&self, answered: Result<ChainIdentity, UpstreamError>, rechecks: u64) {
        // `check` locks the pinned chain, so it must not run under the lock of `progress`; see
        // [`PinnedChain::retain`].
        let state = match answered {
            Ok(identity) => match self.pinned_chain.check(self.id, identity) {
                Ok(identity) => IdentityState::Known(identity),
                Err(wrong_chain) => IdentityState::WrongChain(wrong_chain),
            },
            // This was a probe of a confirmed endpoint: that it failed does not change the endpoint's identity.
            Err(_) if self.is_confirmed() => return,
            Err(error) => IdentityState::Unknown(Some(error)),
        };
        let ProbeProgress { state: before, was_known, .. } = self.progress.read().clone();
        if was_known && matches!(state, IdentityState::WrongChain(_)) {
            // First bars the endpoint, so that no later refresh accepts its head. Then `notify_wrong_chain` makes the
            // view forget which blocks are canonical. Only then does `update` wake the calls that wait for the
            // identity, so that they do not find data that the endpoint supplied.
            self.progress.write().state = state.clone();
            self.pinned_chain.notify_wrong_chain();
        }
        self.update(|progress| {
            match state {
                IdentityState::Known(_) => progress.was_known = true,
                IdentityState::WrongChain(_) => progress.was_known = false,
                IdentityState::Unknown(_) => {}
            }
            log_change(&self.name, &before, &state, progress.attempts);
            progress.attempts += 1;
            progress.rechecks_at_start = rechecks;
            // A recheck required during this attempt is still due.
            progress.needs_recheck = progress.rechecks != rechecks;
            progress.state = state;
        });
    }
}

/// Logs each change that an operator must know of, and nothing while the state stays the same.
fn log_change(endpoint: &str, before: &IdentityState, now: &IdentityState, attempts: u64) {
    match (before, now) {
        (IdentityState::Known(before), IdentityState::Known(now)) if before == now => {}
        (_, IdentityState::Known(identity)) if identity.is_unknown() => warn!(
            endpoint,
            "the upstream has neither eth_chainId nor net_version: caching with structural checks and in memory only; \
             name the chain with --chain-id"
        ),
        (_, IdentityState::Known(identity)) => {
            let chain = chain_name(identity.chain_id);
            info!(endpoint, chain, chain_id = identity.chain_id, "upstream identified");
            if let Some(name) =
                identity.genesis.and_then(|first| genesis::impersonated(identity.chain_id, first))
            {
                warn!(
                    endpoint,
                    chain_id = identity.chain_id,
                    "the upstream has the chain id of {name}, but another genesis block: it serves another chain, or \
                     misreports its chain; using it anyway. Give a development chain the id 31337 or 1337"
                );
            }
        }
        (IdentityState::WrongChain(before), IdentityState::WrongChain(now)) if before == now => {}
        (_, IdentityState::WrongChain(wrong_chain)) => error!(endpoint, "{wrong_chain}; not using it"),
        (IdentityState::Unknown(_), IdentityState::Unknown(_)) if attempts > 0 => {}
        (_, IdentityState::Unknown(Some(error))) => {
            warn!(%error, endpoint, "cannot read the chain identity of the upstream; retrying");
        }
        (_, IdentityState::Unknown(None)) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use bytes::Bytes;

    use super::*;

    fn identity() -> ChainIdentity {
        ChainIdentity {
            chain_id: 1,
            genesis: None,
            chain_id_answer: Some(Bytes::from_static(b"\"0x1\"")),
            net_version_answer: None,
        }
    }

    #[test]
    fn recording_an_identity_and_a_reload_do_not_deadlock() {
        const TIMES: usize = 50_000;
        let pinned_chain = Arc::new(PinnedChain::new(None));
        let one = Arc::new(IdentityProbe::new(
            EndpointId::next(),
            "one".into(),
            Secrets::default(),
            pinned_chain.clone(),
        ));
        let (done, both) = mpsc::sync_channel(2);
        let (saying, said) = (one.clone(), done.clone());
        thread::spawn(move || {
            (0..TIMES).for_each(|_| saying.record(Ok(identity()), 0));
            said.send(()).unwrap();
        });
        thread::spawn(move || {
            let agrees = || matches!(one.state(), IdentityState::Known(_)).then_some(one.id);
            (0..TIMES).for_each(|_| pinned_chain.retain(|_| false, agrees));
            done.send(()).unwrap();
        });
        for _ in 0..2 {
            both.recv_timeout(Duration::from_secs(30)).expect("deadlock");
        }
    }

    #[test]
    fn wrong_chain_is_barred_before_canonicity_is_forgotten() {
        let pin = Arc::new(PinnedChain::new(None));
        let one =
            Arc::new(IdentityProbe::new(EndpointId::next(), "one".into(), Secrets::default(), pin.clone()));
        one.record(Ok(identity()), 0);
        let (found, forgets) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&one));
        let finds = found.clone();
        pin.on_wrong_chain(move || {
            let one = forgets.upgrade().unwrap();
            let attempts = one.progress.read().attempts;
            finds.lock().push((one.is_wrong_chain(), attempts));
        });
        one.record(Ok(ChainIdentity { chain_id: 2, ..identity() }), 0);
        // Calls that wait for the second attempt are woken only after the notification.
        assert_eq!(*found.lock(), [(true, 1)]);
        assert_eq!(one.progress.read().attempts, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_probe_keeps_the_identity_and_is_repeated() {
        let pinned_chain = Arc::new(PinnedChain::new(None));
        let one =
            Arc::new(IdentityProbe::new(EndpointId::next(), "one".into(), Secrets::default(), pinned_chain));
        one.record(Ok(identity()), 0);
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (watched, counted) = (one.clone(), asked.clone());
        tokio::spawn(async move {
            let ask = |call: Call| {
                counted.fetch_add(usize::from(call.method.as_str() == "eth_getBlockByNumber"), Relaxed);
                std::future::ready(Err(UpstreamError::Busy))
            };
            watched.watch(Vec::new(), true, ask).await;
        });
        for times in 1..4 {
            one.probe();
            time::sleep(Duration::from_secs(1)).await;
            assert_eq!(asked.load(Relaxed), times);
            assert!(one.is_confirmed());
        }
        one.recheck_now();
        time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked.load(Relaxed), 3, "the identity is confirmed");
    }
}
