//! The node behind: one call or several in, answers out.
//!
//! The leaf is a `tower::Service` from [`Call`]s to [`Answers`]: [`HttpLeaf`] speaks to a node over
//! HTTP, [`DevChainLeaf`] to a development chain in this process; a [`HeadFeed`] hears of new heads. Ids on this side are our own. What a
//! client sees of a failure is decided elsewhere; here it gets its name ([`UpstreamError`]).

mod audience;
mod call;
mod config;
mod endpoint;
mod error;
mod identity;
mod metrics;
mod node_error;
mod pool;
mod stack;
mod transport;

#[cfg(feature = "otlp")]
pub use self::transport::Poster;
pub use self::{
    audience::Audience,
    call::{AnsweredBy, Answers, Call, Calls, Mismatch},
    config::{Config, EndpointConfig, RateConfig},
    endpoint::{EndpointId, EndpointState, EndpointStatus, Health},
    error::{Retry, UpstreamError},
    identity::{IdentityError, IdentityState, Stranger, WhoIs, is_development},
    metrics::Metrics,
    node_error::{is_absence, is_internal, is_rate_limit, is_unknown_block},
    pool::{Identity, Need, Percentile},
    stack::{EndpointParts, Leaf, Upstream},
    transport::{
        DevChainLeaf, EndpointError, EndpointUrl, FeedError, HeadFeed, HttpLeaf, Reach, Subscription,
    },
};
