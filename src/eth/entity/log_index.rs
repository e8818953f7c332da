//! The logs of a block's receipts, in a form that a filter searches without reading their text.

use std::{hash::BuildHasher, sync::LazyLock};

use bytes::Bytes;
use hashbrown::DefaultHashBuilder;

use super::{
    Receipts, ShapeError, Span,
    log::{MAX_TOPICS, read_words},
    members,
};
use crate::{
    eth::{LogFilter, LogMatch},
    jsonrpc::Scanner,
};

/// Index of the logs of a block.
///
/// It has a fingerprint of each address and topic: a seeded hash. Because of the seed, nobody can choose values whose
/// fingerprints collide, so nearly every log whose fingerprints match does match. It is then read from the text of its
/// receipt.
#[derive(Debug)]
pub struct LogIndex {
    logs: Box<[Entry]>,
    /// The distinct fingerprints of all addresses, and of all topics, in order. Most filters match no log of most blocks, and
    /// these lists tell so at once.
    addresses: Box<[u64]>,
    topics: Box<[u64]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    whole: Span,
    address: u64,
    topics: [u64; MAX_TOPICS],
    count: u8,
}

/// A filter, with the fingerprints of its values.
#[derive(Debug)]
pub struct IndexedFilter {
    filter: LogFilter,
    disputes: Disputes,
    /// In order.
    addresses: Vec<u64>,
    /// By position, each in order.
    topics: Vec<Vec<u64>>,
}

/// Treatment of a log about which nodes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disputes {
    /// The search fails.
    Fail,
    /// The log does not match, as in geth.
    AsGeth,
}

/// Nodes differ in whether a log matches a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disputed;

// === impl LogIndex ===

impl LogIndex {
    /// Reads the logs of these receipts.
    ///
    /// # Errors
    /// If a receipt has no list of logs, or a log has no address or no topics.
    pub fn new(receipts: &Receipts) -> Result<Self, ShapeError> {
        let bytes = receipts.all();
        let text = members::text(&bytes)?;
        let mut logs = Vec::new();
        for receipt in receipts.spans() {
            let inner = &text[receipt.range()];
            let [list] = members::pick(&mut Scanner::new(inner), inner, "a receipt", ["logs"])?;
            let list = list.ok_or(ShapeError::Member("logs"))?.within(receipt);
            for whole in members::elements(text, list, "the logs")? {
                let (address, topics) = read_words(&text[whole.range()])?;
                let mut prints = [0; MAX_TOPICS];
                for (print, topic) in prints.iter_mut().zip(&topics) {
                    *print = fingerprint(topic.as_slice());
                }
                // A log has at most four topics; `read_words` refuses more.
                let count = topics.len() as u8;
                logs.push(Entry { whole, address: fingerprint(address.as_slice()), topics: prints, count });
            }
        }
        let addresses = distinct(logs.iter().map(|log| log.address).collect());
        let topics = distinct(logs.iter().flat_map(|log| log.topics().iter().copied()).collect());
        Ok(Self { logs: logs.into(), addresses: addresses.into(), topics: topics.into() })
    }

    /// Returns whether a log may match. Most blocks without a match are found out here.
    pub fn may_match(&self, filter: &IndexedFilter) -> bool {
        !self.logs.is_empty()
            && share(&self.addresses, &filter.addresses)
            && filter.topics.iter().all(|allowed| share(&self.topics, allowed))
    }

    /// Adds the logs that match to `found`, as the receipts of this index have them, in order.
    ///
    /// # Errors
    /// If nodes differ in whether a log matches.
    pub fn find(
        &self,
        receipts: &Receipts,
        filter: &IndexedFilter,
        found: &mut Vec<Bytes>,
    ) -> Result<(), Disputed> {
        let bytes = receipts.all();
        for log in self.logs.iter().filter(|log| log.may_match(filter)) {
            // The text was read when the index was built, so this does not fail.
            let text = bytes.get(log.whole.range()).and_then(|text| std::str::from_utf8(text).ok());
            let Some((address, topics)) = text.and_then(|text| read_words(text).ok()) else { continue };
            match filter.filter.matches(address, &topics) {
                LogMatch::Yes => found.push(bytes.slice(log.whole.range())),
                LogMatch::No => {}
                LogMatch::Disputed if filter.disputes == Disputes::AsGeth => {}
                LogMatch::Disputed => return Err(Disputed),
            }
        }
        Ok(())
    }

    /// Returns the memory use of the index in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.logs)
            + size_of_val(&*self.addresses)
            + size_of_val(&*self.topics)
    }
}

// === impl Entry ===

impl Entry {
    fn topics(&self) -> &[u64] {
        &self.topics[..usize::from(self.count)]
    }

    fn may_match(&self, filter: &IndexedFilter) -> bool {
        let allows = |allowed: &[u64], print: Option<&u64>| {
            allowed.is_empty() || print.is_some_and(|print| allowed.binary_search(print).is_ok())
        };
        allows(&filter.addresses, Some(&self.address))
            && filter.topics.iter().enumerate().all(|(at, allowed)| allows(allowed, self.topics().get(at)))
    }
}

// === impl IndexedFilter ===

