//! Faults and lies, and which call they strike.

pub(in crate::devchain) mod bend;
pub(in crate::devchain) mod fault;
pub(in crate::devchain) mod lie;
pub(in crate::devchain) mod logs;
pub(in crate::devchain) mod omit;
