//! Drives a chain: mine, fork, reorg, lag, prune, inspect; answers requests in process.

pub(in crate::devchain) mod handle;
pub(in crate::devchain) mod record;
pub(in crate::devchain) mod serve;
