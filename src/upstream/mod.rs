//! The node behind: one call or several in, answers out.
//!
//! The leaf is a `tower::Service` from [`Call`]s to [`Answers`]: [`HttpLeaf`] speaks to a node over
//! HTTP, [`DevChainLeaf`] to a development chain in this process; a [`HeadFeed`] hears of new heads. Ids on this side are our own. What a
//! client sees of a failure is decided elsewhere; here it gets its name ([`UpstreamError`]).

mod again;
mod audience;
mod call;
mod choice;
mod config;
mod contact;
mod direct;
mod endpoint;
mod error;
mod followed;
mod gauges;
mod heads;
mod hedge;
mod http;
mod identity;
mod limited;
mod local;
mod metrics;
mod pool;
#[cfg(feature = "otlp")]
mod post;
mod reach;
mod redact;
mod stack;
mod url;
mod wire;

#[cfg(feature = "otlp")]
pub use self::post::Poster;
pub use self::{
    audience::Audience,
    call::{AnsweredBy, Answers, Call, Calls, Mismatch},
    config::{Config, EndpointConfig, RateConfig},
    endpoint::{EndpointId, EndpointState, EndpointStatus, Health},
    error::{Retry, UpstreamError},
    heads::{FeedError, HeadFeed, Subscription},
    hedge::Percentile,
    http::{EndpointError, HttpLeaf},
    identity::{Identity, IdentityError, IdentityState, Stranger, WhoIs, is_development},
    limited::{is_absence, is_internal, is_rate_limit, is_unknown_block},
    local::DevChainLeaf,
    metrics::Metrics,
    pool::Need,
    reach::Reach,
    stack::{EndpointParts, Leaf, Upstream},
    url::EndpointUrl,
};
