//! The Redis tier that a fleet shares, against a real server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use alloy_primitives::{B256, keccak256};
use holdfast::{
    cache::{
        redis::{Redis as Tier, RedisConfig},
        tier::{ChainKey, Part, Record, Sealed, Tier as _, TierError},
    },
    eth::{BlockHash, BlockNumber, Home, TxHash},
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

fn home(chain: ChainKey, number: u64, fork: u64) -> Home {
    Home { number: BlockNumber(number), block: hash(chain, number, fork) }
}

fn record(home: Home, part: Part, transactions: u64) -> Record {
    Record {
        home,
        part,
        transactions: (0..transactions).map(|position| transaction(home.block, position)).collect(),
        value: Sealed::new(text(home.block, part).as_bytes()).unwrap(),
    }
}

/// Returns the block of [`MAINNET`] at this number.
fn block(number: u64, transactions: u64) -> Record {
    record(home(MAINNET, number, 0), Part::Block, transactions)
}

fn header(number: u64) -> Record {
    record(home(MAINNET, number, 0), Part::Header, 0)
}

async fn opened(tier: &Tier, chain: ChainKey, part: Part, hash: BlockHash) -> Option<String> {
    let sealed = tier.get(chain, part, hash).await.unwrap()?;
    Some(String::from_utf8(sealed.open().unwrap().to_vec()).unwrap())
}

/// Asserts that the call fails quickly, and returns its error.
async fn quick_error<T: std::fmt::Debug>(call: impl Future<Output = Result<T, TierError>>) -> String {
    let started = Instant::now();
    let error = call.await.unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(15), "took {:?}: {error}", started.elapsed());
    error
}

async fn hint(tier: &Tier, chain: ChainKey, number: u64) -> Option<BlockHash> {
    tier.hints(chain, BlockNumber(number), 1).await.unwrap()[0]
}

#[tokio::test]
async fn entries_of_one_instance_are_found_by_another() {
    let Some(redis) = redis("entries_of_one_instance_are_found_by_another") else { return };
    let redis = redis.run().await;
    let (one, another) = (redis.tier(), redis.tier());
    let home = home(MAINNET, 7, 0);
    one.put(MAINNET, block(7, 3)).await.unwrap();
    assert_eq!(hint(&another, MAINNET, 7).await, None, "a block is no hint");
    one.put(MAINNET, header(7)).await.unwrap();

    for part in [Part::Block, Part::Header] {
        assert_eq!(opened(&another, MAINNET, part, home.block).await, Some(text(home.block, part)));
    }
    assert_eq!(opened(&another, MAINNET, Part::Receipts, home.block).await, None);
    let headers = another.headers(MAINNET, vec![hash(MAINNET, 6, 0), home.block]).await.unwrap();
    assert_eq!(headers, [None, Some(header(7).value)]);
    assert_eq!(another.hints(MAINNET, BlockNumber(6), 3).await.unwrap(), [None, Some(home.block), None]);
    assert_eq!(hint(&another, OTHER, 7).await, None);
    assert_eq!(another.home_of(MAINNET, transaction(home.block, 2)).await.unwrap(), Some(home));

    another.remove(MAINNET, Part::Block, home.block).await.unwrap();
    assert_eq!(opened(&one, MAINNET, Part::Block, home.block).await, None);
    another.drop_hints(MAINNET, [home].into()).await.unwrap();
    assert_eq!(hint(&one, MAINNET, 7).await, None);
}

#[tokio::test]
async fn existing_entries_are_not_overwritten() {
    let Some(redis) = redis("existing_entries_are_not_overwritten") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let second = Record { value: Sealed::new(b"another").unwrap(), ..block(7, 0) };
    for record in [block(7, 0), second] {
        tier.put(MAINNET, record).await.unwrap();
    }
    assert_eq!(tier.get(MAINNET, Part::Block, hash(MAINNET, 7, 0)).await.unwrap(), Some(block(7, 0).value));
}

