//! The index file of a full segment: all heads, a filter, and the transactions sorted by hash.
//!
//! Opening the file reads the heads and the filter, which share a checksum. The rows of the transactions stay on disk
//! and have no checksum. Instead, a lookup checks that the record has the full transaction hash at the position in the
//! row.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
};

use super::{
    filter::{self, Filter},
    folder::{Folder, Suffix},
    record::{FIELDS, Head},
};
use crate::cache::tier::ChainKey;

/// Length of the header: magic, chain, segment, length of the segment, number of heads, number of transactions.
const TOP: usize = 8 + ChainKey::LEN + 4 + 8 + 4 + 4;

const MAGIC: [u8; 8] = *b"HOLDFIDX";

/// Length of a row: first eight bytes of the transaction hash, index of the record in the segment, position of the
/// transaction in the record.
const ROW: usize = 8 + 4 + 4;

/// Number of rows per read. Hashes are evenly distributed, so even among 100,000 rows, a row is at most a few hundred
/// rows away from the position that its hash suggests.
const WINDOW: u64 = 1024;

/// Record and position of each transaction of a segment, by the first eight bytes of its hash.
pub(super) type Places = HashMap<u64, (u32, u32)>;

/// The index of a full segment.
#[derive(Debug)]
pub(super) struct Table {
    folder: Folder,
    id: u32,
    filter: Filter,
    rows: u64,
    rows_at: u64,
}

// === impl Table ===

impl Table {
    /// Length of the file in bytes.
    pub(super) fn size(heads: usize, rows: usize) -> u64 {
        rows_at(heads as u64, rows as u64) + (rows * ROW) as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows_at + self.rows * ROW as u64
    }

