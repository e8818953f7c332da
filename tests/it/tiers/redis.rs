//! The Redis tier that a fleet shares, against a real server.

use std::{collections::HashMap, time::Duration};

use alloy_primitives::{B256, keccak256};
use holdfast::{
    cache::{
        redis::{Redis as Tier, RedisConfig},
        tier::{ChainKey, Part, Record, Sealed, Tier as _, TierError, Tiered},
    },
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
};
use tokio::time::Instant;

use crate::support::{
    authority::Authority,
    eventually,
    redis::{Raw, redis},
};

const MAINNET: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0xd4) };
const OTHER: ChainKey = ChainKey { id: 1, genesis: B256::repeat_byte(0xd5) };

fn hash(chain: ChainKey, number: u64, fork: u64) -> BlockHash {
    BlockHash(keccak256(format!("{chain:?} {number} {fork}")))
}

fn transaction(block: BlockHash, position: u64) -> TxHash {
    TxHash(keccak256(format!("{block} {position}")))
}

fn text(hash: BlockHash, part: Part) -> String {
    format!("{{\"hash\":\"{hash}\",\"part\":\"{part:?}\",\"more\":\"{}\"}}", "0".repeat(100))
}

fn block(chain: ChainKey, number: u64, transactions: u64) -> Record {
    record(hash(chain, number, 0), number, Part::Block, transactions)
}

fn record(hash: BlockHash, number: u64, part: Part, transactions: u64) -> Record {
    Record {
        number: BlockNumber(number),
        hash,
        part,
        transactions: (0..transactions).map(|position| transaction(hash, position)).collect(),
        value: Sealed::new(text(hash, part).as_bytes()).unwrap(),
    }
}

async fn opened(tier: &Tier, chain: ChainKey, part: Part, hash: BlockHash) -> Option<String> {
    let sealed = tier.get(chain, part, hash).await.unwrap()?;
    Some(String::from_utf8(sealed.open().unwrap().to_vec()).unwrap())
}

/// Writes a record. Repeats the write if another instance has made the tier forget canonicity.
async fn put(tier: &Tier, chain: ChainKey, record: Record) {
    while let Err(error) = tier.put(chain, record.clone()).await {
        assert!(matches!(error, TierError::Forgotten), "{error}");
        // Reads the finalized block, as a caller does after this error.
        tier.finalized(chain).await.unwrap();
    }
}

/// Notes a finalized block. Repeats the note if another instance has made the tier forget canonicity.
async fn note(tier: &Tier, chain: ChainKey, number: BlockNumber, hash: BlockHash) {
    while let Err(error) = tier.note_finalized(chain, number, hash).await {
        assert!(matches!(error, TierError::Forgotten), "{error}");
        tier.finalized(chain).await.unwrap();
    }
}

/// Asserts that the call fails quickly, and returns its error.
async fn quick_error<T: std::fmt::Debug>(call: impl Future<Output = Result<T, TierError>>) -> String {
    let started = Instant::now();
    let error = call.await.unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(15), "took {:?}: {error}", started.elapsed());
    error
}

/// Returns the answer, after one retry if another instance made the tier forget canonicity.
async fn told<'a, T>(ask: impl Fn() -> Tiered<'a, T>) -> T {
    match ask().await {
        Err(TierError::Forgotten) => ask().await.unwrap(),
        told => told.unwrap(),
    }
}

