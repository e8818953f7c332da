//! Compresses forwarded answers for clients on other machines.
//!
//! The upstream's own compressed bytes cannot be passed on, because Holdfast replaces ids and secrets in them. Answers
//! out of the cache have their own compressed forms, which are made once.

use std::{
    sync::Arc,
    task::{Context, Poll},
    thread::available_parallelism,
};

use futures_util::future::BoxFuture;
use tokio::{sync::Semaphore, task::spawn_blocking};
use tower::{Layer, Service};

use crate::{
    cache::Deflated,
    jsonrpc::Answer,
    proxy::{
        call::outcome::{Answered, Outcome},
        error::CallError,
        lookup::WORTHWHILE,
        miss::respond::Missed,
    },
};

/// Puts a [`Deflate`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct DeflateLayer {
    /// One permit per core. Without a permit, an answer goes out uncompressed instead of waiting.
    places: Arc<Semaphore>,
}

/// Adds the compressed form to forwarded answers.
#[derive(Clone, Debug)]
pub(crate) struct Deflate<S> {
    inner: S,
    layer: DeflateLayer,
}

// === impl DeflateLayer ===

impl DeflateLayer {
    pub(crate) fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { places: Arc::new(Semaphore::new(cores)) }
    }

    /// Compresses an answer, unless it is short or compressed already.
    pub(super) async fn deflate(&self, answered: Answered) -> Answered {
        let Answered { answer: Answer::Result(text), deflated: None, .. } = &answered else {
            return answered;
        };
        if text.len() < WORTHWHILE {
            return answered;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return answered };
        let text = text.clone();
        let deflating = spawn_blocking(move || {
            let deflated = Deflated::once(&text);
            drop(place);
            deflated
        });
        let deflated = deflating.await.ok().flatten().map(Arc::new);
        Answered { deflated, ..answered }
    }
}

impl<S> Layer<S> for DeflateLayer {
    type Service = Deflate<S>;

    fn layer(&self, inner: S) -> Deflate<S> {
        Deflate { inner, layer: self.clone() }
    }
}

// === impl Deflate ===

impl<S> Service<Missed> for Deflate<S>
where
    S: Service<Missed, Response = Answered, Error = CallError, Future: Send + 'static>,
{
    type Response = Answered;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Answered, CallError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, missed: Missed) -> Self::Future {
        let caller = missed.request.packet().caller();
        let accepts = caller.accepts_deflated();
        let (answering, layer) = (self.inner.call(missed), self.layer.clone());
        Box::pin(async move {
            let answered = answering.await?;
            let is_forwarded = matches!(answered.outcome, Outcome::Bypass | Outcome::Miss);
            Ok(if accepts && is_forwarded { layer.deflate(answered).await } else { answered })
        })
    }
}
