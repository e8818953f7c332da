//! The proxy: checks whether a call is allowed, and answers it from the cache or through the upstream.
//!
//! [`proxy()`] builds a `tower::Service` that maps a call to its answer; `stack.rs` composes the layers of this
//! service. The service knows neither HTTP nor batches. [`Proxy`] also holds a [`Follower`], which follows the chain
//! without waiting for client calls, and the handles that the admin interface uses.
//!
//! # Floors
//! ```text
//! stack       composes the layers and all parts
//! reloadable  settings that a reload changes
//! operate     operations that are not client calls: follower, status, inspection
//! layers      measure, admit, cached, composed, deadline
//! logs        answers eth_getLogs: from receipts and blooms, or by a checked call to the upstream
//! miss        answers misses: carries out the plan of a lookup
//! tiers       cache tiers below the in-memory cache: writes entries back, confirms tiers
//! lookup      cache lookups: each returns a hit, or the plan for a miss
//! head        the view of the canonical chain, and its refresh
//! parts       the components that a proxy is built from
//! metrics     metrics of the proxy
//! method_totals  calls of one method, by result
//! call        one call: request, client, packet, result
//! config      sections [chain] and [methods]
//! reorgs      the latest reorgs
//! glob        method name patterns
//! error       errors of a call
//! ```

mod call;
mod config;
mod error;
mod glob;
mod head;
mod layers;
mod logs;
mod lookup;
mod method_totals;
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
        outcome::{Answered, LogProof, LogSource, Outcome, Source},
        packet::PacketContext,
        policy::Policy,
        rate::{Allowance, Bucket, Rate, RateError},
        read_call::ReadCall,
        request::Request,
    },
    config::{ChainConfig, Config, Follow, LogsConfig, MethodsConfig},
    error::{CallError, LogLimit, MethodRule},
    glob::GlobError,
    method_totals::MethodTotals,
    metrics::{Metrics, Totals},
    operate::{
        follower::Follower,
        gauges::register_gauges,
        inspect::{
            Inspected, InspectedBlock, InspectedTransaction, Inspector, Standing, Subject, SubjectError,
        },
        status::{ChainStatus, Status},
    },
    parts::ProxyParts,
    reloadable::Reloadable,
    reorgs::{Reorg, ReorgKind},
    stack::{Proxy, proxy},
};