#[tokio::test]
async fn entries_of_one_instance_are_found_by_another() {
    let Some(redis) = redis("entries_of_one_instance_are_found_by_another") else { return };
    let redis = redis.run().await;
    let (one, another) = (redis.tier(), redis.tier());
    let record = block(MAINNET, 7, 3);
    let (hash, number) = (record.hash, record.number);
    put(&one, MAINNET, record).await;
    note(&one, MAINNET, number, hash).await;

    assert_eq!(opened(&another, MAINNET, Part::Block, hash).await, Some(text(hash, Part::Block)));
    assert_eq!(opened(&another, MAINNET, Part::Receipts, hash).await, None);
    assert_eq!(another.hash_at(MAINNET, number).await.unwrap(), Some(hash));
    assert_eq!(another.hash_at(OTHER, number).await.unwrap(), None);
    let place = another.place_of(MAINNET, transaction(hash, 2)).await.unwrap();
    assert_eq!(place, Some((number, TxPosition(2))));
    assert_eq!(another.finalized(MAINNET).await.unwrap(), Some((number, hash)));

    note(&another, MAINNET, BlockNumber(6), hash).await;
    assert_eq!(
        one.finalized(MAINNET).await.unwrap(),
        Some((number, hash)),
        "the finalized number only rises"
    );
    another.remove(MAINNET, Part::Block, hash).await.unwrap();
    assert_eq!(opened(&one, MAINNET, Part::Block, hash).await, None);
}

#[tokio::test]
async fn existing_entries_are_not_overwritten() {
    let Some(redis) = redis("existing_entries_are_not_overwritten") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let (first, mut second) = (block(MAINNET, 7, 0), block(MAINNET, 7, 0));
    second.value = Sealed::new(b"another").unwrap();
    put(&tier, MAINNET, first.clone()).await;
    put(&tier, MAINNET, second).await;
    assert_eq!(tier.get(MAINNET, Part::Block, first.hash).await.unwrap(), Some(first.value));
}

#[tokio::test]
async fn highest_finalized_block_wins_concurrent_notes() {
    let test = "highest_finalized_block_wins_concurrent_notes";
    let Some(redis) = redis(test) else { return };
    let redis = redis.run().await;
    // The largest number of writers that can conflict and still all succeed.
    let tiers = [redis.tier(), redis.tier(), redis.tier()];
    for tier in &tiers {
        redis.is_back(tier).await;
    }
    for round in 1..=30 {
        let highest = 10 * round;
        let told = tiers.iter().zip([highest, highest - 1, highest - 2]).map(|(tier, number)| {
            tier.note_finalized(MAINNET, BlockNumber(number), hash(MAINNET, number, 0))
        });
        futures_util::future::try_join_all(told).await.unwrap();
        let highest = (BlockNumber(highest), hash(MAINNET, highest, 0));
        assert_eq!(tiers[0].finalized(MAINNET).await.unwrap(), Some(highest));
    }
}

/// The expected content of a tier.
#[derive(Default)]
struct Model {
    values: HashMap<(ChainKey, Part, BlockHash), String>,
    numbers: HashMap<(ChainKey, u64), BlockHash>,
    places: HashMap<(ChainKey, TxHash), (BlockNumber, TxPosition)>,
    finals: HashMap<ChainKey, (BlockNumber, BlockHash)>,
    /// Whether keys may have been lost. If so, an entry may be missing, but an entry that is found must be true.
    lossy: bool,
}

impl Model {
    fn forget(&mut self, chain: ChainKey) {
        self.numbers.retain(|(of, _), _| *of != chain);
        self.places.retain(|(of, _), _| *of != chain);
        self.finals.remove(&chain);
    }

    fn agrees<T: PartialEq + std::fmt::Debug>(&self, found: Option<T>, known: Option<T>, what: &str) {
        if !(self.lossy && found.is_none()) {
            assert_eq!(found, known, "{what}");
        }
    }
}

