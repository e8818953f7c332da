//! The toy execution: effects of a transaction on the state, its gas and its logs.
//!
//! There is no EVM. A call to an account with code, or a creation, fails one time in eight and otherwise emits up to
//! four logs; the transaction's hash decides. Everything else follows the real rules: intrinsic gas, prices, tips, the
//! created address, authorizations.

use super::{dice::Dice, transactions::Tx, world::World};
use alloy_consensus::{
    Eip658Value, Receipt, ReceiptEnvelope, Transaction as _, crypto::secp256k1::recover_signer,
};
use alloy_eips::eip7702::SignedAuthorization;
use alloy_primitives::{Address, B256, Bytes, Log, LogData, U256};

/// The fields of a block that execution reads.
#[derive(Clone, Copy, Debug)]
pub(in crate::devchain) struct Env {
    pub(in crate::devchain) chain_id: u64,
    pub(in crate::devchain) number: u64,
    pub(in crate::devchain) base_fee: u64,
    pub(in crate::devchain) blob_fee: u128,
    pub(in crate::devchain) beneficiary: Address,
}

/// Outcome of a transaction: the consensus receipt, and the fields that the RPC adds to it.
#[derive(Clone, Debug)]
pub(in crate::devchain) struct TxOutcome {
    pub(in crate::devchain) receipt: ReceiptEnvelope,
    pub(in crate::devchain) gas_used: u64,
    pub(in crate::devchain) gas_price: u128,
    pub(in crate::devchain) created: Option<Address>,
}

/// Prefix of the code of an account that delegates to another (EIP-7702).
const DELEGATION: [u8; 3] = [0xef, 0x01, 0x00];

/// Executes `tx` after transactions of the same block that used `gas_before` units of gas.
///
/// Never refuses a transaction, not even for a used nonce, an empty account or a price below the base fee.
pub(in crate::devchain) fn execute(world: &mut World, env: &Env, tx: &Tx, gas_before: u64) -> TxOutcome {
    let sender = tx.signer();
    let created = tx.is_create().then(|| sender.create(tx.nonce()));
    let runs_code = tx.to().is_none_or(|to| world.has_code(to));
    let mut dice = Dice::from_hash(*tx.tx_hash());

    let fails = runs_code && dice.one_in(8);
    let logs = match tx.to().or(created) {
        Some(emitter) if runs_code && !fails => throw_logs(&mut dice, emitter, env.number),
        _ => Vec::new(),
    };
    let gas_used = (intrinsic_gas(tx) + execution_gas(runs_code, &logs)).min(tx.gas_limit());
    let gas_price = tx.effective_gas_price(Some(env.base_fee));

    world.use_nonce(sender, tx.nonce());
    let blob_cost = U256::from(tx.blob_gas_used().unwrap_or(0)).saturating_mul(U256::from(env.blob_fee));
    let gas_cost = U256::from(gas_used).saturating_mul(U256::from(gas_price));
    world.debit(sender, gas_cost.saturating_add(blob_cost));
    let tip = gas_price.saturating_sub(u128::from(env.base_fee));
    world.credit(env.beneficiary, U256::from(gas_used).saturating_mul(U256::from(tip)));

    // As in EIP-7702, delegations stay even if the transaction itself fails.
    for authorization in tx.authorization_list().unwrap_or_default() {
        delegate(world, env, authorization);
    }
    if let (false, Some(to)) = (fails, tx.to()) {
        world.debit(sender, tx.value());
        world.credit(to, tx.value());
    }

    let receipt =
        Receipt { status: Eip658Value::Eip658(!fails), cumulative_gas_used: gas_before + gas_used, logs };
    let receipt = ReceiptEnvelope::from_typed(tx.tx_type(), receipt.with_bloom());
    TxOutcome { receipt, gas_used, gas_price, created }
}

/// Generates up to four logs of up to four topics. The data contains the number of the block, so a transaction
/// that moves to another height emits other logs there.
fn throw_logs(dice: &mut Dice, emitter: Address, number: u64) -> Vec<Log> {
    (0..dice.below(5))
        .map(|_| {
            let topics: Vec<B256> = (0..dice.below(5)).map(|_| dice.word()).collect();
            let mut data = B256::from(U256::from(number)).to_vec();
            let more = dice.below(80);
            data.extend_from_slice(&dice.bytes(more));
            Log { address: emitter, data: LogData::new_unchecked(topics, data.into()) }
        })
        .collect()
}

fn intrinsic_gas(tx: &Tx) -> u64 {
    let zeros = tx.input().iter().filter(|byte| **byte == 0).count() as u64;
    let calldata = 4 * zeros + 16 * (tx.input().len() as u64 - zeros);
    let access_list: u64 = tx
        .access_list()
        .map_or(0, |list| list.iter().map(|item| 2_400 + 1_900 * item.storage_keys.len() as u64).sum());
    let authorizations = tx.authorization_list().map_or(0, |list| 25_000 * list.len() as u64);
    let creation = if tx.is_create() { 32_000 } else { 0 };
    21_000 + calldata + access_list + authorizations + creation
}

fn execution_gas(runs_code: bool, logs: &[Log]) -> u64 {
    let logging: u64 =
        logs.iter().map(|log| 375 * (1 + log.topics().len() as u64) + 8 * log.data.data.len() as u64).sum();
    // A call pays 2,600 for a cold access, and 4,400 for some work.
    logging + if runs_code { 2_600 + 4_400 } else { 0 }
}

/// Delegates the authority's account to a contract. Skips an authorization for another chain or with an invalid
/// signature, as EIP-7702 requires.
fn delegate(world: &mut World, env: &Env, authorization: &SignedAuthorization) {
    let for_us = authorization.chain_id.is_zero() || authorization.chain_id == U256::from(env.chain_id);
    let Ok(signature) = authorization.signature() else {
        return;
    };
    let Ok(authority) = recover_signer(&signature, authorization.signature_hash()) else {
        return;
    };
    if for_us {
        world.use_nonce(authority, authorization.nonce);
        let code = [&DELEGATION, authorization.address.as_slice()].concat();
        world.set_code(authority, Bytes::from(code));
    }
}
