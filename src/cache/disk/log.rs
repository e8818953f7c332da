//! The segments of one chain. [`Writer`](super::writer::Writer) enforces the size limit and serializes writes.
//!
//! Any thread may call the reading methods. Only `Writer` calls the writing methods, one at a time, so no two threads
//! change the index at once. Readers of the index never wait for the disk, because a writing method holds at most a
//! read lock while it writes a file.

use std::{fs, io, sync::Arc};

use bytes::Bytes;
use parking_lot::RwLock;
use tracing::warn;

use super::{
    folder::{self, Folder},
    index::{At, Index},
    record::{Draft, Head},
    segment::{self, Segment, Transactions},
    table::Table,
};
use crate::{
    cache::tier::Part,
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// The segments of one chain.
#[derive(Debug)]
pub(super) struct Log {
    folder: Folder,
    index: RwLock<Index>,
}

/// Where a transaction may be, found without reading the disk.
pub(super) enum Candidate {
    /// Record and position in an unsealed segment. The key in the index is only a part of the hash, so the record must
    /// be checked.
    Place { segment: u32, place: (u32, u32) },
    /// The table of a sealed segment, which may contain the transaction.
    Table { segment: u32, table: Arc<Table> },
}

// === impl Log ===

impl Log {
    /// Opens the log. Reads the indexes of sealed segments, and scans the records of the others.
    pub(super) fn open(folder: Folder) -> io::Result<Self> {
        fs::create_dir_all(folder.path())?;
        folder::sweep(folder.path())?;
        let ids = folder::segments(folder.path())?;
        let segments: Vec<_> = ids.iter().map(|id| Segment::open(&folder, *id)).collect();
        let mut index = Index::default();
        for mut segment in segments {
            if ids.last() != Some(&segment.id) && !segment.is_closed() {
                segment.close(seal(&segment, &folder).ok().flatten());
            }
            index.push(segment);
        }
        Ok(Self { folder, index: RwLock::new(index) })
    }

    // ## Reading

    /// Returns the segment and the head of the record that stores a part.
    pub(super) fn find(&self, part: Part, hash: BlockHash) -> Option<(u32, Head)> {
        self.index.read().find(part, hash).map(|(at, head)| (at.segment, head))
    }

    /// Reads the value of a part from the disk; `None` if the record is gone, or if its head or its transaction hashes
    /// are damaged. The caller checks the value itself.
    pub(super) fn value(&self, (segment, head): (u32, Head)) -> io::Result<Option<Bytes>> {
        segment::value(&self.folder, segment, &head)
    }

    pub(super) fn has(&self, part: Part, hash: BlockHash) -> bool {
        self.index.read().has(part, hash)
    }

    pub(super) fn hints(&self, from: BlockNumber, count: usize) -> Vec<Option<BlockHash>> {
        let index = self.index.read();
        (from.0..).take(count).map(|number| index.hint(BlockNumber(number))).collect()
    }

    /// Returns the locations where a transaction may be: usually none or one.
    pub(super) fn may_have(&self, transaction: TxHash) -> Vec<Candidate> {
        let key = segment::key(transaction);
        let candidate = |segment: &Segment| match &segment.transactions {
            Transactions::Recent(places) => {
                places.get(&key).map(|place| Candidate::Place { segment: segment.id, place: *place })
            }
            Transactions::Sealed(table) => {
                table.may_have(key).then(|| Candidate::Table { segment: segment.id, table: table.clone() })
            }
        };
        self.index.read().segments().filter_map(candidate).collect()
    }

    /// Checks the candidates against the disk, and returns the block that holds the transaction.
    pub(super) fn home_of(
        &self,
        transaction: TxHash,
        candidates: Vec<Candidate>,
    ) -> io::Result<Option<Home>> {
        for candidate in candidates {
            let (segment, place) = match candidate {
                Candidate::Place { segment, place } => (segment, Some(place)),
                Candidate::Table { segment, table } => {
                    (segment, segment::if_there(table.find(segment::key(transaction)))?)
                }
            };
            let Some((nth, position)) = place else { continue };
            let Some(block) = self.index.read().block_at(At { segment, nth }) else { continue };
            if segment::has_transaction(&self.folder, segment, &block, position, transaction)? {
                return Ok(Some(Home { block: block.hash, number: block.number }));
            }
        }
        Ok(None)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.index.read().bytes()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.index.read().blocks()
    }

    // ## Writing

    /// Returns whether the open segment has no room for `bytes` more, so that it must be [closed](Self::close) first.
    pub(super) fn is_full_for(&self, bytes: u64, longest: u64) -> bool {
        self.index.read().open_segment().is_some_and(|segment| segment.is_full_for(bytes, longest))
    }

    /// Size in bytes of the index that [`close`](Self::close) will write.
    pub(super) fn cost_of_closing(&self) -> u64 {
        self.index.read().open_segment().map_or(0, Segment::cost_of_sealing)
    }

    /// Closes the open segment and writes its index. The next record begins another segment.
    pub(super) fn close(&self) -> io::Result<()> {
        let sealed =
            self.index.read().open_segment().map(|segment| seal(segment, &self.folder)).transpose()?;
        if let Some(segment) = self.index.write().open_segment_mut() {
            segment.close(sealed.flatten());
        }
        Ok(())
    }

    /// Appends a record, completely or not at all.
    pub(super) fn append(&self, draft: &Draft) -> io::Result<()> {
        match self.try_to_append(draft) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The files are gone, probably because an operator deleted them. Continue with a new segment.
                if let Some(segment) = self.index.write().open_segment_mut() {
                    segment.close(None);
                }
                self.try_to_append(draft)
            }
            done => done,
        }
    }

    fn try_to_append(&self, draft: &Draft) -> io::Result<()> {
        if self.index.read().open_segment().is_none() {
            let id = self.index.read().next_segment();
            if id > folder::LAST_SEGMENT {
                return Err(io::Error::other(format!("no segment id left after {}", folder::LAST_SEGMENT)));
            }
            let segment = Segment::begin(&self.folder, id)?;
            self.index.write().push(segment);
        }
        let written =
            self.index.read().open_segment().map(|segment| segment.write(&self.folder, draft)).transpose()?;
        let index = &mut *self.index.write();
        if let (Some(head), Some(segment)) = (written, index.open_segment_mut()) {
            let nth = segment.add(head, &draft.transactions);
            let at = At { segment: segment.id, nth };
            index.note(at, &head);
        }
        Ok(())
    }

    /// Removes a part from the index in memory. Returns the block number, if the index had the part.
    pub(super) fn forget(&self, part: Part, hash: BlockHash) -> Option<BlockNumber> {
        self.index.write().forget(part, hash)
    }

    /// Deletes the oldest closed segment. Returns the number of blocks lost; `None` if no segment is closed.
    pub(super) fn evict(&self) -> io::Result<Option<u64>> {
        let Some(oldest) = self.index.read().oldest_closed() else { return Ok(None) };
        folder::delete(self.folder.path(), oldest)?;
        Ok(Some(self.index.write().drop_segment(oldest)))
    }
}

fn seal(segment: &Segment, folder: &Folder) -> io::Result<Option<Table>> {
    segment.seal(folder).inspect_err(|error| {
        warn!(
            %error,
            segment = segment.id,
            "cannot write the index of a disk cache segment; without it, the next start scans the segment"
        );
    })
}
