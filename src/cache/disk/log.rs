//! The segments of one chain. [`Writer`](super::writer::Writer) enforces the size limit and serializes writes.
//!
//! Any thread may call the reading methods. Only `Writer` calls the writing methods, one at a time, so no two threads
//! change the index at once. Readers of the index never wait for the disk, because a writing method holds at most a
//! read lock while it writes a file.

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

/// The segments of one chain.
#[derive(Debug)]
pub(super) struct Log {
    folder: Folder,
    index: RwLock<Index>,
}

/// Location where a transaction may be, found without reading the disk.
pub(super) enum Hint {
    /// Record and position in an unsealed segment. The key in the index is only a part of the hash, so the record must
    /// be checked.
    Place { segment: u32, place: (u32, u32) },
    /// The table of a sealed segment, which may contain the transaction.
    Table { segment: u32, table: Arc<Table> },
}

/// Length of the note of the finalized block: generation, number, hash. A note of an older generation is invalid.
const FINALIZED: usize = 4 + 8 + 32;

// === impl Log ===

impl Log {
    /// Opens the log. Reads the indexes of sealed segments, and scans the records of the others.
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

    pub(super) fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        self.index.read().hash_at(number)
    }

    pub(super) fn finalized(&self) -> Option<(BlockNumber, BlockHash)> {
        self.index.read().finalized
    }

    pub(super) fn above_finalized(&self) -> Vec<BlockHash> {
        self.index.read().above_finalized()
    }

    /// Returns the locations where a transaction may be: usually none or one.
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

    /// Checks the hints against the disk, and returns the block number and position of the transaction.
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
                self.begin_again()?;
                self.try_to_append(draft)
            }
            done => done,
        }
    }

    /// Closes the open segment after its files were deleted, and creates the folder and the note of the generation
    /// again.
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
                return Err(io::Error::other(format!("no segment id left after {}", folder::LAST_SEGMENT)));
            }
            let generation = self.index.read().generation;
            let segment = Segment::begin(&self.folder, id, generation)?;
            if !self.folder.generation().exists() {
                // The note was deleted with the other files. Write it again; otherwise, the next start would begin a
                // new generation, in which no existing number or transaction is valid.
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

    /// Removes a part from the index in memory. Returns the block number, if the index had the part.
    pub(super) fn forget(&self, part: Part, hash: BlockHash) -> Option<BlockNumber> {
        self.index.write().forget(part, hash)
    }

    /// Forgets numbers, transactions and the finalized block. After this function has succeeded, a crash does not bring
    /// them back.
    pub(super) fn forget_canonicity(&self) -> io::Result<()> {
        let generation = self.index.read().generation.saturating_add(1);
        self.index.write().forget_canonicity(generation);
        let noted = write_generation(&self.folder, generation).or_else(|error| {
            // Remove the old note instead, which even a full disk allows. Without a note, the next start begins a new
            // generation, in which no existing number or transaction is valid.
            fs::remove_file(self.folder.generation()).map_err(|_| error)
        });
        // Close the open segment even if the note failed, because new records must not go to a segment of the old
        // generation.
        if self.close().is_err()
            && let Some(segment) = self.index.write().open_segment_mut()
        {
            segment.close(None);
        }
        noted
    }

    /// Notes the highest finalized block. Ignores a block that is not above the noted one.
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

/// Returns the current generation. Numbers and transactions of older generations are invalid.
fn read_generation(folder: &Folder, segments: &[Segment]) -> io::Result<u32> {
    let finalized = finalized_note(folder).map(|(generation, ..)| generation);
    let last = segments.iter().map(|segment| segment.generation).chain(finalized).max();
    let noted = note::read(&folder.generation(), folder.seal()).map(u32::from_le_bytes);
    if let Some(noted) = noted.filter(|noted| Some(*noted) >= last) {
        return Ok(noted);
    }
    // The note is absent, or older than a segment or the note of the finalized block. Either the folder is new, or
    // forgetting canonicity could not write the note, or the directory was copied while in use. Begin a new generation,
    // so that no existing number or transaction is valid.
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
