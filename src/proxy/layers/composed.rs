//! Answers calls whose answers are composed of content that other calls ask for: encoded content and logs.
//!
//! The layer is below the cache, so that it costs ordinary hits nothing. It has its own path to the cache.

use std::{
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, Either};
use tower::{Layer, Service};

use super::{
    deadline::Limit,
    raw::{Encoder, RawTools},
};
use crate::{
    eth::{LogsCall, ParamError},
    proxy::{
        call::{outcome::Answered, read_call::ComposedCall, request::Request, waited},
        error::CallError,
        logs::{LogReader, LogTools},
        miss::{deflate::Deflater, respond::Missed},
    },
    verify::Verifier,
};

/// Puts a [`Composed`] around a service. `C` answers calls for content.
#[derive(Clone, Debug)]
pub(crate) struct ComposedLayer<C>(Arc<Composer<C>>);

/// Answers composed calls, and passes all other calls to a clone of the inner service. Every request clones it, and
/// most requests are hits, which need neither of its parts: so it is one reference.
#[derive(Debug)]
pub(crate) struct Composed<S, C>(Arc<ComposedParts<S, C>>);

#[derive(Debug)]
struct ComposedParts<S, C> {
    inner: S,
    composer: Arc<Composer<C>>,
}

/// Composes answers of the content that `C` answers with.
#[derive(Debug)]
struct Composer<C> {
    encoder: Encoder<C>,
    logs: LogReader<C>,
    verifier: Verifier,
    limit: Limit,
    deflater: Deflater,
}

// === impl ComposedLayer ===

impl<C> ComposedLayer<C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    pub(crate) fn new(
        content: C,
        (raw, logs): (RawTools, LogTools),
        verifier: Verifier,
        limit: Limit,
        deflater: Deflater,
    ) -> Self {
        let encoder = Encoder::new(content.clone(), raw);
        let logs = LogReader::new(content, logs);
        Self(Arc::new(Composer { encoder, logs, verifier, limit, deflater }))
    }
}

impl<S, C> Layer<S> for ComposedLayer<C> {
    type Service = Composed<S, C>;

    fn layer(&self, inner: S) -> Composed<S, C> {
        Composed(Arc::new(ComposedParts { inner, composer: self.0.clone() }))
    }
}

// === impl Composed ===

impl<S, C> Clone for Composed<S, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S, C> Service<Missed> for Composed<S, C>
where
    S: Service<Missed, Response = Answered, Error = CallError> + Clone,
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    type Response = Answered;
    type Error = CallError;
    type Future = Either<S::Future, BoxFuture<'static, Result<Answered, CallError>>>;

    // The inner layers are always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, missed: Missed) -> Self::Future {
        let (call, composer) = (missed.request.call(), &self.0.composer);
        if call.composed.is_some() {
            let (composer, limit) = (composer.clone(), composer.limit.clone());
            let answering = async move { waited::labelled(composer.answer(missed.request)).await };
            return Either::Right(Box::pin(limit.within(answering)));
        }
        // The parameters have a form that only the node knows, so nothing could prove the answer.
        if call.query.is_none()
            && ComposedCall::is_method(call.method.as_str())
            && composer.verifier.must_prove()
        {
            let is_filter = LogsCall::is_method(call.method.as_str());
            let error = if is_filter { ParamError::unreadable_filter() } else { ParamError::unreadable() };
            return Either::Right(Box::pin(ready(Err(CallError::Params(error)))));
        }
        Either::Left(self.0.inner.clone().call(missed))
    }
}

// === impl Composer ===

impl<C> Composer<C>
where
    C: Service<Request, Response = Answered, Error = CallError, Future: Send> + Clone + Send + Sync + 'static,
{
    async fn answer(&self, request: Request) -> Result<Answered, CallError> {
        let accepts = request.packet().caller().accepts_deflated();
        let answered = match request.call().composed.as_deref() {
            Some(ComposedCall::Raw(raw)) => {
                let raw = *raw;
                self.encoder.answer(request, raw).await?
            }
            Some(ComposedCall::Logs(call)) => self.logs.answer(&request, call).await?,
            None => return Err(CallError::Params(ParamError::unreadable())),
        };
        Ok(if accepts { self.deflater.deflate(answered).await } else { answered })
    }
}
