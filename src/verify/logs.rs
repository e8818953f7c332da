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
    let filter = IndexedFilter::new(&call.filter, Disputes::Fail);
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
    filter: &IndexedFilter<'_>,
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
