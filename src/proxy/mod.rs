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
mod parts;
mod reloadable;
mod stack;
mod tiers;

pub use self::{
    call::{
        caller::Caller,
        glob::GlobError,
        outcome::{Answered, Outcome, Source},
        packet::PacketContext,
        policy::Policy,
        rate::{Allowance, Bucket, Rate, RateError},
        read_call::ReadCall,
        request::Request,
    },
    config::{ChainConfig, Config, Follow, MethodsConfig},
    error::CallError,
    head::reorgs::{Reorg, ReorgKind},
    metrics::{Metrics, Totals},
    operate::{
        follower::Follower,
        gauges::register_gauges,
        inspect::{
            Inspected, InspectedBlock, InspectedTransaction, Inspector, Standing, Subject, SubjectError,
        },
        status::{ChainStatus, Status},
        warm::{Piece as WarmedPiece, Warm, WarmError, Warmed, Warmer},
    },
    parts::ProxyParts,
    reloadable::Reloadable,
    stack::{Proxy, proxy},
};
