//! Blocks, receipts and transactions in the form of the network.

use super::{
    answer::{Answer, null},
    args::Args,
};
use crate::devchain::{
    chain::{error::RpcError, view::ClientView, visibility::BlockId},
    content::render::json,
};
use alloy_consensus::TxEnvelope;
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::hex;
use bytes::Bytes;

pub(super) fn header_json(view: ClientView<'_>, id: BlockId, args: &Args<'_>) -> Answer {
    args.at_most(1)?;
    Ok(view.block(id)?.map_or_else(null, |block| block.header_json().into()))
}

pub(super) fn header(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.block_id(0)?;
    Ok(hex(&view.block(id)?.map(|block| block.header_rlp()).unwrap_or_default()))
}

pub(super) fn block(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.block_id(0)?;
    let block = view.block(id)?.ok_or_else(|| RpcError::server("block not found"))?;
    Ok(hex(&block.rlp()))
}

pub(super) fn receipts(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.block_id(0)?;
    let texts = |receipts: Vec<Vec<u8>>| receipts.iter().map(hex::encode_prefixed).collect::<Vec<_>>();
    Ok(view.block(id)?.map_or_else(null, |block| json(&texts(block.encoded_receipts())).into()))
}

pub(super) fn transaction_by_hash(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    let hash = args.at_most(1)?.hash(0)?;
    let mined = view.find(hash).map(|(block, index)| block.transactions[index].clone());
    Ok(transaction(mined.or_else(|| view.state.pool.get(hash).cloned()).as_ref().map(|tx| tx.inner())))
}

pub(super) fn transaction_by_index(view: ClientView<'_>, id: BlockId, args: &Args<'_>) -> Answer {
    let index = usize::try_from(args.at_most(2)?.quantity(1)?).unwrap_or(usize::MAX);
    let block = view.block(id)?;
    Ok(transaction(block.as_ref().and_then(|block| block.transactions.get(index)).map(|tx| tx.inner())))
}

/// Renders a transaction; `0x` if there is none.
fn transaction(tx: Option<&TxEnvelope>) -> Bytes {
    hex(&tx.map(Encodable2718::encoded_2718).unwrap_or_default())
}

fn hex(bytes: &[u8]) -> Bytes {
    format!("\"{}\"", hex::encode_prefixed(bytes)).into()
}
