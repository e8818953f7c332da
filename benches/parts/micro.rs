//! The single steps of a cache hit: `cargo bench --manifest-path benches/parts/Cargo.toml --bench micro`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[path = "../shared/blocks.rs"]
mod blocks;

use std::hint::black_box;

use alloy_primitives::B256;
use bytes::{Buf, Bytes};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use holdfast::{
    cache::{Cache, Config, Metrics},
    devchain::{self, DevChain},
    eth::{At, Block, Receipts, Tag, TxHash, TxPosition},
    jsonrpc::{Answer, Entry, Packet, RawId, ReplyWriter},
    verify,
};

const TRANSACTIONS: usize = 200;
const MAX_BATCH: usize = 1000;

fn call(id: usize) -> String {
    let hash = "0x".to_owned() + &"9f".repeat(32);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getTransactionByHash","params":["{hash}"]}}"#)
}

fn parsing(criterion: &mut Criterion) {
    let one = Bytes::from(call(1_000_001));
    let batch = format!("[{}]", (0..100).map(call).collect::<Vec<_>>().join(","));
    let batch = Bytes::from(batch);
    let mut group = criterion.benchmark_group("packet");
    for (name, body) in [("one call", one), ("batch of 100", batch)] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| Packet::read(black_box(&body), MAX_BATCH)));
    }
    group.finish();
}

fn indexing(criterion: &mut Criterion) {
    let chain = DevChain::new(devchain::Config::default());
    let hash = chain.mine(TRANSACTIONS).hash;
    let (full, receipts) = (chain.block_json(hash, true).unwrap(), chain.receipts_json(hash).unwrap());
    let mut group = criterion.benchmark_group("index");
    group.throughput(Throughput::Bytes(full.len() as u64));
    group.bench_function("block", |bencher| bencher.iter(|| Block::read(black_box(full.clone())).unwrap()));
    group.throughput(Throughput::Bytes(receipts.len() as u64));
    group.bench_function("receipts", |bencher| {
        bencher.iter(|| Receipts::read(black_box(receipts.clone())).unwrap());
    });
    group.finish();
}

/// Returns an id as parsed from a packet.
fn id() -> RawId {
    match Packet::read(&Bytes::from(call(1_000_001)), MAX_BATCH) {
        Ok(Packet::Single(Entry::Call(call))) => call.id.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn replies(criterion: &mut Criterion) {
    let chain = DevChain::new(devchain::Config::default());
    let hash = chain.mine(TRANSACTIONS).hash;
    let (block, _) = Block::read(chain.block_json(hash, true).unwrap()).unwrap();
    let (id, transaction) = (id(), block.transaction(TxPosition(3)).unwrap());
    let mut group = criterion.benchmark_group("reply");
    for (name, result) in [("transaction", transaction.clone()), ("block", block.full())] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut writer = ReplyWriter::single();
                writer.write(black_box(&id), Answer::Result(result.clone()));
                writer.finish().unwrap().remaining()
            });
        });
    }
    group.bench_function("batch of 100", |bencher| {
        bencher.iter(|| {
            let mut writer = ReplyWriter::batch();
            for _ in 0..100 {
                writer.write(black_box(&id), Answer::Result(transaction.clone()));
            }
            writer.finish().unwrap().remaining()
        });
    });
    group.bench_function("hashes only", |bencher| {
        bencher.iter(|| black_box(&block).hashes_only());
    });
    group.finish();
}

fn looking(criterion: &mut Criterion) {
    let chain = DevChain::new(devchain::Config::default());
    let cache = Cache::new(&Config::default(), Metrics::default());
    let mut located: Vec<TxHash> = Vec::new();
    for _ in 0..50 {
        let hash = chain.mine(TRANSACTIONS).hash;
        let json = chain.block_json(hash, true).unwrap();
        let block = cache.insert_block(verify::block(&json, At::Tag(Tag::Latest)).unwrap());
        located.extend(block.transaction_hashes());
    }
    let mut group = criterion.benchmark_group("look up");
    let mut at = 0;
    let mut next = || {
        // The step is prime, so that consecutive transactions are not neighbours.
        at = (at + 7919) % located.len();
        located[at]
    };
    group.bench_function("location", |bencher| bencher.iter(|| cache.locations(next())));
    group.bench_function("location and transaction", |bencher| {
        bencher.iter(|| {
            let location = cache.locations(next())[0];
            cache.block(location.home.block).unwrap().transaction(location.index).unwrap()
        });
    });
    group.finish();
}

/// Compares the cost of an ordinary block with that of two blocks of a hostile upstream, whose transaction hashes are
/// similar or equal. They should not cost more.
fn inserting(criterion: &mut Criterion) {
    let colliding = |n: u64| {
        let mut hash = B256::repeat_byte(0x5a);
        hash[24..].copy_from_slice(&n.to_be_bytes());
        hash
    };
    let mut group = criterion.benchmark_group("insert and remove 10,000 transactions");
    group.sample_size(20);
    let cases: [(&str, &dyn Fn(u64) -> B256); 3] = [
        ("ordinary", &|n| blocks::hash("transaction", n)),
        ("equal but for eight bytes", &colliding),
        ("one, over and over", &|_| B256::repeat_byte(0x5a)),
    ];
    for (name, hash) in cases {
        let block = blocks::block(1, (0..10_000).map(hash), 32);
        let cache = Cache::new(&Config::default(), Metrics::default());
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || block.clone(),
                |block| {
                    let hash = cache.insert_block(block).hash();
                    cache.remove(hash, None);
                    cache.settle();
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, parsing, indexing, replies, looking, inserting);
criterion_main!(benches);
