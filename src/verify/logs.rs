//! Checks of logs that a node found. Nothing in such an answer proves that it is complete.

use bytes::Bytes;

use super::{Failure, Known, Level, Reason};
use crate::eth::{
    At, Disputes, FilterBlooms, Home, IndexedFilter, Log, LogBlocks, LogFilter, LogIndex, LogMatch, LogsCall,
};

/// Checks that each log matches the filter and lies in the blocks of the call, that the logs are in order and none is
/// doubled or removed, and that they agree with final blocks, with blooms and with proved receipts.
///
/// # Errors
/// If a check fails.
pub(super) fn check(
    call: &LogsCall,
    result: &Bytes,
    known: &dyn Known,
    is_ethereum: bool,
) -> Result<(), Failure> {
    let logs = Log::read_all(result)?;
    let mut before: Option<&Log> = None;
    for log in &logs {
        if let Some(before) = before {
            if (log.home.number, log.index) <= (before.home.number, before.index) {
                return Err(wrong("logIndex", "above that of the log before", log.index));
            }
            if log.home.number == before.home.number && log.home.block != before.home.block {
                return Err(wrong("blockHash", before.home.block, log.home.block));
            }
        }
        before = Some(log);
        is_asked(call, log)?;
        is_canonical(log.home, known)?;
    }
    // Where nodes differ, the receipts do not tell what this node should answer.
    let filter = IndexedFilter::new(call.filter.clone(), Disputes::Fail);
    for logs in logs.chunk_by(|one, other| one.home == other.home) {
        fits_block(&filter, result, logs, known, is_ethereum)?;
    }
    Ok(())
}

/// Checks that a log matches the filter and lies in the blocks of the call. Accepts a log that matches for some nodes.
fn is_asked(call: &LogsCall, log: &Log) -> Result<(), Failure> {
    if call.filter.matches(log.address, &log.topics) == LogMatch::No {
        return Err(wrong("address", "a contract and topics that match the filter", log.address));
    }
    if log.removed {
        return Err(wrong("removed", "false", "true"));
    }
    let Home { block, number } = log.home;
    match call.blocks {
        LogBlocks::Hash(hash) if hash != block => Err(wrong("blockHash", hash, block)),
        LogBlocks::Range(At::Number(first), At::Number(last)) if number < first || number > last => {
            Err(wrong("blockNumber", format_args!("from {first} to {last}"), number))
        }
        LogBlocks::Hash(_) | LogBlocks::Range(..) => Ok(()),
    }
}

/// Checks that a log names the final block at its number. A tracked block may have left the chain just now.
fn is_canonical(Home { block, number }: Home, known: &dyn Known) -> Result<(), Failure> {
    match known.at(number).filter(|_| known.was_final(number)) {
        Some(hash) if hash != block => Err(wrong("blockHash", hash, block)),
        Some(_) | None => Ok(()),
    }
}

/// Compares all logs of one block with the bloom and with the receipts of the block, if those are proved.
fn fits_block(
    filter: &IndexedFilter,
    result: &Bytes,
    logs: &[Log],
    known: &dyn Known,
    is_ethereum: bool,
) -> Result<(), Failure> {
    let Some(Home { block, .. }) = logs.first().map(|log| log.home) else { return Ok(()) };
    if let Some(bloom) = known.bloom(block).filter(|_| is_ethereum) {
        for log in logs {
            let own = LogFilter::of_log(log.address, &log.topics);
            if !FilterBlooms::new(&own).may_be_in(&bloom) {
                let expected = "a contract and topics in the bloom of the block";
                return Err(Failure::field(Reason::Bloom, None, "address", expected, log.address));
            }
        }
    }
    let of_receipts = || {
        let receipts = known.receipts(block).filter(|receipts| receipts.level() == Level::Proved)?;
        let mut found = Vec::new();
        LogIndex::new(&receipts).ok()?.find(&receipts, filter, &mut found).ok().map(|()| found)
    };
    let Some(expected) = known.indexed_logs(block, filter).or_else(of_receipts) else { return Ok(()) };
    if expected.len() != logs.len() {
        return Err(Failure::Logs { expected: expected.len(), got: logs.len() });
    }
    let differs = |(log, expected): (&Log, &Bytes)| {
        let read = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
        result[log.place.clone()] != **expected && read(&result[log.place.clone()]) != read(expected)
    };
    match logs.iter().zip(&expected).find(|pair| differs(*pair)) {
        Some((log, _)) => Err(wrong("logIndex", "that of a log of the receipts", log.index)),
        None => Ok(()),
    }
}

fn wrong(field: &'static str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Failure {
    Failure::field(Reason::Names, None, field, expected, got)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256};
    use serde_json::json;

    use super::*;
    use crate::{
        eth::{BlockHash, BlockNumber, Receipts},
        verify::{Verified, verdict::KnownReceipts},
    };

    fn hash(byte: u8) -> BlockHash {
        BlockHash(B256::repeat_byte(byte))
    }

    /// Checks logs, each with the number and hash of its block and its index, as an answer for the blocks 5 to 8.
    fn verdict(logs: &[(u64, u8, u64)], known: &KnownReceipts) -> Result<(), Failure> {
        let log = |(number, block, index): &(u64, u8, u64)| {
            json!({
                "address": Address::ZERO, "topics": [], "data": "0x", "removed": false,
                "blockHash": hash(*block).0, "blockNumber": format!("{number:#x}"),
                "logIndex": format!("{index:#x}"),
            })
        };
        let logs: Vec<_> = logs.iter().map(log).collect();
        let [first, last] = [5, 8].map(|number| At::Number(BlockNumber(number)));
        let call = LogsCall { blocks: LogBlocks::Range(first, last), filter: LogFilter::default() };
        check(&call, &Bytes::from(json!(logs).to_string()), known, false)
    }

    #[test]
    fn logs_are_in_order_on_one_branch_and_in_the_range() {
        for (logs, is_right) in [
            (&[][..], true),
            (&[(5, 1, 0), (5, 1, 1), (8, 2, 0)], true),
            (&[(5, 1, 0), (5, 1, 0)], false),
            (&[(5, 1, 1), (5, 1, 0)], false),
            (&[(6, 1, 0), (5, 2, 1)], false),
            (&[(5, 1, 0), (5, 2, 1)], false),
            (&[(4, 1, 0)], false),
            (&[(9, 1, 0)], false),
        ] {
            assert_eq!(verdict(logs, &KnownReceipts::default()).is_ok(), is_right, "{logs:?}");
        }
    }

    /// Receipts that only passed structural checks may be the wrong ones.
    #[test]
    fn only_proved_receipts_refute_logs() {
        for (level, is_right) in [(Level::Structural, true), (Level::Partial, true), (Level::Proved, false)] {
            let without_logs = json!([{
                "transactionHash": B256::ZERO, "transactionIndex": "0x0", "blockHash": hash(1).0,
                "blockNumber": "0x5", "logs": [],
            }]);
            let (receipts, _) = Receipts::read(Bytes::from(without_logs.to_string())).unwrap();
            let known = KnownReceipts(Some(Verified::structurally(receipts).raised(level).into()));
            assert_eq!(verdict(&[(5, 1, 0)], &known).is_ok(), is_right, "{level:?}");
        }
    }
}
