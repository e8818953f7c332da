//! Limits on the size of the directory.

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk,
        tier::{ChainKey, Part, Tier},
    },
    eth::BlockHash,
};

use super::{CHAIN, Directory, OTHER, content::Content, found, has, hint, put_all};

async fn kept(disk: &Disk, chain: ChainKey, blocks: std::ops::Range<u64>) -> Vec<u64> {
    let mut kept = Vec::new();
    for number in blocks {
        if found(disk, chain, Part::Block, &Content::new(number)).await {
            kept.push(number);
        }
    }
    kept
}

#[tokio::test]
async fn oldest_blocks_are_evicted_and_counted() {
    let directory = Directory::new();
    let disk = directory.open(ByteSize::kib(64));
    for number in 0..200 {
        put_all(&disk, CHAIN, &Content::new(number)).await;
        assert!(directory.bytes() <= 64 << 10);
    }
    let kept = kept(&disk, CHAIN, 0..200).await;
    assert!(kept.len() > 15, "only {kept:?}");
    assert_eq!(kept, Vec::from_iter(200 - kept.len() as u64..200), "the newest blocks stay, without a gap");
    let usage = disk.usage();
    assert_eq!(usage.bytes, Some(directory.bytes()));
    assert_eq!(usage.capacity, Some(64 << 10));
    assert_eq!(usage.blocks.unwrap() + usage.evictions, 200);
    let gone = Content::new(3);
    assert_eq!(has(&disk, CHAIN, &gone).await, (0, 0));
    assert_eq!(hint(&disk, CHAIN, gone.home.number).await, None);
}

#[tokio::test]
async fn lowered_limit_applies_at_once() {
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    for number in 0..100 {
        put_all(&disk, CHAIN, &Content::new(number)).await;
    }
    drop(disk);
    assert!(directory.bytes() > 150_000);
    let disk = directory.open(ByteSize::kib(150));
    assert!(directory.bytes() <= 150 << 10, "before the first read");
    assert_eq!(disk.usage().bytes, Some(directory.bytes()));
    let kept = kept(&disk, CHAIN, 0..100).await;
    assert_eq!(kept.last(), Some(&99), "the newest block stays");
    put_all(&disk, CHAIN, &Content::new(100)).await;
    assert!(found(&disk, CHAIN, Part::Block, &Content::new(100)).await);
    assert!(directory.bytes() <= 150 << 10);
}

#[tokio::test]
async fn unused_chain_is_evicted_first() {
    let directory = Directory::new();
    let size = ByteSize::kib(128);
    let disk = directory.open(size);
    for number in 0..20 {
        put_all(&disk, OTHER, &Content::new(number)).await;
    }
    drop(disk);
    let disk = directory.open(size);
    assert_eq!(disk.usage().bytes, Some(directory.bytes()), "the files of an unopened chain count, too");
    let mut number = 0;
    while disk.usage().evictions == 0 {
        put_all(&disk, CHAIN, &Content::new(number)).await;
        assert!(directory.bytes() <= size.as_u64());
        number += 1;
    }
    assert!(number > 30, "the other chain's room was used");
    assert_eq!(kept(&disk, OTHER, 0..20).await, Vec::<u64>::new());
}

#[tokio::test]
async fn records_longer_than_a_segment_are_stored() {
    let directory = Directory::new();
    let size = ByteSize::kib(900);
    let disk = directory.open(size);
    put_all(&disk, CHAIN, &Content::new(1)).await;
    let long: Vec<_> = (2..20).map(|number| Content::sized(number, 0, 2_000, 100_000)).collect();
    for content in &long {
        put_all(&disk, CHAIN, content).await;
        assert!(directory.bytes() <= size.as_u64());
        let is_there = found(&disk, CHAIN, Part::Block, content).await;
        assert!(is_there, "2,000 transactions are 64 KB; a segment has 57 KB");
        assert!(disk.home_of(CHAIN, content.transactions[1_999]).await.unwrap().is_some());
    }
    let absurd = Content::sized(20, 0, 30_000, 10);
    put_all(&disk, CHAIN, &absurd).await;
    assert!(!found(&disk, CHAIN, Part::Block, &absurd).await);
    assert!(found(&disk, CHAIN, Part::Block, &long[17]).await, "nothing was evicted for it");
    drop(disk);
    let disk = directory.open(size);
    assert!(found(&disk, CHAIN, Part::Block, &long[17]).await);
}

#[tokio::test]
async fn stored_records_are_not_written_again() {
    let directory = Directory::new();
    let disk = directory.open(ByteSize::mib(1));
    let content = Content::new(5);
    put_all(&disk, CHAIN, &content).await;
    let before = directory.bytes();
    put_all(&disk, CHAIN, &content).await;
    disk.remove(CHAIN, Part::Block, BlockHash(Default::default())).await.unwrap();
    assert_eq!(directory.bytes(), before);
}
