//! Calls for logs: the blocks that they name, and the filter.

use std::{borrow::Cow, fmt};

use alloy_primitives::{Address, B256, Bloom, BloomInput, FixedBytes, hex};
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Unexpected, Visitor},
};
use serde_json::{Value, json};

use super::{At, BlockHash, MAX_TOPICS, Tag};
use crate::jsonrpc::{JsonKind, Params};

const METHOD: &str = "eth_getLogs";

/// Maximum number of values of a filter. Holdfast leaves longer filters to the node.
const MAX_VALUES: usize = 10_000;

/// Maximum number of alternatives that are compared with blooms. A mainnet bloom has one of more alternatives nearly
/// always, so that it would exclude nothing.
const MAX_IN_BLOOM: usize = 32;

/// A call for logs in a form that Holdfast reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogsCall {
    /// The blocks that contain the logs.
    pub blocks: LogBlocks,
    /// The conditions on the logs.
    pub filter: LogFilter,
}

/// The blocks of a call for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogBlocks {
    /// The block with this hash, canonical or not.
    Hash(BlockHash),
    /// The canonical blocks from the first to the second, both included.
    Range(At, At),
}

/// Conditions on logs. An empty list allows all values. The values are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogFilter {
    addresses: Vec<Address>,
    topics: Vec<Vec<B256>>,
}

/// The bits of a filter's values in a block's bloom. An empty list allows all blooms.
#[derive(Clone, Debug)]
pub struct FilterBlooms {
    addresses: Vec<Bloom>,
    topics: Vec<Vec<Bloom>>,
}

/// Whether a log matches a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMatch {
    /// The log matches.
    Yes,
    /// The log does not match.
    No,
    /// The log has fewer topics than the filter has positions, and matches otherwise: the further positions allow all
    /// values. To geth such a log does not match, to other nodes it does.
    Disputed,
}

/// The parameter of `eth_getLogs`. Unknown members are refused, because they may change the meaning.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Parameter<'a> {
    #[serde(borrow)]
    block_hash: Option<Cow<'a, str>>,
    #[serde(borrow)]
    from_block: Option<Cow<'a, str>>,
    #[serde(borrow)]
    to_block: Option<Cow<'a, str>>,
    #[serde(default)]
    address: Words<20>,
    #[serde(default)]
    topics: Option<Vec<Words<32>>>,
}

/// One value, a list of values, or `null`.
#[derive(Default)]
struct Words<const N: usize> {
    values: Vec<FixedBytes<N>>,
    /// Whether `null` is in the list.
    has_null: bool,
}

/// One value: a string of 0x and hex digits, as nodes demand.
struct Word<const N: usize>(FixedBytes<N>);

struct WordVisitor<const N: usize>;
struct WordsVisitor<const N: usize>;

impl<'de, const N: usize> Deserialize<'de> for Words<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Word<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor)
    }
}

