//! The tier on disk: finalized blocks in an append-only log.
//!
//! ```text
//! DIR/lock                    locked by the process that uses the directory
//! DIR/chain                   the last chain followed
//! DIR/v2-1-d4e56740…/         one folder per chain: format, chain id, genesis
//!     00000007.seg            a segment: records, one after the other
//!     00000007.idx            the index of a full segment
//!     generation              the generation of segments whose numbers and transactions are valid
//!     finalized               the highest finalized block
//! ```
//!
//! - A part of a block is a record, appended to the newest segment by one call. The checksum of its head binds it to
//!   its position; a value has [its own](super::tier::Sealed). A record that fails its checksum is a miss.
//! - A full segment is *sealed*: it gets an index, and opening it reads only the index. Opening scans an unsealed
//!   segment, normally only the last, record by record, and cuts off an incomplete record at its end.
//! - When the directory is full, the writer deletes the oldest segment. It never rewrites or compacts: a finalized block
//!   does not change, and clients mostly ask for it while it is young.
//! - The writer does not sync records to the disk. A killed process loses nothing that it wrote; after a power cut,
//!   records that did not reach the disk fail their checksums. Only the note of the generation needs a sync.
//! - No file stays open but the lock: a reader opens the file it needs, which takes microseconds.

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
