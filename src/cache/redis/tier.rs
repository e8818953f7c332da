//! The tier in Redis.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use ::redis::{Cmd, Pipeline, Value};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{
    config::{ConfigError, RedisConfig},
    entry::{self, Content, Epoch, Final, Place},
    key::Keys,
    link::{self, Link},
    url::RedisUrl,
    usage::{self, Told},
};
use crate::{
    cache::tier::{ChainKey, Part, Record, Sealed, Tier, TierError, TierKind, Tiered, Usage},
    eth::{BlockHash, BlockNumber, TxHash, TxPosition},
};

/// Longest value in bytes. Holdfast does not write longer values, and reads at most one byte more than this.
/// Compressed, the largest blocks take a tenth of this limit.
const LONGEST: usize = 64 << 20;

/// Timeout of a write, as a multiple of the timeout of a read. A write may be large, and no client waits for it.
const WRITES_TAKE: u32 = 10;

/// Maximum number of attempts to read or write the highest finalized block. An attempt fails if that block or the epoch
/// changes meanwhile.
const TRIES: usize = 3;

/// Compare-and-swap as a Lua script: sets a key if its value has not changed since Holdfast read it.
const SWAP: &str = "if redis.call('GETRANGE', KEYS[1], 0, ARGV[3]) ~= ARGV[1] then return 0 end \
                    redis.call('SET', KEYS[1], ARGV[2]) return 1";

/// The tier in Redis.
///
/// The tier connects at the first call. If the connection breaks, the tier reconnects in the background until an
/// attempt succeeds. After a failed attempt, calls fail at once with the error of that attempt.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    link: Link,
    prefix: String,
    ttl: Option<Duration>,
    timeout: Duration,
    epochs: Mutex<HashMap<ChainKey, Known>>,
    usage: Told,
}

/// The epochs of a chain that this instance knows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    /// The epoch that this instance read last. If a read finds another epoch, it fails once with
    /// [`TierError::Forgotten`].
    seen: Epoch,
    /// The epoch in which this instance writes. If Redis has another epoch, another instance made the tier forget its
    /// index. Writes then fail until [`Redis::highest`] adopts the new epoch.
    own: Epoch,
}

// === impl Known ===

impl Known {
    fn only(epoch: Epoch) -> Self {
        Self { seen: epoch, own: epoch }
    }
}

// === impl Redis ===

