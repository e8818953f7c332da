//! The methods of the node, answered as geth would.

mod answer;
pub(in crate::devchain) mod args;
pub(in crate::devchain) mod envelope;
mod filters;
pub(in crate::devchain) mod logs;
pub(in crate::devchain) mod methods;
mod raw;
mod reads;
mod wallet;
