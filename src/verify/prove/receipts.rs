//! Proves the receipts of a block by their root, and recomputes the members that follow from the receipts and the
//! transactions.

use alloy_consensus::{
    Eip658Value, Header, Receipt, ReceiptEnvelope, Transaction as _, proofs::ordered_trie_root_encoded,
};
use alloy_eips::Encodable2718;
use alloy_primitives::{Address, B256, Bloom, Log};

use super::{
    blob::BlobPrice,
    block::root,
    envelope::{self, Envelope},
    log::{self, Place},
    object::{self, Object},
    value::Value,
};
use crate::verify::{Failure, Part, Reason};

/// All members of a receipt that the root covers, that follow from other members, or that name the receipt's place.
const KNOWN: [&str; 18] = [
    "type",
    "status",
    "root",
    "cumulativeGasUsed",
    "logs",
    "logsBloom",
    "transactionHash",
    "transactionIndex",
    "blockHash",
    "blockNumber",
    "blockTimestamp",
    "from",
    "to",
    "gasUsed",
    "effectiveGasPrice",
    "contractAddress",
    "blobGasUsed",
    "blobGasPrice",
];

/// State of the proof after the receipts read so far.
#[derive(Debug)]
struct Reading<'a> {
    header: &'a Header,
    hash: B256,
    encoded: Vec<Vec<u8>>,
    gas_used: u64,
    logs: u64,
    bloom: Bloom,
    blob_price: BlobPrice,
    /// Failure for the first receipt that has an unknown member. It is returned only if the root does not match.
    unknown: Option<Failure>,
    /// Whether any receipt contains the state root after its transaction, as before Byzantium.
    has_states: bool,
}

/// Proves receipts against the proved header and transactions of their block. Returns the encoded receipts, as the
/// receipts root covers them.
pub(super) fn prove(
    text: &str,
    header: &Header,
    hash: B256,
    block: &Object<'_>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let (receipts, transactions) = (object::list(text, "receipts")?, block.list("transactions")?);
    if receipts.len() != transactions.len() {
        return Err(Failure::Count { expected: transactions.len(), got: receipts.len() });
    }
    let mut reading = Reading {
        header,
        hash,
        encoded: Vec::with_capacity(receipts.len()),
        gas_used: 0,
        logs: 0,
        bloom: Bloom::ZERO,
        blob_price: BlobPrice::of(header),
        unknown: None,
        has_states: false,
    };
    for (index, (receipt, transaction)) in receipts.iter().zip(transactions).enumerate() {
        let transaction = Object::read(transaction, Some(Part::Transaction(index)))?;
        reading.receipt(index, receipt, &transaction)?;
    }
    reading.finish()
}

/// Checks the members of a single receipt that can be checked without the receipts root: its transaction, its place,
/// its gas price, a bound on its gas, and its bloom.
pub(super) fn single(
    text: &str,
    header: &Header,
    hash: B256,
    index: usize,
    transaction: &Object<'_>,
) -> Result<(), Failure> {
    let receipt = Object::read(text, None)?;
    let (envelope, place) = (envelope::read(transaction)?, Place::new(header, hash, index, transaction)?);
    place.check(&receipt)?;
    let from = transaction.get::<Address>("from")?;
    receipt.must_be(Reason::Derived, "from", &from)?;
    parties(&receipt, &envelope, from, status(&receipt)?)?;
    let price = envelope.effective_gas_price(header.base_fee_per_gas);
    receipt.must_be::<u128>(Reason::Derived, "effectiveGasPrice", &price)?;
    let (used, sum) = (receipt.get::<u64>("gasUsed")?, receipt.get::<u64>("cumulativeGasUsed")?);
    let most = envelope.gas_limit().min(if index == 0 { sum } else { sum.saturating_sub(1) });
    if used > most || (index == 0 && used != sum) {
        return Err(receipt.wrong(Reason::Derived, "gasUsed", &format!("at most {most:#x}")));
    }
    BlobPrice::of(header).check(&receipt, &envelope)?;
    let mut bloom = Bloom::ZERO;
    let mut next = None;
    for text in receipt.list("logs")? {
        let log = receipt.inner(text)?;
        place.check(&log)?;
        // The expected index of the first log is unknown, but the indices of the other logs must follow it.
        let at = match next {
            Some(at) => at,
            None => log.get::<u64>("logIndex")?,
        };
        bloom.accrue_log(&log::read(&log, at)?);
        next = Some(at.saturating_add(1));
    }
    receipt.must_be::<Bloom>(Reason::Bloom, "logsBloom", &bloom)
}

// === impl Reading ===

