//! Which node it is, what it is reached with, and whether it may be asked now.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tower::load::{CompleteOnResponse, Load, PeakEwma};

use super::{
    super::{
        EndpointConfig, Leaf, Need, Reach, UpstreamError,
        identity::{IdentityState, Pin, Recognition},
        metrics::EndpointMetrics,
        stack::Manner,
        transport::{Contact, Secrets},
    },
    Cost, Eligible, Health,
    health::Condition,
};
use crate::{eth::BlockNumber, seldom::Seldom};

/// What an endpoint that was never asked is taken to need. Less than a slow one, so that it gets a try.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// How long a slow answer weighs.
const DECAY: Duration = Duration::from_secs(10);

/// What an answer that cannot be right costs in the choice, in answers that did not come.
pub(super) const DISTRUST: u32 = 2;

/// How long a failure counts in the choice: what is never asked again never shows that it has recovered.
const GRUDGE: Duration = Duration::from_secs(5);

/// Which endpoint it is, for as long as the program runs: names may be given to another, places may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(u64);

/// One node.
#[derive(Debug)]
pub(in crate::upstream) struct Endpoint {
    pub(super) id: EndpointId,
    pub(super) name: Arc<str>,
    /// What it is reached with. `None` where that cannot be told, and it is the same as no other.
    reach: Option<Reach>,
    priority: AtomicU32,
    weight: AtomicU32,
    /// How its leaf was made.
    manner: Mutex<Manner>,
    pub(super) leaf: Mutex<PeakEwma<Leaf>>,
    pub(super) condition: Mutex<Condition>,
    pub(super) contact: Arc<Contact>,
    /// Who it is. `None` where nobody cares.
    pub(super) recognition: Option<Recognition>,
    pub(super) metrics: EndpointMetrics,
    pub(super) said: Seldom,
}

/// How an endpoint does, for those who look.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Which it is.
    pub id: EndpointId,
    /// Its name: its URL without what is secret in it.
    pub name: Arc<str>,
    /// Its place in the order.
    pub priority: u32,
    /// Who it is; `None` where nobody cares.
    pub identity: Option<IdentityState>,
    /// Whether it is asked.
    pub health: Health,
    /// The highest block that it has shown.
    pub head: Option<BlockNumber>,
    /// Why it last failed, if it has not answered since.
    pub last_error: Option<UpstreamError>,
    /// What was wrong with the last answer of its that could not be right.
    pub last_mismatch: Option<String>,
    /// How long it wants to be left alone for its rate.
    pub paused: Option<Duration>,
}

/// How an endpoint does, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It is asked.
    Ok,
    /// It has failed, and one call tries it.
    Trying,
    /// It keeps failing, and is left alone.
    Failing,
    /// It wants to be left alone for its rate.
    Limited,
    /// It is of another chain.
    Stranger,
    /// It has not said yet who it is.
    Unknown,
}

// === impl EndpointState ===

impl EndpointState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Trying, Self::Failing, Self::Limited, Self::Stranger, Self::Unknown];

    /// Its name in metrics and `/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Trying => "trying",
            Self::Failing => "failing",
            Self::Limited => "limited",
            Self::Stranger => "stranger",
            Self::Unknown => "unknown",
        }
    }
}

// === impl EndpointStatus ===

