//! The receipts of a block, by their root, and what follows from them and from the transactions.

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

/// Every member of a receipt that is in the root, follows from what is, or says where it is.
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

/// What has been gathered from the receipts so far.
#[derive(Debug)]
struct Reading<'a> {
    header: &'a Header,
    hash: B256,
    encoded: Vec<Vec<u8>>,
    gas_used: u64,
    logs: u64,
    bloom: Bloom,
    blob_price: BlobPrice,
    /// The first receipt with something unknown in it, and what.
    unknown: Option<Failure>,
    /// Has one of them the state after its transaction?
    has_states: bool,
}

/// Proves receipts by the header and the transactions of their block, which are proved.
pub(super) fn prove(text: &str, header: &Header, hash: B256, block: &Object<'_>) -> Result<(), Failure> {
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

/// Checks what a receipt that came alone says beside what only the root proves: whose it is, and its bloom.
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
        return Err(receipt.wrong(Reason::Derived, "gasUsed", &format!("{most:#x} at most")));
    }
    BlobPrice::of(header).check(&receipt, &envelope)?;
    let mut bloom = Bloom::ZERO;
    let mut next = None;
    for text in receipt.list("logs")? {
        let log = receipt.inner(text)?;
        place.check(&log)?;
        // Where its logs begin is not known; that they follow each other is.
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

    /// Compares what all of them come to with the header.
    fn finish(self) -> Result<(), Failure> {
        let out = ordered_trie_root_encoded(&self.encoded);
        let proved = root(Reason::ReceiptsRoot, "receiptsRoot", out, self.header.receipts_root);
        // Of blocks from before Byzantium some nodes do not have the states that the root is made of.
        let stateless = !self.has_states && self.header.base_fee_per_gas.is_none();
        let unknown = self.unknown.or_else(|| {
            stateless.then(|| Failure::Unprovable {
                part: None,
                what: "the state after each transaction".to_owned(),
            })
        });
        proved.map_err(|failure| unknown.unwrap_or(failure))?;
        // Last: under a root that came out, only a header that lies about its own content gets here.
        if self.bloom != self.header.logs_bloom {
            return Err(Failure::field(
                Reason::Bloom,
                None,
                "logsBloom",
                self.header.logs_bloom.shown(),
                self.bloom.shown(),
            ));
        }
        Ok(())
    }

    /// The gas of a transaction is what the sum has grown by.
    fn gas(&mut self, receipt: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
        let sum = receipt.get::<u64>("cumulativeGasUsed")?;
        let Some(used) = sum.checked_sub(self.gas_used) else {
            let least = format!("{:#x} at least", self.gas_used);
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

/// Until Byzantium a receipt had the state after its transaction, since then whether it succeeded.
fn status(receipt: &Object<'_>) -> Result<Eip658Value, Failure> {
    match receipt.maybe::<B256>("root")? {
        // With both, nothing proves the status.
        Some(_) if receipt.raw("status").is_some() => {
            Err(receipt.beyond("a status beside a state".to_owned()))
        }
        Some(root) => Ok(root.into()),
        None => receipt.get::<bool>("status").map(Into::into),
    }
}

/// Checks whom the transaction went to, what it created, and its type.
fn parties(
    receipt: &Object<'_>,
    envelope: &Envelope,
    from: Address,
    status: Eip658Value,
) -> Result<(), Failure> {
    receipt.must_be::<u64>(Reason::Derived, "type", &(envelope.tx_type() as u64))?;
    // Nodes give both in every receipt, if only as null.
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
            // Of what failed to be created some nodes give the address, others none. Before Byzantium it
            // cannot be told.
            match status {
                Eip658Value::Eip658(false) | Eip658Value::PostState(_) if contract.is_none() => Ok(()),
                _ => receipt.must_be::<Address>(Reason::Derived, "contractAddress", &created),
            }
        }
    }
}
