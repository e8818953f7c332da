//! The cost of verification: `cargo bench --manifest-path benches/parts/Cargo.toml --bench verify`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

use std::{fs, hint::black_box, path::Path};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use holdfast::{
    devchain::{Config, DevChain},
    eth::{At, Block, Tag, TxPosition},
    verify::{self, Verified, prove},
};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Number of transactions, about as many as in a mainnet block of 2025.
const TRANSACTIONS: usize = 200;

fn throughput(transactions: usize, bytes: usize) -> Throughput {
    Throughput::ElementsAndBytes { elements: transactions as u64, bytes: bytes as u64 }
}

fn structural(json: &[u8]) -> Verified<Block> {
    verify::block(json, At::Tag(Tag::Latest)).unwrap()
}

fn one_thread() -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(1).build().unwrap()
}

/// Measures a block on all cores and on one.
fn blocks(criterion: &mut Criterion, name: &str, json: &Bytes) {
    let block = structural(json);
    let mut group = criterion.benchmark_group(name);
    group.throughput(throughput(block.len(), json.len()));
    group.bench_function("structural", |bencher| bencher.iter(|| structural(black_box(json))));
    group.bench_function("proved", |bencher| {
        bencher.iter(|| prove::block(black_box(block.clone()), None).unwrap());
    });
    let alone = one_thread();
    group.bench_function("proved on one thread", |bencher| {
        alone.install(|| bencher.iter(|| prove::block(black_box(block.clone()), None).unwrap()));
    });
    group.finish();
}

fn development_chain(criterion: &mut Criterion) {
    let chain = DevChain::new(Config::default());
    let hash = chain.mine(TRANSACTIONS).hash;
    let full = chain.block_json(hash, true).unwrap();
    blocks(criterion, "development block", &full);

    let block = prove::block(structural(&full), None).unwrap();
    let all = chain.receipts_json(hash).unwrap();
    let receipts = verify::receipts(&all, block.hash(), block.header().number, Some(&block)).unwrap();
    let mut group = criterion.benchmark_group("its receipts");
    group.throughput(throughput(receipts.len(), all.len()));
    group.bench_function("proved", |bencher| {
        bencher.iter(|| prove::receipts(black_box(receipts.clone()), &block).unwrap());
    });
    group.finish();

    let first = TxPosition(0);
    let transaction = block.transaction(first).unwrap();
    let single = verify::single_transaction(&transaction, block.transaction_hash(first).unwrap()).unwrap();
    let mut group = criterion.benchmark_group("a single transaction");
    group.throughput(throughput(1, transaction.len()));
    group.bench_function("proved", |bencher| {
        bencher.iter(|| prove::single_transaction(black_box(single.clone()), None).unwrap());
    });
    group.finish();
}

/// Measures a real block.
fn mainnet(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/mainnet-24476000.block.json");
    blocks(criterion, "mainnet block 24476000", &fs::read(path).unwrap().into());
}

criterion_group!(benches, development_chain, mainnet);
criterion_main!(benches);
