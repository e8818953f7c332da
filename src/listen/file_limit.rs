//! Makes sure there are files enough for the connections that are promised.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// What became of the process's limit on open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// Files that may be open now; `None` if without limit.
    pub soft: Option<u64>,
}

/// Raises the soft limit on open files to `needed` where the hard one allows it.
///
/// Says in the log what it did, and what an operator must do where that was not enough.
pub fn raise_file_limit(needed: u64) -> FileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|soft| *soft < needed) else {
        return FileLimit { soft: current };
    };
    let wanted = maximum.map_or(needed, |hard| hard.min(needed));
    let raised =
        wanted > soft && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    let soft = if raised { wanted } else { soft };
    if raised {
        info!(files = soft, "raised the limit on open files");
    }
    if soft < needed {
        warn!(
            files = soft,
            needed,
            "the limit on open files is too low for connections.max; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    FileLimit { soft: Some(soft) }
}
