//! One call: allowed or not, answered from the cache or by the upstream.
//!
//! [`proxy()`] makes a `tower::Service` from a call to its answer, composed in `stack.rs`. It knows nothing of HTTP, nor that
//! batches exist. With it come a [`Follower`], which follows the chain before clients ask, and the parts that operators use.
//!
//! # Floors
//! ```text
//! stack       the layers in their order, and all parts
//! reloadable  settings that a reload changes
//! operate     beside calls: follower, status, inspection, warming
//! layers      measure, admit, cached, deadline
//! miss        from the plan for a miss to its answer
//! tiers       the cache tiers behind memory: write back, confirm
//! lookup      cache lookups: a hit, or the plan for a miss
//! head        the canonical view, and its refresh
//! parts       what a proxy is made of
//! metrics     counters
//! call        one call: request, client, packet, result
//! config      sections [chain] and [methods]
//! reorgs      the last reorgs
//! glob        patterns of method names
//! error       why a call has no answer
//! ```

mod call;
mod config;
mod error;
mod glob;
mod head;
mod layers;
mod lookup;
mod metrics;
mod miss;
mod operate;
mod parts;
mod reloadable;
mod reorgs;
mod stack;
mod tiers;

pub use self::{
    call::{
        caller::Caller,
        outcome::{Answered, Outcome, Source},
        packet::PacketContext,
        policy::Policy,
        rate::{Allowance, Bucket, Rate, RateError},
        read_call::ReadCall,
        request::Request,
    },
    config::{ChainConfig, Config, Follow, MethodsConfig},
    error::CallError,
    glob::GlobError,
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
    reorgs::{Reorg, ReorgKind},
    stack::{Proxy, proxy},
};
