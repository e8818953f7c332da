//! Blocks to store: two real ones, made different by new hashes and signatures, compressed.
//!
//! A store sees only compressed bytes, so it is enough that a few dozen payloads take turns: each
//! value begins with the hash of its block and ends with a checksum, so no two are alike and
//! [`is_right`] tells a right one from a wrong one.

use serde_json::Value as Json;

/// The hash of a block or of a transaction.
pub type Hash = [u8; 32];

/// The bytes of a block or of its receipts, as they are given to a store.
pub type Value = Vec<u8>;

/// Everything kept of one block.
pub struct Block {
    pub number: u64,
    pub hash: Hash,
    pub transactions: Vec<Hash>,
    pub body: Value,
    pub receipts: Value,
}

/// Makes the block of any number, the same each time.
pub struct Corpus {
    payloads: Vec<Payload>,
}

struct Payload {
    transactions: usize,
    body: Vec<u8>,
    receipts: Vec<u8>,
}

/// Members that differ from block to block: what compression can make nothing of.
const DIFFERENT: [&str; 10] = [
    "hash",
    "blockHash",
    "transactionHash",
    "parentHash",
    "stateRoot",
    "receiptsRoot",
    "transactionsRoot",
    "mixHash",
    "r",
    "s",
];

// === impl Corpus ===

impl Corpus {
    /// Reads the real blocks of `dir`; `variants` payloads are made of each.
    pub fn real(dir: &str, variants: u64) -> Self {
        let mut payloads = Vec::new();
        for variant in 0..variants {
            for name in ["mainnet-15573637", "mainnet-19433903"] {
                let (body, receipts) = texts(dir, name, variant);
                let transactions =
                    serde_json::from_slice::<Vec<Json>>(&receipts).expect("receipts are a list").len();
                let shrink = |text: &[u8]| zstd::bulk::compress(text, 1).expect("memory suffices");
                payloads.push(Payload { transactions, body: shrink(&body), receipts: shrink(&receipts) });
            }
        }
        Self { payloads }
    }

    /// Blocks of 200 transactions and next to no bytes: what the indexes alone cost.
    pub fn tiny() -> Self {
        Self { payloads: vec![Payload { transactions: 200, body: vec![1; 256], receipts: vec![2; 256] }] }
    }

    pub fn block(&self, number: u64) -> Block {
        let payload = &self.payloads[number as usize % self.payloads.len()];
        let hash = hash(number, u64::MAX);
        Block {
            number,
            hash,
            transactions: (0..payload.transactions as u64).map(|i| self::hash(number, i)).collect(),
            body: value(&hash, &payload.body),
            receipts: value(&hash, &payload.receipts),
        }
    }

    /// How many transactions block `number` has.
    pub fn transactions(&self, number: u64) -> u64 {
        self.payloads[number as usize % self.payloads.len()].transactions as u64
    }
}

/// The texts of a real block and of its receipts, with the hashes of `variant`.
pub fn texts(dir: &str, name: &str, variant: u64) -> (Vec<u8>, Vec<u8>) {
    let read = |what: &str| {
        let text = std::fs::read(format!("{dir}/{name}.{what}.json")).unwrap_or_else(|_| b"[]".to_vec());
        let mut json: Json = serde_json::from_slice(&text).expect("a real answer is JSON");
        vary(&mut json, variant);
        serde_json::to_vec(&json).expect("JSON can be written")
    };
    (read("block"), read("receipts"))
}

/// The hash of block `number` (`index` at its end) or of its transaction `index`.
pub fn hash(number: u64, index: u64) -> Hash {
    let mut seed = mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(index));
    let mut hash = [0; 32];
    for part in hash.chunks_exact_mut(8) {
        seed = mix(seed);
        part.copy_from_slice(&seed.to_le_bytes());
    }
    hash
}

/// Whether `value` is what was stored for the block `hash`.
pub fn is_right(value: &[u8], hash: &Hash) -> bool {
    let Some((rest, sum)) = value.split_last_chunk::<4>() else { return false };
    rest.starts_with(hash) && crc32fast::hash(rest).to_le_bytes() == *sum
}

/// splitmix64.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn value(hash: &Hash, payload: &[u8]) -> Value {
    let mut value = Vec::with_capacity(payload.len() + 36);
    value.extend_from_slice(hash);
    value.extend_from_slice(payload);
    value.extend_from_slice(&crc32fast::hash(&value).to_le_bytes());
    value
}

/// The same text becomes the same other text, so that what repeats still repeats.
fn vary(json: &mut Json, variant: u64) {
    match json {
        Json::Array(items) => items.iter_mut().for_each(|item| vary(item, variant)),
        Json::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Json::String(text) if DIFFERENT.contains(&name.as_str()) && text.len() > 60 => {
                        let seed = u64::from(crc32fast::hash(text.as_bytes()));
                        let digits: String =
                            hash(seed, variant).iter().map(|byte| format!("{byte:02x}")).collect();
                        *text = format!("0x{digits}");
                    }
                    other => vary(other, variant),
                }
            }
        }
        _ => {}
    }
}
