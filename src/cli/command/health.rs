//! `holdfast health`

use std::time::Duration;

use clap::Args;
use http::StatusCode;

use crate::cli::{
    admin::{AdminTarget, not_admin},
    failure::Failure,
    output::say,
    runtime::run,
};
use crate::config::LogConfig;

/// Time limit of the check: longer than a healthy process takes, and shorter than the time limit of common container
/// probes.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Check whether a running instance is alive, or ready; for containers.
///
/// Exits with 0 if the check passes. Otherwise prints the reason and exits with 1. By default the check passes if the
/// process is alive, because a restart of the proxy does not help if the upstream is down.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct HealthArgs {
    #[command(flatten)]
    target: AdminTarget,

    /// Check whether the instance can answer calls, not only whether it is alive
    #[arg(long)]
    ready: bool,
}

const EXAMPLES: &str = "\
Examples:
  holdfast health                                for restarts: is the process alive?
  holdfast health --ready                        for load balancers: can it answer calls?
  holdfast health --admin 10.0.0.5:8556 --tls    an instance elsewhere, by TLS";

// === impl HealthArgs ===

impl HealthArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        let path = if self.ready { "/ready" } else { "/live" };
        run(&LogConfig::default(), async move {
            let reply = self.target.client(TIMEOUT)?.get(path).await.map_err(Failure::Other)?;
            let (status, text) = (reply.status, reply.text);
            // A degraded instance serves its cache; `/ready` answers 200 for it, too.
            let is_degraded = self.ready && text.starts_with("degraded: ");
            let is_well = status == StatusCode::OK && (text.trim() == &path[1..] || is_degraded);
            // If the check fails, the admin listener answers with another status than these, in plain text. The
            // client listener answers in JSON.
            let is_known =
                !matches!(status, StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
            if !is_well && (!is_known || text.starts_with('{')) {
                let admin = self.target.address();
                return Err(Failure::Other(format!("{admin}: {}", not_admin(path, status))));
            }
            say(text.trim())?;
            if is_well { Ok(()) } else { Err(Failure::Said) }
        })
    }
}
