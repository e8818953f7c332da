//! The tier in Redis.

use std::{fmt, sync::Arc, time::Duration};

use ::redis::{Cmd, Pipeline, Value};
use alloy_primitives::B256;
use bytes::Bytes;
use tokio::runtime::Handle;

use super::{
    config::{ConfigError, RedisConfig},
    key::Keys,
    link::{self, Link},
    url::RedisUrl,
    usage::{self, Told},
};
use crate::{
    cache::tier::{ChainKey, Part, Record, Sealed, Tier, TierError, TierKind, Tiered, Usage},
    eth::{BlockHash, BlockNumber, Home, TxHash},
};

/// Longest value in bytes. Holdfast does not write longer values, and reads at most one byte more than this.
/// Compressed, the largest blocks take a tenth of this limit.
const LONGEST: usize = 64 << 20;

/// Longest header in bytes. It has at most 32 bytes of free text, and a fixed number of other members.
const LONGEST_HEADER: usize = 4 << 10;

/// Length of a [`Home`]: number, hash.
const HOME: usize = 8 + 32;

/// Timeout of a write, as a multiple of the timeout of a read. A write may be large, and no client waits for it.
const WRITES_TAKE: u32 = 10;

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
    usage: Told,
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
        let key = [self.0.prefix.as_bytes(), b"probe:", &fastrand::u64(..).to_be_bytes()].concat();
        let mut set = command("SET", &key);
        set.arg("").arg("XX");
        let commands = [peek(&key, 1), set, command("DEL", &key)];
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

    /// Reads many short values together.
    async fn read_all(
        &self,
        keys: impl Iterator<Item = Vec<u8>>,
        length: usize,
    ) -> Result<Vec<Value>, TierError> {
        let mut pipeline = Pipeline::new();
        for key in keys {
            pipeline.add_command(peek(&key, length));
        }
        self.0.link.ask_all(&pipeline, self.0.timeout).await
    }
}

impl Tier for Redis {
    fn kind(&self) -> TierKind {
        TierKind::Redis
    }

    fn get(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, Option<Sealed>> {
        Box::pin(async move {
            let [value] = self.read([peek(&self.keys(chain).value(part, hash), LONGEST)]).await?;
            Ok(sealed(value))
        })
    }

    fn headers(&self, chain: ChainKey, blocks: Vec<BlockHash>) -> Tiered<'_, Vec<Option<Sealed>>> {
        Box::pin(async move {
            let keys = self.keys(chain);
            let keys = blocks.iter().map(|hash| keys.value(Part::Header, *hash));
            Ok(self.read_all(keys, LONGEST_HEADER).await?.into_iter().map(sealed).collect())
        })
    }

    fn hints(&self, chain: ChainKey, from: BlockNumber, count: usize) -> Tiered<'_, Vec<Option<BlockHash>>> {
        Box::pin(async move {
            let keys = self.keys(chain);
            let keys = (from.0..).take(count).map(|number| keys.number(BlockNumber(number)));
            let values = self.read_all(keys, B256::len_bytes()).await?;
            Ok(values.iter().map(|value| hash(bytes(value)?)).collect())
        })
    }

    fn home_of(&self, chain: ChainKey, transaction: TxHash) -> Tiered<'_, Option<Home>> {
        Box::pin(async move {
            let [home] = self.read([peek(&self.keys(chain).transaction(transaction), HOME)]).await?;
            Ok(bytes(&home).and_then(|home| {
                let (number, block) = home.split_first_chunk()?;
                Some(Home { number: BlockNumber(u64::from_be_bytes(*number)), block: hash(block)? })
            }))
        })
    }

    /// Overwrites the hints of the number and of the transactions.
    fn put(&self, chain: ChainKey, record: Record) -> Tiered<'_, bool> {
        Box::pin(async move {
            let Record { home: Home { block, number }, part, transactions, value } = record;
            if value.bytes().len() > LONGEST {
                return Ok(false);
            }
            let (keys, mut pipeline) = (self.keys(chain), Pipeline::new());
            let mut set = self.set(&keys.value(part, block), value.bytes());
            set.arg("NX");
            pipeline.add_command(set);
            if part == Part::Header {
                pipeline.add_command(self.set(&keys.number(number), block.0.as_slice()));
            }
            let home = [&number.0.to_be_bytes(), block.0.as_slice()].concat();
            for transaction in transactions {
                pipeline.add_command(self.set(&keys.transaction(transaction), &home));
            }
            self.0.link.ask_all(&pipeline, self.0.timeout * WRITES_TAKE).await?;
            Ok(true)
        })
    }

    /// Always sends the command, and returns `true` even if the key did not exist, because the reply shows that Redis
    /// is writable.
    fn remove(&self, chain: ChainKey, part: Part, hash: BlockHash) -> Tiered<'_, bool> {
        Box::pin(async move {
            self.write([command("DEL", &self.keys(chain).value(part, hash))]).await?;
            Ok(true)
        })
    }

    fn drop_hints(&self, chain: ChainKey, blocks: Arc<[Home]>) -> Tiered<'_, bool> {
        Box::pin(async move {
            let (keys, mut pipeline) = (self.keys(chain), Pipeline::new());
            for Home { number, .. } in blocks.iter() {
                pipeline.add_command(command("DEL", &keys.number(*number)));
            }
            self.0.link.ask_all(&pipeline, self.0.timeout * WRITES_TAKE).await?;
            Ok(true)
        })
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

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn sealed(value: Value) -> Option<Sealed> {
    match value {
        Value::BulkString(value) if !value.is_empty() => Some(Bytes::from(value).into()),
        _ => None,
    }
}

fn hash(bytes: &[u8]) -> Option<BlockHash> {
    bytes.try_into().ok().map(BlockHash)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}
