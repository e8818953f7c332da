//! foyer: a hybrid cache; here its disk half, with next to no memory before it.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
};
use tokio::runtime::Runtime;

use super::{Place, Result, Store};
use crate::data::{Block, Hash, Value};

pub struct Foyer {
    cache: HybridCache<Vec<u8>, Vec<u8>>,
    runtime: Runtime,
    with_places: bool,
    waiting: AtomicU64,
}

/// Its queue takes 32 MiB and drops what is more, without a word.
const QUEUE: usize = 32 << 20;

// === impl Foyer ===

impl Foyer {
    pub fn open(dir: &Path, limit: u64, with_places: bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let cache = runtime.block_on(async {
            let device = FsDeviceBuilder::new(dir).with_capacity(limit as usize).build()?;
            HybridCacheBuilder::new()
                .with_policy(HybridCachePolicy::WriteOnInsertion)
                .memory(1 << 20)
                .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len())
                .storage()
                .with_engine_config(
                    BlockEngineConfig::new(device)
                        .with_buffer_pool_size(QUEUE)
                        .with_submit_queue_size_threshold(QUEUE),
                )
                .build()
                .await
        })?;
        Ok(Self { cache, runtime, with_places, waiting: 0.into() })
    }

    fn insert(&self, kind: u8, key: &[u8], value: &[u8]) {
        self.waiting.fetch_add(value.len().next_multiple_of(4096) as u64, Relaxed);
        self.cache.storage_writer([&[kind], key].concat()).force().insert(value.to_vec());
    }

    fn get(&self, kind: u8, key: &[u8]) -> Result<Option<Value>> {
        let key = [&[kind], key].concat();
        Ok(self.runtime.block_on(self.cache.get(&key))?.map(|entry| entry.value().clone()))
    }
}

impl Store for Foyer {
    fn put(&self, block: &Block) -> Result<()> {
        self.insert(b'b', &block.hash, &block.body);
        self.insert(b'r', &block.hash, &block.receipts);
        if self.with_places {
            self.insert(b'n', &block.number.to_be_bytes(), &block.hash);
            for (index, transaction) in (0u16..).zip(&block.transactions) {
                self.insert(b't', transaction, &[&block.hash[..], &index.to_be_bytes()].concat());
            }
        }
        if self.waiting.load(Relaxed) > (QUEUE / 4) as u64 {
            self.flush()?;
        }
        Ok(())
    }

    fn body(&self, hash: &Hash) -> Result<Option<Value>> {
        self.get(b'b', hash)
    }

    fn receipts(&self, hash: &Hash) -> Result<Option<Value>> {
        self.get(b'r', hash)
    }

    fn hash(&self, number: u64) -> Result<Option<Hash>> {
        Ok(self.get(b'n', &number.to_be_bytes())?.and_then(|hash| hash.try_into().ok()))
    }

    fn place(&self, transaction: &Hash) -> Result<Option<Place>> {
        Ok(self.get(b't', transaction)?.map(|place| super::redb::place(&place)))
    }

    fn flush(&self) -> Result<()> {
        self.waiting.store(0, Relaxed);
        self.runtime.block_on(self.cache.storage().wait());
        Ok(())
    }
}

impl Drop for Foyer {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.cache.close());
    }
}
