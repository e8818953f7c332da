//! Compresses forwarded answers for clients on other machines.
//!
//! The upstream's own compressed bytes cannot be passed on, because Holdfast replaces ids and secrets in them. Answers
//! out of the cache have their own compressed forms, which are made once.

use std::{sync::Arc, thread::available_parallelism};

use tokio::sync::Semaphore;

use crate::{
    blocking,
    cache::Deflated,
    jsonrpc::Answer,
    proxy::{call::outcome::Answered, lookup::WORTHWHILE},
};

/// Adds the compressed form to answers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Deflater {
    /// One permit per core. Without a permit, an answer goes out uncompressed instead of waiting.
    places: Arc<Semaphore>,
}

// === impl Deflater ===

impl Deflater {
    pub(crate) fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { places: Arc::new(Semaphore::new(cores)) }
    }

    /// Compresses an answer, unless it is short or compressed already.
    pub(crate) async fn deflate(&self, answered: Answered) -> Answered {
        let Answered { answer: Answer::Result(text), deflated: None, .. } = &answered else {
            return answered;
        };
        if text.len() < WORTHWHILE {
            return answered;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return answered };
        let text = text.clone();
        let deflating = blocking::run(move || {
            let deflated = Deflated::once(&text);
            drop(place);
            deflated
        });
        let deflated = deflating.await.ok().flatten().map(Arc::new);
        Answered { deflated, ..answered }
    }
}
