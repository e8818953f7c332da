//! Signed transactions of every type that a fork has.

use alloy_consensus::{
    SignableTransaction, Signed, TxEip1559, TxEip2930, TxEip4844, TxEip4844Variant, TxEip7702, TxEnvelope,
    TxLegacy, crypto::SECP256K1N_HALF,
};
use alloy_eips::{
    eip2930::{AccessList, AccessListItem},
    eip7702::Authorization,
};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, bytes, keccak256};
use holdfast::devchain::Account;

use super::vectors::Fork;

/// Base fee of blocks that have one.
pub const BASE_FEE: u64 = 700_000_000;

const CHAIN: u64 = 1;

/// A transaction, and whether it fails.
pub struct Offer {
    pub signed: TxEnvelope,
    pub fails: bool,
}

/// Returns transactions of every type, including contract creations; some of them fail.
pub fn of(fork: Fork) -> Vec<Offer> {
    let mut signed: Vec<TxEnvelope> = vec![
        sign(legacy(0, None, to())).into(),
        sign(legacy(1, None, TxKind::Create)).into(),
        sign(legacy(2, None, to())).into(),
    ];
    if fork < Fork::Byzantium {
        signed.push(high(sign(legacy(3, None, to()))).into());
    } else {
        signed.push(sign(legacy(3, Some(CHAIN), to())).into());
        // The largest possible chain id.
        signed.push(sign(legacy(4, Some(u64::MAX), TxKind::Create)).into());
    }
    if fork >= Fork::Berlin {
        signed.push(sign(access_list(5, accesses())).into());
        signed.push(sign(access_list(6, AccessList::default())).into());
    }
    if fork >= Fork::London {
        signed.push(sign(dynamic_fee(7, 5_000_000_000)).into());
        // The fee cap leaves less than the full tip.
        signed.push(sign(dynamic_fee(8, u128::from(BASE_FEE) + 5)).into());
    }
    if fork >= Fork::Cancun {
        signed.push(TxEnvelope::Eip4844(sign(TxEip4844Variant::TxEip4844(blob(9)))));
    }
    if fork >= Fork::Prague {
        signed.push(sign(set_code(10)).into());
    }
    let fails = |index| index == 2 || index == 4;
    signed.into_iter().enumerate().map(|(index, signed)| Offer { signed, fails: fails(index) }).collect()
}

fn account() -> Account {
    Account::from_secret(keccak256("vector")).unwrap()
}

fn sign<T: SignableTransaction<Signature>>(tx: T) -> Signed<T> {
    let signature = account().sign(tx.signature_hash());
    tx.into_signed(signature)
}

/// Returns the other valid signature, with a high `s`, which EIP-2 forbids.
fn high(signed: Signed<TxLegacy>) -> Signed<TxLegacy> {
    let order = SECP256K1N_HALF * U256::from(2) + U256::ONE;
    let low = *signed.signature();
    let high = Signature::new(low.r(), order - low.s(), !low.v());
    Signed::new_unhashed(signed.strip_signature(), high)
}

fn to() -> TxKind {
    TxKind::Call(Address::repeat_byte(0x70))
}

fn input() -> Bytes {
    bytes!("a9059cbb00112233")
}

fn accesses() -> AccessList {
    let item = |byte, keys: u8| AccessListItem {
        address: Address::repeat_byte(byte),
        storage_keys: (0..keys).map(B256::with_last_byte).collect(),
    };
    AccessList(vec![item(0x71, 2), item(0x72, 0)])
}

fn legacy(nonce: u64, chain_id: Option<u64>, to: TxKind) -> TxLegacy {
    let value = U256::from(12_345);
    TxLegacy { chain_id, nonce, gas_price: 50_000_000_000, gas_limit: 90_000, to, value, input: input() }
}

fn access_list(nonce: u64, access_list: AccessList) -> TxEip2930 {
    TxEip2930 {
        chain_id: CHAIN,
        nonce,
        gas_price: 60_000_000_000,
        gas_limit: 90_000,
        to: to(),
        value: U256::ZERO,
        access_list,
        input: Bytes::new(),
    }
}

fn dynamic_fee(nonce: u64, max_fee_per_gas: u128) -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN,
        nonce,
        gas_limit: 90_000,
        max_fee_per_gas,
        max_priority_fee_per_gas: 1_000_000,
        to: to(),
        value: U256::MAX,
        access_list: accesses(),
        input: input(),
    }
}

fn blob(nonce: u64) -> TxEip4844 {
    TxEip4844 {
        chain_id: CHAIN,
        nonce,
        gas_limit: 90_000,
        max_fee_per_gas: 5_000_000_000,
        max_priority_fee_per_gas: 1_000_000,
        to: Address::repeat_byte(0x70),
        value: U256::ZERO,
        access_list: accesses(),
        blob_versioned_hashes: vec![keccak256("blob"), keccak256("another")],
        max_fee_per_blob_gas: 1_000_000,
        input: input(),
    }
}

fn set_code(nonce: u64) -> TxEip7702 {
    let authorize = |nonce| {
        let address = Address::repeat_byte(0x77);
        let authorization = Authorization { chain_id: U256::from(CHAIN), address, nonce };
        let signature = account().sign(authorization.signature_hash());
        authorization.into_signed(signature)
    };
    TxEip7702 {
        chain_id: CHAIN,
        nonce,
        gas_limit: 90_000,
        max_fee_per_gas: 5_000_000_000,
        max_priority_fee_per_gas: 1_000_000,
        to: Address::repeat_byte(0x70),
        value: U256::ZERO,
        access_list: AccessList::default(),
        authorization_list: vec![authorize(3), authorize(4)],
        input: input(),
    }
}
