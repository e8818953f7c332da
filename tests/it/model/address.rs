//! Where a node is reached, and where a node of another chain may stand in its place for a while.
//!
//! Whatever is under way when that changes breaks off, and so does whatever is asked next, until somebody who has seen that
//! asks who is there: as with a connection that is lost. What stands there unnoticed, nobody promises anything of.

use std::sync::{Arc, Mutex, MutexGuard};

use holdfast::{
    devchain::DevChain,
    upstream::{Answers, Calls, InProcessTransport, Transport, UpstreamError},
};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

/// Cheap to clone.
#[derive(Clone)]
pub struct Address(Arc<Mutex<Behind>>);

struct Behind {
    own: DevChain,
    stranger: Option<DevChain>,
    changes: u64,
    contact: Contact,
}

#[derive(PartialEq)]
enum Contact {
    Kept,
    /// And nobody knows.
    Lost,
    /// And somebody has seen it.
    SeenLost,
}

// === impl Address ===

impl Address {
    pub fn of(own: &DevChain) -> Self {
        let own = own.clone();
        Self(Arc::new(Mutex::new(Behind { own, stranger: None, changes: 0, contact: Contact::Kept })))
    }

    /// From now on this one stands there; `None` for its own.
    pub fn stands(&self, stranger: Option<DevChain>) {
        let mut behind = self.lock();
        behind.stranger = stranger;
        behind.changes += 1;
        behind.contact = Contact::Lost;
    }

    /// Whatever is asked next breaks off.
    pub fn is_lost(&self) -> bool {
        self.lock().contact != Contact::Kept
    }

    pub fn transport(&self) -> Transport {
        let this = self.clone();
        BoxCloneSyncService::new(service_fn(move |calls: Calls| {
            let this = this.clone();
            async move { this.ask(calls).await }
        }))
    }

    async fn ask(&self, calls: Calls) -> Result<Answers, UpstreamError> {
        let (chain, changes) = self.reach(&calls)?;
        let answers = InProcessTransport::new(chain).oneshot(calls).await;
        if self.lock().changes == changes { answers } else { Err(broken()) }
    }

    /// Who stands there, and since how many changes.
    fn reach(&self, calls: &Calls) -> Result<(DevChain, u64), UpstreamError> {
        let mut behind = self.lock();
        let asks_who = calls.iter().any(|call| call.method.as_str() == "eth_chainId");
        match behind.contact {
            Contact::Kept => {}
            Contact::SeenLost if asks_who => behind.contact = Contact::Kept,
            Contact::Lost | Contact::SeenLost => {
                behind.contact = Contact::SeenLost;
                return Err(broken());
            }
        }
        Ok((behind.stranger.as_ref().unwrap_or(&behind.own).clone(), behind.changes))
    }

    fn lock(&self) -> MutexGuard<'_, Behind> {
        self.0.lock().unwrap()
    }
}

fn broken() -> UpstreamError {
    UpstreamError::Disconnected(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
        "another stands here",
    )))
}
