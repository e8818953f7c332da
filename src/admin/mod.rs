//! The admin listener: is it alive, is it ready, what does it count, what does it know; and a page that shows it.
//!
//! Whoever reaches it may read. What changes something is behind a [`Guard`].
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! service     the routes
//! events      status each second, as server-sent events
//! report      the interface of the status report
//! history     counts of the last hours
//! operate     look-ups, purge and warm
//! page        the page's files
//! response    status, content type and body
//! body        the body of a response
//! guard       which requests may change something
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
    history::{Counts, History},
    operate::Operator,
    report::Report,
    service::Admin,
};
