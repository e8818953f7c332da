//! Raises the limit on open files to fit the configured number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::debug;

/// The process's limit on open files, after the attempt to raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// Maximum number of open files; `None` if unlimited.
    pub soft: Option<u64>,
}

/// Raises the soft limit on open files to `needed`, as far as the hard limit allows.
///
/// If the limit is still too low, the caller reports it, because only the caller knows the consequences.
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
        debug!(files = soft, "raised the limit on open files");
    }
    FileLimit { soft: Some(soft) }
}
