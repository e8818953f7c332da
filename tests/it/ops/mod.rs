//! Operation: command line, demo, admin listener, status page, metrics, traces, reload, secrets, soak.

mod admin;
mod bad_day;
mod cli;
mod demo;
mod inspect;
mod log;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod reload;
mod secrets;
mod settings;
mod soak;
mod trace;
mod warm;
