//! The commands, one file each.

pub(in crate::cli) mod check;
pub(in crate::cli) mod completions;
pub(in crate::cli) mod demo;
pub(in crate::cli) mod health;
pub(in crate::cli) mod inspect;
pub(in crate::cli) mod key;
pub(in crate::cli) mod serve;
pub(in crate::cli) mod warm;
