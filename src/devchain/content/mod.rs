//! Blocks with true hashes, signatures and roots, and their JSON.

pub(in crate::devchain) mod accounts;
pub(in crate::devchain) mod block;
pub(in crate::devchain) mod dice;
pub(in crate::devchain) mod draft;
pub(in crate::devchain) mod execute;
pub(in crate::devchain) mod render;
pub(in crate::devchain) mod transactions;
pub(in crate::devchain) mod world;
