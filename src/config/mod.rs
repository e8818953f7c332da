//! The configuration: a file, then the environment, then flags.
//!
//! Collects the `Config` types of the modules below it. No module below `app` imports this one. Each error names the
//! source, the key and a valid value.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! load        file, environment and flags
//! keys        all keys, and the checks that span several of them
//! log         the keys of [log]
//! tracing     the keys of [tracing]
//! error       configuration errors
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
