//! The workloads.

use std::time::Duration;

use alloy_eips::Encodable2718;
use alloy_primitives::{TxHash, hex};

use crate::world::{Ask, Cost, World};

/// Time between two calls of a sequential client.
const PACE: Duration = Duration::from_millis(20);

/// Slot time of Ethereum.
const SLOT: Duration = Duration::from_secs(12);

/// An indexer that walks final blocks and their receipts, and then follows new blocks.
pub async fn indexer(in_batches: bool) -> Cost {
    const WALKED: u64 = 40;
    const FOLLOWED: u64 = 20;
    let mut world = World::new(1, WALKED as usize + 16, 100);
    let mut next = 1;
    world.ask(Ask::BlockNumber).await;
    while next <= WALKED {
        index(&mut world, next, in_batches).await;
        next += 1;
    }
    // The second part starts at the head and skips the blocks that are not final yet.
    next = world.chain.head().number + 1;
    for _ in 0..FOLLOWED {
        world.change(|chain| chain.mine(100));
        for _ in 0..SLOT.as_secs() {
            world.sleep(Duration::from_secs(1)).await;
            world.ask(Ask::BlockNumber).await;
            while next <= world.chain.head().number {
                index(&mut world, next, in_batches).await;
                next += 1;
            }
        }
    }
    world.cost()
}

async fn index(world: &mut World, number: u64, in_batches: bool) {
    world.sleep(PACE).await;
    world.ask(Ask::Block { number, full: true }).await;
    let receipts: Vec<Ask> = world.transactions(number).into_iter().map(Ask::Receipt).collect();
    if in_batches {
        world.sleep(PACE).await;
        world.ask_all(receipts).await;
        return;
    }
    for receipt in receipts {
        world.sleep(PACE).await;
        world.ask(receipt).await;
    }
}

/// Pages of an explorer: most show a transaction, some a block, some are the front page. The popularity of
/// transactions and blocks follows a Zipf distribution.
pub async fn explorer() -> Cost {
    const PAGES: usize = 3000;
    const BLOCKS: u64 = 200;
    let mut world = World::new(2, BLOCKS as usize + 16, 50);
    let mut by_rank: Vec<TxHash> = (1..=BLOCKS).flat_map(|number| world.transactions(number)).collect();
    world.random.shuffle(&mut by_rank);
    let weights: Vec<f64> = (1..=by_rank.len()).map(|rank| 1.0 / rank as f64).collect();
    let zipf = Zipf::new(&weights);
    let blocks = Zipf::new(&weights[..BLOCKS as usize]);
    for page in 0..PAGES {
        world.sleep(Duration::from_millis(300)).await;
        if page % 40 == 39 {
            world.change(|chain| chain.mine(50));
        }
        match world.random.u32(..10) {
            0 => {
                world.ask_all(vec![Ask::BlockNumber, Ask::Latest { full: true }]).await;
            }
            1 | 2 => {
                // New blocks are the most popular.
                let number = BLOCKS - blocks.draw(world.random.f64()) as u64;
                world.ask_all(vec![Ask::BlockNumber, Ask::Block { number, full: true }]).await;
            }
            _ => {
                let hash = by_rank[zipf.draw(world.random.f64())];
                let answers =
                    world.ask_all(vec![Ask::Transaction(hash), Ask::Receipt(hash), Ask::BlockNumber]).await;
                // The page shows the timestamp of the block.
                let number = answers[0]["blockNumber"].as_str().unwrap().trim_start_matches("0x");
                let number = u64::from_str_radix(number, 16).unwrap();
                world.sleep(PACE).await;
                world.ask(Ask::Block { number, full: false }).await;
            }
        }
    }
    world.cost()
}

