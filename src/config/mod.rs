//! The configuration: a file, then the environment, then flags.
//!
//! Gathers the `Config`s of the modules below; nothing below `app` sees this one. Whatever is
//! wrong is said with its source, its key and what would be right.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! load        file, environment and flags
//! keys        all keys, and which values they may have together
//! log         the keys of [log]
//! tracing     the keys of [tracing]
//! error       what is wrong with a configuration
//! removed     keys that earlier versions had
//! ```

mod error;
mod keys;
mod load;
mod log;
mod removed;
mod tracing;

pub(crate) use self::{error::AN_ADDRESS, load::ENV_ADMIN_TOKEN};
pub use self::{
    error::{ConfigError, Problem},
    keys::Config,
    load::Sources,
    log::{LogConfig, LogFormat},
    tracing::TracingConfig,
};

#[cfg(test)]
mod tests;