#[tokio::test]
async fn random_steps_never_find_forgotten_entries() {
    let Some(redis) = redis("random_steps_never_find_forgotten_entries") else { return };
    let mut redis = redis.run().await;
    let tiers = [redis.tier(), redis.tier()];
    let mut raw = redis.raw().await;
    let mut forks = HashMap::new();
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::default();
        raw.ask::<()>(&[b"FLUSHALL"]).await;
        for _ in 0..150 {
            let tier = &tiers[random.usize(..2)];
            let chain = if random.bool() { MAINNET } else { OTHER };
            let number = random.u64(0..6);
            let fork = *forks.get(&chain).unwrap_or(&0);
            let hash = hash(chain, number, fork);
            match random.u32(0..100) {
                0..40 => {
                    let part = if random.u32(..3) == 0 { Part::Receipts } else { Part::Block };
                    put(tier, chain, record(hash, number, part, 3)).await;
                    model.values.insert((chain, part, hash), text(hash, part));
                    if part == Part::Block {
                        model.numbers.insert((chain, number), hash);
                        for position in 0..3 {
                            let place = (BlockNumber(number), TxPosition(position));
                            model.places.insert((chain, transaction(hash, position)), place);
                        }
                    }
                }
                40..50 => {
                    note(tier, chain, BlockNumber(number), hash).await;
                    let highest = model.finals.entry(chain).or_insert((BlockNumber(number), hash));
                    // If keys were lost, the tier accepts a lower finalized block.
                    if highest.0 < BlockNumber(number)
                        || (model.lossy
                            && told(|| tier.finalized(chain)).await == Some((BlockNumber(number), hash)))
                    {
                        *highest = (BlockNumber(number), hash);
                    }
                }
                50..56 => {
                    let part = Part::ALL[random.usize(..2)];
                    tier.remove(chain, part, hash).await.unwrap();
                    model.values.remove(&(chain, part, hash));
                }
                56..62 => {
                    tier.forget_canonicity(chain).await.unwrap();
                    model.forget(chain);
                    // The chain continues with another history, as after a finalized block that changed.
                    forks.insert(chain, fork + 1);
                }
                62..64 => {
                    raw.ask::<()>(&[b"FLUSHALL"]).await;
                    model = Model::default();
                }
                64..68 => {
                    // Deletes some keys, as Redis does when it evicts them.
                    let keys = raw.keys().await;
                    for key in keys.iter().filter(|_| random.u32(..4) == 0) {
                        raw.ask::<()>(&[b"DEL", key]).await;
                    }
                    model.lossy = true;
                }
                68 => {
                    redis.kill();
                    redis.start().await;
                    raw = redis.raw().await;
                    for tier in &tiers {
                        redis.is_back(tier).await;
                    }
                    model = Model::default();
                }
                _ => {
                    let number = BlockNumber(number);
                    model.agrees(
                        told(|| tier.hash_at(chain, number)).await,
                        model.numbers.get(&(chain, number.0)).copied(),
                        "the hash at a number",
                    );
                    for part in Part::ALL {
                        let known = model.values.get(&(chain, part, hash)).cloned();
                        model.agrees(opened(tier, chain, part, hash).await, known, "a part of a block");
                    }
                    for fork in 0..=fork {
                        let transaction = transaction(self::hash(chain, number.0, fork), random.u64(..4));
                        let known = model.places.get(&(chain, transaction)).copied();
                        let found = told(|| tier.place_of(chain, transaction)).await;
                        model.agrees(found, known, "the place of a transaction");
                    }
                    let known = model.finals.get(&chain).copied();
                    model.agrees(told(|| tier.finalized(chain)).await, known, "the highest final block");
                }
            }
        }
    }
}

#[tokio::test]
async fn evicted_epoch_brings_nothing_back() {
    let Some(redis) = redis("evicted_epoch_brings_nothing_back") else { return };
    let redis = redis.run().await;
    let (one, another) = (redis.tier(), redis.tier());
    let record = block(MAINNET, 7, 1);
    put(&one, MAINNET, record.clone()).await;
    note(&one, MAINNET, record.number, record.hash).await;
    let mut raw = redis.raw().await;
    let epoch = [b"holdfast:", &MAINNET.to_bytes()[..], b"e"].concat();
    assert_eq!(raw.ask::<u64>(&[b"EXISTS", &epoch]).await, 1);
    another.forget_canonicity(MAINNET).await.unwrap();
    raw.ask::<()>(&[b"DEL", &epoch]).await;
    for tier in [&one, &another] {
        assert_eq!(told(|| tier.hash_at(MAINNET, record.number)).await, None);
    }
    put(&one, MAINNET, block(MAINNET, 8, 1)).await;
    for tier in [&one, &another] {
        assert_eq!(told(|| tier.hash_at(MAINNET, record.number)).await, None);
        assert_eq!(told(|| tier.place_of(MAINNET, record.transactions[0])).await, None);
        assert_eq!(told(|| tier.finalized(MAINNET)).await, None);
        assert_eq!(told(|| tier.hash_at(MAINNET, BlockNumber(8))).await, Some(hash(MAINNET, 8, 0)));
    }
}

