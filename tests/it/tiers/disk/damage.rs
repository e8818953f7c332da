//! Files that were changed from outside.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use bytesize::ByteSize;
use holdfast::cache::{
    Disk,
    tier::{Part, Tier},
};
use proptest::prelude::*;
use tokio::runtime::Builder;

use super::{CHAIN, Directory, content::Content, found, has, hint, put_all};
use crate::support::cases;

const BLOCKS: u64 = 40;

/// Number of parts and hints of all blocks.
const ALL: usize = BLOCKS as usize * 4;

/// Size of the tier. Its segments have 16 KB, and the blocks fill ten of them.
const SIZE: ByteSize = ByteSize::kib(256);

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip {
        at: usize,
        bit: u8,
    },
    Truncate {
        at: usize,
    },
    Garbage {
        at: usize,
        length: usize,
        seed: u64,
    },
    Append {
        length: usize,
        seed: u64,
    },
    Delete,
    /// Replaces the file with another of the same kind.
    Swap {
        with: usize,
    },
}

fn damage() -> impl Strategy<Value = (usize, Damage)> {
    // Half of all damage is near the beginning, where headers and counts are.
    let at = || prop_oneof![0..300usize, any::<usize>()];
    let damage = prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        2 => at().prop_map(|at| Damage::Truncate { at }),
        2 => (at(), 1..500usize, any::<u64>())
            .prop_map(|(at, length, seed)| Damage::Garbage { at, length, seed }),
        1 => (1..500usize, any::<u64>()).prop_map(|(length, seed)| Damage::Append { length, seed }),
        1 => Just(Damage::Delete),
        1 => any::<usize>().prop_map(|with| Damage::Swap { with }),
    ];
    (any::<usize>(), damage)
}

impl Damage {
    fn inflict(self, path: &Path, directory: &Directory) {
        let mut bytes = fs::read(path).unwrap_or_default();
        let garbage = |length, seed| {
            let mut dice = fastrand::Rng::with_seed(seed);
            std::iter::repeat_with(move || dice.u8(..)).take(length)
        };
        let length = bytes.len().max(1);
        match self {
            Self::Flip { at, bit } => {
                if let Some(byte) = bytes.get_mut(at % length) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Truncate { at } => bytes.truncate(at % length),
            Self::Garbage { at, length: count, seed } => {
                bytes
                    .iter_mut()
                    .skip(at % length)
                    .zip(garbage(count, seed))
                    .for_each(|(byte, new)| *byte = new);
            }
            Self::Append { length, seed } => bytes.extend(garbage(length, seed)),
            Self::Delete => {
                let _ = fs::remove_file(path);
                return;
            }
            Self::Swap { with } => {
                let mut others = directory.files();
                others.retain(|other| other.extension() == path.extension());
                bytes =
                    others.get(with % others.len().max(1)).map_or(bytes, |other| fs::read(other).unwrap());
            }
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Asserts that everything found is as it was written. Returns the number of parts and hints found.
async fn nothing_is_wrong(disk: &Disk) -> usize {
    let mut count = 0;
    for content in (0..BLOCKS).map(Content::new) {
        let hint = hint(disk, CHAIN, content.home.number).await;
        assert!(hint.is_none_or(|hash| hash == content.home.block), "{hint:?} at {:?}", content.home);
        count += has(disk, CHAIN, &content).await.0 + usize::from(hint.is_some());
    }
    count
}

proptest! {
    #![proptest_config(cases(40, 1_500))]

    #[test]
    fn damage_is_a_miss_and_can_be_repaired(damages in prop::collection::vec(damage(), 1..6), while_open: bool) {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let directory = Directory::new();
            let disk = directory.open(SIZE);
            for number in 0..BLOCKS {
                put_all(&disk, CHAIN, &Content::new(number)).await;
            }
            assert_eq!(nothing_is_wrong(&disk).await, ALL);

            // Damages the files while the directory is open, or while it is closed.
            let mut disk = Some(disk).filter(|_| while_open);
            for (file, damage) in damages {
                let files = directory.files();
                if let Some(file) = files.get(file % files.len()) {
                    damage.inflict(file, &directory);
                }
            }
            if let Some(disk) = &disk {
                nothing_is_wrong(disk).await;
            }
            disk = None;
            let disk = disk.unwrap_or_else(|| directory.open(SIZE));
            nothing_is_wrong(&disk).await;

            // Removes damaged parts and writes missing parts again, as the cache does.
            for number in 0..BLOCKS {
                let content = Content::new(number);
                for part in Part::ALL {
                    let value = disk.get(CHAIN, part, content.home.block).await.unwrap();
                    if value.is_some_and(|value| value.open().is_err()) {
                        disk.remove(CHAIN, part, content.home.block).await.unwrap();
                    }
                    disk.put(CHAIN, content.record(part)).await.unwrap();
                }
            }
            assert_eq!(nothing_is_wrong(&disk).await, ALL, "all parts are there again");
            drop(disk);
            let disk = directory.open(SIZE);
            assert_eq!(nothing_is_wrong(&disk).await, ALL, "all parts are there after a restart");
        });
    }
}

#[tokio::test]
async fn foreign_files_are_ignored() {
    let directory = Directory::new();
    let disk = directory.open(SIZE);
    put_all(&disk, CHAIN, &Content::new(1)).await;
    drop(disk);
    let folder = directory.folder(CHAIN);
    for name in ["12345678.seg", "4294967295.seg", "00000005.idx", "00000007.tmp", "readme.seg", "x"] {
        fs::write(folder.join(name), "garbage").unwrap();
    }
    // A file of any length costs no memory.
    let huge = OpenOptions::new().write(true).create_new(true).open(folder.join("00000003.seg")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::write(directory.0.join("v3-garbage"), "").unwrap();
    fs::create_dir(directory.0.join("lost+found")).unwrap();

    let disk = directory.open(ByteSize::tib(2));
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(1)).await);
    drop(disk);
    let disk = directory.open(SIZE);
    put_all(&disk, CHAIN, &Content::new(2)).await;
    assert!(
        found(&disk, CHAIN, Part::Block, &Content::new(2)).await,
        "the tier removed the huge file to make room"
    );
}

#[tokio::test]
async fn cleared_directory_is_written_again() {
    let directory = Directory::new();
    let [before, after] = [1, 2].map(Content::new);
    let disk = directory.open(SIZE);
    put_all(&disk, CHAIN, &before).await;
    for file in directory.files() {
        if file.file_name().is_some_and(|name| name != "lock") {
            fs::remove_file(file).unwrap();
        }
    }
    fs::remove_dir(directory.folder(CHAIN)).unwrap();
    assert!(!disk.get(CHAIN, Part::Block, before.home.block).await.is_ok_and(|found| found.is_some()));
    put_all(&disk, CHAIN, &after).await;
    assert!(found(&disk, CHAIN, Part::Block, &after).await);
    drop(disk);
    let disk = directory.open(SIZE);
    assert_eq!(has(&disk, CHAIN, &after).await, (3, after.transactions.len()));
    assert_eq!(hint(&disk, CHAIN, after.home.number).await, Some(after.home.block));
    assert_eq!(has(&disk, CHAIN, &before).await, (0, 0));
}