impl EndpointStatus {
    /// All of it in a word.
    pub fn state(&self) -> EndpointState {
        match &self.identity {
            Some(IdentityState::Stranger(_)) => EndpointState::Stranger,
            Some(IdentityState::Unknown(_)) => EndpointState::Unknown,
            Some(IdentityState::Known(_)) | None if self.paused.is_some_and(|wait| !wait.is_zero()) => {
                EndpointState::Limited
            }
            Some(IdentityState::Known(_)) | None => match self.health {
                Health::Closed => EndpointState::Ok,
                Health::HalfOpen => EndpointState::Trying,
                Health::Open => EndpointState::Failing,
            },
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub(in crate::upstream) fn new(
        name: Arc<str>,
        reach: Option<Reach>,
        leaf: Leaf,
        manner: Manner,
        config: &EndpointConfig,
        pin: Option<&Arc<Pin>>,
        metrics: EndpointMetrics,
    ) -> Self {
        let id = EndpointId::next();
        let secrets = reach.as_ref().map(Secrets::from).unwrap_or_default();
        Self {
            recognition: pin.map(|pin| Recognition::new(id, name.clone(), secrets, pin.clone())),
            id,
            name,
            reach,
            priority: config.priority.into(),
            weight: config.weight.max(1).into(),
            manner: Mutex::new(manner),
            leaf: Mutex::new(measured(leaf)),
            condition: Mutex::new(Condition::new(config.rate)),
            contact: Arc::default(),
            metrics,
            said: Seldom::default(),
        }
    }

    /// Takes what is said of it anew. What is known of it stays: it is the same node.
    pub(in crate::upstream) fn adopt(&self, config: &EndpointConfig, leaf: Leaf, manner: Manner) {
        self.priority.store(config.priority, Relaxed);
        self.weight.store(config.weight.max(1), Relaxed);
        self.condition.lock().set_rate(config.rate);
        let mut before = self.manner.lock();
        // Else it goes on with the connections it has.
        if *before != manner {
            *before = manner;
            *self.leaf.lock() = measured(leaf);
        }
    }

    pub(in crate::upstream) fn id(&self) -> EndpointId {
        self.id
    }

    pub(in crate::upstream) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Is this what it is reached with?
    pub(in crate::upstream) fn is_reached_by(&self, reach: Option<&Reach>) -> bool {
        reach.is_some() && self.reach.as_ref() == reach
    }

    pub(in crate::upstream) fn priority(&self) -> u32 {
        self.priority.load(Relaxed)
    }

    pub(in crate::upstream) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Is it known to be another than it should be?
    pub(in crate::upstream) fn is_stranger(&self) -> bool {
        self.recognition.as_ref().is_some_and(Recognition::is_stranger)
    }

    /// The highest block that it has shown.
    pub(in crate::upstream) fn head(&self) -> Option<BlockNumber> {
        self.condition.lock().head
    }

    /// The head that it has shown since then, if it has.
    pub(in crate::upstream) fn head_since(&self, then: Instant) -> Option<BlockNumber> {
        let condition = self.condition.lock();
        condition.head.filter(|_| condition.head_seen.is_some_and(|seen| seen >= then))
    }

    pub(in crate::upstream) fn recognition(&self) -> Option<&Recognition> {
        self.recognition.as_ref()
    }

    pub(in crate::upstream) fn status(&self) -> EndpointStatus {
        let condition = self.condition.lock();
        EndpointStatus {
            name: self.name.clone(),
            id: self.id,
            priority: self.priority(),
            identity: self.recognition.as_ref().map(Recognition::state),
            health: condition.breaker.health(Instant::now()),
            head: condition.head,
            last_error: condition.last_error.clone(),
            last_mismatch: condition.last_mismatch.clone(),
            paused: condition.paused.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }

    /// Why it last failed.
    pub(in crate::upstream) fn last_error(&self) -> Option<UpstreamError> {
        self.condition.lock().last_error.clone()
    }

    /// May it be asked for so many calls that need this?
    pub(in crate::upstream) fn eligible(&self, calls: u32, need: Need, now: Instant) -> Eligible {
        if self.is_stranger() {
            return Eligible::No;
        }
        let condition = self.condition.lock();
        if !condition.breaker.lets_pass(now) {
            let is_tried_slowly = condition.breaker.is_tried_slowly(now);
            drop(condition);
            if is_tried_slowly {
                self.probe();
            }
            return Eligible::No;
        }
        let lacks = need.block.is_some_and(|block| condition.has_forgotten(block, now))
            || need.block.max(need.head).is_some_and(|block| condition.is_behind(block, now));
        let pause = condition.paused.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        // The view of the chain goes first: there is always one left for it, if there can be more than one at all.
        let tokens = calls.saturating_add(u32::from(!need.followed));
        let wait = condition.bucket.map_or(Duration::ZERO, |bucket| bucket.wait(tokens, now)).max(pause);
        if !wait.is_zero() {
            return Eligible::After(wait);
        }
        let failures = match condition.failed {
            Some(failed) if now < failed + GRUDGE => {
                condition.breaker.failures() + DISTRUST * condition.wrong
            }
            _ => 0,
        };
        drop(condition);
        let unsure = self.recognition.as_ref().is_some_and(|recognition| !recognition.is_sure());
        Eligible::Yes(Cost { lacks, unsure, failures, load: self.leaf.lock().load() })
    }

    /// It failed, and nobody may be asking: it is asked who it is, to see whether it is back. Nobody waits for that.
    pub(in crate::upstream) fn probe(&self) {
        if let Some(recognition) = &self.recognition
            && self.last_error().is_some()
        {
            recognition.probe();
        }
    }

    /// Has it failed so often that it is left alone for now?
    pub(in crate::upstream) fn is_left_alone(&self, now: Instant) -> bool {
        !self.condition.lock().breaker.lets_pass(now)
    }

    /// A call would rather ask it, if it were sure who it is: so it is asked that, for the calls to come.
    pub(in crate::upstream) fn hurry(&self) {
        if let Some(recognition) = self.recognition.as_ref().filter(|recognition| recognition.is_doubted()) {
            recognition.hurry();
        }
    }

    /// Who answers next must say who it is.
    pub(in crate::upstream) fn doubt(&self) {
        if let Some(recognition) = &self.recognition {
            recognition.doubt();
        }
    }
}

fn measured(leaf: Leaf) -> PeakEwma<Leaf> {
    PeakEwma::new(leaf, DEFAULT_RTT, DECAY.as_nanos() as f64, CompleteOnResponse::default())
}

// === impl EndpointId ===

impl EndpointId {
    pub(in crate::upstream) fn next() -> Self {
        static GIVEN: AtomicU64 = AtomicU64::new(0);
        Self(GIVEN.fetch_add(1, Relaxed))
    }
}