#[tokio::test]
async fn damaged_entries_are_detected() {
    let Some(redis) = redis("damaged_entries_are_detected") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    let record = block(MAINNET, 7, 1);
    put(&tier, MAINNET, record.clone()).await;
    note(&tier, MAINNET, record.number, record.hash).await;
    let mut random = fastrand::Rng::with_seed(7);
    let keys = raw.keys().await;
    assert_eq!(keys.len(), 5, "a value, a number, a transaction, the finalized block and the epoch");
    for key in keys {
        let whole: Vec<u8> = raw.ask(&[b"GET", &key]).await;
        for _ in 0..60 {
            let (mut damaged, at) = (whole.clone(), random.usize(..whole.len()));
            match random.u32(..4) {
                0 => damaged[at] ^= 1 << random.u32(..8),
                1 => damaged.truncate(at),
                2 => damaged.extend([0; 9]),
                _ => damaged = (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
            }
            raw.ask::<()>(&[b"SET", &key, &damaged]).await;
            let value = tier.get(MAINNET, Part::Block, record.hash).await.unwrap();
            let value = value.and_then(|value| value.open().ok());
            let found = told(|| tier.hash_at(MAINNET, record.number)).await;
            let place = told(|| tier.place_of(MAINNET, record.transactions[0])).await;
            let highest = told(|| tier.finalized(MAINNET)).await;
            assert!(value.is_none_or(|value| value == text(record.hash, Part::Block)));
            assert!(found.is_none_or(|found| found == record.hash));
            assert!(place.is_none_or(|place| place == (record.number, TxPosition(0))));
            assert!(highest.is_none_or(|highest| highest == (record.number, record.hash)));
            // A removal and the next write repair a damaged value. The next write alone repairs the other keys.
            tier.remove(MAINNET, Part::Block, record.hash).await.unwrap();
            put(&tier, MAINNET, record.clone()).await;
            note(&tier, MAINNET, record.number, record.hash).await;
            assert!(tier.get(MAINNET, Part::Block, record.hash).await.unwrap().unwrap().open().is_ok());
            assert_eq!(told(|| tier.hash_at(MAINNET, record.number)).await, Some(record.hash));
            assert_eq!(told(|| tier.finalized(MAINNET)).await, Some((record.number, record.hash)));
        }
    }
}

#[tokio::test]
async fn oversized_value_is_not_read_whole() {
    let Some(redis) = redis("oversized_value_is_not_read_whole") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    put(&tier, MAINNET, block(MAINNET, 7, 0)).await;
    for key in raw.keys().await {
        raw.ask::<u64>(&[b"SETRANGE", &key, b"100000000", b"x"]).await;
    }
    let started = raw.info("stats", "total_net_output_bytes").await;
    assert_eq!(tier.hash_at(MAINNET, BlockNumber(7)).await.unwrap(), None);
    let value = tier.get(MAINNET, Part::Block, hash(MAINNET, 7, 0)).await;
    assert!(!matches!(value, Ok(Some(value)) if value.open().is_ok()));
    let sent = raw.info("stats", "total_net_output_bytes").await - started;
    assert!(sent < 70 << 20, "{sent} bytes were sent");
}

#[tokio::test]
async fn redis_outage_and_return_are_noticed_at_once() {
    let Some(mut redis) = redis("redis_outage_and_return_are_noticed_at_once") else {
        return;
    };
    let tier = redis.tier();
    let hash = hash(MAINNET, 7, 0);
    for _ in 0..20 {
        let error = quick_error(tier.get(MAINNET, Part::Block, hash)).await;
        assert!(error.contains("redis://127.0.0.1:") && error.contains("refused"), "{error}");
    }
    for round in 0..3 {
        redis.start().await;
        redis.is_back(&tier).await;
        put(&tier, MAINNET, block(MAINNET, 7, 2)).await;
        assert_eq!(tier.hash_at(MAINNET, BlockNumber(7)).await.unwrap(), Some(hash), "round {round}");
        redis.kill();
        for _ in 0..20 {
            quick_error(tier.get(MAINNET, Part::Block, hash)).await;
            quick_error(tier.put(MAINNET, block(MAINNET, 7, 2))).await;
        }
    }
}

#[tokio::test]
async fn silent_redis_is_abandoned_and_reconnected() {
    let Some(redis) = redis("silent_redis_is_abandoned_and_reconnected") else { return };
    let redis = redis.run().await;
    let short = RedisConfig { timeout: Duration::from_millis(500), ..redis.config() };
    let tier = Tier::try_new(&short).unwrap();
    redis.is_back(&tier).await;
    let mut raw = redis.raw().await;
    let before = raw.info("stats", "total_connections_received").await;
    redis.freeze();
    for _ in 0..8 {
        let error = quick_error(tier.hash_at(MAINNET, BlockNumber(7))).await;
        // The first error is a time-out, later errors are failed connections.
        assert!(
            ["no answer within 500ms", "cannot connect within"].iter().any(|why| error.contains(why)),
            "{error}"
        );
    }
    redis.thaw();
    redis.is_back(&tier).await;
    let after = raw.info("stats", "total_connections_received").await;
    assert!(after > before, "the tier opened another connection");
}

/// Returns bytes that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(50_000).collect()
}