impl Redis {
    /// Creates the tier without connecting.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn try_new(config: &RedisConfig) -> Result<Self, ConfigError> {
        let url = config.resolve()?;
        Ok(Self(Arc::new(Inner {
            link: Link::try_new(url, config.authority()?)?,
            prefix: config.prefix.clone(),
            ttl: config.ttl,
            timeout: config.timeout,
            epochs: Mutex::default(),
            usage: Told::default(),
        })))
    }

    /// Checks that Redis is reachable, accepts the credentials, and permits the commands of a tier. Changes no data.
    ///
    /// # Errors
    /// If Redis is unreachable, refuses the credentials, or does not permit a command.
    pub async fn probe(&self) -> Result<(), TierError> {
        // The key is random, so it does not exist. The commands have no effect, but Redis checks whether it permits
        // them.
        let key = [self.0.prefix.as_bytes(), b"probe:", &Epoch::random().0].concat();
        let mut set = command("SET", &key);
        set.arg("").arg("XX");
        let mut swap = script(SWAP, &key);
        swap.arg("?").arg("").arg(1);
        let commands = [peek(&key, 1), set, swap, command("DEL", &key)];
        self.0.link.ask(commands, link::CONNECT + self.0.timeout).await.map(drop)
    }

    /// Returns the URL of the server. Its `Display` omits the credentials.
    pub fn url(&self) -> &RedisUrl {
        self.0.link.url()
    }

    fn keys(&self, chain: ChainKey) -> Keys {
        Keys::new(&self.0.prefix, chain)
    }

    async fn read<const N: usize>(&self, commands: [Cmd; N]) -> Result<[Value; N], TierError> {
        self.0.link.ask(commands, self.0.timeout).await
    }

    async fn write<const N: usize>(&self, commands: [Cmd; N]) -> Result<[Value; N], TierError> {
        self.0.link.ask(commands, self.0.timeout * WRITES_TAKE).await
    }

    /// Returns the command that sets a key, with the configured time to live.
    fn set(&self, key: &[u8], value: &[u8]) -> Cmd {
        let mut command = command("SET", key);
        command.arg(value);
        if let Some(ttl) = self.0.ttl {
            command.arg("PX").arg(millis(ttl));
        }
        command
    }

    /// Reads an index entry; `None` if the entry is absent, damaged or of another epoch, or if another call notices a
    /// new epoch meanwhile.
    async fn entry<C: Content>(&self, chain: ChainKey, key: Vec<u8>) -> Result<Option<C>, TierError> {
        let before = self.known(chain);
        let (epoch, entry) = self.read_entry::<C>(chain, &key).await?;
        let Some(epoch) = epoch.filter(|_| self.known(chain) == before) else { return Ok(None) };
        match before {
            Some(known) if known.seen != epoch => {
                self.know(chain, Known { seen: epoch, ..known });
                return Err(TierError::Forgotten);
            }
            Some(_) => {}
            None => self.know(chain, Known::only(epoch)),
        }
        Ok(bytes(&entry).and_then(|entry| entry::open(&key, epoch, entry)))
    }

    /// Reads the highest finalized block, and adopts the current epoch for writes. The caller has the upstream confirm
    /// that block before it writes.
    async fn highest(&self, chain: ChainKey) -> Result<Option<Final>, TierError> {
        let key = self.keys(chain).finalized();
        for _ in 0..TRIES {
            let before = self.known(chain);
            let (epoch, entry) = self.read_entry::<Final>(chain, &key).await?;
            // If another call has noticed or started an epoch meanwhile, this reply may be older than that epoch. Read
            // again.
            if self.known(chain) != before {
                continue;
            }
            let Some(epoch) = epoch else { return Ok(None) };
            self.know(chain, Known::only(epoch));
            return Ok(bytes(&entry).and_then(|entry| entry::open(&key, epoch, entry)));
        }
        Err(TierError::Forgotten)
    }

    async fn read_entry<C: Content>(
        &self,
        chain: ChainKey,
        key: &[u8],
    ) -> Result<(Option<Epoch>, Value), TierError> {
        let epoch = peek(&self.keys(chain).epoch(), Epoch::LENGTH);
        let [epoch, entry] = self.read([epoch, peek(key, entry::length::<C>())]).await?;
        Ok((Epoch::read(&epoch), entry))
    }

    /// Returns two commands. The first sets a random epoch if there is none; the second reads the current epoch.
    fn draw(&self, chain: ChainKey) -> [Cmd; 2] {
        let key = self.keys(chain).epoch();
        let mut draw = command("SET", &key);
        draw.arg(&Epoch::random().0).arg("NX");
        [draw, peek(&key, Epoch::LENGTH)]
    }

    /// Returns the epoch in `value`, which is the reply to the second command of [`draw`](Self::draw). Fails if this
    /// instance may not write in that epoch.
    async fn drawn(&self, chain: ChainKey, value: &Value) -> Result<Epoch, TierError> {
        let Some(epoch) = Epoch::read(value) else {
            // The key holds a value that is not an epoch. `draw` does not replace it, so start a new epoch.
            self.start_epoch(chain, None).await?;
            return Err(TierError::Forgotten);
        };
        match self.known(chain) {
            Some(known) if known.own != epoch => {
                self.know(chain, Known { seen: epoch, ..known });
                return Err(TierError::Forgotten);
            }
            Some(_) => {}
            None => self.know(chain, Known::only(epoch)),
        }
        Ok(epoch)
    }

    /// Starts a new epoch and, if `highest` is given, notes that finalized block in it. Writes the block before the
    /// epoch, because an instance that finds an epoch without a finalized block starts another epoch.
    async fn start_epoch(&self, chain: ChainKey, highest: Option<Final>) -> Result<(), TierError> {
        let (epoch, keys) = (Epoch::random(), self.keys(chain));
        let mut pipeline = Pipeline::new();
        if let Some(highest) = highest {
            // Set no time to live, as for the epoch: without this block, the upstream could not confirm the index.
            let key = keys.finalized();
            pipeline.cmd("SET").arg(&key).arg(entry::seal(&key, epoch, highest));
        }
        pipeline.cmd("SET").arg(keys.epoch()).arg(&epoch.0);
        self.0.link.ask_all(&pipeline, self.0.timeout * WRITES_TAKE).await?;
        self.know(chain, Known::only(epoch));
        Ok(())
    }

    fn know(&self, chain: ChainKey, known: Known) {
        self.0.epochs.lock().insert(chain, known);
    }

    fn known(&self, chain: ChainKey) -> Option<Known> {
        self.0.epochs.lock().get(&chain).copied()
    }

    async fn put_block(&self, chain: ChainKey, record: Record) -> Result<(), TierError> {
        let epoch = match self.known(chain) {
            Some(known) => known.own,
            None => {
                let [_, value] = self.read(self.draw(chain)).await?;
                self.drawn(chain, &value).await?
            }
        };
        let mut pipeline = Pipeline::new();
        pipeline.add_command(self.value(chain, &record));
        let [draw, which] = self.draw(chain);
        pipeline.add_command(draw).add_command(which);
        // Read the finalized block, so that the LRU policy does not evict it before the entries that depend on it.
        pipeline.add_command(peek(&self.keys(chain).finalized(), entry::length::<Final>()));
        self.index(&mut pipeline, chain, &record, epoch);
        let patience = self.0.timeout * WRITES_TAKE;
        let values = self.0.link.ask_all(&pipeline, patience).await?;
        self.drawn(chain, values.get(2).unwrap_or(&Value::Nil)).await.map(drop)
    }

    /// Returns the command that stores the value of `record` unless the key exists.
    fn value(&self, chain: ChainKey, record: &Record) -> Cmd {
        let mut value = self.set(&self.keys(chain).value(record.part, record.hash), record.value.bytes());
        value.arg("NX");
        value
    }

    fn index(&self, pipeline: &mut Pipeline, chain: ChainKey, record: &Record, epoch: Epoch) {
        let keys = self.keys(chain);
        let number = keys.number(record.number);
        pipeline.add_command(self.set(&number, &entry::seal(&number, epoch, record.hash)));
        for (position, transaction) in (0..).map(TxPosition).zip(&record.transactions) {
            let key = keys.transaction(*transaction);
            let place = entry::seal(&key, epoch, Place(record.number, position));
            pipeline.add_command(self.set(&key, &place));
        }
    }

    async fn raise(&self, chain: ChainKey, new: Final) -> Result<(), TierError> {
        let key = self.keys(chain).finalized();
        for _ in 0..TRIES {
            let [draw, which] = self.draw(chain);
            let [_, epoch, entry] = self.read([draw, which, peek(&key, entry::length::<Final>())]).await?;
            let epoch = self.drawn(chain, &epoch).await?;
            let before = bytes(&entry).unwrap_or_default();
            if entry::open::<Final>(&key, epoch, before).is_some_and(|before| before.0 >= new.0) {
                return Ok(());
            }
            let mut swap = script(SWAP, &key);
            swap.arg(before).arg(entry::seal(&key, epoch, new)).arg(entry::length::<Final>());
            if self.write([swap]).await? == [Value::Int(1)] {
                return Ok(());
            }
        }
        Err(io::Error::other("other instances keep changing the finalized block").into())
    }
}

