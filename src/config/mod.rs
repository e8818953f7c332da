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
//! print       a configuration as TOML
//! shell       shell variables in values
//! keys        all keys, and the checks that span several of them
//! log         the keys of [log]
//! tracing     the keys of [tracing]
//! address     addresses of listeners
//! error       configuration errors
//! schema      keys and choices of a configuration type
//! ```

mod address;
mod error;
mod keys;
mod load;
mod log;
mod print;
mod schema;
mod shell;
mod tracing;

pub(crate) use self::{
    address::is_host_and_port,
    load::{ENV_ADMIN_TOKEN, ENV_KEY},
};
pub use self::{
    error::{ConfigError, Problem},
    keys::Config,
    load::Sources,
    log::{LogConfig, LogFormat},
    print::toml,
    tracing::TracingConfig,
};

#[cfg(test)]
mod tests;