#[tokio::test]
async fn full_redis_refuses_writes_and_still_answers() {
    let Some(redis) = redis("full_redis_refuses_writes_and_still_answers") else { return };
    let redis = redis.with("maxmemory", "3mb").with("maxmemory-policy", "noeviction").run().await;
    let tier = redis.tier();
    put(&tier, MAINNET, block(MAINNET, 7, 1)).await;
    let mut refused = None;
    for number in 8..500 {
        let mut record = block(MAINNET, number, 20);
        record.value = Sealed::new(&noise(number)).unwrap();
        refused = refused.or(tier.put(MAINNET, record).await.err());
    }
    let error = refused.unwrap().to_string();
    assert!(error.contains("OOM"), "{error}");
    let hash = hash(MAINNET, 7, 0);
    assert_eq!(opened(&tier, MAINNET, Part::Block, hash).await, Some(text(hash, Part::Block)));
    assert_eq!(tier.hash_at(MAINNET, BlockNumber(7)).await.unwrap(), Some(hash));
}

#[tokio::test]
async fn recent_entries_are_found_while_redis_evicts() {
    let Some(redis) = redis("recent_entries_are_found_while_redis_evicts") else { return };
    let redis = redis.with("maxmemory", "4mb").with("maxmemory-policy", "allkeys-lru").run().await;
    let tier = redis.tier();
    let mut found_again = 0;
    for number in 0..400 {
        let mut record = block(MAINNET, number, 20);
        record.value = Sealed::new(&noise(number)).unwrap();
        put(&tier, MAINNET, record.clone()).await;
        let found = tier.get(MAINNET, Part::Block, record.hash).await.unwrap();
        found_again += u32::from(found.is_some());
        assert!(found.is_none_or(|found| found == record.value));
    }
    assert!(redis.raw().await.info("stats", "evicted_keys").await > 100);
    eventually("usage is reported", async || {
        let usage = tier.usage();
        assert!(usage.capacity.is_none_or(|bytes| bytes == 4 << 20), "{usage:?}");
        usage.capacity.is_some() && usage.evictions > 100 && usage.bytes.is_some_and(|bytes| bytes > 1 << 20)
    })
    .await;
    assert!(found_again > 350, "{found_again} of 400");
}