impl Tier for Redis {
    fn kind(&self) -> TierKind {
        TierKind::Redis
    }

    fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, Option<Sealed>> {
        Box::pin(async move {
            let [value] = self.read([peek(&self.keys(chain).value(part, hash), LONGEST)]).await?;
            Ok(match value {
                Value::BulkString(value) if !value.is_empty() => Some(Bytes::from(value).into()),
                _ => None,
            })
        })
    }

    fn hash_at(&self, chain: ChainKey, number: BlockNumber) -> Tiered<'_, Option<BlockHash>> {
        Box::pin(self.entry(chain, self.keys(chain).number(number)))
    }

    fn place_of(
        &self,
        chain: ChainKey,
        transaction: TxHash,
    ) -> Tiered<'_, Option<(BlockNumber, TxPosition)>> {
        Box::pin(async move {
            let place = self.entry::<Place>(chain, self.keys(chain).transaction(transaction)).await?;
            Ok(place.map(|Place(number, position)| (number, position)))
        })
    }

    fn finalized(&self, chain: ChainKey) -> Tiered<'_, Option<(BlockNumber, BlockHash)>> {
        Box::pin(async move {
            let highest = self.highest(chain).await?;
            Ok(highest.map(|Final(number, hash)| (number, hash)))
        })
    }

    /// Overwrites the index entries of the block's number and transactions, to repair damaged entries. No entry should
    /// name another block, because a chain must not finalize two blocks at one number.
    fn put(&self, chain: ChainKey, record: Record) -> Tiered<'_, bool> {
        Box::pin(async move {
            match record.part {
                _ if record.value.bytes().len() > LONGEST => return Ok(false),
                Part::Block => self.put_block(chain, record).await?,
                Part::Receipts => self.write([self.value(chain, &record)]).await.map(drop)?,
            }
            Ok(true)
        })
    }

    fn note_finalized(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) -> Tiered<'_, ()> {
        Box::pin(self.raise(chain, Final(number, hash)))
    }

    /// Always sends the command, and returns `true` even if the key did not exist, because the reply shows that Redis
    /// is writable.
    fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, bool> {
        Box::pin(async move {
            self.write([command("DEL", &self.keys(chain).value(part, hash))]).await?;
            Ok(true)
        })
    }

    fn forget_number(&self, chain: ChainKey, number: BlockNumber) -> Tiered<'_, ()> {
        Box::pin(
            async move { self.write([command("DEL", &self.keys(chain).number(number))]).await.map(drop) },
        )
    }

    fn forget_canonicity(&self, chain: ChainKey) -> Tiered<'_, ()> {
        Box::pin(self.start_epoch(chain, None))
    }

    fn begin(&self, chain: ChainKey, number: BlockNumber, hash: BlockHash) -> Tiered<'_, ()> {
        Box::pin(self.start_epoch(chain, Some(Final(number, hash))))
    }

    /// Returns the usage of the whole server from the last report. If that report is too old, asks Redis for a new one
    /// in the background.
    fn usage(&self) -> Usage {
        let (usage, is_due) = self.0.usage.last();
        if let (true, Ok(runtime)) = (is_due, Handle::try_current()) {
            let redis = self.clone();
            runtime.spawn(async move {
                // If Redis does not permit `INFO`, the usage stays unknown.
                if let Ok(said) = redis.read(usage::questions()).await {
                    redis.0.usage.take(&said);
                }
            });
        }
        usage
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("url", self.0.link.url()).field("prefix", &self.0.prefix).finish()
    }
}

fn command(name: &str, key: &[u8]) -> Cmd {
    let mut command = ::redis::cmd(name);
    command.arg(key);
    command
}

/// Returns the command that reads the first `length + 1` bytes of a value. If the value is longer than `length`, the
/// extra byte tells the caller so. For an absent key, the reply is empty.
fn peek(key: &[u8], length: usize) -> Cmd {
    let mut command = command("GETRANGE", key);
    command.arg(0).arg(length);
    command
}

fn script(text: &str, key: &[u8]) -> Cmd {
    // Send the script itself with `EVAL`, since it is short. `EVALSHA` would fail after a restart of Redis, which
    // forgets its scripts.
    let mut command = ::redis::cmd("EVAL");
    command.arg(text).arg(1).arg(key);
    command
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