/// The expected content of a tier.
#[derive(Default)]
struct Model {
    values: HashMap<(ChainKey, Part, BlockHash), String>,
    /// The newest header at each number.
    hints: HashMap<(ChainKey, u64), BlockHash>,
    homes: HashMap<(ChainKey, TxHash), Home>,
    /// Whether keys may have been lost. If so, an entry may be missing, but an entry that is found must be true.
    lossy: bool,
}

impl Model {
    fn agrees<T: PartialEq + std::fmt::Debug>(&self, found: Option<T>, known: Option<&T>, what: &str) {
        if !(self.lossy && found.is_none()) {
            assert_eq!(found.as_ref(), known, "{what}");
        }
    }
}

#[tokio::test]
async fn random_steps_match_the_model() {
    let Some(redis) = redis("random_steps_match_the_model") else { return };
    let mut redis = redis.run().await;
    let tiers = [redis.tier(), redis.tier()];
    let mut raw = redis.raw().await;
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::default();
        raw.ask::<()>(&[b"FLUSHALL"]).await;
        for _ in 0..150 {
            let tier = &tiers[random.usize(..2)];
            let chain = if random.bool() { MAINNET } else { OTHER };
            let number = random.u64(0..6);
            let home = home(chain, number, random.u64(..2));
            let part = Part::ALL[random.usize(..3)];
            match random.u32(0..100) {
                0..50 => {
                    let record = record(home, part, if part == Part::Block { 3 } else { 0 });
                    model.values.insert((chain, part, home.block), text(home.block, part));
                    model.homes.extend(record.transactions.iter().map(|hash| ((chain, *hash), home)));
                    if part == Part::Header {
                        model.hints.insert((chain, number), home.block);
                    }
                    tier.put(chain, record).await.unwrap();
                }
                50..56 => {
                    tier.remove(chain, part, home.block).await.unwrap();
                    model.values.remove(&(chain, part, home.block));
                }
                56..62 => {
                    let homes: Arc<[_]> =
                        (number..number + 3).map(|number| self::home(chain, number, 0)).collect();
                    for home in homes.iter() {
                        model.hints.remove(&(chain, home.number.0));
                    }
                    tier.drop_hints(chain, homes).await.unwrap();
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
                    let hints = tier.hints(chain, BlockNumber(0), 8).await.unwrap();
                    for (number, hint) in (0..).zip(hints) {
                        model.agrees(hint, model.hints.get(&(chain, number)), "the hint at a number");
                    }
                    let found = opened(tier, chain, part, home.block).await;
                    model.agrees(found, model.values.get(&(chain, part, home.block)), "a part of a block");
                    let transaction = transaction(home.block, random.u64(..4));
                    let found = tier.home_of(chain, transaction).await.unwrap();
                    model.agrees(found, model.homes.get(&(chain, transaction)), "the block of a transaction");
                }
            }
        }
    }
}

#[tokio::test]
async fn damaged_entries_are_detected_or_repaired() {
    let Some(redis) = redis("damaged_entries_are_detected_or_repaired") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    let home = home(MAINNET, 7, 0);
    let records = [header(7), block(7, 1)];
    for record in &records {
        tier.put(MAINNET, record.clone()).await.unwrap();
    }
    let mut random = fastrand::Rng::with_seed(7);
    let keys = raw.keys().await;
    assert_eq!(keys.len(), 4, "a header, a block, a number and a transaction");
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
            let block = tier.get(MAINNET, Part::Block, home.block).await.unwrap();
            let header = tier.headers(MAINNET, vec![home.block]).await.unwrap().remove(0);
            for (part, value) in [(Part::Block, block), (Part::Header, header)] {
                let value = value.and_then(|value| value.open().ok());
                assert!(value.is_none_or(|value| value == text(home.block, part)));
            }
            // Hints may be wrong, but of another length, they are absent.
            let is_whole = damaged.len() == whole.len();
            assert!(hint(&tier, MAINNET, 7).await.is_none_or(|hash| hash == home.block || is_whole));
            let said = tier.home_of(MAINNET, transaction(home.block, 0)).await.unwrap();
            assert!(said.is_none_or(|said| said == home || is_whole));
            // A removal and the next write repair a damaged value. The next write alone repairs a hint.
            for record in &records {
                tier.remove(MAINNET, record.part, home.block).await.unwrap();
                tier.put(MAINNET, record.clone()).await.unwrap();
                assert!(tier.get(MAINNET, record.part, home.block).await.unwrap().unwrap().open().is_ok());
            }
            assert_eq!(hint(&tier, MAINNET, 7).await, Some(home.block));
            assert_eq!(tier.home_of(MAINNET, transaction(home.block, 0)).await.unwrap(), Some(home));
        }
    }
}

