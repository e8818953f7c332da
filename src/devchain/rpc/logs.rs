//! Logs that match a filter.

use super::{answer::Answer, args::Args};
use crate::devchain::{
    chain::{error::RpcError, view::ClientView, visibility::BlockId},
    content::{block::Block, render::json},
};
use alloy_primitives::B256;
use alloy_rpc_types_eth::{BlockNumberOrTag, Filter, FilterBlockOption, Log};
use std::sync::Arc;

pub(super) fn logs(view: ClientView<'_>, args: &Args<'_>) -> Answer {
    matching(view, &args.at_most(1)?.log_filter(0)?)
}

/// Returns the logs that match the filter.
pub(super) fn matching(view: ClientView<'_>, filter: &Filter) -> Answer {
    let blocks = blocks(view, filter)?;
    let logs: Vec<Log> =
        blocks.iter().flat_map(|block| block.logs()).filter(|log| filter.matches(&log.inner)).collect();
    Ok(json(&logs).into())
}

/// Returns the blocks that the filter names: one block by its hash, or a range, by default the latest block.
pub(in crate::devchain) fn blocks(
    view: ClientView<'_>,
    filter: &Filter,
) -> Result<Vec<Arc<Block>>, RpcError> {
    match filter.block_option {
        FilterBlockOption::AtBlockHash(hash) => {
            let block = view.block(BlockId::Hash { hash, canonical_only: false })?;
            Ok(vec![block.ok_or_else(|| RpcError::server("unknown block"))?])
        }
        FilterBlockOption::Range { from_block, to_block } => {
            let first = number(view, from_block.unwrap_or_default())?;
            let last = number(view, to_block.unwrap_or_default())?;
            if first > last {
                return Err(RpcError::invalid_params("invalid block range params"));
            }
            let blocks =
                (first..=last.min(view.head().number())).map(|number| view.block(BlockId::Number(number)));
            blocks.filter_map(Result::transpose).collect()
        }
    }
}

/// Returns the logs since the head was `seen`. After a reorg, the logs of the orphaned blocks come first, marked as
/// removed.
pub(super) fn since(view: ClientView<'_>, filter: &Filter, seen: B256) -> Vec<Log> {
    let (orphaned, new) = view.branches_since(seen);
    let mark = |removed: bool| move |log: Log| Log { removed, ..log };
    let removed = orphaned.into_iter().flat_map(|block| block.logs()).map(mark(true));
    let added = new.into_iter().flat_map(|block| block.logs()).map(mark(false));
    removed.chain(added).filter(|log| filter.rpc_matches(log)).collect()
}

/// Returns the number of the block that a bound of a range names. A number may be above the head.
fn number(view: ClientView<'_>, bound: BlockNumberOrTag) -> Result<u64, RpcError> {
    let id = match bound {
        BlockNumberOrTag::Number(number) => return Ok(number),
        BlockNumberOrTag::Latest => BlockId::Latest,
        BlockNumberOrTag::Safe => BlockId::Safe,
        BlockNumberOrTag::Finalized => BlockId::Finalized,
        BlockNumberOrTag::Earliest => BlockId::Earliest,
        BlockNumberOrTag::Pending => return Err(RpcError::server("pending logs are not supported")),
    };
    let block = view.block(id)?.ok_or_else(|| RpcError::server("unknown block"))?;
    Ok(block.number())
}
