//! A segment: a file of records, one after the other, and what is known of it in memory.

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

/// Magic, chain (with the format), id, generation, and their sum.
pub(super) const HEADER: usize = 8 + ChainKey::LEN + 4 + 4 + 4;

/// More records than this do not come into one segment, however short they are: forgetting one, and sealing it, stays quick.
const MOST: usize = 1 << 16;

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u32,
    /// The generation of numbers and transactions when it was begun.
    pub(super) generation: u32,
    /// Of all its records.
    pub(super) heads: Vec<Head>,
    /// Where the next record would begin.
    end: u64,
    pub(super) transactions: Transactions,
    /// Nothing is added any more.
    is_closed: bool,
}

/// Where its transactions are.
#[derive(Debug)]
pub(super) enum Transactions {
    /// In memory, as long as it is written.
    Recent(Places),
    /// On disk.
    Sealed(Arc<Table>),
}

// === impl Segment ===

impl Segment {
    /// An empty one.
    pub(super) fn begin(folder: &Folder, id: u32, generation: u32) -> io::Result<Self> {
        // Somebody may have cleared the directory.
        fs::create_dir_all(folder.path())?;
        // One that was left behind by hand would be of this id.
        let _ = fs::remove_file(folder.file(id, Suffix::Index));
        let path = folder.file(id, Suffix::Segment);
        if let Err(error) = fs::write(&path, header(folder, id, generation)) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self::with(id, generation, HEADER as u64))
    }

    /// One that was written before. Whatever is damaged is not there.
    pub(super) fn open(folder: &Folder, id: u32) -> Self {
        let path = folder.file(id, Suffix::Segment);
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                warn!(%error, segment = %path.display(), "a segment of the disk cache cannot be read: left alone");
                return Self::closed(id, 0);
            }
        };
        let mut said = [0; HEADER];
        let is_read = file.read_exact_at(&mut said, 0).is_ok();
        let generation = u32::from_le_bytes([said[53], said[54], said[55], said[56]]);
        if !is_read || said != header(folder, id, generation) {
            warn!(
                segment = %path.display(),
                "a segment of the disk cache is damaged, or of another chain or format: left alone until its room is needed"
            );
            return Self::closed(id, length);
        }
        if let Some((table, heads)) = Table::read(folder, id, HEADER as u64, length) {
            let transactions = Transactions::Sealed(Arc::new(table));
            return Self { id, generation, heads, end: length, transactions, is_closed: true };
        }
        Self::walk(folder, id, generation, &file, length)
    }

    /// Reads one without an index from record to record, up to the first that is not whole; the rest is cut off.
    fn walk(folder: &Folder, id: u32, generation: u32, file: &File, length: u64) -> Self {
        let mut segment = Self::with(id, generation, HEADER as u64);
        loop {
            match Head::read(file, folder.stamp(id), segment.end, length) {
                Ok(Some((head, transactions))) => {
                    segment.add(head, &transactions);
                }
                Ok(None) => break,
                // The disk may do better another time: what cannot be read is not cut off, and not written over.
                Err(error) => {
                    warn!(%error, segment = id, "a segment of the disk cache cannot be read to its end");
                    segment.is_closed = true;
                    segment.end = length;
                    return segment;
                }
            }
        }
        if segment.end < length {
            debug!(segment = id, bytes = length - segment.end, "cut off what was not written whole");
            let path = folder.file(id, Suffix::Segment);
            // Not done, it is done the next time; nothing reads what is there.
            let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(segment.end));
        }
        segment
    }

    fn with(id: u32, generation: u32, end: u64) -> Self {
        let transactions = Transactions::Recent(Places::new());
        Self { id, generation, heads: Vec::new(), end, transactions, is_closed: false }
    }

    /// One that has nothing, and takes room.
    fn closed(id: u32, length: u64) -> Self {
        Self { is_closed: true, ..Self::with(id, 0, length) }
    }

    /// What it takes on disk.
    pub(super) fn bytes(&self) -> u64 {
        match &self.transactions {
            Transactions::Recent(_) => self.end,
            Transactions::Sealed(table) => self.end + table.bytes(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether this many bytes should go to another one. The first record may be longer than a segment should be.
    pub(super) fn is_full_for(&self, bytes: u64, longest: u64) -> bool {
        self.heads.len() >= MOST || (!self.heads.is_empty() && self.end + bytes > longest)
    }

    /// What its index will take.
    pub(super) fn cost_of_sealing(&self) -> u64 {
        match &self.transactions {
            Transactions::Recent(places) => Table::size(self.heads.len(), places.len()),
            Transactions::Sealed(_) => 0,
        }
    }

    /// Writes the index beside it; `None` if there is one.
    pub(super) fn seal(&self, folder: &Folder) -> io::Result<Option<Table>> {
        match &self.transactions {
            Transactions::Recent(places) => {
                Table::write(folder, self.id, self.end, &self.heads, places).map(Some)
            }
            Transactions::Sealed(_) => Ok(None),
        }
    }

    /// Nothing is added to it from here on.
    pub(super) fn close(&mut self, sealed: Option<Table>) {
        self.is_closed = true;
        if let Some(table) = sealed {
            self.transactions = Transactions::Sealed(Arc::new(table));
        }
    }

    /// Writes a record at its end, which only [`add`](Self::add) makes known.
    pub(super) fn write(&self, folder: &Folder, draft: &Draft) -> io::Result<Head> {
        let at = u32::try_from(self.end).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let head = Head { at, ..draft.head };
        let file = OpenOptions::new().write(true).open(folder.file(self.id, Suffix::Segment))?;
        file.write_all_at(&draft.to_bytes(folder.stamp(self.id), at), self.end).inspect_err(|_| {
            // It would be cut off at the next opening; the room may be needed before.
            let _ = file.set_len(self.end);
        })?;
        Ok(head)
    }

    /// A record was written. Returns which it is of all here.
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

/// What a segment of this folder begins with.
fn header(folder: &Folder, id: u32, generation: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..49].copy_from_slice(&folder.stamp(id).chain.to_bytes());
    bytes[49..53].copy_from_slice(&id.to_le_bytes());
    bytes[53..57].copy_from_slice(&generation.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..57]);
    bytes[57..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The beginning of a transaction's hash. The record has all of it.
pub(super) fn key(transaction: TxHash) -> u64 {
    transaction.0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The value of a record; `None` if it is no longer there, or no longer whole.
pub(super) fn value(folder: &Folder, id: u32, head: &Head) -> io::Result<Option<Bytes>> {
    if_there(
        File::open(folder.file(id, Suffix::Segment))
            .and_then(|file| head.read_value(&file, folder.stamp(id))),
    )
}

/// Whether this is the record's transaction at this place.
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

/// A file that is gone, or shorter than it was, is a miss: it made room meanwhile, or was damaged.
pub(super) fn if_there<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        other => other,
    }
}