#[tokio::test]
async fn oversized_value_is_not_read_whole() {
    let Some(redis) = redis("oversized_value_is_not_read_whole") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    for record in [header(7), block(7, 0)] {
        tier.put(MAINNET, record).await.unwrap();
    }
    for key in raw.keys().await {
        raw.ask::<u64>(&[b"SETRANGE", &key, b"100000000", b"x"]).await;
    }
    let started = raw.info("stats", "total_net_output_bytes").await;
    assert_eq!(hint(&tier, MAINNET, 7).await, None);
    let header = tier.headers(MAINNET, vec![hash(MAINNET, 7, 0)]).await.unwrap().remove(0);
    assert!(header.is_none_or(|header| header.open().is_err()));
    let sent = raw.info("stats", "total_net_output_bytes").await - started;
    assert!(sent < 64 << 10, "{sent} bytes were sent for a header");
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
        tier.put(MAINNET, header(7)).await.unwrap();
        assert_eq!(hint(&tier, MAINNET, 7).await, Some(hash), "round {round}");
        redis.kill();
        for _ in 0..20 {
            quick_error(tier.get(MAINNET, Part::Block, hash)).await;
            quick_error(tier.put(MAINNET, block(7, 2))).await;
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
        let error = quick_error(tier.hints(MAINNET, BlockNumber(7), 1)).await;
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
    tier.put(MAINNET, header(7)).await.unwrap();
    tier.put(MAINNET, block(7, 1)).await.unwrap();
    let mut refused = None;
    for number in 8..500 {
        let record = Record { value: Sealed::new(&noise(number)).unwrap(), ..block(number, 20) };
        refused = refused.or(tier.put(MAINNET, record).await.err());
    }
    let error = refused.unwrap().to_string();
    assert!(error.contains("OOM"), "{error}");
    let hash = hash(MAINNET, 7, 0);
    assert_eq!(opened(&tier, MAINNET, Part::Block, hash).await, Some(text(hash, Part::Block)));
    assert_eq!(hint(&tier, MAINNET, 7).await, Some(hash));
}

#[tokio::test]
async fn recent_entries_are_found_while_redis_evicts() {
    let Some(redis) = redis("recent_entries_are_found_while_redis_evicts") else { return };
    let redis = redis.with("maxmemory", "4mb").with("maxmemory-policy", "allkeys-lru").run().await;
    let tier = redis.tier();
    let mut found_again = 0;
    for number in 0..400 {
        let record = Record { value: Sealed::new(&noise(number)).unwrap(), ..block(number, 20) };
        tier.put(MAINNET, record.clone()).await.unwrap();
        let found = tier.get(MAINNET, Part::Block, record.home.block).await.unwrap();
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
    for record in [header(7), block(7, 1), record(home(MAINNET, 7, 0), Part::Receipts, 0)] {
        tier.put(MAINNET, record).await.unwrap();
    }
    let mut raw = redis.raw().await;
    for key in raw.keys().await {
        let left: i64 = raw.ask(&[b"TTL", &key]).await;
        assert!(left > 3500 && left <= 3600, "{left} s");
    }
    let short =
        RedisConfig { ttl: Some(Duration::from_millis(20)), prefix: "short:".into(), ..redis.config() };
    let tier = Tier::try_new(&short).unwrap();
    tier.put(MAINNET, header(7)).await.unwrap();
    eventually("the entry expires", || async { hint(&tier, MAINNET, 7).await.is_none() }).await;
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
            let error = quick_error(tier.hints(MAINNET, BlockNumber(7), 1)).await;
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
    tier.put(MAINNET, header(7)).await.unwrap();
    assert_eq!(hint(&redis.tier(), MAINNET, 7).await, Some(hash(MAINNET, 7, 0)));

    let stranger = RedisConfig { ca: Some(Authority::new().file().into()), ..redis.secure_config() };
    let stranger = Tier::try_new(&stranger).unwrap();
    let error = quick_error(stranger.hints(MAINNET, BlockNumber(7), 1)).await;
    assert!(error.contains("certificate"), "{error}");
}

/// Returns the number of socket reads by the server. Commands that were sent together need one read.
async fn reads(raw: &mut Raw) -> u64 {
    raw.info("stats", "total_reads_processed").await
}

#[tokio::test]
async fn related_commands_are_one_round_trip() {
    let Some(redis) = redis("related_commands_are_one_round_trip") else { return };
    let redis = redis.run().await;
    let tier = redis.tier();
    let mut raw = redis.raw().await;
    for number in 0..128 {
        tier.put(MAINNET, header(number)).await.unwrap();
    }
    // This query is a read, too.
    let mut before = reads(&mut raw).await;
    let mut since = async |raw: &mut _| {
        let now = reads(raw).await;
        let since = now - before - 1;
        before = now;
        since
    };
    // The block is small enough for one read, because Redis reads 16 KiB at a time.
    tier.put(MAINNET, block(2, 60)).await.unwrap();
    assert_eq!(since(&mut raw).await, 1, "a block");
    let gets = (0..100).map(|_| tier.get(MAINNET, Part::Block, hash(MAINNET, 2, 0)));
    for found in futures_util::future::join_all(gets).await {
        assert!(found.unwrap().is_some());
    }
    let gets = since(&mut raw).await;
    assert!(gets <= 4, "100 gets came in {gets} pieces");
    // 200 keys and entries are about 32 KiB.
    tier.put(MAINNET, block(3, 200)).await.unwrap();
    let large = since(&mut raw).await;
    assert!(large <= 5, "a block of 200 transactions came in {large} pieces");
    // 128 commands are up to 16 KiB.
    let hints =
        tier.hints(MAINNET, BlockNumber(0), 128).await.unwrap().into_iter().map(Option::unwrap).collect();
    let pieces = since(&mut raw).await;
    assert!(pieces <= 2, "128 hints came in {pieces} pieces");
    assert!(tier.headers(MAINNET, hints).await.unwrap().iter().all(Option::is_some));
    let pieces = since(&mut raw).await;
    assert!(pieces <= 2, "128 headers came in {pieces} pieces");
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
    let home = home(MAINNET, 7, 0);
    for number in 6..8 {
        tier.put(MAINNET, block(number, 20)).await.unwrap();
        tier.put(MAINNET, header(number)).await.unwrap();
    }
    let hashes = [6, 7].map(|number| hash(MAINNET, number, 0));
    assert_eq!(tier.hints(MAINNET, BlockNumber(6), 2).await.unwrap(), hashes.map(Some));
    let headers = [6, 7].map(|number| Some(header(number).value));
    assert_eq!(tier.headers(MAINNET, hashes.to_vec()).await.unwrap(), headers);
    assert_eq!(tier.home_of(MAINNET, transaction(home.block, 19)).await.unwrap(), Some(home));
    assert_eq!(tier.get(MAINNET, Part::Block, home.block).await.unwrap(), Some(block(7, 20).value));
    tier.remove(MAINNET, Part::Block, home.block).await.unwrap();
    tier.drop_hints(MAINNET, [home].into()).await.unwrap();
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