#[tokio::test]
async fn entries_expire_after_their_ttl() {
    let Some(redis) = redis("entries_expire_after_their_ttl") else { return };
    let redis = redis.run().await;
    let config = RedisConfig { ttl: Some(Duration::from_secs(3600)), ..redis.config() };
    let tier = Tier::try_new(&config).unwrap();
    put(&tier, MAINNET, block(MAINNET, 7, 1)).await;
    put(&tier, MAINNET, record(hash(MAINNET, 7, 0), 7, Part::Receipts, 0)).await;
    let mut raw = redis.raw().await;
    for key in raw.keys().await {
        let left: i64 = raw.ask(&[b"TTL", &key]).await;
        let is_epoch = key.ends_with(b"e") && key.len() == "holdfast:".len() + ChainKey::LEN + 1;
        assert_eq!(left > 3500 && left <= 3600, !is_epoch, "{left} s");
    }
    let short =
        RedisConfig { ttl: Some(Duration::from_millis(20)), prefix: "short:".into(), ..redis.config() };
    let tier = Tier::try_new(&short).unwrap();
    put(&tier, MAINNET, block(MAINNET, 7, 1)).await;
    eventually("the entry expires", || async {
        tier.hash_at(MAINNET, BlockNumber(7)).await.unwrap().is_none()
    })
    .await;
}

