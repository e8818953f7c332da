//! Copies of a directory that is being written, opened elsewhere.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk,
        tier::{Part, Tier},
    },
    eth::{BlockNumber, TxPosition},
};

use super::{CHAIN, Directory, content::Content, files, found, open_when_free, put_both};

/// Size of the tier. Its segments are small, so that many are sealed and deleted during the test.
const SIZE: ByteSize = ByteSize::mib(2);

/// A block of one of two histories.
fn block(number: u64, history: u64) -> Content {
    Content::variant(number, history)
}

async fn write(disk: &Disk, number: u64, history: u64) {
    put_both(disk, CHAIN, &block(number, history)).await;
}

/// Asserts that all answers for these numbers belong to one history, that of the directory's finalized block. Returns
/// the number of answers.
async fn check(disk: &Disk, numbers: u64) -> u64 {
    let finalized = disk.finalized(CHAIN).await.unwrap();
    let history = finalized.map(|(number, hash)| {
        (0..2).find(|history| block(number.0, *history).hash == hash).expect("a block that was written")
    });
    let mut answered = 0;
    for number in 0..numbers {
        let said = disk.hash_at(CHAIN, BlockNumber(number)).await.unwrap();
        let truth = history.map(|history| block(number, history).hash);
        assert!(said.is_none() || said == truth, "{number} is {said:?}, but {finalized:?} is final");
        answered += u64::from(said.is_some());
        for history in 0..2 {
            let content = block(number, history);
            for part in Part::ALL {
                found(disk, CHAIN, part, &content).await;
            }
            let place = disk.place_of(CHAIN, content.transactions[0]).await.unwrap();
            assert!(place.is_none_or(|place| place == (content.number, TxPosition(0))));
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_during_writes_opens() {
    const NUMBERS: u64 = 4_000;
    let directory = Directory::new();
    let disk = Arc::new(directory.open(SIZE));
    for number in 0..NUMBERS / 4 {
        write(&disk, number, 0).await;
    }
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writing = tokio::spawn({
        let (disk, is_over, written) = (disk.clone(), is_over.clone(), written.clone());
        async move {
            let mut number = NUMBERS / 4;
            while !is_over.load(Relaxed) && number < NUMBERS {
                write(&disk, number, 0).await;
                written.store(number, Relaxed);
                number += 1;
            }
        }
    });
    let mut answered = 0;
    for _ in 0..8 {
        let before = written.load(Relaxed);
        while written.load(Relaxed) < before + 20 && !writing.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let copy = Directory::new();
        let to = copy.0.clone();
        let mut cp = Command::new("cp");
        cp.arg("-a").arg(format!("{}/.", directory.0.display())).arg(&to).stderr(Stdio::null());
        // `cp` fails if a segment vanishes, but the test checks the files that it has copied.
        tokio::task::spawn_blocking(move || cp.status().unwrap()).await.unwrap();
        answered += check(&open_when_free(&copy.0, SIZE), NUMBERS).await;
    }
    is_over.store(true, Relaxed);
    writing.await.unwrap();
    assert!(answered > 8 * 100, "only {answered} numbers were answered");
    assert!(disk.usage().evictions > 0, "no segment vanished");
}

/// Returns the contents of all files in a folder.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let relative = |path: PathBuf| path.strip_prefix(folder).unwrap().to_owned();
    files(folder).into_iter().map(|path| (relative(path.clone()), fs::read(path).unwrap())).collect()
}

/// The copy contains each file as it was before canonicity was forgotten, or after, or not at all.
#[tokio::test]
async fn copy_made_while_canonicity_is_forgotten_is_of_one_history() {
    const NUMBERS: u64 = 60;
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    for number in 0..NUMBERS {
        write(&disk, number, 0).await;
    }
    let before = snapshot(&directory.0);
    disk.forget_canonicity(CHAIN).await.unwrap();
    for number in 0..NUMBERS - 10 {
        write(&disk, number, 1).await;
    }
    let after = snapshot(&directory.0);
    let names: Vec<_> = before.keys().chain(after.keys()).collect();
    let mut dice = fastrand::Rng::with_seed(7);
    let mut answered = 0;
    for round in 0..80 {
        let copy = Directory::new();
        for name in &names {
            let chosen = match (round, dice.u8(0..20)) {
                (0, _) => before.get(*name),
                (1, _) => after.get(*name),
                (_, 0) => None,
                (_, choice) if choice % 2 == 0 => before.get(*name).or(after.get(*name)),
                _ => after.get(*name).or(before.get(*name)),
            };
            let path = copy.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(bytes) = chosen {
                fs::write(path, bytes).unwrap();
            }
        }
        let disk = open_when_free(&copy.0, ByteSize::mib(1));
        answered += check(&disk, NUMBERS).await;
        // Finality advances on the confirmed history, here and after a restart.
        let finalized = disk.finalized(CHAIN).await.unwrap();
        let history = finalized.map_or(1, |(number, hash)| u64::from(block(number.0, 0).hash != hash));
        let higher = block(NUMBERS, history);
        disk.note_finalized(CHAIN, higher.number, higher.hash).await.unwrap();
        check(&disk, NUMBERS).await;
        drop(disk);
        let disk = open_when_free(&copy.0, ByteSize::mib(1));
        check(&disk, NUMBERS).await;
        // The tier can forget canonicity in the copy, too.
        disk.forget_canonicity(CHAIN).await.unwrap();
        drop(disk);
        let disk = open_when_free(&copy.0, ByteSize::mib(1));
        disk.note_finalized(CHAIN, higher.number, higher.hash).await.unwrap();
        assert_eq!(check(&disk, NUMBERS).await, 0);
    }
    assert!(answered > NUMBERS, "only {answered} numbers were answered");
}

/// `cp` copied the note of the finalized block before the segments. In between, the proxy wrote blocks of another
/// history.
#[tokio::test]
async fn numbers_above_the_finalized_block_of_a_copy_never_count() {
    const COMMON: u64 = 10;
    const NUMBERS: u64 = 20;
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    for number in 0..=COMMON {
        write(&disk, number, 0).await;
    }
    let note = directory.folder(CHAIN).join("finalized");
    let copied = fs::read(&note).unwrap();
    for number in COMMON + 1..NUMBERS {
        write(&disk, number, 0).await;
    }
    drop(disk);
    fs::write(note, copied).unwrap();

    let mut disk = directory.open(ByteSize::mib(1));
    let higher = block(NUMBERS, 1);
    disk.note_finalized(CHAIN, higher.number, higher.hash).await.unwrap();
    for _ in 0..2 {
        for number in 0..NUMBERS {
            let expected = (number <= COMMON).then(|| block(number, 0).hash);
            assert_eq!(disk.hash_at(CHAIN, BlockNumber(number)).await.unwrap(), expected, "number {number}");
            let place = disk.place_of(CHAIN, block(number, 0).transactions[0]).await.unwrap();
            assert_eq!(place.is_some(), number <= COMMON, "number {number}");
        }
        drop(disk);
        disk = directory.open(ByteSize::mib(1));
    }
    // The same numbers can be written again.
    for history in [0, 1] {
        write(&disk, COMMON + 1, history).await;
        let said = disk.hash_at(CHAIN, BlockNumber(COMMON + 1)).await.unwrap();
        assert_eq!(said, Some(block(COMMON + 1, history).hash));
    }
}
