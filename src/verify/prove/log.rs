//! Reads logs, and checks the members that the receipts root does not cover.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, Log, LogData};

use super::{object::Object, value::Seconds};
use crate::verify::{Failure, Reason};

/// Place of a receipt and its logs in the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) block: B256,
    pub(super) number: u64,
    pub(super) timestamp: u64,
    pub(super) transaction: B256,
    pub(super) index: usize,
}

// === impl Place ===

impl Place {
    /// Returns the place of a transaction in a block.
    pub(super) fn new(
        header: &Header,
        block: B256,
        index: usize,
        transaction: &Object<'_>,
    ) -> Result<Self, Failure> {
        let transaction = transaction.get("hash")?;
        Ok(Self { block, number: header.number, timestamp: header.timestamp, transaction, index })
    }

    /// Checks the place that a receipt or a log names.
    pub(super) fn check(&self, object: &Object<'_>) -> Result<(), Failure> {
        object.must_be::<B256>(Reason::Names, "blockHash", &self.block)?;
        object.must_be::<u64>(Reason::Names, "blockNumber", &self.number)?;
        object.must_be::<B256>(Reason::Names, "transactionHash", &self.transaction)?;
        object.must_be::<u64>(Reason::Names, "transactionIndex", &(self.index as u64))?;
        object.may_be(Reason::Derived, "blockTimestamp", &Seconds(self.timestamp))
    }
}

/// Reads a log, whose position among the logs of its block must be `index`.
pub(super) fn read(log: &Object<'_>, index: u64) -> Result<Log, Failure> {
    log.must_be::<u64>(Reason::Derived, "logIndex", &index)?;
    match log.raw("removed") {
        Some("false") => {}
        Some(_) => return Err(log.wrong(Reason::Derived, "removed", "false")),
        None => return Err(log.missing("removed")),
    }
    let (topics, data) = (log.values::<B256>("topics")?, log.get::<Bytes>("data")?);
    Ok(Log { address: log.get("address")?, data: LogData::new_unchecked(topics, data) })
}
