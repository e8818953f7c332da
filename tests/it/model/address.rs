//! The address of a node, at which a node of another chain may answer for a while.
//!
//! Each replacement acts like a lost connection: calls in flight fail, and so do later calls. After one of the later
//! calls has failed, a call for `eth_chainId` restores the connection. Holdfast makes no promise about a replacement
//! that breaks no connection.

use std::sync::{Arc, Mutex, MutexGuard};

use holdfast::{
    devchain::DevChain,
    upstream::{Answers, Calls, InProcessTransport, Transport, UpstreamError},
};
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

/// The address of a node. Cheap to clone.
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
    /// The connection is lost, but no call has failed yet.
    Lost,
    /// The connection is lost, and a call has failed.
    SeenLost,
}

// === impl Address ===

impl Address {
    pub fn of(own: &DevChain) -> Self {
        let own = own.clone();
        Self(Arc::new(Mutex::new(Behind { own, stranger: None, changes: 0, contact: Contact::Kept })))
    }

    /// Lets a node of the chain `stranger` answer at this address, or the address's own node if `stranger` is `None`.
    pub fn stands(&self, stranger: Option<DevChain>) {
        let mut behind = self.lock();
        behind.stranger = stranger;
        behind.changes += 1;
        behind.contact = Contact::Lost;
    }

    /// Returns whether the next call fails.
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

    /// Returns the chain that answers and the number of replacements so far.
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
        "another node answers here",
    )))
}
