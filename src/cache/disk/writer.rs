//! The single writer of all chains, which enforces the size limit.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::RwLock;

use super::{
    folder::Folder,
    idle::Idle,
    log::Log,
    record::{Draft, Head},
    segment,
};
use crate::{
    cache::tier::{ChainKey, Part, Record},
    eth::{BlockHash, BlockNumber},
};

/// Greatest length of a segment in bytes, if the size limit is between 1 and 32 GiB. A smaller directory has shorter
/// segments, so that it has at least 16. A larger directory has longer segments, so that it has at most
/// [`MOST_SEGMENTS`]. Evicting a short segment loses little, and scanning the last segment at the start is quick.
const LONGEST_SEGMENT: u64 = 64 << 20;

/// Approximate maximum number of segments of a full directory. A lookup of a transaction checks all segments, so their
/// number must be limited.
const MOST_SEGMENTS: u64 = 512;

/// Maximum number of unwritten removals to remember.
const MOST_OWED: usize = 1024;

/// The only writer of the directory.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    limit: u64,
    idle: Idle,
    shared: Arc<Shared>,
    /// Removals that could not be written to the disk, with the number of the block. The next removal of the same part
    /// tries again.
    owed: HashMap<(ChainKey, Part, BlockHash), BlockNumber>,
    /// Lock on the directory. The writer owns the lock, so that a write that outlives the tier still holds it.
    _lock: File,
}

/// State shared with readers.
#[derive(Debug, Default)]
pub(super) struct Shared {
    logs: RwLock<HashMap<ChainKey, Arc<Log>>>,
    idle_bytes: AtomicU64,
    evictions: AtomicU64,
}

// === impl Writer ===

impl Writer {
    /// Lists the segments, and deletes the oldest ones beyond the size limit.
    pub(super) fn open(directory: PathBuf, limit: u64, lock: File, shared: Arc<Shared>) -> io::Result<Self> {
        let idle = Idle::find(&directory)?;
        let mut writer = Self { directory, limit, idle, shared, owed: HashMap::new(), _lock: lock };
        writer.make_room(None, 0)?;
        Ok(writer)
    }

    /// Returns the log of this chain. Opens it on first use.
    pub(super) fn log(&mut self, chain: ChainKey) -> io::Result<Arc<Log>> {
        if let Some(log) = self.shared.log(chain) {
            return Ok(log);
        }
        let folder = Folder::new(&self.directory, chain);
        let log = Arc::new(Log::open(folder.clone())?);
        self.idle.take_out(folder.path());
        self.shared.logs.write().insert(chain, log.clone());
        // Opening the log may have written index files, so make room for them.
        self.make_room(Some(&log), 0)?;
        Ok(log)
    }

    pub(super) fn put(&mut self, chain: ChainKey, record: Record) -> io::Result<bool> {
        let log = self.log(chain)?;
        if log.has(record.part, record.home.block) {
            return Ok(false);
        }
        let key = (chain, record.part, record.home.block);
        let Some(draft) = Draft::keep(record) else { return Ok(false) };
        let is_written = self.append(&log, &draft)?;
        if is_written {
            // A removal that could not be written concerned an older entry. The new entry must stay.
            self.owed.remove(&key);
        }
        Ok(is_written)
    }

    pub(super) fn remove(&mut self, chain: ChainKey, part: Part, hash: BlockHash) -> io::Result<bool> {
        let log = self.log(chain)?;
        let key = (chain, part, hash);
        // The entry leaves the index at once. If the removal cannot be written to the disk, the entry is back after the
        // next start, unless another call of `remove` succeeds before.
        let owed = self.owed.remove(&key);
        let Some(number) = log.forget(part, hash).or(owed) else { return Ok(false) };
        let is_written = self.append(&log, &Draft::remove(part, number, hash));
        if is_written.is_err() && self.owed.len() < MOST_OWED {
            self.owed.insert(key, number);
        }
        is_written
    }

    /// Removes an unreadable record, unless it was evicted or written again meanwhile.
    pub(super) fn remove_unreadable(
        &mut self,
        chain: ChainKey,
        part: Part,
        found: (u32, Head),
    ) -> io::Result<()> {
        if self.log(chain)?.find(part, found.1.hash) == Some(found) {
            self.remove(chain, part, found.1.hash)?;
        }
        Ok(())
    }

    /// Appends a record. Returns `false` if the record is larger than the limit of the directory.
    fn append(&mut self, log: &Arc<Log>, draft: &Draft) -> io::Result<bool> {
        let bytes = draft.size() + segment::HEADER as u64;
        if bytes > self.limit {
            return Ok(false);
        }
        if log.is_full_for(draft.size(), self.longest_segment()) {
            self.make_room(Some(log), log.cost_of_closing())?;
            log.close()?;
        }
        self.make_room(Some(log), bytes)?;
        log.append(draft)?;
        Ok(true)
    }

    fn longest_segment(&self) -> u64 {
        (self.limit / 16).min(LONGEST_SEGMENT).max(self.limit / MOST_SEGMENTS).min(u32::MAX.into())
    }

    /// Deletes segments until `bytes` more fit, or only segments that accept records are left. Deletes segments of
    /// chains whose log is not open first, then segments of logs other than `log`, then segments of `log`.
    fn make_room(&mut self, log: Option<&Arc<Log>>, bytes: u64) -> io::Result<()> {
        self.shared.idle_bytes.store(self.idle.bytes(), Relaxed);
        while self.shared.bytes().saturating_add(bytes) > self.limit {
            if self.idle.evict()? {
                self.shared.idle_bytes.store(self.idle.bytes(), Relaxed);
                continue;
            }
            let mut logs = self.shared.logs();
            logs.sort_by_key(|other| log.is_some_and(|log| Arc::ptr_eq(other, log)));
            let mut evicted = None;
            for log in logs {
                evicted = log.evict()?;
                if evicted.is_some() {
                    break;
                }
            }
            let Some(blocks) = evicted else { break };
            self.shared.evictions.fetch_add(blocks, Relaxed);
        }
        Ok(())
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the log of this chain, if it is open.
    pub(super) fn log(&self, chain: ChainKey) -> Option<Arc<Log>> {
        self.logs.read().get(&chain).cloned()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.idle_bytes.load(Relaxed) + self.logs().iter().map(|log| log.bytes()).sum::<u64>()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.logs().iter().map(|log| log.blocks()).sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.read().values().cloned().collect()
    }
}