/// Thirty wallets that poll the head and the receipts of their transactions every four seconds, over a hundred blocks
/// with some reorgs.
pub async fn wallets() -> Cost {
    const WALLETS: u64 = 30;
    const BLOCKS: u64 = 100;
    const POLL: u64 = 4;
    let mut world = World::new(3, 40, 20);
    /// The transaction that a wallet waits for.
    #[derive(Clone, Default)]
    struct Wallet {
        sent: Option<TxHash>,
        /// Head when the receipt first appeared.
        confirmed: Option<u64>,
    }
    let mut wallets = vec![Wallet::default(); WALLETS as usize];
    for second in 0..BLOCKS * SLOT.as_secs() {
        world.sleep(Duration::from_secs(1)).await;
        if second % SLOT.as_secs() == 0 {
            world.change(|chain| chain.mine(20));
            if world.random.u32(..10) == 0 {
                let depth = u64::from(world.random.u32(1..=3));
                world.change(|chain| chain.reorg(depth, depth as usize + 1));
            }
        }
        for (at, wallet) in wallets.iter_mut().enumerate() {
            if !(second + at as u64).is_multiple_of(POLL) {
                continue;
            }
            // Spreads the polls over time.
            world.sleep(Duration::from_millis(7)).await;
            world.ask(Ask::Latest { full: false }).await;
            match wallet.sent {
                None if world.random.u32(..15) == 0 => {
                    let transaction = world.chain.generate(1).remove(0);
                    let raw = format!("0x{}", hex::encode(transaction.encoded_2718()));
                    world.ask(Ask::Send { raw }).await;
                    wallet.sent = Some(*transaction.tx_hash());
                }
                None => {}
                Some(hash) => {
                    let receipt = world.ask(Ask::Receipt(hash)).await;
                    let head = world.chain.head().number;
                    wallet.confirmed = wallet.confirmed.filter(|_| !receipt.is_null());
                    if !receipt.is_null() && wallet.confirmed.is_none() {
                        wallet.confirmed = Some(head);
                        world.ask(Ask::Transaction(hash)).await;
                    }
                    // The wallet is done after three more blocks.
                    if wallet.confirmed.is_some_and(|since| head >= since + 3) {
                        *wallet = Wallet::default();
                    }
                }
            }
        }
    }
    world.cost()
}

/// Tests against a fork of the chain at a fixed block, run twice. The workload omits reads of state (balances, code,
/// storage): every proxy forwards them, and they would make any plan look good.
pub async fn fork_tests() -> Cost {
    const FORK: u64 = 100;
    let mut world = World::new(4, FORK as usize + 30, 60);
    let mut script = vec![Ask::ChainId, Ask::Block { number: FORK, full: false }];
    // The opcode BLOCKHASH needs the blocks before the fork block.
    script.extend((1..=8).map(|back| Ask::Block { number: FORK - back, full: false }));
    // Replays the fork block up to a transaction.
    script.push(Ask::Block { number: FORK, full: true });
    for (index, hash) in world.transactions(FORK).into_iter().enumerate().take(30) {
        script.extend([Ask::TransactionAt { number: FORK, index }, Ask::Receipt(hash)]);
    }
    // Transactions that tests know by hash: two each of twenty blocks, and one each of ten more.
    for number in 10..40 {
        let known = if number < 30 { 2 } else { 1 };
        for at in 0..known {
            let hash = world.transactions(number)[at * 7 + 3];
            script.extend([Ask::Transaction(hash), Ask::Receipt(hash)]);
        }
    }
    script.extend(
        (50..60).map(|number| Ask::BlockByHash { hash: world.hash_at(number), full: number % 2 == 0 }),
    );
    // Tests read the logs of these blocks.
    script.extend((60..64).map(|number| Ask::BlockReceipts { number }));
    for _ in 0..2 {
        for ask in script.clone() {
            world.sleep(PACE).await;
            world.ask(ask).await;
        }
        world.sleep(Duration::from_secs(60)).await;
        world.change(|chain| chain.mine_many(5, 60));
    }
    world.cost()
}

/// Repeated reads of single receipts of deep history, each of another block.
pub async fn repeated_receipts() -> Cost {
    const RECEIPTS: u64 = 30;
    let mut world = World::new(5, RECEIPTS as usize + 40, 50);
    let receipts: Vec<_> = (1..=RECEIPTS).map(|number| world.transactions(number)[7]).collect();
    world.ask(Ask::BlockNumber).await;
    for _ in 0..20 {
        world.sleep(Duration::from_secs(2)).await;
        for receipt in &receipts {
            world.sleep(PACE).await;
            world.ask(Ask::Receipt(*receipt)).await;
        }
    }
    world.cost()
}

/// An indexer that walks the final blocks of the last hour and their receipts twice.
pub async fn last_hour() -> Cost {
    const WALKED: u64 = 40;
    let mut world = World::with_slots(6, WALKED as usize + 16, 100, SLOT.as_secs());
    world.ask(Ask::BlockNumber).await;
    for in_batches in [true, true] {
        for number in 1..=WALKED {
            index(&mut world, number, in_batches).await;
        }
        world.sleep(SLOT).await;
    }
    world.cost()
}

/// A Zipf distribution over ranks.
struct Zipf(Vec<f64>);

// === impl Zipf ===

impl Zipf {
    fn new(weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        let mut below = 0.0;
        let shares = weights.iter().map(|weight| {
            below += weight / sum;
            below
        });
        Self(shares.collect())
    }

    fn draw(&self, random: f64) -> usize {
        self.0.partition_point(|share| *share < random).min(self.0.len() - 1)
    }
}
