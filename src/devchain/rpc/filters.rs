//! Filters, which a client installs once and then polls for changes.

use super::{
    answer::{Answer, quantity},
    args::Args,
    logs,
};
use crate::devchain::{
    chain::{error::RpcError, filters::Filter, state::State, view::ClientView},
    content::render::json,
};
use alloy_primitives::{B256, TxHash};

pub(super) fn new_block_filter(state: &mut State, args: &Args<'_>) -> Answer {
    args.none()?;
    let head = ClientView::new(state).head().hash();
    Ok(quantity(state.filters.install(Filter::Blocks(head))).into())
}

pub(super) fn new_pending_filter(state: &mut State, args: &Args<'_>) -> Answer {
    args.at_most(1)?;
    let waiting = waiting(ClientView::new(state));
    Ok(quantity(state.filters.install(Filter::Pending(waiting))).into())
}

pub(super) fn new_log_filter(state: &mut State, args: &Args<'_>) -> Answer {
    let filter = Box::new(args.at_most(1)?.log_filter(0)?);
    let head = ClientView::new(state).head().hash();
    Ok(quantity(state.filters.install(Filter::Logs(filter, head))).into())
}

/// Returns the changes since the last poll.
pub(super) fn changes(state: &mut State, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.filter(0)?;
    let view = ClientView::new(state);
    let (filter, changes) = match state.filters.installed.get(&id).ok_or_else(not_found)? {
        Filter::Blocks(seen) => (Filter::Blocks(view.head().hash()), json(&blocks_after(view, *seen))),
        Filter::Pending(seen) => {
            let waiting = waiting(view);
            let new: Vec<_> = waiting.iter().filter(|hash| !seen.contains(hash)).collect();
            let changes = json(&new);
            (Filter::Pending(waiting), changes)
        }
        Filter::Logs(filter, seen) => {
            let changes = json(&logs::since(view, filter, *seen));
            (Filter::Logs(filter.clone(), view.head().hash()), changes)
        }
    };
    state.filters.installed.insert(id, filter);
    Ok(changes.into())
}

/// Returns the logs that a filter matches. For a filter of another kind, answers "filter not found" as geth does.
pub(super) fn logs(state: &State, args: &Args<'_>) -> Answer {
    match state.filters.installed.get(&args.at_most(1)?.filter(0)?) {
        Some(Filter::Logs(filter, _)) => logs::matching(ClientView::new(state), filter),
        Some(Filter::Blocks(_) | Filter::Pending(_)) | None => Err(not_found()),
    }
}

pub(super) fn uninstall(state: &mut State, args: &Args<'_>) -> Answer {
    let id = args.at_most(1)?.filter(0)?;
    Ok(json(&state.filters.installed.remove(&id).is_some()).into())
}

fn not_found() -> RpcError {
    RpcError::server("filter not found")
}

fn waiting(view: ClientView<'_>) -> Vec<TxHash> {
    view.state.pool.transactions().iter().map(|tx| *tx.tx_hash()).collect()
}

/// Returns the canonical blocks after `seen`; after a reorg, the blocks of the new branch.
fn blocks_after(view: ClientView<'_>, seen: B256) -> Vec<B256> {
    view.branches_since(seen).1.iter().map(|block| block.hash()).collect()
}
