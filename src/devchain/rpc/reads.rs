//! Blocks, transactions and receipts.

use super::{
    answer::{Answer, null, quantity},
    args::Args,
};
use crate::devchain::{
    chain::{error::RpcError, view::ClientView, visibility::BlockId},
    content::{
        block::Block,
        render::{json, pending_json},
    },
};
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn block_by_hash(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    args.at_most(2)?;
    let (id, full) = (args.hash_id(0)?, args.flag(1)?);
    Ok(view.block(id)?.map_or_else(null, |block| whole(&block, full)))
}

pub(super) fn block_by_number(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    args.at_most(2)?;
    let (id, full) = (args.number_id(0)?, args.flag(1)?);
    let block = view.block(id)?;
    Ok(block.map_or_else(null, |block| match id {
        BlockId::Pending => unsealed(&block, full),
        _ => whole(&block, full),
    }))
}

/// Returns the receipts of a block. Those of a pending block are unknown, so the answer is `null`.
pub(super) fn block_receipts(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.block_id(0)?;
    let block = view.block(id)?.filter(|_| id != BlockId::Pending);
    Ok(block.map_or_else(null, |block| block.receipts_json()))
}

pub(super) fn transaction_by_hash(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let hash = args.at_most(1)?.hash(0)?;
    let mined = view.find(hash).and_then(|(block, index)| block.transaction_json(index));
    let pending = || view.state.pool.get(hash).map(pending_json);
    Ok(mined.or_else(pending).unwrap_or_else(null))
}

pub(super) fn transaction_receipt(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let hash = args.at_most(1)?.hash(0)?;
    Ok(view.find(hash).and_then(|(block, index)| block.receipt_json(index)).unwrap_or_else(null))
}

pub(super) fn transaction_by_index(view: ClientView<'_>, id: BlockId, args: &Args<'_>) -> Answer {
    let index = usize::try_from(args.at_most(2)?.quantity(1)?).unwrap_or(usize::MAX);
    let found = view.block(id)?.and_then(|block| block.transaction_json(index));
    Ok(found.unwrap_or_else(null))
}

pub(super) fn transaction_count(view: ClientView<'_>, id: BlockId, args: &Args<'_>) -> Answer {
    args.at_most(1)?;
    let block = view.block(id)?;
    block.map_or_else(|| uncounted(view, id), |block| Ok(quantity(block.transactions.len()).into()))
}

/// Returns 0, because there have been no uncles since the merge.
pub(super) fn uncle_count(view: ClientView<'_>, id: BlockId, args: &Args<'_>) -> Answer {
    args.at_most(1)?;
    let block = view.block(id)?;
    block.map_or_else(|| uncounted(view, id), |_| Ok(quantity(0).into()))
}

/// Returns the answer to a request for a count in a block that does not exist.
fn uncounted(view: ClientView<'_>, id: BlockId) -> Answer {
    let head = view.head().number();
    match id {
        BlockId::Number(number) if number > head && view.state.rules.config.range_errors => {
            Err(RpcError::out_of_range(head, number))
        }
        _ => Ok(null()),
    }
}

pub(super) fn block_number(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    args.none()?;
    Ok(quantity(view.head().number()).into())
}

fn whole(block: &Arc<Block>, full: bool) -> Bytes {
    if full { block.full_json() } else { block.hashes_json() }
}

/// Renders a pending block as geth does: members that only a sealed block has are `null`, although `blockHash` of its
/// transactions is the hash that the block would have.
fn unsealed(block: &Arc<Block>, full: bool) -> Bytes {
    let mut value: Value =
        serde_json::from_slice(&whole(block, full)).expect("the block was rendered as JSON just now");
    for member in ["hash", "nonce", "miner"] {
        value[member] = Value::Null;
    }
    json(&value).into()
}
