//! The node behind: one call or several in, answers out.
//!
//! The leaf is a `tower::Service` from [`Call`]s to [`Answers`]: [`HttpLeaf`] speaks to a node over
//! HTTP, [`DevChainLeaf`] to a development chain in this process; a [`HeadFeed`] hears of new heads. Ids on this side are our own. What a
//! client sees of a failure is decided elsewhere; here it gets its name ([`UpstreamError`]).

mod batch;
mod call;
mod config;
mod error;
mod heads;
mod http;
mod local;
mod metrics;
mod stack;
mod url;
mod wire;

pub use self::{
    call::{Answers, Call, Calls, Mismatch},
    config::{Config, EndpointConfig},
    error::{Retry, UpstreamError},
    heads::{FeedError, HeadFeed, Subscription},
    http::{EndpointError, HttpLeaf},
    local::DevChainLeaf,
    metrics::Metrics,
    stack::{Leaf, Upstream},
    url::EndpointUrl,
};
