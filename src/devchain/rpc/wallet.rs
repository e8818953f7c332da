//! The methods of a wallet: the reads before it sends a transaction, and the sending itself.

use super::{
    answer::{Answer, quantity},
    args::Args,
};
use crate::devchain::{
    chain::{error::RpcError, state::State, view::ClientView, visibility::BlockId},
    content::{block::Block, render::json, transactions::BLOBS},
};
use alloy_consensus::{Transaction as _, TxEnvelope};
use alloy_eips::eip2718::Decodable2718;
use alloy_rpc_types_eth::FeeHistory;
use bytes::Bytes;
use std::sync::Arc;

/// Estimated gas of every transaction. It is more than the toy execution uses for common transactions.
const GAS_ESTIMATE: u64 = 200_000;

/// The suggested tip, in wei.
const SUGGESTED_TIP: u64 = 1_000_000_000;

/// Maximum number of blocks of fee history in one answer, the same as in geth.
const MAX_FEE_HISTORY: u64 = 1_024;

pub(super) fn send_raw_transaction(state: &mut State, args: &Args<'_>) -> Answer {
    let raw = args.at_most(1)?.bytes(0)?;
    let envelope = TxEnvelope::decode_2718_exact(&raw)
        .map_err(|error| RpcError::invalid_params(format!("transaction cannot be decoded: {error}")))?;
    let hash = state.submit(envelope)?;
    Ok(json(&hash).into())
}

pub(super) fn transaction_count(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let (address, id) = (args.at_most(2)?.address(0)?, args.block_id_or_latest(1)?);
    let nonce = match id {
        BlockId::Pending => view.state.pool.next_nonce(&view.head().world, address),
        _ => existing(view, id)?.world.nonce(address),
    };
    Ok(quantity(nonce).into())
}

pub(super) fn balance(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let (address, id) = (args.at_most(2)?.address(0)?, args.block_id_or_latest(1)?);
    Ok(quantity(existing(view, id)?.world.balance(address)).into())
}

pub(super) fn code(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let (address, id) = (args.at_most(2)?.address(0)?, args.block_id_or_latest(1)?);
    Ok(json(&existing(view, id)?.world.code(address)).into())
}

/// Returns empty data for every call, because there is no EVM.
pub(super) fn call(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    args.at_most(4)?.required(0)?;
    existing(view, args.block_id_or_latest(1)?)?;
    Ok(Bytes::from_static(b"\"0x\""))
}

pub(super) fn estimate_gas(args: &Args<'_>) -> Answer {
    args.at_most(4)?.required(0)?;
    Ok(quantity(GAS_ESTIMATE).into())
}

pub(super) fn gas_price(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    args.none()?;
    Ok(quantity(view.head().next_prices().gas.saturating_add(SUGGESTED_TIP)).into())
}

pub(super) fn max_priority_fee(args: &Args<'_>) -> Answer {
    args.none()?;
    Ok(quantity(SUGGESTED_TIP).into())
}

pub(super) fn fee_history(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let (count, id) = (args.at_most(3)?.quantity(0)?, args.number_id(1)?);
    let percentiles = args.percentiles(2)?;
    let newest = existing(view, if id == BlockId::Pending { BlockId::Latest } else { id })?;
    let count = count.min(MAX_FEE_HISTORY).min(newest.number() + 1);
    if count == 0 {
        return Ok(json(&FeeHistory::default()).into());
    }
    let oldest_block = newest.number() + 1 - count;
    let blocks: Vec<&Arc<Block>> =
        (oldest_block..=newest.number()).filter_map(|number| view.state.tree.at(number)).collect();
    let next = newest.next_prices();
    let history = FeeHistory {
        base_fee_per_gas: blocks.iter().map(|it| it.base_fee()).chain([next.gas]).map(u128::from).collect(),
        gas_used_ratio: blocks.iter().map(|it| ratio(it.header.gas_used, it.header.gas_limit)).collect(),
        base_fee_per_blob_gas: blocks.iter().map(|it| it.blob_fee()).chain([next.blob_gas]).collect(),
        blob_gas_used_ratio: blocks
            .iter()
            .map(|it| ratio(it.header.blob_gas_used.unwrap_or_default(), BLOBS.max_blob_gas_per_block()))
            .collect(),
        oldest_block,
        reward: percentiles.map(|percentiles| blocks.iter().map(|it| rewards(it, &percentiles)).collect()),
    };
    Ok(json(&history).into())
}

/// Returns the tips of a block's transactions at these percentiles of the gas used.
fn rewards(block: &Block, percentiles: &[f64]) -> Vec<u128> {
    let mut tips: Vec<(u128, u64)> = block
        .transactions
        .iter()
        .zip(&block.outcomes)
        .map(|(tx, outcome)| (tx.effective_tip_per_gas(block.base_fee()).unwrap_or(0), outcome.gas_used))
        .collect();
    tips.sort_unstable();
    let at = |percentile: &f64| {
        let threshold = block.header.gas_used as f64 * percentile / 100.0;
        let mut gas = 0.0;
        let reached = tips.iter().find(|(_, used)| {
            gas += *used as f64;
            gas >= threshold
        });
        reached.or(tips.last()).map_or(0, |(tip, _)| *tip)
    };
    percentiles.iter().map(at).collect()
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Returns the block whose state the call reads.
fn existing(view: ClientView<'_>, id: BlockId) -> Result<Arc<Block>, RpcError> {
    view.block(id)?.ok_or_else(|| RpcError::server("header not found"))
}
