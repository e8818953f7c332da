//! Reads the hashed members of signed transactions of each type.

use alloy_consensus::{
    EthereumTxEnvelope, EthereumTypedTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy,
};
use alloy_eips::{
    eip2930::{AccessList, AccessListItem},
    eip7702::{Authorization, SignedAuthorization},
};
use alloy_primitives::{Address, Signature, TxKind, U256};

use super::{object::Object, value::Padded};
use crate::verify::{Failure, Reason};

/// A signed transaction without blob sidecars.
pub(super) type Envelope = EthereumTxEnvelope<TxEip4844>;

/// Reads the hashed members of a transaction, without checking its hash.
pub(super) fn read(transaction: &Object<'_>) -> Result<Envelope, Failure> {
    let kind = transaction.get::<u64>("type")?;
    if kind > 4 {
        return Err(transaction.beyond(format!("type {kind:#x}")));
    }
    // The signature is read first, because a transaction without a signature need not follow any other rule.
    let halves = halves(transaction)?;
    let typed = match kind {
        0 => return legacy(transaction, halves),
        1 => EthereumTypedTransaction::Eip2930(access_list(transaction)?),
        2 => EthereumTypedTransaction::Eip1559(dynamic_fee(transaction)?),
        3 => EthereumTypedTransaction::Eip4844(blob(transaction)?),
        _ => EthereumTypedTransaction::Eip7702(set_code(transaction)?),
    };
    let parity = match transaction.optional::<bool>("yParity")? {
        Some(parity) => parity,
        None => transaction.get::<bool>("v")?,
    };
    Ok(Envelope::new_unhashed(typed, signature(halves, parity)))
}

fn legacy(transaction: &Object<'_>, halves: [U256; 2]) -> Result<Envelope, Failure> {
    let (parity, chain_id) = match transaction.get::<u128>("v")? {
        v @ (27 | 28) => (v == 28, None),
        // EIP-155
        v @ 35.. => {
            let id = u64::try_from((v - 35) / 2);
            let id =
                id.map_err(|_| transaction.wrong(Reason::Member, "v", "a value with a 64-bit chain id"))?;
            ((v - 35) % 2 == 1, Some(id))
        }
        _ => return Err(transaction.wrong(Reason::Member, "v", "0x1b, 0x1c or at least 0x23")),
    };
    let legacy = TxLegacy {
        chain_id,
        nonce: transaction.get("nonce")?,
        gas_price: price(transaction)?,
        gas_limit: transaction.get("gas")?,
        to: to(transaction)?,
        value: transaction.get("value")?,
        input: transaction.get("input")?,
    };
    Ok(Envelope::new_unhashed(EthereumTypedTransaction::Legacy(legacy), signature(halves, parity)))
}

fn access_list(transaction: &Object<'_>) -> Result<TxEip2930, Failure> {
    Ok(TxEip2930 {
        chain_id: transaction.get("chainId")?,
        nonce: transaction.get("nonce")?,
        gas_price: price(transaction)?,
        gas_limit: transaction.get("gas")?,
        to: to(transaction)?,
        value: transaction.get("value")?,
        access_list: accessed(transaction)?,
        input: transaction.get("input")?,
    })
}

fn dynamic_fee(transaction: &Object<'_>) -> Result<TxEip1559, Failure> {
    Ok(TxEip1559 {
        chain_id: transaction.get("chainId")?,
        nonce: transaction.get("nonce")?,
        gas_limit: transaction.get("gas")?,
        max_fee_per_gas: transaction.get("maxFeePerGas")?,
        max_priority_fee_per_gas: transaction.get("maxPriorityFeePerGas")?,
        to: to(transaction)?,
        value: transaction.get("value")?,
        access_list: accessed(transaction)?,
        input: transaction.get("input")?,
    })
}

