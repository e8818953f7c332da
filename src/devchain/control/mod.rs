//! Commands of tests and tools: mine, fork, reorg, lag, prune, inspect.

pub(in crate::devchain) mod fork;
pub(in crate::devchain) mod handle;
pub(in crate::devchain) mod inspect;
pub(in crate::devchain) mod record;
