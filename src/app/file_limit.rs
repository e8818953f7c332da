//! Raises the limit on open files to fit the configured number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::debug;

/// Raises the soft limit on open files to `needed`, as far as the hard limit allows. Returns the soft limit; `None` if
/// there is none.
///
/// If the limit is still too low, the caller reports it, because only the caller knows the consequences.
pub fn raise_file_limit(needed: u64) -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let soft = current?;
    let wanted = maximum.map_or(needed, |hard| hard.min(needed));
    if wanted <= soft || setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_err() {
        return current;
    }
    debug!(files = wanted, "raised the limit on open files");
    Some(wanted)
}
