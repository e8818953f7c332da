//! Blob gas prices.

use alloy_consensus::{Header, Transaction as _};
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip7840::BlobParams};

use super::{envelope::Envelope, object::Object, value::Value};
use crate::verify::{Failure, Reason};

/// Price of blob gas in one block.
///
/// The price follows from the header and from constants of the fork, which the header does not name. Before Prague
/// there is one set of constants. Since Prague there are several sets, and chain configurations may add more. The price
/// must follow from one known set, and must be the same in the whole block.
#[derive(Debug)]
pub(super) struct BlobPrice {
    /// Price by each known set of constants. Since Prague, another price may be right, too.
    candidates: Vec<u128>,
    /// Price in the first receipt that has one.
    said: Option<u128>,
}

// === impl BlobPrice ===

impl BlobPrice {
    pub(super) fn of(header: &Header) -> Self {
        let sets = if header.requests_hash.is_some() {
            // Osaka has the constants of Prague.
            vec![BlobParams::prague(), BlobParams::bpo1(), BlobParams::bpo2()]
        } else {
            vec![BlobParams::cancun()]
        };
        // Before Cancun there are no blobs, but one node implementation reports the minimum price of blob gas even
        // then.
        let excess = header.excess_blob_gas.unwrap_or(0);
        Self { candidates: sets.iter().map(|set| set.calc_blob_fee(excess)).collect(), said: None }
    }

    /// Checks the blob members of a receipt.
    pub(super) fn check(&mut self, receipt: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
        match envelope.blob_versioned_hashes() {
            Some(blobs) => {
                let used = DATA_GAS_PER_BLOB.saturating_mul(blobs.len() as u64);
                receipt.must_be::<u64>(Reason::Derived, "blobGasUsed", &used)?;
                self.price(receipt, receipt.get("blobGasPrice")?)
            }
            None => {
                // Some nodes report blob gas and its price for transactions that cannot have blobs.
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

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    #[test]
    fn one_block_has_one_price_though_several_are_known() {
        let header = Header {
            requests_hash: Some(B256::ZERO),
            excess_blob_gas: Some(100_000_000),
            ..Header::default()
        };
        let (mut price, receipt) = (BlobPrice::of(&header), Object::read("{}", None).unwrap());
        let [one, other, ..] = price.candidates[..] else { panic!("too few sets of constants") };
        assert_ne!(one, other);
        assert_eq!(price.price(&receipt, one), Ok(()));
        assert_eq!(price.price(&receipt, other).unwrap_err().as_str(), "derived");
        assert_eq!(price.price(&receipt, one), Ok(()));
    }
}