impl IndexedFilter {
    /// Prepares a filter for searches.
    pub fn new(filter: LogFilter, disputes: Disputes) -> Self {
        let prints = |values: &mut dyn Iterator<Item = &[u8]>| distinct(values.map(fingerprint).collect());
        let topics = filter.topics().iter();
        Self {
            addresses: prints(&mut filter.addresses().iter().map(|address| address.as_slice())),
            topics: topics.map(|allowed| prints(&mut allowed.iter().map(|topic| topic.as_slice()))).collect(),
            filter,
            disputes,
        }
    }

    /// Returns the filter.
    pub fn filter(&self) -> &LogFilter {
        &self.filter
    }
}

/// Returns a hash that is seeded anew in each run.
fn fingerprint(value: &[u8]) -> u64 {
    static SEED: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    SEED.hash_one(value)
}

/// Returns the distinct values in order.
fn distinct(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns whether one of the `wanted` values is in `all`, or no value is wanted. Both are in order.
fn share(all: &[u64], wanted: &[u64]) -> bool {
    let (few, many) = if all.len() < wanted.len() { (all, wanted) } else { (wanted, all) };
    wanted.is_empty() || few.iter().any(|value| many.binary_search(value).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{eth::LogsCall, jsonrpc::Params};

    /// An address or a topic, chosen out of few, some of which end alike.
    fn word(at: u8, bytes: usize) -> String {
        let mut word = vec![0; bytes];
        (word[0], word[bytes - 1]) = (at / 2, at % 2);
        alloy_primitives::hex::encode_prefixed(word)
    }

    fn receipts(blocks: &[Vec<(u8, Vec<u8>)>]) -> Receipts {
        let receipt = |(at, logs): (usize, &Vec<(u8, Vec<u8>)>)| {
            let log = |(address, topics): &(u8, Vec<u8>)| {
                let topics: Vec<_> = topics.iter().map(|topic| word(*topic, 32)).collect();
                json!({ "address": word(*address, 20), "topics": topics, "data": "0x", "removed": false })
            };
            json!({
                "transactionHash": word(at as u8, 32), "transactionIndex": format!("{at:#x}"),
                "blockHash": word(9, 32), "blockNumber": "0x1", "logs": logs.iter().map(log).collect::<Vec<_>>(),
            })
        };
        let list: Vec<_> = blocks.iter().enumerate().map(receipt).collect();
        Receipts::read(Bytes::from(Value::from(list).to_string())).unwrap().0
    }

    fn conditions() -> impl Strategy<Value = (Vec<u8>, Vec<Vec<u8>>)> {
        let few = || prop::collection::vec(0_u8..4, 0..3);
        (few(), prop::collection::vec(few(), 0..5))
    }

    proptest! {
        #[test]
        fn index_finds_the_logs_that_a_reader_of_the_text_finds(
            logs in prop::collection::vec(
                prop::collection::vec((0_u8..4, prop::collection::vec(0_u8..4, 0..5)), 0..4), 0..4),
            (addresses, topics) in conditions(),
        ) {
            let receipts = receipts(&logs);
            let words = |values: &[u8], bytes| values.iter().map(|at| word(*at, bytes)).collect::<Vec<_>>();
            let allowed: Vec<_> = topics.iter().map(|values| words(values, 32)).collect();
            let params = json!([{
                "fromBlock": "0x1", "toBlock": "0x1", "address": words(&addresses, 20), "topics": allowed,
            }]);
            let params = Params::from_own(params.to_string());
            let call = LogsCall::read("eth_getLogs", &params);
            prop_assume!(topics.len() <= 4);
            let filter = call.unwrap().filter;
            let index = LogIndex::new(&receipts).unwrap();
            let indexed = IndexedFilter::new(filter, Disputes::Fail);
            let mut logs_found = Vec::new();
            let found = index.find(&receipts, &indexed, &mut logs_found).map(|()| logs_found);
            if !index.may_match(&indexed) {
                prop_assert_eq!(found.as_deref(), Ok(&[][..]));
            }

            let all: Vec<Value> = serde_json::from_slice(&receipts.all()).unwrap();
            let logs = all.iter().flat_map(|receipt| receipt["logs"].as_array().unwrap());
            let mut expected = Vec::new();
            let mut disputed = false;
            for log in logs {
                let is = |allowed: &[String], value: Option<&Value>| {
                    allowed.is_empty() || value.is_some_and(|value| allowed.iter().any(|word| value == word))
                };
                let of_log = log["topics"].as_array().unwrap();
                let is_match = is(&words(&addresses, 20), Some(&log["address"]))
                    && allowed.iter().enumerate().all(|(at, allowed)| is(allowed, of_log.get(at)));
                disputed |= is_match && of_log.len() < allowed.len();
                if is_match {
                    expected.push(log.to_string());
                }
            }
            // Words that end alike have different fingerprints, so no other log is read.
            let candidates = index.logs.iter().filter(|log| log.may_match(&indexed)).count();
            prop_assert_eq!(candidates, expected.len());
            match found {
                Err(Disputed) => prop_assert!(disputed),
                Ok(found) => {
                    prop_assert!(!disputed);
                    let found: Vec<_> = found.iter().map(|log| String::from_utf8(log.to_vec()).unwrap()).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