    /// Writes the file. If the process is killed meanwhile, the segment has no index rather than an incomplete one.
    pub(super) fn write(
        folder: &Folder,
        id: u32,
        end: u64,
        heads: &[Head],
        places: &Places,
    ) -> io::Result<Self> {
        let mut rows: Vec<_> = places.iter().map(|(key, place)| (*key, *place)).collect();
        rows.sort_unstable();
        let filter = Filter::new(places.keys().copied());
        let mut bytes = Vec::with_capacity(Self::size(heads.len(), rows.len()) as usize);
        bytes.extend(MAGIC);
        bytes.extend(folder.stamp(id).chain.to_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(end.to_le_bytes());
        bytes.extend((heads.len() as u32).to_le_bytes());
        bytes.extend((rows.len() as u32).to_le_bytes());
        bytes.extend(heads.iter().flat_map(|head| head.to_bytes()));
        bytes.extend(filter.to_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let rows_at = bytes.len() as u64;
        for (key, (record, nth)) in &rows {
            bytes.extend(key.to_le_bytes());
            bytes.extend(record.to_le_bytes());
            bytes.extend(nth.to_le_bytes());
        }
        let unfinished = folder.file(id, Suffix::Unfinished);
        let written = fs::write(&unfinished, &bytes)
            .and_then(|()| fs::rename(&unfinished, folder.file(id, Suffix::Index)));
        if let Err(error) = written {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        Ok(Self { folder: folder.clone(), id, filter, rows: rows.len() as u64, rows_at })
    }

    /// Reads the table of a segment whose first record begins at `first` and whose length is `end`. Returns `None` if
    /// the file is absent or damaged.
    pub(super) fn read(folder: &Folder, id: u32, first: u64, end: u64) -> Option<(Self, Vec<Head>)> {
        let file = File::open(folder.file(id, Suffix::Index)).ok()?;
        let mut top = [0; TOP];
        file.read_exact_at(&mut top, 0).ok()?;
        let (counts, said) = (top.last_chunk::<8>()?, &top[..TOP - 8]);
        let expected: Vec<u8> =
            [&MAGIC[..], &folder.stamp(id).chain.to_bytes(), &id.to_le_bytes(), &end.to_le_bytes()].concat();
        let count = |bytes: Option<&[u8; 4]>| bytes.map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
        let (heads, rows) = (count(counts.first_chunk())?, count(counts.last_chunk())?);
        let rows_at = rows_at(heads, rows);
        // Check the counts against the length of the file, so that damaged counts do not allocate more memory than the
        // file has bytes.
        if said != expected || file.metadata().ok()?.len() != rows_at + rows * ROW as u64 {
            return None;
        }
        let mut bytes = vec![0; rows_at as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (bytes, sum) = bytes.split_last_chunk()?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(*sum) {
            return None;
        }
        let (fields, lines) = bytes.get(TOP..)?.split_at_checked(heads as usize * FIELDS)?;
        let mut at = first;
        let mut read = Vec::with_capacity(heads as usize);
        for fields in fields.as_chunks().0 {
            let head = Head::from_bytes(fields, at)?;
            at = head.end();
            read.push(head);
        }
        let table = Self { folder: folder.clone(), id, filter: Filter::from_bytes(lines), rows, rows_at };
        (at == end).then_some((table, read))
    }

    /// Returns whether the segment may have a transaction with this key. If this is `false`, the segment has none.
    pub(super) fn may_have(&self, key: u64) -> bool {
        self.filter.may_have(key)
    }

    /// Returns the record and position of a transaction. Nearly always needs one read.
    pub(super) fn find(&self, key: u64) -> io::Result<Option<(u32, u32)>> {
        let file = File::open(self.folder.file(self.id, Suffix::Index))?;
        let guess = (u128::from(key) * u128::from(self.rows)) >> 64;
        let mut first = (guess as u64).saturating_sub(WINDOW / 2);
        let mut upwards = None;
        loop {
            let count = WINDOW.min(self.rows.saturating_sub(first));
            let mut rows = vec![0; count as usize * ROW];
            file.read_exact_at(&mut rows, self.rows_at + first * ROW as u64)?;
            let rows = rows.as_chunks::<ROW>().0;
            match rows.binary_search_by_key(&key, |row| parse(row).0) {
                Ok(at) => return Ok(rows.get(at).map(|row| parse(row).1)),
                // Never change the direction: damaged rows may be unsorted, and the search would not end.
                Err(0) if first > 0 && upwards != Some(true) => {
                    first = first.saturating_sub(WINDOW);
                    upwards = Some(false);
                }
                Err(at) if at as u64 == count && first + count < self.rows && upwards != Some(false) => {
                    first += WINDOW;
                    upwards = Some(true);
                }
                Err(_) => return Ok(None),
            }
        }
    }
}

fn rows_at(heads: u64, rows: u64) -> u64 {
    TOP as u64 + heads * FIELDS as u64 + Filter::lines(rows) * filter::LINE as u64 + 4
}

fn parse(row: &[u8; ROW]) -> (u64, (u32, u32)) {
    let (key, place) = row.split_first_chunk().unwrap_or((&[0; 8], &[]));
    let number = |bytes: Option<&[u8; 4]>| bytes.map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
    (u64::from_le_bytes(*key), (number(place.first_chunk()), number(place.last_chunk())))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;
    use crate::{
        cache::{
            disk::{record::Kind, scratch::Scratch},
            tier::Part,
        },
        eth::{BlockHash, BlockNumber},
    };

    const FIRST: u64 = 57;

    fn folder(scratch: &Scratch) -> Folder {
        let folder = Folder::new(scratch, ChainKey { id: 1, genesis: B256::ZERO });
        fs::create_dir_all(folder.path()).unwrap();
        folder
    }

    fn heads(count: u8) -> Vec<Head> {
        let mut at = FIRST as u32;
        let head = |nth| {
            let hash = BlockHash(B256::repeat_byte(nth));
            let number = BlockNumber(nth.into());
            let head = Head { kind: Kind::Kept(Part::Block), number, hash, at, transactions: 3, length: 9 };
            at = head.end() as u32;
            head
        };
        (0..count).map(head).collect()
    }

    /// Returns places whose keys are `spread` apart. With a large `spread`, the keys are distributed as evenly as
    /// hashes; with a small one, they are close together.
    fn places(count: u32, spread: u64) -> Places {
        (0..count).map(|nth| (u64::from(nth + 1).wrapping_mul(spread), (nth, nth + 1))).collect()
    }

    #[test]
    fn every_row_is_found() {
        let scratch = Scratch::new();
        let folder = folder(&scratch);
        for (count, spread) in [(0, 1), (1, 1), (5_000, 1), (5_000, u64::MAX / 5_001), (5_000, u64::MAX)] {
            let places = places(count, spread);
            Table::write(&folder, 7, FIRST, &[], &places).unwrap();
            let (table, _) = Table::read(&folder, 7, FIRST, FIRST).unwrap();
            assert_eq!(table.bytes(), Table::size(0, places.len()));
            for (key, place) in &places {
                assert!(table.may_have(*key));
                assert_eq!(table.find(*key).unwrap(), Some(*place), "{key} of {count}");
            }
            assert_eq!(table.find(spread / 2 + 7_777_777).unwrap(), None);
        }
    }

    #[test]
    fn table_is_read_only_for_its_own_segment() {
        let scratch = Scratch::new();
        let folder = folder(&scratch);
        let heads = heads(4);
        let end = heads[3].end();
        Table::write(&folder, 7, end, &heads, &places(12, 1 << 60)).unwrap();
        assert_eq!(Table::read(&folder, 7, FIRST, end).unwrap().1, heads);
        assert!(Table::read(&folder, 7, FIRST, end + 1).is_none(), "a longer segment");
        fs::copy(folder.file(7, Suffix::Index), folder.file(8, Suffix::Index)).unwrap();
        assert!(Table::read(&folder, 8, FIRST, end).is_none(), "another segment");
        let other = Folder::new(&scratch, ChainKey { id: 2, genesis: B256::ZERO });
        fs::rename(folder.path(), other.path()).unwrap();
        assert!(Table::read(&other, 7, FIRST, end).is_none(), "another chain");
    }

    #[test]
    fn damage_to_heads_and_filter_is_detected() {
        let scratch = Scratch::new();
        let folder = folder(&scratch);
        let heads = heads(2);
        let end = heads[1].end();
        let path = folder.file(7, Suffix::Index);
        let table = Table::write(&folder, 7, end, &heads, &places(3, 1 << 60)).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for bit in [1, 128] {
                let mut bytes = whole.clone();
                bytes[at] ^= bit;
                fs::write(&path, bytes).unwrap();
                let is_read = Table::read(&folder, 7, FIRST, end).is_some();
                assert_eq!(is_read, at as u64 >= table.rows_at, "byte {at}");
            }
            fs::write(&path, &whole[..at]).unwrap();
            assert!(Table::read(&folder, 7, FIRST, end).is_none(), "only {at} bytes");
        }
    }
}
