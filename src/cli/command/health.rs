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

/// Longer than a healthy process ever takes, shorter than a container's patience.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Ask a running instance whether it is well; for containers.
///
/// Exits with 0 if it is, with 1 and the reason if it is not. Alive is enough by default, since an
/// upstream that is down is no reason to restart its proxy.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct HealthArgs {
    #[command(flatten)]
    target: AdminTarget,

    /// Ask whether it can answer calls, not only whether it is alive
    #[arg(long)]
    ready: bool,
}

const EXAMPLES: &str = "\
Examples:
  holdfast health                                is the process alive? For restarts
  holdfast health --ready                        can it answer calls? For taking traffic
  holdfast health --admin 10.0.0.5:8556 --tls    elsewhere, and by TLS";

// === impl HealthArgs ===

impl HealthArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Failure> {
        let path = if self.ready { "/ready" } else { "/live" };
        run(&LogConfig::default(), async move {
            let reply = self.target.client(TIMEOUT)?.get(path).await.map_err(Failure::Other)?;
            let (status, text) = (reply.status, reply.text);
            let is_well = status == StatusCode::OK && text.trim() == &path[1..];
            // Operators are told in plain text, clients in JSON; and the path is one that is served to operators.
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
