//! Assembles the program, starts it, reloads it, reports its status and stops it.
//!
//! # Floors
//! Each line imports only from the lines below it.
//!
//! ```text
//! demo        the program in front of a development chain, with traffic and reorgs
//! start       App and its builder: listeners, background tasks, shutdown order
//! in_process  the program without listeners
//! assemble    the parts, from the upstream to the service that answers HTTP requests
//! tiers       the tiers behind memory
//! reload      applies another configuration
//! build       endpoints, head feed and certificate, for a start and for a reload
//! error       reasons why the program cannot start
//! report      /status, /ready and the counts of the page
//! tasks       the number of tasks
//! file_limit  the limit on open files
//! dev_chain   a development chain as an upstream in this process
//! ```

mod assemble;
mod build;
mod demo;
mod dev_chain;
mod error;
mod file_limit;
mod in_process;
mod reload;
mod report;
mod start;
mod tasks;
mod tiers;

pub use self::{
    build::check,
    demo::{Demo, DemoError, Exchange, Score, StagedReorg},
    error::StartError,
    file_limit::raise_file_limit,
    in_process::InProcess,
    start::{App, AppBuilder},
};
