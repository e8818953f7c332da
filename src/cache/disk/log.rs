//! One chain's segments: all that a tier does, but for who may write and how much.
//!
//! Whatever reads may do so at any time. Whatever writes is called by one at a time, see [`Writer`](super::writer::Writer):
//! so nobody else ever waits to change the index, and looking at it never waits for the disk, not even while a writer looks
//! at it and writes.

use std::{fs, io, sync::Arc};

use alloy_primitives::B256;
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tracing::warn;

use super::{
    folder::{self, Folder},
    index::{At, Index},
    note::{self, Lasts},
    record::{Draft, Head},
    segment::{self, Segment, Transactions},
    table::Table,
};
use crate::{
    cache::tier::Part,
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
};

/// A chain's segments.
#[derive(Debug)]
pub(super) struct Log {
    folder: Folder,
    index: RwLock<Index>,
}

/// Where a transaction may be, as far as memory tells.
pub(super) enum Hint {
    /// There, if the record agrees.
    Place { segment: u32, place: (u32, u32) },
    /// In the table of this segment, or not.
    Table { segment: u32, table: Arc<Table> },
}

/// Since which segment numbers count, the number, the hash. With the first it is void once numbers were forgotten.
const FINALIZED: usize = 4 + 8 + 32;

// === impl Log ===

impl Log {
    /// Reads the indexes of full segments, and walks through the one that was being written.
    pub(super) fn open(folder: Folder) -> io::Result<Self> {
        fs::create_dir_all(folder.path())?;
        folder::sweep(folder.path())?;
        let ids = folder::segments(folder.path())?;
        let trusted = read_trusted(&folder, ids.last().copied())?;
        let mut index = Index::new(trusted, read_finalized(&folder, trusted));
        for id in &ids {
            let mut segment = Segment::open(&folder, *id);
            let goes_on = ids.last() == Some(id) && *id >= trusted;
            if !goes_on && !segment.is_closed() {
                segment.close(seal(&segment, &folder).ok().flatten());
            }
            index.push(segment);
        }
        Ok(Self { folder, index: RwLock::new(index) })
    }

    // ## Looking

    /// Where a part is: which segment, and what it is there.
    pub(super) fn find(&self, part: Part, hash: BlockHash) -> Option<(u32, Head)> {
        self.read().find(part, hash).map(|(at, head)| (at.segment, head))
    }

    /// What is there, if it still is. Reads from the disk.
    pub(super) fn value(&self, (segment, head): (u32, Head)) -> io::Result<Option<Bytes>> {
        segment::value(&self.folder, segment, &head)
    }

    pub(super) fn has(&self, part: Part, hash: BlockHash) -> bool {
        self.read().has(part, hash)
    }

