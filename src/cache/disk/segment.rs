//! A segment: a file of records, and its index in memory.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    sync::Arc,
};

use bytes::Bytes;
use tracing::{debug, warn};

use super::{
    folder::{Folder, Suffix},
    record::{Draft, Head},
    table::{Places, Table},
};
use crate::{cache::tier::ChainKey, eth::TxHash};

const MAGIC: [u8; 8] = *b"HOLDFSEG";

/// Length of the header: magic, chain (with the format), id, and their checksum.
pub(super) const HEADER: usize = 8 + ChainKey::LEN + 4 + 4;

/// Maximum number of records in a segment. The limit keeps evicting and sealing a segment quick.
const MOST: usize = 1 << 16;

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u32,
    /// Heads of all records.
    pub(super) heads: Vec<Head>,
    /// Offset of the next record.
    end: u64,
    pub(super) transactions: Transactions,
    /// Whether the segment accepts no more records.
    is_closed: bool,
}

/// Index of a segment's transactions.
#[derive(Debug)]
pub(super) enum Transactions {
    /// All transactions of an unsealed segment, in memory.
    Recent(Places),
    /// The transactions of a sealed segment, on disk, with a filter in memory.
    Sealed(Arc<Table>),
}

// === impl Segment ===

impl Segment {
    /// Creates an empty segment.
    pub(super) fn begin(folder: &Folder, id: u32) -> io::Result<Self> {
        // An operator may have deleted the folder.
        fs::create_dir_all(folder.path())?;
        // Remove a stale index with this id. There is one if an operator deleted only the segment.
        let _ = fs::remove_file(folder.file(id, Suffix::Index));
        let path = folder.file(id, Suffix::Segment);
        if let Err(error) = fs::write(&path, header(folder, id)) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self::with(id, HEADER as u64))
    }

    /// Opens an existing segment. Damage is not an error: a damaged segment has fewer records, or none.
    pub(super) fn open(folder: &Folder, id: u32) -> Self {
        let path = folder.file(id, Suffix::Segment);
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                warn!(%error, segment = %path.display(), "cannot read a disk cache segment; ignoring it");
                return Self::closed(id, 0);
            }
        };
        let mut said = [0; HEADER];
        let is_read = file.read_exact_at(&mut said, 0).is_ok();
        if !is_read || said != header(folder, id) {
            warn!(
                segment = %path.display(),
                "disk cache segment is damaged or of another chain or format; ignoring it until it is evicted"
            );
            return Self::closed(id, length);
        }
        if let Some((table, heads)) = Table::read(folder, id, HEADER as u64, length) {
            let transactions = Transactions::Sealed(Arc::new(table));
            return Self { id, heads, end: length, transactions, is_closed: true };
        }
        Self::walk(folder, id, &file, length)
    }

    /// Scans a segment without an index up to the first incomplete or damaged record, and cuts off the rest.
    fn walk(folder: &Folder, id: u32, file: &File, length: u64) -> Self {
        let mut segment = Self::with(id, HEADER as u64);
        loop {
            match Head::read(file, folder.stamp(id), segment.end, length) {
                Ok(Some((head, transactions))) => {
                    segment.add(head, &transactions);
                }
                Ok(None) => break,
                // The error may be temporary, so neither cut off nor overwrite the records that cannot be read now.
                Err(error) => {
                    warn!(%error, segment = id, "cannot read the end of a disk cache segment; ignoring that part");
                    segment.is_closed = true;
                    segment.end = length;
                    return segment;
                }
            }
        }
        if segment.end < length {
            debug!(segment = id, bytes = length - segment.end, "cut off an incomplete disk cache record");
            let path = folder.file(id, Suffix::Segment);
            // If truncating the file fails, the next start tries again. Nothing reads the bytes after `segment.end`.
            let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(segment.end));
        }
        segment
    }

    fn with(id: u32, end: u64) -> Self {
        let transactions = Transactions::Recent(Places::new());
        Self { id, heads: Vec::new(), end, transactions, is_closed: false }
    }

    /// Returns a closed segment without records that takes `length` bytes on disk.
    fn closed(id: u32, length: u64) -> Self {
        Self { is_closed: true, ..Self::with(id, length) }
    }

    /// Size on disk in bytes, with the index.
    pub(super) fn bytes(&self) -> u64 {
        match &self.transactions {
            Transactions::Recent(_) => self.end,
            Transactions::Sealed(table) => self.end + table.bytes(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether a record of `bytes` bytes should go to another segment. An empty segment accepts a record that
    /// is longer than `longest`.
    pub(super) fn is_full_for(&self, bytes: u64, longest: u64) -> bool {
        self.heads.len() >= MOST || (!self.heads.is_empty() && self.end + bytes > longest)
    }

    /// Size in bytes of the index that [`seal`](Self::seal) would write.
    pub(super) fn cost_of_sealing(&self) -> u64 {
        match &self.transactions {
            Transactions::Recent(places) => Table::size(self.heads.len(), places.len()),
            Transactions::Sealed(_) => 0,
        }
    }

    /// Writes the index file; `None` if there is one already.
    pub(super) fn seal(&self, folder: &Folder) -> io::Result<Option<Table>> {
        match &self.transactions {
            Transactions::Recent(places) => {
                Table::write(folder, self.id, self.end, &self.heads, places).map(Some)
            }
            Transactions::Sealed(_) => Ok(None),
        }
    }

    /// Closes the segment, so that it accepts no more records. `sealed` is its index, if one was written.
    pub(super) fn close(&mut self, sealed: Option<Table>) {
        self.is_closed = true;
        if let Some(table) = sealed {
            self.transactions = Transactions::Sealed(Arc::new(table));
        }
    }

    /// Writes a record at the end of the file. Readers do not find it before [`add`](Self::add).
    pub(super) fn write(&self, folder: &Folder, draft: &Draft) -> io::Result<Head> {
        let at = u32::try_from(self.end).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let head = Head { at, ..draft.head };
        let file = OpenOptions::new().write(true).open(folder.file(self.id, Suffix::Segment))?;
        file.write_all_at(&draft.to_bytes(folder.stamp(self.id), at), self.end).inspect_err(|_| {
            // Free the space now; otherwise, only the next start would free it.
            let _ = file.set_len(self.end);
        })?;
        Ok(head)
    }

    /// Adds a written record to the index in memory, and returns its position in `heads`.
    pub(super) fn add(&mut self, head: Head, transactions: &[TxHash]) -> u32 {
        let nth = self.heads.len() as u32;
        if let Transactions::Recent(places) = &mut self.transactions {
            places.extend((0..).zip(transactions).map(|(at, hash)| (key(*hash), (nth, at))));
        }
        self.end = head.end();
        self.heads.push(head);
        nth
    }
}

/// Returns the header of a segment of this folder.
fn header(folder: &Folder, id: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..49].copy_from_slice(&folder.stamp(id).chain.to_bytes());
    bytes[49..53].copy_from_slice(&id.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..53]);
    bytes[53..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the key of a transaction in the index: the first eight bytes of its hash. The record has the full hash.
pub(super) fn key(transaction: TxHash) -> u64 {
    transaction.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Reads the value of a record; `None` if the record is gone, or if its head or its transaction hashes are damaged. The
/// caller checks the value itself.
pub(super) fn value(folder: &Folder, id: u32, head: &Head) -> io::Result<Option<Bytes>> {
    if_there(
        File::open(folder.file(id, Suffix::Segment))
            .and_then(|file| head.read_value(&file, folder.stamp(id))),
    )
}

/// Returns whether `transaction` is the record's `nth` transaction.
pub(super) fn has_transaction(
    folder: &Folder,
    id: u32,
    head: &Head,
    nth: u32,
    transaction: TxHash,
) -> io::Result<bool> {
    let Some(at) = head.transaction_at(nth) else { return Ok(false) };
    let mut hash = [0; 32];
    let read =
        File::open(folder.file(id, Suffix::Segment)).and_then(|file| file.read_exact_at(&mut hash, at));
    Ok(if_there(read.map(Some))?.is_some() && transaction.0 == hash)
}

/// Turns the error of a missing or truncated file into `None`, because the segment was evicted meanwhile or is damaged.
pub(super) fn if_there<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        other => other,
    }
}