impl<const N: usize> Visitor<'_> for WordVisitor<N> {
    type Value = Word<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string of 0x and {} hex digits", 2 * N)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Word<N>, E> {
        let mut word = FixedBytes::ZERO;
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2 * N);
        match digits.map(|digits| hex::decode_to_slice(digits, word.as_mut_slice())) {
            Some(Ok(())) => Ok(Word(word)),
            Some(Err(_)) | None => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

impl<'de, const N: usize> Visitor<'de> for WordsVisitor<N> {
    type Value = Words<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "null, or one or more strings of 0x and {} hex digits", 2 * N)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Words<N>, E> {
        Ok(Words::default())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Words<N>, E> {
        let Word(word) = WordVisitor.visit_str(text)?;
        Ok(Words { values: vec![word], has_null: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words<N>, A::Error> {
        let mut words = Words::default();
        while let Some(word) = list.next_element::<Option<Word<N>>>()? {
            match word {
                Some(Word(word)) => words.values.push(word),
                None => words.has_null = true,
            }
        }
        Ok(words)
    }
}

// === impl LogsCall ===

impl LogsCall {
    /// Returns whether this is the method of calls for logs.
    pub fn is_method(method: &str) -> bool {
        method == METHOD
    }

    /// Parses a call; `None` for another method, and for parameters that the node must judge: malformed ones, those
    /// that leave out a bound of the range, and bounds that only the node knows.
    pub fn read(method: &str, params: &Params) -> Option<Self> {
        if method != METHOD {
            return None;
        }
        let mut elements = params.elements();
        let (Some(parameter), None) = (elements.next(), elements.next()) else { return None };
        // Without this check, a list of values would be read as the members in order.
        if JsonKind::of(parameter.as_bytes()) != JsonKind::Object {
            return None;
        }
        let Parameter { block_hash, from_block, to_block, address, topics } =
            serde_json::from_str(parameter).ok()?;
        let topics = topics.unwrap_or_default();
        if topics.len() > MAX_TOPICS || address.has_null {
            return None;
        }
        let blocks = match (block_hash, from_block, to_block) {
            (Some(hash), None, None) => LogBlocks::Hash(hash.parse().ok()?),
            (None, Some(from), Some(to)) => LogBlocks::Range(bound(&from)?, bound(&to)?),
            _ => return None,
        };
        // As in geth, `null` among the alternatives allows all values.
        let alternatives = |words: Words<32>| if words.has_null { Vec::new() } else { words.values };
        let addresses: Vec<_> = address.values.into_iter().map(Address).collect();
        let topics: Vec<_> = topics.into_iter().map(alternatives).collect();
        let values = addresses.len() + topics.iter().map(Vec::len).sum::<usize>();
        (values <= MAX_VALUES).then(|| Self { blocks, filter: LogFilter::new(addresses, topics) })
    }

    /// Returns the tags that name bounds of the range, each once.
    pub fn tags(&self) -> impl Iterator<Item = Tag> {
        let tag = |at| if let At::Tag(tag) = at { Some(tag) } else { None };
        let (from, to) = match self.blocks {
            LogBlocks::Hash(_) => (None, None),
            LogBlocks::Range(from, to) => (tag(from), tag(to)),
        };
        from.into_iter().chain(to.filter(|to| Some(*to) != from))
    }

    /// Returns the call for these blocks with the same filter.
    pub fn with_blocks(&self, blocks: LogBlocks) -> Self {
        Self { blocks, filter: self.filter.clone() }
    }

    /// Returns the name of the method.
    pub fn method(&self) -> &'static str {
        METHOD
    }

    /// Returns the parameters of the call.
    pub fn params(&self) -> Params {
        let mut filter = match self.blocks {
            LogBlocks::Hash(hash) => json!({ "blockHash": hash.to_string() }),
            LogBlocks::Range(from, to) => json!({ "fromBlock": written(from), "toBlock": written(to) }),
        };
        let LogFilter { addresses, topics } = &self.filter;
        if !addresses.is_empty() {
            filter["address"] = addresses.iter().map(|address| format!("{address:#x}")).collect();
        }
        if !topics.is_empty() {
            let alternatives = |allowed: &Vec<B256>| match &**allowed {
                [] => Value::Null,
                allowed => allowed.iter().map(B256::to_string).collect(),
            };
            filter["topics"] = topics.iter().map(alternatives).collect();
        }
        Params::from_own(json!([filter]).to_string())
    }
}

impl fmt::Display for LogsCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            LogBlocks::Hash(hash) => write!(f, "logs of block {hash}"),
            LogBlocks::Range(from, to) => write!(f, "logs of blocks {} to {}", written(from), written(to)),
        }
    }
}

/// Parses a bound of a range. The node alone knows the pending block, and its oldest block.
fn bound(text: &str) -> Option<At> {
    let at: At = text.parse().ok()?;
    match at {
        At::Number(_) | At::Tag(Tag::Latest | Tag::Safe | Tag::Finalized) => Some(at),
        At::Tag(Tag::Earliest | Tag::Pending) | At::Hash(_) | At::Tx(_) => None,
    }
}

/// Writes a bound of a range.
fn written(bound: At) -> String {
    match bound {
        At::Number(number) => number.to_string(),
        At::Tag(tag) => tag.as_str().to_owned(),
        At::Hash(hash) => hash.to_string(),
        At::Tx(hash) => hash.to_string(),
    }
}

// === impl LogFilter ===

