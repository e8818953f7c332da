//! The fields that all types of transactions share, and how each type arranges them.

use super::{
    accounts::{Account, Cast},
    dice::Dice,
};
use alloy_consensus::{SignableTransaction, Signed, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
use alloy_eips::{eip2930::AccessList, eip7702::SignedAuthorization};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256};

/// Prices of the next block. Generated transactions offer enough to pay them.
#[derive(Clone, Copy, Debug)]
pub(in crate::devchain) struct Prices {
    pub(in crate::devchain) gas: u64,
    pub(in crate::devchain) blob_gas: u128,
}

/// The content and fees of a transaction, before it has a type.
#[derive(Debug)]
pub(in crate::devchain) struct Draft {
    nonce: u64,
    to: Address,
    value: U256,
    input: Bytes,
    tip: u128,
    fee_cap: u128,
    gas_price: u128,
}

/// Gas limit of generated transactions, more than the toy execution can use.
const GAS_LIMIT: u64 = 250_000;

const GWEI: u64 = 1_000_000_000;

// === impl Draft ===

impl Draft {
    /// Chooses all fields by `dice`, with fees that suit `prices`.
    pub(in crate::devchain) fn throw(dice: &mut Dice, cast: &Cast, prices: Prices, nonce: u64) -> Self {
        let to_contract = !dice.one_in(4);
        let base = u128::from(prices.gas);
        let tip = u128::from(GWEI / 10 + dice.below(2 * GWEI));
        // Some caps cut into the tip, so that the effective price is the cap and not base fee plus tip.
        let fee_cap = if dice.one_in(4) { (base + tip / 2).max(tip) } else { 2 * base + tip };
        Self {
            nonce,
            to: *dice.pick(if to_contract { &cast.contracts } else { &cast.recipients }),
            value: if dice.one_in(3) { U256::ZERO } else { U256::from(dice.below(GWEI * GWEI)) },
            input: if to_contract { dice.bytes(4 + 32 * (nonce % 4)) } else { Bytes::new() },
            tip,
            fee_cap,
            gas_price: base + tip,
        }
    }

    pub(in crate::devchain) fn legacy(self, chain_id: Option<u64>) -> TxLegacy {
        TxLegacy {
            chain_id,
            nonce: self.nonce,
            gas_price: self.gas_price,
            gas_limit: GAS_LIMIT,
            to: TxKind::Call(self.to),
            value: self.value,
            input: self.input,
        }
    }

    pub(in crate::devchain) fn access_list(self, chain_id: u64, access_list: AccessList) -> TxEip2930 {
        TxEip2930 {
            chain_id,
            nonce: self.nonce,
            gas_price: self.gas_price,
            gas_limit: GAS_LIMIT,
            to: TxKind::Call(self.to),
            value: self.value,
            access_list,
            input: self.input,
        }
    }

    pub(in crate::devchain) fn dynamic_fee(self, chain_id: u64, access_list: AccessList) -> TxEip1559 {
        TxEip1559 {
            chain_id,
            nonce: self.nonce,
            gas_limit: GAS_LIMIT,
            max_fee_per_gas: self.fee_cap,
            max_priority_fee_per_gas: self.tip,
            to: TxKind::Call(self.to),
            value: self.value,
            access_list,
            input: self.input,
        }
    }

    pub(in crate::devchain) fn blob(
        self,
        chain_id: u64,
        blob_versioned_hashes: Vec<B256>,
        prices: Prices,
    ) -> TxEip4844 {
        TxEip4844 {
            chain_id,
            nonce: self.nonce,
            gas_limit: GAS_LIMIT,
            max_fee_per_gas: self.fee_cap,
            max_priority_fee_per_gas: self.tip,
            to: self.to,
            value: self.value,
            access_list: AccessList::default(),
            blob_versioned_hashes,
            max_fee_per_blob_gas: prices.blob_gas.saturating_mul(2),
            input: self.input,
        }
    }

    pub(in crate::devchain) fn set_code(
        self,
        chain_id: u64,
        authorization_list: Vec<SignedAuthorization>,
    ) -> TxEip7702 {
        TxEip7702 {
            chain_id,
            nonce: self.nonce,
            gas_limit: GAS_LIMIT,
            max_fee_per_gas: self.fee_cap,
            max_priority_fee_per_gas: self.tip,
            to: self.to,
            value: self.value,
            access_list: AccessList::default(),
            authorization_list,
            input: self.input,
        }
    }
}

/// Signs a transaction of any type.
pub(in crate::devchain) fn sign<T: SignableTransaction<Signature>>(tx: T, by: &Account) -> Signed<T> {
    let signature = by.sign(tx.signature_hash());
    tx.into_signed(signature)
}
