//! Answers a call that is allowed: here where the answer is known for good, else by the upstream.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, Either};
use tower::Service;

use super::{Answered, CallError, Identity, Outcome, Request};
use crate::{
    eth::Operation,
    jsonrpc::{Answer, Params},
    upstream::{Call, Upstream},
};

/// Methods whose answer cannot change.
const LOCAL: [&str; 2] = ["eth_chainId", "net_version"];

/// The innermost service of a call.
#[derive(Clone, Debug)]
pub(super) struct Responder {
    upstream: Upstream,
    identity: Identity,
}

/// What a call turned out to want.
enum Want {
    Forward(Call),
    Local(Call),
}

// === impl Responder ===

impl Responder {
    pub(super) fn new(upstream: Upstream, identity: Identity) -> Self {
        Self { upstream, identity }
    }

    async fn forward(self, call: Call) -> Result<Answered, CallError> {
        self.identity.confirm().await?;
        let answer = self.upstream.call(call).await.inspect_err(|error| {
            if error.lost_contact() {
                self.identity.doubt();
            }
        });
        Ok(Answered { answer: answer.map_err(CallError::Upstream)?, outcome: Outcome::Forwarded })
    }

    /// Waits for the upstream to say who it is; a node that does not know its network is asked each time.
    async fn local(self, call: Call) -> Result<Answered, CallError> {
        match self.identity.confirm().await?.answer(call.method.as_str()) {
            Some(answer) => Ok(local(answer)),
            None => self.forward(call).await,
        }
    }
}

fn want(request: Request) -> Result<Want, CallError> {
    let crate::jsonrpc::Call { method, params, .. } = request.call;
    match Operation::read(method.as_str(), &params) {
        Some(operation) => {
            let operation = operation.map_err(CallError::Params)?;
            Ok(Want::Forward(Call::new(operation.method(), operation.params())))
        }
        None => {
            let local = LOCAL.contains(&method.as_str()) && params == Params::EMPTY;
            let call = Call::new(method, params);
            Ok(if local { Want::Local(call) } else { Want::Forward(call) })
        }
    }
}

fn local(answer: bytes::Bytes) -> Answered {
    Answered { answer: Answer::Result(answer), outcome: Outcome::Local }
}

impl Service<Request> for Responder {
    type Response = Answered;
    type Error = CallError;
    type Future = Either<Ready<Result<Answered, CallError>>, BoxFuture<'static, Result<Answered, CallError>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match want(request) {
            Err(error) => Either::Left(ready(Err(error))),
            Ok(Want::Forward(call)) => Either::Right(Box::pin(self.clone().forward(call))),
            Ok(Want::Local(call)) => {
                let known = self.identity.pinned().and_then(|who| who.answer(call.method.as_str()));
                match known {
                    Some(answer) => Either::Left(ready(Ok(local(answer)))),
                    None => Either::Right(Box::pin(self.clone().local(call))),
                }
            }
        }
    }
}