impl LogFilter {
    fn new(mut addresses: Vec<Address>, mut topics: Vec<Vec<B256>>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        for allowed in &mut topics {
            allowed.sort_unstable();
            allowed.dedup();
        }
        Self { addresses, topics }
    }

    /// Returns the filter that allows exactly the address and the topics of a log.
    pub fn of_log(address: Address, topics: &[B256]) -> Self {
        Self { addresses: vec![address], topics: topics.iter().map(|topic| vec![*topic]).collect() }
    }

    /// Returns whether a log with this address and these topics matches.
    pub fn matches(&self, address: Address, topics: &[B256]) -> LogMatch {
        let allows = |allowed: &[B256], topic: Option<&B256>| {
            allowed.is_empty() || topic.is_some_and(|topic| allowed.binary_search(topic).is_ok())
        };
        let is_from = self.addresses.is_empty() || self.addresses.binary_search(&address).is_ok();
        if !is_from || !self.topics.iter().enumerate().all(|(at, allowed)| allows(allowed, topics.get(at))) {
            LogMatch::No
        } else if topics.len() < self.topics.len() {
            LogMatch::Disputed
        } else {
            LogMatch::Yes
        }
    }

    /// The addresses that the filter allows. Empty: all.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The topics that the filter allows, by position. Empty: all.
    pub fn topics(&self) -> &[Vec<B256>] {
        &self.topics
    }
}

// === impl FilterBlooms ===

impl FilterBlooms {
    /// Hashes the values of a filter.
    pub fn new(filter: &LogFilter) -> Self {
        let blooms = |values: &mut dyn ExactSizeIterator<Item = &[u8]>| match values.len() {
            0..=MAX_IN_BLOOM => values.map(|value| Bloom::from(BloomInput::Raw(value))).collect(),
            // An empty list allows all values.
            _ => Vec::new(),
        };
        let topics = filter.topics.iter();
        Self {
            addresses: blooms(&mut filter.addresses.iter().map(|address| address.as_slice())),
            topics: topics.map(|allowed| blooms(&mut allowed.iter().map(|topic| topic.as_slice()))).collect(),
        }
    }

