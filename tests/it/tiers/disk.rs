//! After kills, on full disks and from damaged files, the disk tier returns records as they were written, or not at
//! all.

mod bounds;
mod content;
mod copy;
mod damage;
mod directory;
mod full;
mod kill;
mod model;
mod opening;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use alloy_primitives::B256;
use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk, DiskConfig, DiskError,
        tier::{ChainKey, Part, Tier},
    },
    eth::{BlockHash, BlockNumber},
};
use tokio::time::Instant;

use self::content::Content;

const CHAIN: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0xd4) };
const OTHER: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0x11) };

/// A directory that is removed after the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("disk-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self, size: ByteSize) -> Disk {
        open_when_free(&self.0, size)
    }

    fn folder(&self, chain: ChainKey) -> PathBuf {
        self.0.join(format!("v3-{}-{:x}", chain.id, chain.genesis))
    }

    /// Returns every file in the directory and its folders.
    fn files(&self) -> Vec<PathBuf> {
        files(&self.0)
    }

    /// Returns the size of all segments and indexes.
    fn bytes(&self) -> u64 {
        let counts =
            |path: &&PathBuf| path.extension().is_some_and(|suffix| suffix == "seg" || suffix == "idx");
        self.files().iter().filter(counts).map(|path| fs::metadata(path).unwrap().len()).sum()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path, size: ByteSize) -> Result<Disk, DiskError> {
    Disk::open(&DiskConfig { size, ..DiskConfig::new(path) })
}

/// Opens a directory, and waits while it is in use. A process that another test starts inherits all our open files,
/// including the lock, until it executes its own program.
pub(super) fn open_when_free(path: &Path, size: ByteSize) -> Disk {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match open(path, size) {
            Err(DiskError::InUse(_)) if Instant::now() < patience => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path) } else { vec![path] }
        })
        .collect();
    found.sort();
    found
}

async fn put_all(disk: &Disk, chain: ChainKey, content: &Content) {
    for part in Part::ALL {
        disk.put(chain, content.record(part)).await.unwrap();
    }
}

/// Returns whether the tier has the part, and asserts that its content is as written.
async fn found(disk: &Disk, chain: ChainKey, part: Part, content: &Content) -> bool {
    let Some(value) = disk.get(chain, part, content.home.block).await.unwrap() else { return false };
    // A damaged value cannot be decoded.
    let Ok(text) = value.open() else { return false };
    assert_eq!(text, content.text(part), "{part:?} of block {} is not as written", content.home.number.0);
    true
}

/// Returns how many parts and how many transactions of this block the tier has, and asserts that they are as written.
async fn has(disk: &Disk, chain: ChainKey, content: &Content) -> (usize, usize) {
    let [header] = <[_; 1]>::try_from(disk.headers(chain, vec![content.home.block]).await.unwrap()).unwrap();
    let header = header.and_then(|header| header.open().ok());
    assert!(header.is_none_or(|header| header == content.text(Part::Header)));
    let (mut parts, mut transactions) = (0, 0);
    for part in Part::ALL {
        parts += usize::from(found(disk, chain, part, content).await);
    }
    for transaction in &content.transactions {
        let home = disk.home_of(chain, *transaction).await.unwrap();
        assert!(home.is_none_or(|home| home == content.home), "{home:?}");
        transactions += usize::from(home.is_some());
    }
    (parts, transactions)
}

async fn hint(disk: &Disk, chain: ChainKey, number: BlockNumber) -> Option<BlockHash> {
    disk.hints(chain, number, 1).await.unwrap()[0]
}
