//! Tells what happens as it happens: server-sent events.
//!
//! Whoever listens gets the history first and then, each second, what is known now. That is made once for all of them,
//! and only while somebody listens. One who does not keep up misses what was in between: nothing is kept for anybody.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    time::{self, MissedTickBehavior},
};

use super::{
    body::Body,
    history::{self, History},
    report::Report,
};

/// More than people look at one instance; each is a connection out of few.
pub(super) const MOST_STREAMS: usize = 16;

/// How often those who listen are told.
const TOLD: Duration = Duration::from_secs(1);

/// How long a browser waits before it connects again, in milliseconds.
const RECONNECT: u64 = 2000;

/// Where to listen. Clones share it.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    report: Arc<dyn Report>,
    history: History,
    latest: watch::Receiver<Bytes>,
    places: Arc<Semaphore>,
}

/// Samples what is counted, and tells those who listen. While it lasts: with it they end.
pub struct Ticker {
    report: Arc<dyn Report>,
    history: History,
    latest: watch::Sender<Bytes>,
}

// === impl Events ===

impl Events {
    /// Tells of `report`, and keeps `history` of it while the ticker runs.
    pub fn new(report: Arc<dyn Report>, history: History) -> (Self, Ticker) {
        let (sender, latest) = watch::channel(Bytes::new());
        let ticker = Ticker { report: report.clone(), history: history.clone(), latest: sender };
        let places = Arc::new(Semaphore::new(MOST_STREAMS));
        (Self(Arc::new(Inner { report, history, latest, places })), ticker)
    }

    /// A stream of events; `None` if as many as there may be listen already.
    pub(super) fn listen(&self) -> Option<Body> {
        let inner = &self.0;
        let place = inner.places.clone().try_acquire_owned().ok()?;
        let mut latest = inner.latest.clone();
        latest.mark_unchanged();
        let begin = format!("retry: {RECONNECT}\n{}", event("history", &inner.history.to_json()));
        let now = status(&*inner.report, &inner.history);
        let begin = stream::iter([Bytes::from(begin), now]);
        let then = stream::unfold((latest, place), |(mut latest, place)| async {
            latest.changed().await.ok()?;
            let event = latest.borrow_and_update().clone();
            Some((event, (latest, place)))
        });
        Some(Body::Streamed(Box::pin(begin.chain(then))))
    }
}

fn event(name: &str, data: &Value) -> String {
    // Written without line breaks: one would end the event.
    format!("event: {name}\ndata: {data}\n\n")
}

fn status(report: &dyn Report, history: &History) -> Bytes {
    let (fine, coarse) = history.newest();
    event("status", &json!({ "status": report.status(), "fine": fine, "coarse": coarse })).into()
}

// === impl Ticker ===

impl Ticker {
    /// Runs until dropped.
    pub async fn run(self) {
        let tell = async {
            let mut seconds = time::interval(TOLD);
            seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                seconds.tick().await;
                // One of them is there for those who come.
                if self.latest.receiver_count() > 1 {
                    self.latest.send_replace(status(&*self.report, &self.history));
                }
            }
        };
        let sample = async {
            let mut steps = time::interval(history::STEP);
            steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                steps.tick().await;
                self.history.take(self.report.counts());
            }
        };
        // Neither ends. The samples first: what is told at the same moment has the newest.
        let ((), ()) = future::join(sample, tell).await;
    }
}