    /// Returns whether a block with this bloom may contain a log that matches.
    pub fn may_be_in(&self, bloom: &Bloom) -> bool {
        let any =
            |allowed: &Vec<Bloom>| allowed.is_empty() || allowed.iter().any(|value| bloom.contains(value));
        any(&self.addresses) && self.topics.iter().all(any)
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{address, b256, keccak256};

    use super::*;
    use crate::eth::BlockNumber;

    const A: Address = address!("00000000000000000000000000000000000000aa");
    const ONE: B256 = b256!("0000000000000000000000000000000000000000000000000000000000000001");
    const TWO: B256 = b256!("0000000000000000000000000000000000000000000000000000000000000002");

    fn read(parameter: &str) -> Option<LogsCall> {
        LogsCall::read("eth_getLogs", &Params::from_own(format!("[{parameter}]")))
    }

    fn filter(conditions: &str) -> LogFilter {
        read(&format!(r#"{{"fromBlock":"0x1","toBlock":"latest",{conditions}}}"#)).unwrap().filter
    }

    #[test]
    fn usual_forms_are_read() {
        let range = LogBlocks::Range(At::Number(BlockNumber(1)), At::Tag(Tag::Latest));
        assert_eq!(read(r#"{"fromBlock":"0x1","toBlock":"latest"}"#).unwrap().blocks, range);
        let hash = r#"{"blockHash":"0x0000000000000000000000000000000000000000000000000000000000000001"}"#;
        assert_eq!(read(hash).unwrap().blocks, LogBlocks::Hash(BlockHash(ONE)));
        assert_eq!(filter(r#""address":null,"topics":null"#), LogFilter::default());
        assert_eq!(filter(&format!(r#""address":"{A}""#)).addresses, [A]);
        assert_eq!(filter(&format!(r#""address":["{A}","{A}"]"#)).addresses, [A]);
        let topics = filter(&format!(r#""topics":[null,"{ONE}",["{ONE}","{TWO}"],["{ONE}",null]]"#)).topics;
        assert_eq!(topics, [vec![], vec![ONE], vec![ONE, TWO], vec![]]);
    }

    #[test]
    fn other_forms_are_left_to_the_node() {
        let hash = B256::ZERO;
        for parameter in [
            "{}".to_owned(),
            r#"{"fromBlock":"0x1"}"#.to_owned(),
            r#"{"toBlock":"0x1"}"#.to_owned(),
            r#"{"fromBlock":"0x1","toBlock":"pending"}"#.to_owned(),
            r#"{"fromBlock":"earliest","toBlock":"0x1"}"#.to_owned(),
            format!(r#"{{"fromBlock":"{hash}","toBlock":"0x1"}}"#),
            format!(r#"{{"fromBlock":"0x1","toBlock":"0x2","address":"{}"}}"#, "ab".repeat(20)),
            r#"{"fromBlock":"0x1","toBlock":"0x2","address":[null]}"#.to_owned(),
            r#"{"fromBlock":"0x1","toBlock":"0x2","toBlock":"0x3"}"#.to_owned(),
            r#"{"fromBlock":1,"toBlock":2}"#.to_owned(),
            r#"{"fromBlock":"0x01","toBlock":"0x2"}"#.to_owned(),
            format!(r#"{{"blockHash":"{hash}","fromBlock":"0x1"}}"#),
            r#"{"fromBlock":"0x1","toBlock":"0x2","address":"0x12"}"#.to_owned(),
            r#"{"fromBlock":"0x1","toBlock":"0x2","topics":[1]}"#.to_owned(),
            r#"{"fromBlock":"0x1","toBlock":"0x2","topics":[null,null,null,null,null]}"#.to_owned(),
            r#"{"fromBlock":"0x1","toBlock":"0x2","limit":5}"#.to_owned(),
            format!(
                r#"{{"fromBlock":"0x1","toBlock":"0x2","topics":[["{ONE}"{}]]}}"#,
                format!(r#","{ONE}""#).repeat(MAX_VALUES)
            ),
            r#"{"fromBlock":"0x1","toBlock":"0x2"},1"#.to_owned(),
            r#""0x1""#.to_owned(),
            r#"[null,"0x1","0x5"]"#.to_owned(),
        ] {
            assert_eq!(read(&parameter), None, "{parameter}");
        }
    }

    #[test]
    fn written_call_reads_the_same() {
        let conditions = format!(r#""address":"{A}","topics":[null,["{ONE}","{TWO}"]]"#);
        let call = read(&format!(r#"{{"fromBlock":"0x1","toBlock":"latest",{conditions}}}"#)).unwrap();
        assert_eq!(LogsCall::read(METHOD, &call.params()), Some(call.clone()));
        assert_eq!(call.tags().collect::<Vec<_>>(), [Tag::Latest]);
        let of_block = call.with_blocks(LogBlocks::Hash(BlockHash(TWO)));
        assert_eq!(LogsCall::read(METHOD, &of_block.params()), Some(of_block));
    }

    #[test]
    fn positions_beyond_the_topics_of_a_log_are_disputed() {
        let both = filter(&format!(r#""topics":["{ONE}",null]"#));
        assert_eq!(both.matches(A, &[ONE, TWO]), LogMatch::Yes);
        assert_eq!(both.matches(A, &[ONE]), LogMatch::Disputed);
        assert_eq!(both.matches(A, &[TWO]), LogMatch::No);
        let second = filter(&format!(r#""topics":[null,"{ONE}"]"#));
        assert_eq!(second.matches(A, &[TWO]), LogMatch::No);
    }

    #[test]
    fn bloom_excludes_only_blocks_without_matches() {
        let mut bloom = Bloom::ZERO;
        bloom.accrue(BloomInput::Raw(A.as_slice()));
        bloom.accrue(BloomInput::Hash(keccak256(ONE)));
        let may_be_in = |filter: &LogFilter, bloom| FilterBlooms::new(filter).may_be_in(bloom);
        assert!(may_be_in(&filter(&format!(r#""address":"{A}","topics":[null,["{TWO}","{ONE}"]]"#)), &bloom));
        assert!(may_be_in(&LogFilter::default(), &Bloom::ZERO));
        assert!(!may_be_in(&filter(&format!(r#""topics":["{TWO}"]"#)), &bloom));
        assert!(!may_be_in(&filter(&format!(r#""address":"{}""#, Address::ZERO)), &bloom));
    }
}
