//! Logs in the answers of nodes.

use std::ops::Range;

use alloy_primitives::{Address, B256};
use smallvec::SmallVec;

use super::{Home, ShapeError, Span, members};
use crate::{
    eth::{BlockHash, BlockNumber},
    jsonrpc::Scanner,
};

/// Maximum number of topics of a log.
pub const MAX_TOPICS: usize = 4;

/// Topics of a log.
pub type Topics = SmallVec<[B256; MAX_TOPICS]>;

/// A log in an answer to `eth_getLogs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Place of the log in the bytes of the answer.
    pub place: Range<usize>,
    /// The block that the log names.
    pub home: Home,
    /// Position of the log in its block.
    pub index: u64,
    /// Contract that emitted the log.
    pub address: Address,
    /// Topics of the log.
    pub topics: Topics,
    /// Whether the log says that its block left the chain, or has another value there than `false`.
    pub removed: bool,
}

// === impl Log ===

impl Log {
    /// Reads the logs of an answer.
    ///
    /// # Errors
    /// If the answer is not an array of logs.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Self>, ShapeError> {
        let text = members::text(bytes)?;
        let whole = Span { start: 0, end: text.len() as u32 };
        let spans = members::elements(text, whole, "the answer")?;
        spans.into_iter().map(|span| Self::read(text, span)).collect()
    }

    fn read(text: &str, whole: Span) -> Result<Self, ShapeError> {
        const NAMES: [&str; 6] = ["address", "topics", "blockHash", "blockNumber", "logIndex", "removed"];
        let inner = &text[whole.range()];
        let [address, topics, block, number, index, removed] =
            members::pick(&mut Scanner::new(inner), inner, "a log", NAMES)?;
        let (address, topics) = words(inner, address, topics)?;
        let home = Home {
            block: BlockHash(members::hash(inner, block, "blockHash")?),
            number: BlockNumber(members::number(inner, number, "blockNumber")?),
        };
        Ok(Self {
            place: whole.range(),
            home,
            index: members::number(inner, index, "logIndex")?,
            address,
            topics,
            removed: removed.is_some_and(|removed| &inner[removed.range()] != "false"),
        })
    }
}

/// Reads the address and the topics of a log.
pub(super) fn read_words(log: &str) -> Result<(Address, Topics), ShapeError> {
    let [address, topics] = members::pick(&mut Scanner::new(log), log, "a log", ["address", "topics"])?;
    words(log, address, topics)
}

fn words(log: &str, address: Option<Span>, topics: Option<Span>) -> Result<(Address, Topics), ShapeError> {
    let address = members::address(log, address, "address")?;
    let topics = members::elements(log, topics.ok_or(ShapeError::Member("topics"))?, "the topics")?;
    if topics.len() > MAX_TOPICS {
        return Err(ShapeError::Not { what: "the topics", expected: "a list of at most four" });
    }
    let topics = topics.into_iter().map(|topic| members::hash(log, Some(topic), "a topic"));
    Ok((address, topics.collect::<Result<_, _>>()?))
}