impl Reading<'_> {
    fn receipt(&mut self, index: usize, text: &str, transaction: &Object<'_>) -> Result<(), Failure> {
        let receipt = Object::read(text, Some(Part::Receipt(index)))?;
        let envelope = envelope::read(transaction)?;
        let place = Place::new(self.header, self.hash, index, transaction)?;
        place.check(&receipt)?;
        let from = transaction.get::<Address>("from")?;
        receipt.must_be(Reason::Derived, "from", &from)?;
        let status = status(&receipt)?;
        self.has_states |= status.is_post_state();
        parties(&receipt, &envelope, from, status)?;
        self.gas(&receipt, &envelope)?;
        self.blob_price.check(&receipt, &envelope)?;
        let logs = self.logs(&receipt, &place)?;

        let rebuilt = Receipt { status, cumulative_gas_used: self.gas_used, logs }.with_bloom();
        receipt.must_be::<Bloom>(Reason::Bloom, "logsBloom", &rebuilt.logs_bloom)?;
        self.bloom.accrue_bloom(&rebuilt.logs_bloom);
        self.encoded.push(ReceiptEnvelope::from_typed(envelope.tx_type(), rebuilt).encoded_2718());
        if self.unknown.is_none() {
            self.unknown = receipt.unknown(&KNOWN).map(|what| receipt.beyond(what));
        }
        Ok(())
    }

    /// Compares the root and the bloom of all receipts with the header, and returns the encoded receipts.
    fn finish(self) -> Result<Vec<Vec<u8>>, Failure> {
        let out = ordered_trie_root_encoded(&self.encoded);
        let proved = root(Reason::ReceiptsRoot, "receiptsRoot", out, self.header.receipts_root);
        // Before Byzantium, the receipts root covers a state root in each receipt. Some nodes no longer have these
        // state roots.
        let stateless = !self.has_states && self.header.base_fee_per_gas.is_none();
        let unknown = self.unknown.or_else(|| {
            stateless.then(|| Failure::Unprovable {
                part: None,
                what: "the state root after each transaction".to_owned(),
            })
        });
        proved.map_err(|failure| unknown.unwrap_or(failure))?;
        // The bloom is checked last, because once the root matches, the bloom differs only if the header contradicts
        // its own content.
        if self.bloom != self.header.logs_bloom {
            return Err(Failure::field(
                Reason::Bloom,
                None,
                "logsBloom",
                self.header.logs_bloom.shown(),
                self.bloom.shown(),
            ));
        }
        Ok(self.encoded)
    }

    /// Checks that the gas of a transaction is the growth of the cumulative gas, and checks the gas price.
    fn gas(&mut self, receipt: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
        let sum = receipt.get::<u64>("cumulativeGasUsed")?;
        let Some(used) = sum.checked_sub(self.gas_used) else {
            let least = format!("at least {:#x}", self.gas_used);
            return Err(receipt.wrong(Reason::Derived, "cumulativeGasUsed", &least));
        };
        self.gas_used = sum;
        receipt.must_be::<u64>(Reason::Derived, "gasUsed", &used)?;
        let price = envelope.effective_gas_price(self.header.base_fee_per_gas);
        receipt.must_be::<u128>(Reason::Derived, "effectiveGasPrice", &price)
    }

    fn logs(&mut self, receipt: &Object<'_>, place: &Place) -> Result<Vec<Log>, Failure> {
        let texts = receipt.list("logs")?;
        let mut logs = Vec::with_capacity(texts.len());
        for (index, text) in texts.into_iter().enumerate() {
            let object = Object::read(text, Some(Part::Log(place.index, index)))?;
            place.check(&object)?;
            logs.push(log::read(&object, self.logs)?);
            self.logs += 1;
        }
        Ok(logs)
    }
}

/// Reads the outcome of a transaction: before Byzantium, the state root after it; since Byzantium, whether it
/// succeeded.
fn status(receipt: &Object<'_>) -> Result<Eip658Value, Failure> {
    match receipt.maybe::<B256>("root")? {
        // If a receipt has both a state root and a status, nothing proves the status.
        Some(_) if receipt.raw("status").is_some() => {
            Err(receipt.beyond("a status next to a state root".to_owned()))
        }
        Some(root) => Ok(root.into()),
        None => receipt.get::<bool>("status").map(Into::into),
    }
}

/// Checks the recipient, the created contract and the type.
fn parties(
    receipt: &Object<'_>,
    envelope: &Envelope,
    from: Address,
    status: Eip658Value,
) -> Result<(), Failure> {
    receipt.must_be::<u64>(Reason::Derived, "type", &(envelope.tx_type() as u64))?;
    // Nodes include `contractAddress` and `to` in every receipt, possibly as `null`.
    let contract = receipt.nullable::<Address>("contractAddress")?;
    receipt.nullable::<Address>("to")?;
    match envelope.to() {
        Some(to) => {
            receipt.must_be::<Address>(Reason::Derived, "to", &to)?;
            receipt.must_not_be("contractAddress")
        }
        None => {
            receipt.must_not_be("to")?;
            let created = from.create(envelope.nonce());
            // For a failed creation, some nodes report the address and others do not. Before Byzantium, the receipt
            // does not show whether the creation failed.
            match status {
                Eip658Value::Eip658(false) | Eip658Value::PostState(_) if contract.is_none() => Ok(()),
                _ => receipt.must_be::<Address>(Reason::Derived, "contractAddress", &created),
            }
        }
    }
}
