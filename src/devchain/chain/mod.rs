//! The node's state: tree of blocks, mempool, filters, and the part that clients see.

pub(in crate::devchain) mod error;
pub(in crate::devchain) mod filters;
pub(in crate::devchain) mod mempool;
pub(in crate::devchain) mod state;
pub(in crate::devchain) mod tree;
pub(in crate::devchain) mod view;
pub(in crate::devchain) mod visibility;
