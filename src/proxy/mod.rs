//! What happens to one call: allowed or not, answered here or by the upstream.
//!
//! [`proxy()`] makes a `tower::Service` from a call to its answer, composed in `stack.rs`. It knows
//! nothing of HTTP, nor that batches exist. With it comes a [`Follower`], for whoever wants the chain
//! followed before anybody asks.

mod call;
mod config;
mod error;
mod head;
mod layers;
mod lookup;
mod metrics;
mod miss;
mod operate;
mod reloadable;
mod stack;

pub use self::{
    call::{
        packet::PacketContext,
        policy::{GlobError, Policy},
        rate::{Allowance, Bucket, Rate, RateError},
        request::{Answered, Caller, Outcome, ReadCall, Request, Source},
    },
    config::{ChainConfig, Config, Follow, MethodsConfig},
    error::CallError,
    head::reorgs::{Reorg, ReorgKind},
    metrics::{Metrics, Totals},
    operate::{
        follower::Follower,
        inspect::{Inspected, InspectedBlock, InspectedTransaction, Standing, Subject, SubjectError},
        status::{Seen, Sight},
        warm::{Piece as WarmedPiece, Warm, WarmError, Warmed, Warmer},
    },
    reloadable::Live,
    stack::{Proxy, ProxyParts, proxy},
};
