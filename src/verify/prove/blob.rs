//! What blobs cost.

use alloy_consensus::{Header, Transaction as _};
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip7840::BlobParams};

use super::{envelope::Envelope, object::Object, value::Value};
use crate::verify::{Failure, Reason};

/// The price of a blob's gas in one block.
///
/// It follows from the header and from constants of the fork, which a header does not name. Before Prague
/// there is one set of constants. Since then there are several, and configuration may bring more: the
/// price must be that of one set that is known, and the same for the whole block.
#[derive(Debug)]
pub(super) struct BlobPrice {
    /// What it can be; if that is several, it may also be something that is unknown here.
    candidates: Vec<u128>,
    /// What the first receipt with a price says.
    said: Option<u128>,
}

// === impl BlobPrice ===

impl BlobPrice {
    pub(super) fn of(header: &Header) -> Self {
        let sets = if header.requests_hash.is_some() {
            // Osaka's are Prague's.
            vec![BlobParams::prague(), BlobParams::bpo1(), BlobParams::bpo2()]
        } else {
            vec![BlobParams::cancun()]
        };
        // Before Cancun there are no blobs, and one node says all the same what they would cost: the least.
        let excess = header.excess_blob_gas.unwrap_or(0);
        Self { candidates: sets.iter().map(|set| set.calc_blob_fee(excess)).collect(), said: None }
    }

    /// Checks what a receipt says of blobs.
    pub(super) fn check(&mut self, receipt: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
        match envelope.blob_versioned_hashes() {
            Some(blobs) => {
                let used = DATA_GAS_PER_BLOB.saturating_mul(blobs.len() as u64);
                receipt.must_be::<u64>(Reason::Derived, "blobGasUsed", &used)?;
                self.price(receipt, receipt.get("blobGasPrice")?)
            }
            None => {
                // Some nodes say how many blobs it has where it cannot have any, and what they would cost.
                receipt.may_be::<u64>(Reason::Derived, "blobGasUsed", &0)?;
                match receipt.optional("blobGasPrice")? {
                    Some(price) => self.price(receipt, price),
                    None => Ok(()),
                }
            }
        }
    }

    fn price(&mut self, receipt: &Object<'_>, price: u128) -> Result<(), Failure> {
        let said = *self.said.get_or_insert(price);
        if price != said {
            return Err(receipt.wrong(Reason::Derived, "blobGasPrice", &said.shown()));
        }
        match self.candidates[..] {
            _ if self.candidates.contains(&price) => Ok(()),
            [right] => Err(receipt.wrong(Reason::Derived, "blobGasPrice", &right.shown())),
            _ => Err(receipt.beyond(format!("blobGasPrice {}", price.shown()))),
        }
    }
}
