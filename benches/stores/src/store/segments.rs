//! A prototype of the design that became `src/cache/disk`: what is there now has learned more since.
//!
//! A log of our own: blocks are appended to segment files, the oldest file is deleted when the limit is reached.
//!
//! - A block is one record, written by one call: a head (number, hash, lengths, checksums, hashes of its
//!   transactions, checksum of the head), then the body, then the receipts. A reader checks what it reads;
//!   whatever fails the check is a miss.
//! - A full segment is *sealed*: beside `7.seg` comes `7.idx`, with the heads in short, a filter of
//!   its transactions, and their table in order of hash. Opening reads the first two of each sealed segment, and
//!   walks the heads of the one that was not sealed; a torn record at its end is cut off.
//! - In memory are the blocks (about 150 bytes each) and the filters (10 bits a transaction). A transaction is
//!   looked for in the filters of all segments, then with one read in the table of the one that has it: hashes are
//!   even, so its row is near where its first bytes say. The hash in the record decides.
//! - Nothing is synced. A killed process loses nothing that was written; after a power cut, records
//!   that did not reach the disk fail their checksum and are misses.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock},
};

use super::{Place, Result, Store};
use crate::data::{Block, Hash, Value, mix};

/// Changed with the layout of a record or of an index; files of another format are not opened.
const MAGIC: u32 = u32::from_le_bytes(*b"HFS1");

/// Magic, number, hash, lengths and checksums of both values, number of transactions.
const HEAD: usize = 4 + 8 + 32 + 4 * 4 + 2;

/// A row of the table of transactions: eight bytes of hash, which block of the segment, which transaction of it.
const ROW: usize = 8 + 2 + 2;

/// Rows read at a time: the row wanted is within a few hundred of where its hash says, for tables of 100,000.
const WINDOW: usize = 1024;

const LARGEST_SEGMENT: u64 = 64 << 20;

pub struct Segments {
    dir: PathBuf,
    limit: u64,
    index: RwLock<Index>,
    /// Held for a whole `put`; readers never wait for it.
    writer: Mutex<()>,
    _lock: File,
}

#[derive(Default)]
struct Index {
    blocks: HashMap<Hash, Location>,
    numbers: HashMap<u64, Hash>,
    /// By age; the last one is being written.
    segments: BTreeMap<u32, Segment>,
    /// Transactions of the segment being written.
    recent: HashMap<u64, (u16, u16)>,
}

struct Segment {
    file: Arc<File>,
    bytes: u64,
    blocks: Vec<Location>,
    sealed: Option<Sealed>,
}

