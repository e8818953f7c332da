//! One chain's segments: all that a tier does, but for who may write and how much.
//!
//! Whatever reads may do so at any time. Whatever writes is called by one at a time, see [`Writer`](super::writer::Writer):
//! so nobody else ever waits to change the index, and looking at it never waits for the disk, not even while a writer looks
//! at it and writes.

use std::{fs, io, sync::Arc};

use alloy_primitives::B256;
use bytes::Bytes;
use parking_lot::RwLock;
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

/// Generation, number, hash. Once numbers were forgotten, it is of an older generation, and void.
const FINALIZED: usize = 4 + 8 + 32;

// === impl Log ===

impl Log {
    /// Reads the indexes of full segments, and walks through the one that was being written.
    pub(super) fn open(folder: Folder) -> io::Result<Self> {
        fs::create_dir_all(folder.path())?;
        folder::sweep(folder.path())?;
        let ids = folder::segments(folder.path())?;
        let segments: Vec<_> = ids.iter().map(|id| Segment::open(&folder, *id)).collect();
        let generation = read_generation(&folder, &segments)?;
        let mut index = Index::new(generation, read_finalized(&folder, generation));
        for mut segment in segments {
            let goes_on = ids.last() == Some(&segment.id) && segment.generation == generation;
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
        self.index.read().find(part, hash).map(|(at, head)| (at.segment, head))
    }

    /// What is there, if it still is. Reads from the disk.
    pub(super) fn value(&self, (segment, head): (u32, Head)) -> io::Result<Option<Bytes>> {
        segment::value(&self.folder, segment, &head)
    }

    pub(super) fn has(&self, part: Part, hash: BlockHash) -> bool {
        self.index.read().has(part, hash)
    }

    pub(super) fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.index.read().hash_at(number)
    }

    pub(super) fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.index.read().finalized
    }

    pub(super) fn above_finalized(&self) -> Vec<BlockHash> {
        self.index.read().above_finalized()
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
        self.index.read().trusted_segments().filter_map(hint).collect()
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
            let Some(block) = self.index.read().block_at(At { segment, nth }) else { continue };
            if segment::has_transaction(&self.folder, segment, &block, position, transaction)? {
                return Ok(Some((block.number, TxPosition(position.into()))));
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

    /// Is the open segment too full for so much more? Then it has to be [closed](Self::close) first.
    pub(super) fn is_full_for(&self, bytes: u64, longest: u64) -> bool {
        self.index.read().open_segment().is_some_and(|segment| segment.is_full_for(bytes, longest))
    }

    /// What the index will take of the segment that is open.
    pub(super) fn cost_of_closing(&self) -> u64 {
        self.index.read().open_segment().map_or(0, Segment::cost_of_sealing)
    }

    /// Closes the segment that is open: what comes goes to another one.
    pub(super) fn close(&self) -> io::Result<()> {
        let sealed =
            self.index.read().open_segment().map(|segment| seal(segment, &self.folder)).transpose()?;
        if let Some(segment) = self.index.write().open_segment_mut() {
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
        let generation = {
            let mut index = self.index.write();
            if let Some(segment) = index.open_segment_mut() {
                segment.close(None);
            }
            index.generation
        };
        write_generation(&self.folder, generation)
    }

    fn try_to_append(&self, draft: &Draft) -> io::Result<()> {
        if self.index.read().open_segment().is_none() {
            let id = self.index.read().next_segment();
            if id > folder::LAST_SEGMENT {
                return Err(io::Error::other(format!("no segment can follow on {}", folder::LAST_SEGMENT)));
            }
            let generation = self.index.read().generation;
            let segment = Segment::begin(&self.folder, id, generation)?;
            if !self.folder.generation().exists() {
                // It was cleared with the rest: without it nothing would count after a start.
                write_generation(&self.folder, generation)?;
            }
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

    /// Forgets a part in memory. Returns its number, if it was there.
    pub(super) fn forget(&self, part: Part, hash: BlockHash) -> Option<BlockNumber> {
        self.index.write().forget(part, hash)
    }

    /// Numbers, places and what was final are forgotten, and will be after whatever comes once this returned.
    pub(super) fn forget_canonicity(&self) -> io::Result<()> {
        let generation = self.index.read().generation.saturating_add(1);
        self.index.write().forget_canonicity(generation);
        let noted = write_generation(&self.folder, generation).or_else(|error| {
            // Without a note nothing is trusted that is there. A disk that is full still allows this.
            fs::remove_file(self.folder.generation()).map_err(|_| error)
        });
        // Whatever became of that: what comes must not go where nothing is trusted.
        if self.close().is_err()
            && let Some(segment) = self.index.write().open_segment_mut()
        {
            segment.close(None);
        }
        noted
    }

    /// This is final, and higher than what was known to be.
    pub(super) fn note_finalized(&self, number: BlockNumber, hash: BlockHash) -> io::Result<()> {
        let generation = {
            let index = self.index.read();
            if index.finalized.is_some_and(|(known, _)| known >= number) {
                return Ok(());
            }
            index.generation
        };
        let mut fact = [0; FINALIZED];
        fact[..4].copy_from_slice(&generation.to_le_bytes());
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
        self.index.write().finalized = Some((number, hash));
        Ok(())
    }

    /// Deletes the oldest segment. Returns how many blocks are gone; `None` if there is none but the one being written.
    pub(super) fn evict(&self) -> io::Result<Option<u64>> {
        let Some(oldest) = self.index.read().oldest_closed() else { return Ok(None) };
        folder::delete(self.folder.path(), oldest)?;
        Ok(Some(self.index.write().drop_segment(oldest)))
    }
}

fn seal(segment: &Segment, folder: &Folder) -> io::Result<Option<Table>> {
    segment.seal(folder).inspect_err(|error| {
        warn!(%error, segment = segment.id, "the index of a segment of the disk cache cannot be written");
    })
}

/// The generation of numbers and transactions that count.
fn read_generation(folder: &Folder, segments: &[Segment]) -> io::Result<u32> {
    let finalized = finalized_note(folder).map(|(generation, ..)| generation);
    let last = segments.iter().map(|segment| segment.generation).chain(finalized).max();
    let noted = note::read(&folder.generation(), folder.seal()).map(u32::from_le_bytes);
    if let Some(noted) = noted.filter(|noted| Some(*noted) >= last) {
        return Ok(noted);
    }
    // Nothing that is there counts, if anything is: perhaps it was to be forgotten, or the note is the oldest file of a copy.
    let generation = last.map_or(0, |last| last.saturating_add(1));
    write_generation(folder, generation)?;
    Ok(generation)
}

fn write_generation(folder: &Folder, generation: u32) -> io::Result<()> {
    note::write(&folder.generation(), folder.seal(), &generation.to_le_bytes(), Lasts::PowerCut)
}

fn read_finalized(folder: &Folder, generation: u32) -> Option<(BlockNumber, BlockHash)> {
    finalized_note(folder).filter(|(of, ..)| *of == generation).map(|(_, number, hash)| (number, hash))
}

fn finalized_note(folder: &Folder) -> Option<(u32, BlockNumber, BlockHash)> {
    let fact: [u8; FINALIZED] = note::read(&folder.finalized(), folder.seal())?;
    let (generation, rest) = fact.split_first_chunk()?;
    let (number, hash) = rest.split_first_chunk()?;
    let number = BlockNumber(u64::from_le_bytes(*number));
    Some((u32::from_le_bytes(*generation), number, BlockHash(B256::from_slice(hash))))
}
