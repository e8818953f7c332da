//! redb: a copy-on-write B-tree in one file.

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{
    Place, Result, Store,
    fjall::{row, weight},
};
use crate::data::{Block, Hash, Value};

type Bytes = &'static [u8];

const BODIES: TableDefinition<Bytes, Bytes> = TableDefinition::new("bodies");
const RECEIPTS: TableDefinition<Bytes, Bytes> = TableDefinition::new("receipts");
const NUMBERS: TableDefinition<u64, Bytes> = TableDefinition::new("numbers");
const PLACES: TableDefinition<Bytes, Bytes> = TableDefinition::new("places");
const ORDER: TableDefinition<u64, Bytes> = TableDefinition::new("order");
const TRANSACTIONS: TableDefinition<u64, Bytes> = TableDefinition::new("transactions");

/// How much may be lost to a kill: between two syncs nothing is.
const SYNC_EVERY: Duration = Duration::from_secs(1);

pub struct Redb {
    db: Database,
    limit: u64,
    state: Mutex<State>,
}

struct State {
    next: u64,
    bytes: u64,
    synced: Instant,
}

// === impl Redb ===

impl Redb {
    pub fn open(dir: &Path, limit: u64) -> Result<Self> {
        let db = Database::builder().set_cache_size(64 << 20).create(dir.join("redb"))?;
        let begin = db.begin_write()?;
        let mut state = State { next: 0, bytes: 0, synced: Instant::now() };
        {
            let (_, _, _, _) = (
                begin.open_table(BODIES)?,
                begin.open_table(RECEIPTS)?,
                begin.open_table(NUMBERS)?,
                begin.open_table(PLACES)?,
            );
            let (order, _) = (begin.open_table(ORDER)?, begin.open_table(TRANSACTIONS)?);
            for entry in order.iter()? {
                let (key, row) = entry?;
                state.next = key.value() + 1;
                state.bytes += weight(row.value());
            }
        }
        begin.commit()?;
        Ok(Self { db, limit, state: Mutex::new(state) })
    }

    fn get(&self, table: TableDefinition<Bytes, Bytes>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.db.begin_read()?.open_table(table)?.get(key)?.map(|value| value.value().to_vec()))
    }

    fn commit(&self, mut write: redb::WriteTransaction, sync: bool) -> Result<()> {
        write.set_durability(if sync { Durability::Immediate } else { Durability::None })?;
        // Without this every opening after a kill reads the whole file.
        write.set_quick_repair(sync);
        Ok(write.commit()?)
    }
}

impl Store for Redb {
    fn put(&self, block: &Block) -> Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        let write = self.db.begin_write()?;
        {
            let mut bodies = write.open_table(BODIES)?;
            let mut receipts = write.open_table(RECEIPTS)?;
            let mut numbers = write.open_table(NUMBERS)?;
            let mut places = write.open_table(PLACES)?;
            let mut order = write.open_table(ORDER)?;
            let mut transactions = write.open_table(TRANSACTIONS)?;
            bodies.insert(&block.hash[..], &block.body[..])?;
            receipts.insert(&block.hash[..], &block.receipts[..])?;
            numbers.insert(block.number, &block.hash[..])?;
            for (index, transaction) in (0u16..).zip(&block.transactions) {
                places.insert(&transaction[..], &[&block.hash[..], &index.to_be_bytes()].concat()[..])?;
            }
            let row = row(block);
            state.bytes += weight(&row);
            order.insert(state.next, &row[..])?;
            transactions.insert(state.next, &block.transactions.concat()[..])?;
            state.next += 1;
            while state.bytes > self.limit {
                let Some(row) = order.pop_first()?.map(|(_, row)| row.value().to_vec()) else { break };
                bodies.remove(&row[..32])?;
                receipts.remove(&row[..32])?;
                numbers.remove(u64::from_be_bytes(row[32..40].try_into()?))?;
                if let Some((_, hashes)) = transactions.pop_first()? {
                    for transaction in hashes.value().chunks_exact(32) {
                        places.remove(transaction)?;
                    }
                }
                state.bytes -= weight(&row);
            }
        }
        let sync = state.synced.elapsed() > SYNC_EVERY;
        if sync {
            state.synced = Instant::now();
        }
        self.commit(write, sync)
    }

    fn body(&self, hash: &Hash) -> Result<Option<Value>> {
        self.get(BODIES, hash)
    }

    fn receipts(&self, hash: &Hash) -> Result<Option<Value>> {
        self.get(RECEIPTS, hash)
    }

    fn hash(&self, number: u64) -> Result<Option<Hash>> {
        let numbers = self.db.begin_read()?.open_table(NUMBERS)?;
        Ok(numbers.get(number)?.and_then(|hash| hash.value().try_into().ok()))
    }

    fn place(&self, transaction: &Hash) -> Result<Option<Place>> {
        Ok(self.get(PLACES, transaction)?.map(|place| self::place(&place)))
    }

    fn flush(&self) -> Result<()> {
        self.commit(self.db.begin_write()?, true)
    }
}

/// A place as it is stored: hash, index.
pub fn place(bytes: &[u8]) -> Place {
    let (hash, index) = bytes.split_at(32);
    (hash.try_into().expect("32 bytes"), u16::from_be_bytes(index.try_into().expect("2 bytes")))
}