fn blob(transaction: &Object<'_>) -> Result<TxEip4844, Failure> {
    Ok(TxEip4844 {
        chain_id: transaction.get("chainId")?,
        nonce: transaction.get("nonce")?,
        gas_limit: transaction.get("gas")?,
        max_fee_per_gas: transaction.get("maxFeePerGas")?,
        max_priority_fee_per_gas: transaction.get("maxPriorityFeePerGas")?,
        to: transaction.get("to")?,
        value: transaction.get("value")?,
        access_list: accessed(transaction)?,
        blob_versioned_hashes: transaction.values("blobVersionedHashes")?,
        max_fee_per_blob_gas: transaction.get("maxFeePerBlobGas")?,
        input: transaction.get("input")?,
    })
}

fn set_code(transaction: &Object<'_>) -> Result<TxEip7702, Failure> {
    Ok(TxEip7702 {
        chain_id: transaction.get("chainId")?,
        nonce: transaction.get("nonce")?,
        gas_limit: transaction.get("gas")?,
        max_fee_per_gas: transaction.get("maxFeePerGas")?,
        max_priority_fee_per_gas: transaction.get("maxPriorityFeePerGas")?,
        to: transaction.get("to")?,
        value: transaction.get("value")?,
        access_list: accessed(transaction)?,
        authorization_list: authorizations(transaction)?,
        input: transaction.get("input")?,
    })
}

/// Reads the gas price. Some chains contain prices beyond 128 bits, which alloy cannot encode.
fn price(transaction: &Object<'_>) -> Result<u128, Failure> {
    let price = transaction.get::<U256>("gasPrice")?;
    u128::try_from(price).map_err(|_| transaction.beyond("gasPrice beyond 128 bits".to_owned()))
}

/// Reads the recipient. A transaction without a recipient creates a contract.
fn to(transaction: &Object<'_>) -> Result<TxKind, Failure> {
    Ok(transaction.nullable::<Address>("to")?.into())
}

/// Reads `r` and `s` of a signature.
fn halves(object: &Object<'_>) -> Result<[U256; 2], Failure> {
    let (r, s) = (object.get::<Padded>("r")?, object.get::<Padded>("s")?);
    if r.0.is_zero() && s.0.is_zero() {
        // Some chains put system operations into their blocks as unsigned transactions.
        return Err(object.beyond("a transaction without a signature".to_owned()));
    }
    Ok([r.0, s.0])
}

fn signature([r, s]: [U256; 2], parity: bool) -> Signature {
    Signature::new(r, s, parity)
}

fn accessed(transaction: &Object<'_>) -> Result<AccessList, Failure> {
    let read = |text| -> Result<_, Failure> {
        let item = transaction.inner(text)?;
        Ok(AccessListItem { address: item.get("address")?, storage_keys: item.values("storageKeys")? })
    };
    transaction.list("accessList")?.into_iter().map(read).collect::<Result<Vec<_>, _>>().map(AccessList)
}

fn authorizations(transaction: &Object<'_>) -> Result<Vec<SignedAuthorization>, Failure> {
    let read = |text| -> Result<_, Failure> {
        let item = transaction.inner(text)?;
        let inner = Authorization {
            chain_id: item.get("chainId")?,
            address: item.get("address")?,
            nonce: item.get("nonce")?,
        };
        // The block contains authorizations as they were signed, even invalid ones, so the parity may be larger than 1.
        let parity = item.get::<u64>("yParity")?;
        item.may_be::<u64>(Reason::Derived, "v", &parity)?;
        let parity = u8::try_from(parity)
            .map_err(|_| item.wrong(Reason::Member, "yParity", "a quantity of 8 bits"))?;
        let (r, s) = (item.get::<Padded>("r")?, item.get::<Padded>("s")?);
        Ok(SignedAuthorization::new_unchecked(inner, parity, r.0, s.0))
    };
    transaction.list("authorizationList")?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signature_of_zeros_is_none() {
        let read = |r, s| halves(&Object::read(&format!(r#"{{"r":"{r}","s":"{s}"}}"#), None).unwrap());
        assert_eq!(read("0x0", "0x1"), Ok([U256::ZERO, U256::ONE]));
        assert_eq!(read("0x1", "0x0"), Ok([U256::ONE, U256::ZERO]));
        assert!(read("0x0", "0x00").unwrap_err().is_unprovable());
    }
}