    pub(super) fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.read().hash_at(number)
    }

    pub(super) fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.read().finalized
    }

    /// Where a transaction may be. Mostly nowhere, or at one place.
    pub(super) fn hints(&self, transaction: TxHash) -> Vec<Hint> {
        let key = segment::key(transaction);
        let hint = |segment: &Segment| match &segment.transactions {
            Transactions::Recent(places) => {
                places.get(&key).map(|place| Hint::Place { segment: segment.id, place: *place })
            }
            Transactions::Sealed(table) => {
                table.may_have(key).then(|| Hint::Table { segment: segment.id, table: table.clone() })
            }
        };
        self.read().trusted_segments().filter_map(hint).collect()
    }

    /// Where a transaction is, by these hints. Reads from the disk.
    pub(super) fn place_of(
        &self,
        transaction: TxHash,
        hints: Vec<Hint>,
    ) -> io::Result<Option<(BlockNumber, TxPosition)>> {
        for hint in hints {
            let (segment, place) = match hint {
                Hint::Place { segment, place } => (segment, Some(place)),
                Hint::Table { segment, table } => {
                    (segment, segment::if_there(table.find(segment::key(transaction)))?)
                }
            };
            let Some((nth, position)) = place else { continue };
            let Some(block) = self.read().block_at(At { segment, nth }) else { continue };
            if segment::has_transaction(&self.folder, segment, &block, position, transaction)? {
                return Ok(Some((block.number, TxPosition(position.into()))));
            }
        }
        Ok(None)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.read().bytes()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.read().blocks()
    }

    // ## Writing

    /// Is the open segment too full for so much more? Then it has to be [closed](Self::close) first.
    pub(super) fn is_full_for(&self, bytes: u64, longest: u64) -> bool {
        self.read().open_segment().is_some_and(|segment| segment.is_full_for(bytes, longest))
    }

    /// What the index will take of the segment that is open.
    pub(super) fn cost_of_closing(&self) -> u64 {
        self.read().open_segment().map_or(0, Segment::cost_of_sealing)
    }

    /// Closes the segment that is open: what comes goes to another one.
    pub(super) fn close(&self) -> io::Result<()> {
        let sealed = self.read().open_segment().map(|segment| seal(segment, &self.folder)).transpose()?;
        if let Some(segment) = self.write().open_segment_mut() {
            segment.close(sealed.flatten());
        }
        Ok(())
    }

    /// Adds a record. What cannot be written whole is not there.
    pub(super) fn append(&self, draft: &Draft) -> io::Result<()> {
        match self.try_to_append(draft) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody has cleared the directory: it goes on with another segment.
                self.begin_again()?;
                self.try_to_append(draft)
            }
            done => done,
        }
    }

    /// What was in the folder may be gone; from here on it is written to as before.
    fn begin_again(&self) -> io::Result<()> {
        fs::create_dir_all(self.folder.path())?;
        let trusted = {
            let mut index = self.write();
            if let Some(segment) = index.open_segment_mut() {
                segment.close(None);
            }
            index.trusted
        };
        write_trusted(&self.folder, trusted)
    }

    fn try_to_append(&self, draft: &Draft) -> io::Result<()> {
        if self.read().open_segment().is_none() {
            let id = self.read().next_segment();
            if id > folder::LAST_SEGMENT {
                return Err(io::Error::other(format!("no segment can follow on {}", folder::LAST_SEGMENT)));
            }
            let segment = Segment::begin(&self.folder, id)?;
            if !self.folder.trusted().exists() {
                // It was cleared with the rest: without it nothing would count after a start.
                write_trusted(&self.folder, self.read().trusted)?;
            }
            self.write().push(segment);
        }
        let written =
            self.read().open_segment().map(|segment| segment.write(&self.folder, draft)).transpose()?;
        let index = &mut *self.write();
        if let (Some(head), Some(segment)) = (written, index.open_segment_mut()) {
            let nth = segment.add(head, &draft.transactions);
            let at = At { segment: segment.id, nth };
            index.note(at, &head);
        }
        Ok(())
    }

    /// Forgets a part in memory. Returns its number, if it was there.
    pub(super) fn forget(&self, part: Part, hash: BlockHash) -> Option<BlockNumber> {
        self.write().forget(part, hash)
    }

    /// Numbers, places and what was final are forgotten, and will be after whatever comes once this returned.
    pub(super) fn forget_canonicity(&self) -> io::Result<()> {
        let trusted = {
            let index = self.read();
            // Higher in any case: a note of what is final is void by that.
            index.next_segment().max(index.trusted.saturating_add(1))
        };
        self.write().forget_canonicity(trusted);
        let noted = write_trusted(&self.folder, trusted).or_else(|error| {
            // Without a note nothing is trusted that is there. A disk that is full still allows this.
            fs::remove_file(self.folder.trusted()).map_err(|_| error)
        });
        // Whatever became of that: what comes must not go where nothing is trusted.
        if self.close().is_err()
            && let Some(segment) = self.write().open_segment_mut()
        {
            segment.close(None);
        }
        noted
    }

    /// This is final, and higher than what was known to be.
    pub(super) fn note_finalized(&self, number: BlockNumber, hash: BlockHash) -> io::Result<()> {
        let trusted = {
            let index = self.read();
            if index.finalized.is_some_and(|(known, _)| known >= number) {
                return Ok(());
            }
            index.trusted
        };
        let mut fact = [0; FINALIZED];
        fact[..4].copy_from_slice(&trusted.to_le_bytes());
        fact[4..12].copy_from_slice(&number.0.to_le_bytes());
        fact[12..].copy_from_slice(hash.0.as_slice());
        let write = || note::write(&self.folder.finalized(), self.folder.seal(), &fact, Lasts::Kill);
        match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.begin_again()?;
                write()?;
            }
            done => done?,
        }
        self.write().finalized = Some((number, hash));
        Ok(())
    }

    /// Deletes the oldest segment. Returns how many blocks are gone; `None` if there is none but the one being written.
    pub(super) fn evict(&self) -> io::Result<Option<u64>> {
        let Some(oldest) = self.read().oldest_closed() else { return Ok(None) };
        folder::delete(self.folder.path(), oldest)?;
        Ok(Some(self.write().drop_segment(oldest)))
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }
}

fn seal(segment: &Segment, folder: &Folder) -> io::Result<Option<Table>> {
    segment.seal(folder).inspect_err(|error| {
        warn!(%error, segment = segment.id, "the index of a segment of the disk cache cannot be written");
    })
}

/// From which segment on numbers and transactions count.
fn read_trusted(folder: &Folder, last: Option<u32>) -> io::Result<u32> {
    if let Some(noted) = note::read(&folder.trusted(), folder.seal()) {
        return Ok(u32::from_le_bytes(noted));
    }
    // Nothing that is there, if anything is: perhaps it was to be forgotten.
    let next = last.map_or(0, |last| last.saturating_add(1));
    let after = finalized_note(folder).map_or(0, |(since, ..)| since.saturating_add(1));
    let trusted = next.max(after);
    write_trusted(folder, trusted)?;
    Ok(trusted)
}

fn write_trusted(folder: &Folder, trusted: u32) -> io::Result<()> {
    note::write(&folder.trusted(), folder.seal(), &trusted.to_le_bytes(), Lasts::PowerCut)
}

fn read_finalized(folder: &Folder, trusted: u32) -> Option<(BlockNumber, BlockHash)> {
    finalized_note(folder).filter(|(since, ..)| *since == trusted).map(|(_, number, hash)| (number, hash))
}

fn finalized_note(folder: &Folder) -> Option<(u32, BlockNumber, BlockHash)> {
    let fact: [u8; FINALIZED] = note::read(&folder.finalized(), folder.seal())?;
    let (since, rest) = fact.split_first_chunk()?;
    let (number, hash) = rest.split_first_chunk()?;
    let number = BlockNumber(u64::from_le_bytes(*number));
    Some((u32::from_le_bytes(*since), number, BlockHash(B256::from_slice(hash))))
}
