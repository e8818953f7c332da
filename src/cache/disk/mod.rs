//! The tier on disk: finalized blocks in an append-only log.
//!
//! ```text
//! DIR/lock                    locked by the process that uses the directory
//! DIR/chain                   the last chain followed
//! DIR/v3-1-d4e56740…/         one folder per chain: format, chain id, genesis
//!     00000007.seg            a segment: records, one after the other
//!     00000007.idx            the index of a full segment
//! ```
//!
//! - Each part of a block is a record: the header, the block, its receipts. The writer appends it to the newest segment with one write call. The checksum in
//!   the head of a record also covers the position of the record; a value has [its own checksum](super::tier::Sealed).
//!   A record that does not match its checksum is a miss.
//! - The writer *seals* a full segment, which means that it writes an index file. To open a sealed segment, Holdfast
//!   reads only the index. It scans an unsealed segment (normally only the last one) record by record, and cuts off an
//!   incomplete record at the end.
//! - When the directory is full, the writer deletes the oldest segment. It never rewrites or compacts segments, because
//!   finalized blocks do not change and clients mostly ask for recent blocks.
//! - The writer does not sync records to the disk. If the process is killed, no written record is lost. After a power
//!   cut, records that did not reach the disk do not match their checksums.
//! - Only the lock file stays open. A reader opens the file it needs, which takes microseconds.

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
