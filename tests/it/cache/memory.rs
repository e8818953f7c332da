//! The cache is bounded in bytes, admits the newest blocks, and drops transaction locations with their blocks.

use bytesize::ByteSize;
use holdfast::{
    cache::{Cache, Config, Metrics},
    devchain::DevChain,
    eth::{At, Block, BlockHash, BlockNumber, TxHash},
    verify::{self, Verified},
};

use crate::support::upstream;

#[path = "../../../benches/shared/blocks.rs"]
mod blocks;

fn insert(cache: &Cache, chain: &DevChain, number: u64) -> BlockHash {
    let hash = chain.hash_at(number).unwrap();
    let block = verify::block(&chain.block_json(hash, true).unwrap(), At::Hash(BlockHash(hash))).unwrap();
    cache.insert_block(block).hash()
}

fn insert_receipts(cache: &Cache, chain: &DevChain, number: u64) {
    let hash = chain.hash_at(number).unwrap();
    let json = chain.receipts_json(hash).unwrap();
    let held = cache.block(BlockHash(hash));
    let number = BlockNumber(number);
    let receipts = verify::receipts(&json, BlockHash(hash), number, held.as_deref()).unwrap();
    cache.insert_receipts(receipts);
}

fn cache(size: ByteSize) -> Cache {
    Cache::new(&Config { size, ..Default::default() }, Metrics::default())
}

#[test]
fn a_full_cache_admits_the_newest_block_and_keeps_to_its_size() {
    let chain = upstream::devchain().blocks(120, 10).chain();
    let limit = ByteSize::kib(600);
    let cache = cache(limit);
    for number in 1..=120 {
        let hash = insert(&cache, &chain, number);
        cache.settle();
        assert!(cache.block(hash).is_some(), "block {number} was not admitted");
        let (entries, bytes) = cache.sizes();
        assert!(bytes <= limit.as_u64(), "{entries} entries weigh {bytes}");
    }
    let (entries, bytes) = cache.sizes();
    let (located, index) = cache.located();
    println!("{entries} entries, {bytes} bytes of {limit}; {located} transactions located in {index} bytes");
    assert!(cache.count("block") < 120, "nothing was evicted: the limit is too large for this test");
    assert_eq!(located, cache.count("block") * 10, "locations go with their blocks");
}

#[test]
fn used_entries_stay_longer() {
    let chain = upstream::devchain().blocks(120, 10).chain();
    let cache = cache(ByteSize::kib(600));
    let favourite = insert(&cache, &chain, 1);
    for number in 2..=120 {
        insert(&cache, &chain, number);
        assert!(cache.block(favourite).is_some(), "evicted after block {number}");
        cache.settle();
    }
}

/// Reads a block as a client's call does; returns whether it was cached.
fn read(cache: &Cache, block: &Verified<Block>) -> bool {
    let hit = cache.block(block.hash()).is_some();
    if !hit {
        cache.insert_block(block.clone());
    }
    cache.settle();
    hit
}

/// A structurally valid block of two to six transactions.
fn small_block(number: u64) -> Verified<Block> {
    let transactions = (0..2 + number % 5).map(|index| blocks::hash("transaction", number << 8 | index));
    blocks::block(number, transactions, 100)
}

#[test]
fn hot_blocks_survive_a_cold_scan() {
    let hot: Vec<_> = (0..8).map(small_block).collect();
    let mut scan = (8..).map(small_block);
    let cache = cache(ByteSize::kib(160));
    cache.set_head(Some(BlockNumber(1_000_000)));
    let (mut reads, mut hits) = (0, 0);
    for _ in 0..100 {
        for block in &hot {
            reads += 1;
            hits += u32::from(read(&cache, block));
        }
        // Reads more blocks than the cache has room for, each three times, as if a client asked for three of its
        // transactions.
        for block in scan.by_ref().take(80) {
            assert_eq!([(); 3].map(|()| read(&cache, &block)), [false, true, true]);
        }
    }
    assert!(cache.count("block") < 80, "the limit is too large for this test");
    let ratio = f64::from(hits) / f64::from(reads);
    assert!(ratio >= 0.9, "{ratio}");
}

#[test]
fn new_blocks_are_found_in_a_cache_full_of_popular_ones() {
    let popular: Vec<_> = (0..100).map(small_block).collect();
    for head in [None, Some(BlockNumber(100)), Some(BlockNumber(1_000_000))] {
        let cache = cache(ByteSize::kib(160));
        cache.set_head(head);
        for block in popular.iter().cycle().take(1_000) {
            read(&cache, block);
        }
        for block in (100..110).map(small_block) {
            cache.insert_block(block.clone());
            cache.settle();
            let number = block.header().number;
            assert!(cache.block(block.hash()).is_some(), "block {number} with the head at {head:?}");
        }
    }
}

#[test]
fn location_lasts_as_long_as_the_entries_that_give_it() {
    let chain = upstream::devchain().blocks(2, 3).chain();
    let cache = cache(ByteSize::mib(8));
    let hash = insert(&cache, &chain, 1);
    insert_receipts(&cache, &chain, 1);
    // An entry that is inserted again, as after a second fetch, is counted once.
    insert(&cache, &chain, 1);
    insert_receipts(&cache, &chain, 1);
    cache.settle();
    let transaction = TxHash(chain.transactions_of(hash.0)[2]);
    let found = cache.locations(transaction);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].home.block, found[0].home.number.0, found[0].index.0), (hash, 1, 2));

    cache.clear();
    cache.settle();
    assert!(cache.locations(transaction).is_empty());
    assert_eq!(cache.located().0, 0, "a location outlived its entries");
}

#[test]
fn weight_counts_the_real_size_of_an_entry() {
    let chain = upstream::devchain().blocks(50, 20).chain();
    let cache = cache(ByteSize::mib(64));
    let mut content = 0;
    for number in 1..=50 {
        insert(&cache, &chain, number);
        insert_receipts(&cache, &chain, number);
        let hash = chain.hash_at(number).unwrap();
        content += chain.block_json(hash, true).unwrap().len() + chain.receipts_json(hash).unwrap().len();
    }
    cache.settle();
    let (entries, bytes) = cache.sizes();
    let (_, index) = cache.located();
    assert_eq!(entries, 100);
    assert!(bytes as usize >= content + index, "{bytes} bytes for {content} of content and {index} of index");
    println!("{content} bytes of JSON weigh {bytes} ({:.2} each)", bytes as f64 / content as f64);
}
