//! The cache on disk: what is found is what was put, whatever happened to the process, the disk and the files.

mod bounds;
mod content;
mod copy;
mod damage;
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
use holdfast::cache::{
    Disk, DiskConfig, DiskError,
    tier::{ChainKey, Part, Tier},
};
use tokio::time::Instant;

use self::content::Content;

const CHAIN: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0xd4) };
const OTHER: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0x11) };

/// A directory that is gone after the test.
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
        self.0.join(format!("v2-{}-{:x}", chain.id, chain.genesis))
    }

    /// Every file in it and in its folders.
    fn files(&self) -> Vec<PathBuf> {
        files(&self.0)
    }

    /// What segments and indexes take.
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

/// A process that another test starts has all our files, this lock too, until it becomes its own program.
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

async fn put_both(disk: &Disk, chain: ChainKey, content: &Content) {
    disk.note_finalized(chain, content.number, content.hash).await.unwrap();
    for part in Part::ALL {
        disk.put(chain, content.record(part)).await.unwrap();
    }
}

/// The part as it is found, if it is.
async fn found(disk: &Disk, chain: ChainKey, part: Part, content: &Content) -> bool {
    let Some(value) = disk.get(chain, part, content.hash).await.unwrap() else { return false };
    // A value that was damaged says so itself.
    let Ok(text) = value.open() else { return false };
    assert_eq!(text, content.text(part), "{part:?} of {} is another", content.number.0);
    true
}

#[tokio::test]
async fn the_chain_that_was_followed_is_remembered() {
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    assert_eq!(disk.last_chain().await.unwrap(), None);
    disk.follow(Some(OTHER)).await.unwrap();
    disk.follow(Some(CHAIN)).await.unwrap();
    drop(disk);
    assert_eq!(directory.open(ByteSize::mib(1)).last_chain().await.unwrap(), Some(CHAIN));
    fs::write(directory.0.join("chain"), "mainnet").unwrap();
    let disk = directory.open(ByteSize::mib(1));
    assert_eq!(disk.last_chain().await.unwrap(), None, "what is damaged is no chain");
    disk.follow(Some(CHAIN)).await.unwrap();
    assert_eq!(disk.last_chain().await.unwrap(), Some(CHAIN));
}

#[tokio::test]
async fn a_second_one_is_told_that_the_directory_is_in_use_and_the_first_goes_on() {
    let directory = Directory::new();
    let first = directory.open(ByteSize::mib(1));
    let second = open(&directory.0, ByteSize::mib(1)).unwrap_err();
    assert!(matches!(second, DiskError::InUse(_)), "{second:?}");
    let message = second.to_string();
    assert!(message.contains(directory.0.to_str().unwrap()), "{message}");
    assert!(message.contains("cache.disk.path"), "says what to do: {message}");
    put_both(&first, CHAIN, &Content::new(1)).await;
    assert!(found(&first, CHAIN, Part::Block, &Content::new(1)).await);
    drop(first);
    directory.open(ByteSize::mib(1));
}

#[test]
fn a_file_in_its_place_is_told_from_a_directory_that_cannot_be_made() {
    let directory = Directory::new();
    let file = directory.0.join("file");
    fs::write(&file, "").unwrap();
    let error = open(&file, ByteSize::mib(1)).unwrap_err();
    assert!(matches!(error, DiskError::NotADirectory(_)), "{error}");
    let error = open(&file.join("below"), ByteSize::mib(1)).unwrap_err();
    assert!(matches!(error, DiskError::NotADirectory(_)), "{error}");
    let error = open(Path::new("/proc/nowhere"), ByteSize::mib(1)).unwrap_err();
    assert!(matches!(error, DiskError::CannotBeMade { .. }), "{error}");
    let deep = directory.0.join("as/deep/as/it/goes");
    open(&deep, ByteSize::mib(1)).unwrap();
}

#[tokio::test]
async fn a_folder_renamed_by_hand_never_answers_for_another_chain() {
    let directory = Directory::new();
    let content = Content::new(7);
    let disk = directory.open(ByteSize::mib(1));
    put_both(&disk, CHAIN, &content).await;
    disk.note_finalized(CHAIN, content.number, content.hash).await.unwrap();
    drop(disk);
    let folder = |chain| directory.folder(chain);
    fs::rename(folder(CHAIN), folder(OTHER)).unwrap();

    let disk = directory.open(ByteSize::mib(1));
    for part in Part::ALL {
        assert!(!found(&disk, OTHER, part, &content).await);
    }
    assert_eq!(disk.hash_at(OTHER, content.number).await.unwrap(), None);
    assert_eq!(disk.place_of(OTHER, content.transactions[0]).await.unwrap(), None);
    assert_eq!(disk.finalized(OTHER).await.unwrap(), None);
    let before = directory.bytes();
    put_both(&disk, OTHER, &content).await;
    assert!(found(&disk, OTHER, Part::Block, &content).await);
    assert!(directory.bytes() > before, "what is not ours was not written over");
    assert_eq!(disk.usage().bytes, Some(directory.bytes()));
    drop(disk);

    fs::rename(folder(OTHER), folder(CHAIN)).unwrap();
    let disk = directory.open(ByteSize::mib(1));
    assert!(found(&disk, CHAIN, Part::Block, &content).await, "left alone, it is there again");
}

#[test]
fn a_pipe_in_the_place_of_the_lock_is_not_waited_for() {
    let directory = Directory::new();
    let made = std::process::Command::new("mkfifo").arg(directory.0.join("lock")).status().unwrap();
    assert!(made.success());
    let error = open(&directory.0, ByteSize::mib(1)).unwrap_err().to_string();
    assert!(error.contains("no ordinary file"), "{error}");
}
