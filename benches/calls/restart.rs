//! An indexer that reads blocks from a disk upwards, after a restart.

use std::{env, fs, sync::Arc, time::Duration};

use holdfast::{
    budget::ByteBudget,
    cache::{
        Disk, DiskConfig, Tiers,
        tier::{ChainKey, Part, Record, Sealed, Tier},
    },
    config::Config,
    devchain::{self, DevChain, RecordedCall},
    eth::{BlockHash, BlockNumber, Home},
    upstream::EndpointConfig,
    verify::prove::raw,
};
use serde_json::json;
use tokio::runtime::Builder;

use crate::in_memory;

/// Blocks on disk.
pub const BLOCKS: u64 = 10_000;

/// Returns the calls that the node receives while a client reads all blocks on disk. Runs in real time, because a disk
/// takes some.
pub fn walk() -> Vec<RecordedCall> {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let config =
            devchain::Config { keep_calls: 1_000_000, slot_seconds: 600, ..devchain::Config::default() };
        let chain = DevChain::new(config);
        chain.mine_many(usize::try_from(BLOCKS).unwrap() + 16, 0);
        let data = env::temp_dir().join(format!("holdfast-calls-{}", std::process::id()));
        let _ = fs::remove_dir_all(&data);
        fill(&chain, &Disk::open(&DiskConfig::new(&data)).unwrap()).await;
        let program = in_memory::program_with(
            vec![in_memory::endpoint(&chain, "node", EndpointConfig::at("http://node.test"))],
            &Config::default(),
            |metrics| {
                let disk: Arc<dyn Tier> = Arc::new(Disk::open(&DiskConfig::new(&data)).unwrap());
                Tiers::new(vec![(disk, Duration::from_secs(5))], ByteBudget::new(1 << 30, None), metrics)
            },
        );
        program.ask("eth_blockNumber", json!([])).await;
        chain.clear_calls();
        for number in 1..=BLOCKS {
            program.ask("eth_getBlockByNumber", json!([format!("{number:#x}"), true])).await;
        }
        let _ = fs::remove_dir_all(&data);
        chain.calls()
    })
}

/// Writes all final blocks as Holdfast writes them.
async fn fill(chain: &DevChain, disk: &Disk) {
    let key = ChainKey { id: chain.config().chain_id, genesis: chain.hash_at(0).unwrap() };
    for number in 1..=BLOCKS {
        let hash = chain.hash_at(number).unwrap();
        let block = chain.block_json(hash, true).unwrap();
        let home = Home { block: BlockHash(hash), number: BlockNumber(number) };
        for (part, text) in [(Part::Header, raw::header(&block).unwrap()), (Part::Block, block.to_vec())] {
            let value = Sealed::new(&text).unwrap();
            disk.put(key, Record { home, part, transactions: Vec::new(), value }).await.unwrap();
        }
    }
}