struct Sealed {
    file: Arc<File>,
    filter: Filter,
    rows: usize,
    rows_at: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Location {
    number: u64,
    hash: Hash,
    segment: u32,
    offset: u32,
    body: Part,
    receipts: Part,
    transactions: u16,
}

#[derive(Clone, Copy)]
struct Part {
    length: u32,
    checksum: u32,
}

/// A Bloom filter whose every key touches one line of cache.
struct Filter(Vec<[u64; 8]>);

// === impl Segments ===

impl Segments {
    /// Fails with a clear error if another process has the directory.
    pub fn open(dir: &Path, limit: u64) -> Result<Self> {
        let lock = File::create(dir.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process has this directory")
            }
            TryLockError::Error(error) => error,
        })?;
        let mut index = Index::default();
        let mut ids: Vec<u32> = std::fs::read_dir(dir)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".seg")?.parse().ok())
            .collect();
        ids.sort_unstable();
        let store = Self {
            dir: dir.to_owned(),
            limit,
            index: RwLock::default(),
            writer: Mutex::default(),
            _lock: lock,
        };
        for (nth, id) in ids.iter().enumerate() {
            let file = OpenOptions::new().read(true).write(true).open(store.path(*id, "seg"))?;
            let segment = match store.read_index(*id, &file) {
                Ok(segment) => segment,
                Err(_) => {
                    let (mut segment, recent) = walk(*id, file)?;
                    if nth + 1 < ids.len() {
                        segment.sealed = Some(store.seal(*id, &segment, &recent)?);
                    } else {
                        index.recent = recent;
                    }
                    segment
                }
            };
            for location in &segment.blocks {
                index.blocks.insert(location.hash, *location);
                index.numbers.insert(location.number, location.hash);
            }
            index.segments.insert(*id, segment);
        }
        *store.index.write().expect("no holder panics") = index;
        Ok(store)
    }

    fn path(&self, id: u32, kind: &str) -> PathBuf {
        self.dir.join(format!("{id:08}.{kind}"))
    }

    /// Small enough that forgetting one forgets little.
    fn segment_size(&self) -> u64 {
        (self.limit / 16).min(LARGEST_SEGMENT)
    }

    /// Writes the index of a full segment. A kill in between leaves it unsealed, no more.
    fn seal(&self, id: u32, segment: &Segment, recent: &HashMap<u64, (u16, u16)>) -> io::Result<Sealed> {
        let mut rows: Vec<_> = recent.iter().map(|(key, (block, index))| (*key, *block, *index)).collect();
        rows.sort_unstable();
        let filter = Filter::of(recent.keys().copied(), recent.len());
        let mut top = Vec::new();
        top.extend(MAGIC.to_le_bytes());
        for count in [segment.blocks.len(), filter.0.len(), rows.len()] {
            top.extend((count as u32).to_le_bytes());
        }
        for location in &segment.blocks {
            top.extend(location.offset.to_le_bytes());
            top.extend(location.encode());
        }
        top.extend(filter.0.iter().flatten().flat_map(|word| word.to_le_bytes()));
        top.extend(crc32fast::hash(&top).to_le_bytes());
        let rows_at = top.len() as u64;
        for (key, block, index) in &rows {
            top.extend(key.to_le_bytes());
            top.extend(block.to_le_bytes());
            top.extend(index.to_le_bytes());
        }
        let unfinished = self.path(id, "tmp");
        std::fs::write(&unfinished, &top)?;
        std::fs::rename(&unfinished, self.path(id, "idx"))?;
        let file = Arc::new(File::open(self.path(id, "idx"))?);
        Ok(Sealed { file, filter, rows: rows.len(), rows_at, bytes: top.len() as u64 })
    }

    /// Reads what `seal` wrote, except the table.
    fn read_index(&self, id: u32, segment: &File) -> io::Result<Segment> {
        let file = File::open(self.path(id, "idx"))?;
        let mut counts = [0; 16];
        file.read_exact_at(&mut counts, 0)?;
        let count = |nth: usize| u32::from_le_bytes(counts[nth * 4..][..4].try_into().expect("4 bytes"));
        let (blocks, lines, rows) = (count(1) as usize, count(2) as usize, count(3) as usize);
        let rows_at = 16 + blocks * (4 + HEAD) + lines * 64 + 4;
        let bytes = (rows_at + rows * ROW) as u64;
        if count(0) != MAGIC || file.metadata()?.len() != bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut top = vec![0; rows_at];
        file.read_exact_at(&mut top, 0)?;
        let (top, sum) = top.split_last_chunk::<4>().expect("longer than 4");
        if crc32fast::hash(top).to_le_bytes() != *sum {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (heads, lines) = top[16..].split_at(blocks * (4 + HEAD));
        let blocks = heads
            .chunks_exact(4 + HEAD)
            .map(|head| {
                Location::decode(id, u32::from_le_bytes(head[..4].try_into().expect("4 bytes")), &head[4..])
            })
            .collect::<Option<Vec<_>>>()
            .ok_or(io::ErrorKind::InvalidData)?;
        let line = |line: &[u8]| {
            std::array::from_fn(|i| u64::from_le_bytes(line[i * 8..][..8].try_into().expect("8 bytes")))
        };
        let filter = Filter(lines.chunks_exact(64).map(line).collect());
        Ok(Segment {
            bytes: segment.metadata()?.len(),
            file: Arc::new(segment.try_clone()?),
            blocks,
            sealed: Some(Sealed { file: Arc::new(file), filter, rows, rows_at: rows_at as u64, bytes }),
        })
    }

    /// Seals the segment being written when it is full, deletes the oldest when there is no room, begins another.
    fn make_room(&self, bytes: u64) -> io::Result<u32> {
        // Sealing takes a while: readers go on meanwhile, and nobody else writes.
        let (mut id, full, sealed) = {
            let index = self.index.read().expect("no holder panics");
            let last = index.segments.last_key_value();
            let full = last.is_none_or(|(_, segment)| {
                segment.sealed.is_some()
                    || segment.bytes + bytes > self.segment_size()
                    || segment.blocks.len() > 60_000
            });
            let sealed = match last {
                Some((id, segment)) if full && segment.sealed.is_none() => {
                    Some(self.seal(*id, segment, &index.recent)?)
                }
                _ => None,
            };
            (last.map(|(id, _)| *id), full, sealed)
        };
        let mut index = self.index.write().expect("no holder panics");
        if let (Some(id), Some(sealed)) = (id, sealed) {
            index.segments.entry(id).and_modify(|segment| segment.sealed = Some(sealed));
            index.recent = HashMap::new();
        }
        if full {
            let next = id.map_or(0, |id| id + 1);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(self.path(next, "seg"))?;
            index
                .segments
                .insert(next, Segment { file: Arc::new(file), bytes: 0, blocks: Vec::new(), sealed: None });
            id = Some(next);
        }
        while index.segments.len() > 1 && index.bytes() + bytes > self.limit {
            let (oldest, segment) = index.segments.pop_first().expect("there are two");
            for location in segment.blocks {
                // The same block may have come again since.
                if index.blocks.get(&location.hash).is_some_and(|kept| kept.segment == oldest) {
                    index.blocks.remove(&location.hash);
                    index.numbers.remove(&location.number);
                }
            }
            // The index goes first: a segment without one is only walked again.
            let _ = std::fs::remove_file(self.path(oldest, "idx"));
            std::fs::remove_file(self.path(oldest, "seg"))?;
        }
        Ok(id.expect("begun if there was none"))
    }

    fn read(&self, hash: &Hash, part: impl Fn(&Location) -> (u64, Part)) -> Result<Option<Value>> {
        let (file, (offset, part)) = {
            let index = self.index.read().expect("no holder panics");
            let Some(location) = index.blocks.get(hash) else { return Ok(None) };
            (index.segments[&location.segment].file.clone(), part(location))
        };
        let mut value = vec![0; part.length as usize];
        match file.read_exact_at(&mut value, offset) {
            // After a power cut a file may be shorter than its index says.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        Ok((crc32fast::hash(&value) == part.checksum).then_some(value))
    }
}

impl Store for Segments {
    fn put(&self, block: &Block) -> Result<()> {
        let _writer = self.writer.lock().expect("no holder panics");
        if self.index.read().expect("no holder panics").blocks.contains_key(&block.hash) {
            return Ok(());
        }
        let part = |value: &[u8]| Part { length: value.len() as u32, checksum: crc32fast::hash(value) };
        let mut location = Location {
            number: block.number,
            hash: block.hash,
            segment: 0,
            offset: 0,
            body: part(&block.body),
            receipts: part(&block.receipts),
            transactions: block.transactions.len() as u16,
        };
        let mut record = Vec::with_capacity(location.head_length() + block.body.len() + block.receipts.len());
        record.extend(location.encode());
        record.extend(block.transactions.iter().flatten());
        record.extend(crc32fast::hash(&record).to_le_bytes());
        record.extend_from_slice(&block.body);
        record.extend_from_slice(&block.receipts);

        location.segment = self.make_room(record.len() as u64)?;
        let (file, end) = {
            let index = self.index.read().expect("no holder panics");
            let segment = &index.segments[&location.segment];
            (segment.file.clone(), segment.bytes)
        };
        location.offset = end as u32;
        if let Err(error) = file.write_all_at(&record, end) {
            // What is cut off here would be cut off at the next opening; the room may be needed before.
            let _ = file.set_len(end);
            return Err(error.into());
        }

        let mut index = self.index.write().expect("no holder panics");
        let segment = index.segments.get_mut(&location.segment).expect("made above");
        let nth = segment.blocks.len() as u16;
        segment.bytes += record.len() as u64;
        segment.blocks.push(location);
        index.blocks.insert(block.hash, location);
        index.numbers.insert(block.number, block.hash);
        index
            .recent
            .extend((0u16..).zip(&block.transactions).map(|(i, transaction)| (key(transaction), (nth, i))));
        Ok(())
    }

    fn body(&self, hash: &Hash) -> Result<Option<Value>> {
        self.read(hash, |location| (location.body_at(), location.body))
    }

    fn receipts(&self, hash: &Hash) -> Result<Option<Value>> {
        self.read(hash, |location| (location.body_at() + u64::from(location.body.length), location.receipts))
    }

    fn hash(&self, number: u64) -> Result<Option<Hash>> {
        Ok(self.index.read().expect("no holder panics").numbers.get(&number).copied())
    }

    fn place(&self, transaction: &Hash) -> Result<Option<Place>> {
        let key = key(transaction);
        let index = self.index.read().expect("no holder panics");
        for segment in index.segments.values().rev() {
            let row = match &segment.sealed {
                None => index.recent.get(&key).copied(),
                Some(sealed) if sealed.filter.may_have(key) => sealed.find(key)?,
                Some(_) => None,
            };
            let Some((block, nth)) = row else { continue };
            let Some(location) = segment.blocks.get(usize::from(block)) else { continue };
            let mut hash = Hash::default();
            segment.file.read_exact_at(
                &mut hash,
                u64::from(location.offset) + (HEAD + 32 * usize::from(nth)) as u64,
            )?;
            if hash == *transaction {
                return Ok(Some((location.hash, nth)));
            }
        }
        Ok(None)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Reads the heads of a segment without an index, up to the first that is not whole, and cuts off the rest.
fn walk(id: u32, file: File) -> io::Result<(Segment, HashMap<u64, (u16, u16)>)> {
    let length = file.metadata()?.len();
    let mut recent = HashMap::new();
    let mut segment = Segment { file: Arc::new(file), bytes: 0, blocks: Vec::new(), sealed: None };
    while let Ok(Some((location, transactions))) = read_head(id, &segment.file, segment.bytes) {
        let end = location.body_at() + u64::from(location.body.length) + u64::from(location.receipts.length);
        if end > length {
            break;
        }
        let nth = segment.blocks.len() as u16;
        recent.extend(
            (0u16..).zip(transactions.as_chunks().0).map(|(i, transaction)| (key(transaction), (nth, i))),
        );
        segment.blocks.push(location);
        segment.bytes = end;
    }
    segment.file.set_len(segment.bytes)?;
    Ok((segment, recent))
}

/// The head at `offset` with the hashes of its transactions, if it is whole.
fn read_head(id: u32, file: &File, offset: u64) -> io::Result<Option<(Location, Vec<u8>)>> {
    let mut head = vec![0; HEAD];
    file.read_exact_at(&mut head, offset)?;
    let Some(location) = Location::decode(id, offset as u32, &head) else { return Ok(None) };
    let mut rest = vec![0; location.head_length() - HEAD];
    file.read_exact_at(&mut rest, offset + HEAD as u64)?;
    let (transactions, sum) = rest.split_last_chunk::<4>().expect("longer than 4");
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(transactions);
    Ok((hasher.finalize().to_le_bytes() == *sum).then(|| (location, transactions.to_vec())))
}

fn key(transaction: &Hash) -> u64 {
    u64::from_be_bytes(*transaction.first_chunk().expect("32 bytes"))
}

// === impl Index ===

impl Index {
    fn bytes(&self) -> u64 {
        self.segments
            .values()
            .map(|segment| segment.bytes + segment.sealed.as_ref().map_or(0, |sealed| sealed.bytes))
            .sum()
    }
}

// === impl Sealed ===

impl Sealed {
    fn find(&self, key: u64) -> io::Result<Option<(u16, u16)>> {
        let guess = (u128::from(key) * self.rows as u128) >> 64;
        let mut first = (guess as usize).saturating_sub(WINDOW / 2);
        let mut came_from = None;
        loop {
            let mut rows = vec![0; WINDOW.min(self.rows.saturating_sub(first)) * ROW];
            self.file.read_exact_at(&mut rows, self.rows_at + (first * ROW) as u64)?;
            let rows = rows.as_chunks::<ROW>().0;
            let key_of = |row: &[u8; ROW]| u64::from_le_bytes(*row.first_chunk().expect("12 bytes"));
            let short = |row: &[u8; ROW], at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
            match rows.binary_search_by_key(&key, key_of) {
                Ok(at) => return Ok(Some((short(&rows[at], 8), short(&rows[at], 10)))),
                Err(0) if first > 0 && came_from != Some(true) => {
                    first = first.saturating_sub(WINDOW);
                    came_from = Some(false);
                }
                Err(at) if at == rows.len() && first + at < self.rows && came_from != Some(false) => {
                    first += WINDOW;
                    came_from = Some(true);
                }
                Err(_) => return Ok(None),
            }
        }
    }
}

// === impl Location ===

impl Location {
    fn encode(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD);
        head.extend(MAGIC.to_le_bytes());
        head.extend(self.number.to_le_bytes());
        head.extend(self.hash);
        for part in [self.body, self.receipts] {
            head.extend(part.length.to_le_bytes());
            head.extend(part.checksum.to_le_bytes());
        }
        head.extend(self.transactions.to_le_bytes());
        head
    }

    fn decode(segment: u32, offset: u32, head: &[u8]) -> Option<Self> {
        let int = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        (int(0) == MAGIC).then(|| Self {
            number: u64::from_le_bytes(head[4..12].try_into().expect("8 bytes")),
            hash: head[12..44].try_into().expect("32 bytes"),
            segment,
            offset,
            body: Part { length: int(44), checksum: int(48) },
            receipts: Part { length: int(52), checksum: int(56) },
            transactions: u16::from_le_bytes([head[60], head[61]]),
        })
    }

    /// The head with its transactions and its checksum.
    fn head_length(&self) -> usize {
        HEAD + usize::from(self.transactions) * 32 + 4
    }

    fn body_at(&self) -> u64 {
        u64::from(self.offset) + self.head_length() as u64
    }
}

// === impl Filter ===

impl Filter {
    /// Ten bits a key, six of them set: about one in a hundred strangers passes.
    fn of(keys: impl Iterator<Item = u64>, count: usize) -> Self {
        let mut filter = Self(vec![[0; 8]; (count * 10).div_ceil(512).max(1)]);
        for key in keys {
            let (line, bits) = filter.bits(key);
            bits.for_each(|bit| filter.0[line][bit / 64] |= 1 << (bit % 64));
        }
        filter
    }

    fn may_have(&self, key: u64) -> bool {
        let (line, mut bits) = self.bits(key);
        bits.all(|bit| self.0[line][bit / 64] & (1 << (bit % 64)) != 0)
    }

    fn bits(&self, key: u64) -> (usize, impl Iterator<Item = usize> + use<>) {
        let line = (u128::from(mix(key)) * self.0.len() as u128) >> 64;
        let bits = mix(!key);
        (line as usize, (0..6).map(move |nth| (bits >> (nth * 9)) as usize % 512))
    }
}
