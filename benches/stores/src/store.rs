//! What the tier asks of a store, and the candidates behind it.

use std::{error::Error, path::Path};

use crate::data::{Block, Hash, Value};

mod fjall;
mod foyer;
mod redb;
mod segments;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Where a transaction is: its block, and which of the block it is.
pub type Place = (Hash, u16);

/// One directory of blocks, bounded in bytes.
pub trait Store: Send + Sync {
    /// Keeps a block, its receipts and its indexes; all of them or none. Forgets the oldest past the limit.
    fn put(&self, block: &Block) -> Result<()>;

    fn body(&self, hash: &Hash) -> Result<Option<Value>>;
    fn receipts(&self, hash: &Hash) -> Result<Option<Value>>;
    fn hash(&self, number: u64) -> Result<Option<Hash>>;
    fn place(&self, transaction: &Hash) -> Result<Option<Place>>;

    /// After this, what was put outlives the process (not the machine).
    fn flush(&self) -> Result<()>;
}

/// Opens the candidate `name`; `limit` is in bytes.
pub fn open(name: &str, dir: &Path, limit: u64) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(dir)?;
    Ok(match name {
        "segments" => Box::new(segments::Segments::open(dir, limit)?),
        "fjall" => Box::new(fjall::Fjall::open(dir, limit)?),
        "redb" => Box::new(redb::Redb::open(dir, limit)?),
        // The second keeps its index of transactions elsewhere: each entry costs it 4 KiB.
        "foyer" => Box::new(foyer::Foyer::open(dir, limit, true)?),
        "foyer-blocks" => Box::new(foyer::Foyer::open(dir, limit, false)?),
        other => return Err(format!("no store is called {other}").into()),
    })
}
