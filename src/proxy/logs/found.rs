//! Logs of blocks, and the limits of an answer.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    eth::BlockNumber,
    jsonrpc::Answer,
    proxy::{
        call::{
            outcome::{Answered, LogProof, LogSource, Outcome},
            slice::EMPTY_LIST,
        },
        config::LogsConfig,
        error::{CallError, LogLimit},
    },
};

/// Maximum number of bytes of an answer for a range: a sixteenth of the default `max_bytes_in_flight`.
const MAX_BYTES: usize = 32 << 20;

/// The logs of a block that match.
#[derive(Debug)]
pub(super) struct FoundLogs {
    pub(super) logs: Vec<Bytes>,
    pub(super) source: LogSource,
    pub(super) proof: LogProof,
}

/// Joins the logs of blocks into an answer.
#[derive(Debug)]
pub(super) struct Joined {
    limits: LogsConfig,
    first: BlockNumber,
    logs: Vec<Bytes>,
    bytes: usize,
    source: LogSource,
    proof: LogProof,
}

// === impl FoundLogs ===

impl FoundLogs {
    /// Returns the logs of a block whose header shows that no log matches.
    pub(super) fn excluded() -> Self {
        Self { logs: Vec::new(), source: LogSource::Bloom, proof: LogProof::Proved }
    }

    /// Returns logs that the upstream found.
    pub(super) fn forwarded(logs: Vec<Bytes>) -> Self {
        Self { logs, source: LogSource::Forwarded, proof: LogProof::None }
    }
}

// === impl Joined ===

impl Joined {
    /// Starts an answer for blocks from `first` on.
    pub(super) fn new(limits: LogsConfig, first: BlockNumber) -> Self {
        let (source, proof) = (LogSource::Bloom, LogProof::Proved);
        Self { limits, first, logs: Vec::new(), bytes: 2, source, proof }
    }

    /// Adds the logs of the next block, which has the number `at`.
    ///
    /// # Errors
    /// If the answer is over a limit now. A single block may exceed the limits, because no range is smaller.
    pub(super) fn add(
        &mut self,
        at: BlockNumber,
        FoundLogs { logs, source, proof }: FoundLogs,
    ) -> Result<(), CallError> {
        self.source = self.source.max(source);
        self.proof = self.proof.min(proof);
        self.bytes += logs.iter().map(|log| log.len() + 1).sum::<usize>();
        if self.logs.is_empty() {
            self.logs = logs;
        } else {
            self.logs.extend(logs);
        }
        let over = if self.logs.len() > self.limits.max_results {
            LogLimit::Results(self.limits.max_results)
        } else if self.bytes > MAX_BYTES {
            LogLimit::Bytes(MAX_BYTES)
        } else {
            return Ok(());
        };
        if at == self.first {
            return Ok(());
        }
        Err(CallError::TooManyLogs { over, first: self.first, last: BlockNumber(at.0 - 1) })
    }

    /// Returns the size of the answer in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the answer.
    pub(super) fn answer(self) -> Answered {
        let outcome = Outcome::Logs(self.source, self.proof);
        if self.logs.is_empty() {
            return Answered::new(Answer::Result(EMPTY_LIST), outcome);
        }
        let mut text = BytesMut::with_capacity(self.bytes);
        for log in self.logs {
            text.put_u8(if text.is_empty() { b'[' } else { b',' });
            text.put(log);
        }
        text.put_u8(b']');
        Answered::new(Answer::Result(text.freeze()), outcome)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const SOURCES: [LogSource; 4] =
        [LogSource::Bloom, LogSource::Receipts, LogSource::Fetched, LogSource::Forwarded];
    const PROOFS: [LogProof; 3] = [LogProof::None, LogProof::Structural, LogProof::Proved];

    fn join(
        first: u64,
        max_results: usize,
        blocks: &[(usize, LogSource, LogProof)],
    ) -> Result<Answered, CallError> {
        let limits = LogsConfig { max_results, ..LogsConfig::default() };
        let mut joined = Joined::new(limits, BlockNumber(first));
        for ((logs, source, proof), number) in blocks.iter().zip(first..) {
            let logs = vec![Bytes::from_static(b"{}"); *logs];
            joined.add(BlockNumber(number), FoundLogs { logs, source: *source, proof: *proof })?;
        }
        Ok(joined.answer())
    }

    fn blocks() -> impl Strategy<Value = Vec<(usize, LogSource, LogProof)>> {
        vec((0_usize..5, select(&SOURCES[..]), select(&PROOFS[..])), 1..12)
    }

    proptest! {
        #[test]
        fn answer_states_the_weakest_proof_and_the_dearest_source(blocks in blocks()) {
            let source = blocks.iter().map(|(_, source, _)| *source).max().unwrap();
            let proof = blocks.iter().map(|(.., proof)| *proof).min().unwrap();
            prop_assert_eq!(join(7, usize::MAX, &blocks).unwrap().outcome, Outcome::Logs(source, proof));
        }

        #[test]
        fn suggested_range_is_the_longest_that_works(blocks in blocks(), max in 0_usize..12, begin in 0_u64..9) {
            let logs: usize = blocks.iter().map(|(logs, ..)| logs).sum();
            match join(begin, max, &blocks) {
                Ok(_) => prop_assert!(logs <= max || blocks.len() == 1),
                Err(CallError::TooManyLogs { over, first, last }) => {
                    prop_assert_eq!((over, first), (LogLimit::Results(max), BlockNumber(begin)));
                    let count = usize::try_from(last.0 - begin).unwrap() + 1;
                    prop_assert!(join(begin, max, &blocks[..count]).is_ok());
                    prop_assert!(join(begin, max, &blocks[..=count]).is_err());
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
