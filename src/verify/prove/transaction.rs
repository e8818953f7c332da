//! Proves a transaction by its hash and its signer.

use alloy_consensus::{Transaction as _, TxType, crypto::secp256k1::recover_signer_unchecked};
use alloy_eips::Encodable2718;
use alloy_primitives::{Address, B256, Bytes, keccak256};

use super::{
    envelope::{self, Envelope},
    object::Object,
    value::{Seconds, Value},
};
use crate::verify::{Failure, Part, Reason};

/// Members of a block's header from which members of its transactions follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) base_fee: Option<u64>,
    pub(super) timestamp: u64,
}

/// All members of a transaction that are hashed, follow from hashed members, or name the transaction's place.
const KNOWN: [&str; 25] = [
    "type",
    "chainId",
    "nonce",
    "gas",
    "gasPrice",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "maxFeePerBlobGas",
    "to",
    "value",
    "input",
    "data",
    "accessList",
    "blobVersionedHashes",
    "authorizationList",
    "v",
    "yParity",
    "r",
    "s",
    "hash",
    "from",
    "blockHash",
    "blockNumber",
    "blockTimestamp",
    "transactionIndex",
];

/// Members that only the listed types have, and other types must not have. `gasPrice` is not listed, because nodes
/// report it for all types.
const TYPED: [(&str, &[TxType]); 6] = [
    ("accessList", &[TxType::Eip2930, TxType::Eip1559, TxType::Eip4844, TxType::Eip7702]),
    ("maxFeePerGas", &[TxType::Eip1559, TxType::Eip4844, TxType::Eip7702]),
    ("maxPriorityFeePerGas", &[TxType::Eip1559, TxType::Eip4844, TxType::Eip7702]),
    ("maxFeePerBlobGas", &[TxType::Eip4844]),
    ("blobVersionedHashes", &[TxType::Eip4844]),
    ("authorizationList", &[TxType::Eip7702]),
];

/// Proves a transaction by its hash, and recomputes the members that follow from the hashed content. Some of them can
/// be recomputed only if `scene` is known. Returns the encoded transaction, as the transactions root covers it.
pub(super) fn prove(
    text: &str,
    part: Option<Part>,
    scene: Option<Scene>,
    chain_id: Option<u64>,
) -> Result<Vec<u8>, Failure> {
    let transaction = Object::read(text, part)?;
    let (envelope, encoded) = encode(&transaction)?;
    if let (Some(expected), Some(named)) = (chain_id, envelope.chain_id())
        && named != expected
    {
        return Err(Failure::field(Reason::Chain, part, "chainId", expected.shown(), named.shown()));
    }
    signer(&transaction, &envelope)?;
    derived(&transaction, &envelope, scene)?;
    Ok(encoded)
}

/// Encodes a transaction and checks its hash.
pub(super) fn encode(transaction: &Object<'_>) -> Result<(Envelope, Vec<u8>), Failure> {
    let hashed = envelope::read(transaction).and_then(|envelope| {
        let encoded = envelope.encoded_2718();
        let hash = keccak256(&encoded);
        transaction.must_be::<B256>(Reason::TransactionHash, "hash", &hash).map(|()| (envelope, encoded))
    });
    hashed.map_err(|failure| transaction.excuse(&KNOWN, failure))
}

fn signer(transaction: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
    // Before EIP-2, signatures with a high `s` were valid, too, and old blocks contain such transactions.
    match recover_signer_unchecked(envelope.signature(), envelope.signature_hash()) {
        Ok(signer) => transaction.must_be::<Address>(Reason::Signer, "from", &signer),
        Err(_) => Err(transaction.wrong(Reason::Signer, "from", "recoverable: the signature is invalid")),
    }
}

/// Checks the members that repeat hashed content or follow from it.
fn derived(transaction: &Object<'_>, envelope: &Envelope, scene: Option<Scene>) -> Result<(), Failure> {
    let kind = envelope.tx_type();
    for (name, kinds) in TYPED {
        if !kinds.contains(&kind) {
            transaction.must_not_be(name)?;
        }
    }
    // Some nodes report the input under both names, `input` and `data`.
    transaction.may_be::<Bytes>(Reason::Derived, "data", envelope.input())?;
    parity(transaction, envelope)?;
    match envelope.chain_id() {
        Some(id) => transaction.may_be::<u64>(Reason::Derived, "chainId", &id)?,
        // Some nodes write 0 if a transaction has no chain id.
        None => transaction.may_be::<u64>(Reason::Derived, "chainId", &0)?,
    }
    match scene {
        Some(Scene { base_fee, timestamp }) => {
            let price = envelope.effective_gas_price(base_fee);
            transaction.may_be::<u128>(Reason::Derived, "gasPrice", &price)?;
            transaction.may_be(Reason::Derived, "blockTimestamp", &Seconds(timestamp))
        }
        None => {
            // In a pending transaction, the members that name its place are `null`.
            if transaction.raw("blockHash").is_some() {
                transaction.optional::<Seconds>("blockTimestamp")?;
            } else if transaction.raw("blockTimestamp").is_some() {
                let expected = "missing for a pending transaction";
                return Err(transaction.wrong(Reason::Derived, "blockTimestamp", expected));
            }
            // Without the block's base fee, only bounds of the price are known.
            let (least, most) = (envelope.effective_gas_price(Some(0)), envelope.max_fee_per_gas());
            match transaction.optional::<u128>("gasPrice")? {
                Some(price) if price > most => {
                    Err(transaction.wrong(Reason::Derived, "gasPrice", &format!("at most {}", most.shown())))
                }
                Some(price) if price < least => {
                    let least = format!("at least {}", least.shown());
                    Err(transaction.wrong(Reason::Derived, "gasPrice", &least))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Checks the parity of a typed transaction's signature, which nodes report as `yParity`, as `v`, or as both.
fn parity(transaction: &Object<'_>, envelope: &Envelope) -> Result<(), Failure> {
    let parity = envelope.signature().v();
    transaction.may_be::<bool>(Reason::Derived, "yParity", &parity)?;
    if envelope.is_legacy() {
        // The parity was read from `v`, so there is nothing to compare.
        return Ok(());
    }
    transaction.may_be::<bool>(Reason::Derived, "v", &parity)
}
