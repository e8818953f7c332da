//! A file system that is full or read-only.

use std::{fs, io};

use bytesize::ByteSize;
use holdfast::cache::{
    Disk,
    tier::{Part, Tier, TierError},
};

use super::{CHAIN, Directory, content::Content, found, put_both};
use crate::support::mounted::Mounted;

/// Returns a directory in which the chain's folder is a small file system of its own.
fn mounted(test: &str) -> Option<(Directory, Mounted)> {
    let directory = Directory::new();
    let folder = directory.folder(CHAIN);
    Some((directory, Mounted::new(test, folder)?))
}

/// Writes blocks from `first` on until that fails. Returns the first incomplete block, and the kind of the error.
async fn fill(disk: &Disk, first: u64) -> (u64, io::ErrorKind) {
    // Numbers above the finalized block are not served.
    let highest = Content::new(u64::MAX / 2_000);
    let _ = disk.note_finalized(CHAIN, highest.number, highest.hash).await;
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
    for number in 0..until {
        let content = Content::new(number);
        for part in Part::ALL {
            assert!(found(disk, CHAIN, part, &content).await, "{number} of {until}");
        }
        assert_eq!(disk.hash_at(CHAIN, content.number).await.unwrap(), Some(content.hash));
        assert!(disk.place_of(CHAIN, content.transactions[0]).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn full_disk_fails_writes_and_keeps_its_content() {
    let Some((directory, mounted)) = mounted("full_disk_fails_writes_and_keeps_its_content") else { return };
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
    // On a full disk, canonicity can still be forgotten.
    fs::write(mounted.folder().join("ballast"), vec![1; 1 << 20]).unwrap_err();
    disk.forget_canonicity(CHAIN).await.unwrap();
    drop(disk);
    let disk = directory.open(ByteSize::kib(256));
    assert_eq!(disk.hash_at(CHAIN, Content::new(whole - 1).number).await.unwrap(), None);
    fs::remove_file(mounted.folder().join("ballast")).unwrap();
    put_both(&disk, CHAIN, &Content::new(whole + 1)).await;
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(whole + 1)).await, "there is room again");
}

#[tokio::test]
async fn read_only_disk_is_still_read() {
    let Some((directory, mounted)) = mounted("read_only_disk_is_still_read") else { return };
    let disk = directory.open(ByteSize::kib(128));
    for number in 0..10 {
        put_both(&disk, CHAIN, &Content::new(number)).await;
    }
    mounted.remount("ro").await;
    assert_eq!(fill(&disk, 10).await, (10, io::ErrorKind::ReadOnlyFilesystem));
    all_are_there(&disk, 10).await;
    // The removal holds for this process, but not after a restart, so each attempt reports an error.
    for _ in 0..2 {
        assert!(disk.remove(CHAIN, Part::Block, Content::new(3).hash).await.is_err());
    }
    assert!(!found(&disk, CHAIN, Part::Block, &Content::new(3)).await);
    assert!(disk.forget_canonicity(CHAIN).await.is_err(), "canonicity would be back after a restart");
    assert_eq!(
        disk.hash_at(CHAIN, Content::new(1).number).await.unwrap(),
        None,
        "this process has forgotten canonicity"
    );
    drop(disk);
    let disk = directory.open(ByteSize::kib(128));
    all_are_there(&disk, 10).await;
    assert!(disk.remove(CHAIN, Part::Block, Content::new(3).hash).await.is_err());
    mounted.remount("rw").await;
    assert!(disk.remove(CHAIN, Part::Block, Content::new(3).hash).await.unwrap(), "the removal was pending");
    assert!(
        !disk.remove(CHAIN, Part::Block, Content::new(3).hash).await.unwrap(),
        "the removal is no longer pending"
    );
    put_both(&disk, CHAIN, &Content::new(11)).await;
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(11)).await);
    drop(disk);
    let disk = directory.open(ByteSize::kib(128));
    assert!(!found(&disk, CHAIN, Part::Block, &Content::new(3)).await, "it is gone for good");
}
