//! What happens to one call: allowed or not, answered here or by the upstream.
//!
//! [`proxy()`] makes a `tower::Service` from a call to its answer, composed in `stack.rs`. It knows
//! nothing of HTTP, nor that batches exist. With it comes a [`Follower`], for whoever wants the chain
//! followed before anybody asks.

mod absence;
mod admit;
mod cacheable;
mod coalesce;
mod compress;
mod config;
mod counted;
mod deadline;
mod derive;
mod error;
mod fetch;
mod follow;
mod gauges;
mod inspect;
mod keep;
mod known;
mod live;
mod look;
mod measure;
mod metrics;
mod packet;
mod plan;
mod policy;
mod proof;
mod rate;
mod recall;
mod reorgs;
mod request;
mod respond;
mod restore;
mod sight;
mod stack;
mod turns;
mod view;
mod warm;

pub use self::{
    config::{ChainConfig, Config, Follow, MethodsConfig},
    error::CallError,
    follow::Follower,
    inspect::{Inspected, InspectedBlock, InspectedTransaction, Standing, Subject, SubjectError},
    live::Live,
    metrics::{Metrics, Totals},
    packet::PacketContext,
    policy::{GlobError, Policy},
    rate::{Allowance, Bucket, Rate, RateError},
    reorgs::{Reorg, ReorgKind},
    request::{Answered, Caller, Outcome, ReadCall, Request, Source},
    sight::{Seen, Sight},
    stack::{Proxy, ProxyParts, proxy},
    warm::{Piece as WarmedPiece, Warm, WarmError, Warmed, Warmer},
};
