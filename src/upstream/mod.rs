//! Sends calls to the upstream nodes and returns their answers.
//!
//! A transport is a `tower::Service` from [`Call`]s to [`Answers`]: [`HttpTransport`] sends calls to a node over
//! HTTP, [`InProcessTransport`] to a node in this process. A [`HeadFeed`] reports new heads. Requests carry
//! Holdfast's own ids, never a client's. Every failure is an [`UpstreamError`]; `http` turns it into a response.
//!
//! # Floors
//! A file or folder imports only from those below it.
//!
//! ```text
//! stack       Upstream, and the layers that a call passes in order
//! pool        all endpoints: choice by load, the primary, retries, hedging
//! endpoint    one node: health, availability, an attempt
//! identity    which chain an endpoint serves: probe, pinned chain
//! transport   how an endpoint is reached: HTTP, WebSocket heads, in process; wire format, secrets
//! metrics     counters of attempts, in all and for each endpoint
//! node_error  the meaning of a node's error objects
//! call        a call and its requirements
//! config      the section [upstream]
//! error       reasons for a missing answer
//! id          EndpointId
//! ```

mod call;
mod config;
mod endpoint;
mod error;
mod id;
mod identity;
mod metrics;
mod node_error;
mod pool;
mod stack;
mod transport;

#[cfg(feature = "otlp")]
pub use self::transport::Poster;
pub(crate) use self::transport::{causes, instance_client, is_no_tls, root_cause};
pub use self::{
    call::{AcceptedAnswer, AcceptedAnswers, Answers, Call, Calls, Requirements},
    config::{Config, EndpointConfig, Percentile, RateConfig},
    endpoint::{EndpointState, EndpointStatus, Health},
    error::{Mismatch, Retry, UpstreamError, Words, WrongChain},
    id::EndpointId,
    identity::{ChainIdentity, IdentityError, IdentityState, is_development},
    metrics::{EndpointTotals, Metrics},
    node_error::{
        is_about_size, is_absence, is_internal, is_rate_limit, is_unknown_block, is_unknown_method,
    },
    pool::{EndpointParts, Identity},
    stack::Upstream,
    transport::{
        EndpointAddress, EndpointError, EndpointUrl, FeedError, HeadFeed, HttpTransport, InProcessNode,
        InProcessResponse, InProcessTransport, Subscription, Transport, check_endpoint,
    },
};
