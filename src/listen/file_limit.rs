//! Makes sure there are files enough for the connections that are promised.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::info;

/// What became of the process's limit on open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// Files that may be open now; `None` if without limit.
    pub soft: Option<u64>,
}

/// Raises the soft limit on open files to `needed` where the hard one allows it.
///
/// What it could not do is for the caller to say, who knows what that means.
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
    FileLimit { soft: Some(soft) }
}
