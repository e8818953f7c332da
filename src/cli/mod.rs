//! The command line.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! run         the command line, and the exit code
//! command     serve · demo · check · health · inspect · warm · purge · key · completions
//! admin       client of the admin listener of a running instance
//! client      HTTP client of a running instance
//! runtime     the runtime that commands run in
//! live_line   a line on a terminal that is rewritten in place
//! output      lines on standard output
//! failure     reasons why a command fails
//! otlp        sends spans to a collector
//! no_otlp     replaces otlp in builds without the feature `otlp`
//! log         the log's level and format
//! log_text    fields of text log lines
//! signal      SIGINT, SIGTERM, SIGHUP
//! progress    a bar, or lines
//! blocks      ranges of blocks
//! numbers     sets of block numbers
//! values      values of flags
//! version     version, commit and features
//! ```

mod admin;
mod blocks;
mod client;
mod command;
mod failure;
mod live_line;
mod log;
mod log_text;
mod numbers;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
mod output;
mod progress;
mod run;
mod runtime;
mod signal;
mod values;
mod version;

pub use self::run::main;
