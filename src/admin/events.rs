//! The status report as server-sent events.
//!
//! A client gets the history first, and then the current status each second. The [`Ticker`] builds the status once for
//! all clients, and only while there are any. Events are not buffered, so a slow client misses some.

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

/// Maximum number of open streams, which is more than the number of people who watch one instance. Each stream
/// occupies one of the admin listener's few connections.
pub(super) const MOST_STREAMS: usize = 16;

/// Time between two status events.
const TOLD: Duration = Duration::from_secs(1);

/// How long a browser waits before it reconnects, in milliseconds.
const RECONNECT: u64 = 2000;

/// Opens event streams. Clones share the limit on open streams.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    report: Arc<dyn Report>,
    history: History,
    latest: watch::Receiver<Bytes>,
    places: Arc<Semaphore>,
}

/// Samples the counters for the history, and sends the status to all streams. The streams end when the ticker is
/// dropped.
pub struct Ticker {
    report: Arc<dyn Report>,
    history: History,
    latest: watch::Sender<Bytes>,
}

// === impl Events ===

impl Events {
    /// Creates streams of `report`, and the ticker that feeds them and `history`.
    pub fn new(report: Arc<dyn Report>, history: History) -> (Self, Ticker) {
        let (sender, latest) = watch::channel(Bytes::new());
        let ticker = Ticker { report: report.clone(), history: history.clone(), latest: sender };
        let places = Arc::new(Semaphore::new(MOST_STREAMS));
        (Self(Arc::new(Inner { report, history, latest, places })), ticker)
    }

    /// Opens a stream of events; `None` if [`MOST_STREAMS`] are open.
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
    // Compact JSON has no line breaks, which would end the event.
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
                // A count of 1 means that no stream is open: `Events` has one receiver, which it clones for each
                // stream.
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
        // Neither future ends. `join` polls `sample` first, so that a status event at the same moment includes the
        // newest sample.
        let ((), ()) = future::join(sample, tell).await;
    }
}
