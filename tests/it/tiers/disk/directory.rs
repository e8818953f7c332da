//! The directory of the disk tier: its lock, its files, the chain that it belongs to.

use std::{fs, path::Path};

use bytesize::ByteSize;
use holdfast::cache::{
    DiskError,
    tier::{Part, Tier},
};

use super::{CHAIN, Directory, OTHER, content::Content, found, has, hint, open, put_all};

#[tokio::test]
async fn last_chain_is_remembered() {
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    assert_eq!(disk.last_chain().await.unwrap(), None);
    disk.follow(Some(OTHER)).await.unwrap();
    disk.follow(Some(CHAIN)).await.unwrap();
    drop(disk);
    assert_eq!(directory.open(ByteSize::mib(1)).last_chain().await.unwrap(), Some(CHAIN));
    fs::write(directory.0.join("chain"), "mainnet").unwrap();
    let disk = directory.open(ByteSize::mib(1));
    assert_eq!(disk.last_chain().await.unwrap(), None, "a damaged note names no chain");
    disk.follow(Some(CHAIN)).await.unwrap();
    assert_eq!(disk.last_chain().await.unwrap(), Some(CHAIN));
}

#[tokio::test]
async fn second_instance_is_refused_and_the_first_continues() {
    let directory = Directory::new();
    let first = directory.open(ByteSize::mib(1));
    let second = open(&directory.0, ByteSize::mib(1)).unwrap_err();
    assert!(matches!(second, DiskError::InUse(_)), "{second:?}");
    let message = second.to_string();
    assert!(message.contains(directory.0.to_str().unwrap()), "{message}");
    assert!(message.contains("cache.disk.path"), "says what to do: {message}");
    put_all(&first, CHAIN, &Content::new(1)).await;
    assert!(found(&first, CHAIN, Part::Block, &Content::new(1)).await);
    drop(first);
    directory.open(ByteSize::mib(1));
}

#[test]
fn file_in_place_of_the_directory_has_its_own_error() {
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
    put_all(&disk, CHAIN, &content).await;
    drop(disk);
    let folder = |chain| directory.folder(chain);
    fs::rename(folder(CHAIN), folder(OTHER)).unwrap();

    let disk = directory.open(ByteSize::mib(1));
    assert_eq!(has(&disk, OTHER, &content).await, (0, 0));
    assert_eq!(hint(&disk, OTHER, content.home.number).await, None);
    let before = directory.bytes();
    put_all(&disk, OTHER, &content).await;
    assert!(found(&disk, OTHER, Part::Block, &content).await);
    assert!(directory.bytes() > before, "foreign data was not overwritten");
    assert_eq!(disk.usage().bytes, Some(directory.bytes()));
    drop(disk);

    fs::rename(folder(OTHER), folder(CHAIN)).unwrap();
    let disk = directory.open(ByteSize::mib(1));
    assert!(found(&disk, CHAIN, Part::Block, &content).await, "untouched, it is found again");
}

#[test]
fn pipe_in_place_of_the_lock_does_not_block() {
    let directory = Directory::new();
    let made = std::process::Command::new("mkfifo").arg(directory.0.join("lock")).status().unwrap();
    assert!(made.success());
    let error = open(&directory.0, ByteSize::mib(1)).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}
