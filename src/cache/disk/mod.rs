//! Final blocks in a directory: a log of our own.
//!
//! ```text
//! DIR/lock                    held by the one process that uses the directory
//! DIR/chain                   the chain that was last followed
//! DIR/v2-1-d4e56740…/         one folder a chain: format, chain id, genesis
//!     00000007.seg            a segment: records, one after the other
//!     00000007.idx            what is in it, once it is full
//!     generation              which segments have numbers and transactions that count
//!     finalized               the highest final block
//! ```
//!
//! - A part of a block is a record, written by one call at the end of the newest segment. Its head has a sum that binds it
//!   to its place; a value has [its own](super::tier::Sealed). Whatever fails its sum is a miss.
//! - A full segment is *sealed*: it gets an index, and opening reads no more than that. Only the last one is walked through;
//!   what was not written whole at its end is cut off.
//! - The oldest segment is deleted when there is no more room. Nothing is ever rewritten, nothing compacted: what is final is
//!   written once, and mostly asked for while it is young.
//! - No record waits for the disk. A killed process loses nothing that was written; after a power cut, records that did
//!   not reach the disk fail their sums. Only that canonicity was forgotten is waited for.
//! - No file is held open but the lock: a reader opens what it reads, which costs microseconds.

mod error;
mod filter;
mod folder;
mod idle;
mod index;
mod log;
mod note;
mod record;
#[cfg(test)]
mod scratch;
mod segment;
mod table;
mod tier;
mod writer;

pub use self::{error::DiskError, tier::Disk};
