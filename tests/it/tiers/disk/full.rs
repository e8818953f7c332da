//! A file system that is full or read-only.

use std::{io, sync::Arc};

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk,
        tier::{Part, Tier, TierError},
    },
    eth::BlockNumber,
};

use super::{CHAIN, Directory, content::Content, found, has, hint, put_all};
use crate::support::mounted::Mounted;

/// Returns a directory in which the chain's folder is a small file system of its own.
fn mounted(test: &str) -> Option<(Directory, Mounted)> {
    let directory = Directory::new();
    let folder = directory.folder(CHAIN);
    Some((directory, Mounted::new(test, folder)?))
}

/// Writes blocks from `first` on until that fails. Returns the first incomplete block, and the kind of the error.
async fn fill(disk: &Disk, first: u64) -> (u64, io::ErrorKind) {
    for number in first.. {
        for part in Part::ALL {
            match disk.put(CHAIN, Content::new(number).record(part)).await {
                Err(TierError::Failed(error)) => return (number, error.kind()),
                other => drop(other.unwrap()),
            }
        }
    }
    unreachable!("there is an end to numbers")
}

async fn all_are_there(disk: &Disk, until: u64) {
    for content in (0..until).map(Content::new) {
        let whole = (Part::ALL.len(), content.transactions.len());
        assert_eq!(has(disk, CHAIN, &content).await, whole, "{:?} of {until}", content.home);
        assert_eq!(hint(disk, CHAIN, content.home.number).await, Some(content.home.block));
    }
}

#[tokio::test]
async fn full_disk_fails_writes_and_keeps_its_content() {
    let Some((directory, _mounted)) = mounted("full_disk_fails_writes_and_keeps_its_content") else { return };
    let size = ByteSize::mib(1);
    let disk = directory.open(size);
    let (whole, why) = fill(&disk, 0).await;
    assert_eq!(why, io::ErrorKind::StorageFull);
    assert!(whole > 50, "only {whole}");
    assert_eq!(fill(&disk, whole).await.1, io::ErrorKind::StorageFull);
    all_are_there(&disk, whole).await;
    assert_eq!(disk.usage().bytes, Some(directory.bytes()), "incomplete records were cut off");
    drop(disk);

    let disk = directory.open(size);
    all_are_there(&disk, whole).await;
    drop(disk);
    let disk = directory.open(ByteSize::kib(256));
    put_all(&disk, CHAIN, &Content::new(whole + 1)).await;
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(whole + 1)).await, "there is room again");
}

#[tokio::test]
async fn read_only_disk_is_still_read() {
    let Some((directory, mounted)) = mounted("read_only_disk_is_still_read") else { return };
    let disk = directory.open(ByteSize::kib(128));
    for number in 0..10 {
        put_all(&disk, CHAIN, &Content::new(number)).await;
    }
    mounted.remount("ro").await;
    assert_eq!(fill(&disk, 10).await, (10, io::ErrorKind::ReadOnlyFilesystem));
    all_are_there(&disk, 10).await;
    // A removal holds for this process, but not after a restart, so each attempt reports an error.
    let homes: Arc<[_]> = [4, 5].map(|number| Content::new(number).home).into();
    for _ in 0..2 {
        assert!(disk.drop_hints(CHAIN, homes.clone()).await.is_err());
        assert!(disk.remove(CHAIN, Part::Block, Content::new(3).home.block).await.is_err());
    }
    assert!(!found(&disk, CHAIN, Part::Block, &Content::new(3)).await);
    assert_eq!(disk.hints(CHAIN, BlockNumber(4), 2).await.unwrap(), [None, None]);
    drop(disk);
    let disk = directory.open(ByteSize::kib(128));
    all_are_there(&disk, 10).await;
    assert!(disk.remove(CHAIN, Part::Block, Content::new(3).home.block).await.is_err());
    assert!(disk.drop_hints(CHAIN, homes.clone()).await.is_err());
    mounted.remount("rw").await;
    assert!(
        disk.remove(CHAIN, Part::Block, Content::new(3).home.block).await.unwrap(),
        "the removal was pending"
    );
    assert!(
        !disk.remove(CHAIN, Part::Block, Content::new(3).home.block).await.unwrap(),
        "the removal is no longer pending"
    );
    assert!(disk.drop_hints(CHAIN, homes).await.unwrap());
    put_all(&disk, CHAIN, &Content::new(11)).await;
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(11)).await);
    drop(disk);
    let disk = directory.open(ByteSize::kib(128));
    assert!(!found(&disk, CHAIN, Part::Block, &Content::new(3)).await, "it is gone for good");
    assert_eq!(disk.hints(CHAIN, BlockNumber(4), 2).await.unwrap(), [None, None]);
}
