//! The admin listener: liveness, readiness, metrics, the status report and its page, and operations on the cache.
//!
//! Every client that reaches the listener may read. A [`Guard`] protects the routes that change something.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! service     the routes
//! events      status each second, as server-sent events
//! report      the interface of the status report
//! history     samples of the counters over the last day
//! operate     look-ups and purge
//! page        the page's files
//! response    status, content type and body
//! body        the body of a response
//! guard       refuses changes from other web pages, or without the admin token
//! ```

mod body;
mod events;
mod guard;
mod history;
mod operate;
mod page;
mod report;
mod response;
mod service;

pub use self::{
    body::Body,
    events::{Events, Ticker},
    guard::{Guard, WriteRefusal},
    history::{Counts, Durations, History},
    operate::Operator,
    report::Report,
    service::Admin,
};