#[tokio::test]
async fn a_password_is_sent_and_never_shown() {
    let Some(redis) = redis("a_password_is_sent_and_never_shown") else { return };
    let redis = redis.password("correct-SECRET").run().await;
    let right = redis.tier();
    redis.is_back(&right).await;
    let with = |url: String| {
        let config = RedisConfig { timeout: redis.config().timeout, ..RedisConfig::at(url) };
        Tier::try_new(&config).unwrap()
    };
    let wrong = with(redis.url().replace("correct", "wrong"));
    let none = with(redis.url().replace(":correct-SECRET@", ""));
    for (tier, why) in [(&wrong, "authentication failed"), (&none, "NOAUTH")] {
        for _ in 0..5 {
            let error = quick_error(tier.hash_at(MAINNET, BlockNumber(7))).await;
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
    let shown = format!("{right:?} {wrong:?} {:?}", redis.config());
    assert!(!shown.contains("SECRET") && shown.contains("redis://127.0.0.1:"), "{shown}");
}

#[tokio::test]
async fn redis_is_reached_over_tls() {
    let Some(redis) = redis("redis_is_reached_over_tls") else { return };
    let authority = Authority::new();
    let redis = redis.secure(&authority).run().await;
    let tier = Tier::try_new(&redis.secure_config()).unwrap();
    redis.is_back(&tier).await;
    put(&tier, MAINNET, block(MAINNET, 7, 1)).await;
    assert_eq!(redis.tier().hash_at(MAINNET, BlockNumber(7)).await.unwrap(), Some(hash(MAINNET, 7, 0)));

    let stranger = RedisConfig { ca: Some(Authority::new().file().into()), ..redis.secure_config() };
    let stranger = Tier::try_new(&stranger).unwrap();
    let error = quick_error(stranger.hash_at(MAINNET, BlockNumber(7))).await;
    assert!(error.contains("certificate"), "{error}");
}

/// Returns the number of socket reads by the server. Commands that were sent together need one read.
async fn reads(raw: &mut Raw) -> u64 {
    raw.info("stats", "total_reads_processed").await
}

#[tokio::test]
async fn block_or_concurrent_gets_are_one_round_trip() {
    let Some(redis) = redis("block_or_concurrent_gets_are_one_round_trip") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    put(&tier, MAINNET, block(MAINNET, 1, 1)).await;

    // This query is a read, too.
    let mut before = reads(&mut raw).await;
    let mut since = async |raw: &mut _| {
        let now = reads(raw).await;
        let since = now - before - 1;
        before = now;
        since
    };
    // The block is small enough for one read, because Redis reads 16 KiB at a time.
    put(&tier, MAINNET, block(MAINNET, 2, 60)).await;
    let put = since(&mut raw).await;
    tier.hash_at(MAINNET, BlockNumber(2)).await.unwrap();
    let hash_at = since(&mut raw).await;
    let gets = (0..100).map(|_| tier.get(MAINNET, Part::Block, hash(MAINNET, 2, 0)));
    for found in futures_util::future::join_all(gets).await {
        assert!(found.unwrap().is_some());
    }
    let gets = since(&mut raw).await;
    tier.put(MAINNET, block(MAINNET, 3, 200)).await.unwrap();
    let large = since(&mut raw).await;
    println!(
        "reads by the server: put {put}, hash_at {hash_at}, 100 gets {gets}, put of 200 transactions {large}"
    );
    assert_eq!((put, hash_at), (1, 1));
    assert!(gets <= 4, "100 gets came in {gets} pieces");
    // 200 keys and entries are 37 KiB.
    assert!(large <= 5, "a block of 200 transactions came in {large} pieces");

    let started = Instant::now();
    for _ in 0..500 {
        tier.get(MAINNET, Part::Block, hash(MAINNET, 2, 0)).await.unwrap();
    }
    println!("a get takes {:?}", started.elapsed() / 500);
}

#[tokio::test]
async fn cluster_node_works_without_cross_slot_commands() {
    let test = "cluster_node_works_without_cross_slot_commands";
    let Some(redis) = redis(test) else { return };
    let redis = redis.in_cluster().run().await;
    let mut raw = redis.raw().await;
    raw.ask::<()>(&[b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]).await;
    let tier = redis.tier();
    redis.is_back(&tier).await;
    let record = block(MAINNET, 7, 20);
    put(&tier, MAINNET, record.clone()).await;
    note(&tier, MAINNET, record.number, record.hash).await;
    assert_eq!(tier.finalized(MAINNET).await.unwrap(), Some((record.number, record.hash)));
    let place = tier.place_of(MAINNET, record.transactions[19]).await.unwrap();
    assert_eq!(place, Some((record.number, TxPosition(19))));
    assert_eq!(tier.get(MAINNET, Part::Block, record.hash).await.unwrap(), Some(record.value));
    tier.remove(MAINNET, Part::Block, record.hash).await.unwrap();
    tier.forget_canonicity(MAINNET).await.unwrap();
}

#[test]
fn configuration_errors_name_the_fault() {
    let error = |config: RedisConfig| Tier::try_new(&config).unwrap_err().to_string();
    let good = RedisConfig::at("redis://127.0.0.1:6379");
    assert!(Tier::try_new(&good).is_ok());
    for (config, said) in [
        (RedisConfig::at("http://user:SECRET@127.0.0.1"), "url: the scheme must be redis"),
        (RedisConfig::at("redis://SECRET@127.0.0.1"), "url: holds a user but no password"),
        (RedisConfig { ttl: Some(Duration::ZERO), ..good.clone() }, "ttl: must be at least 1ms"),
        (RedisConfig { ca: Some("/nowhere".into()), ..good }, "ca: is for rediss"),
        (
            RedisConfig { ca: Some("/nowhere".into()), ..RedisConfig::at("rediss://127.0.0.1") },
            "ca: cannot read /nowhere",
        ),
        (
            RedisConfig { ca: Some("Cargo.toml".into()), ..RedisConfig::at("rediss://127.0.0.1") },
            "ca: Cargo.toml holds no certificates",
        ),
    ] {
        let error = error(config);
        assert!(error.starts_with(said), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
}
