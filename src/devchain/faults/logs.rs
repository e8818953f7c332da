//! Untrue answers to `eth_getLogs`.

use super::fault::Lie;
use crate::devchain::{
    chain::{state::State, view::ClientView},
    content::{dice::Dice, render::json},
    rpc::{args::Args, logs::blocks, methods::call},
};
use alloy_primitives::Bytes as Data;
use alloy_rpc_types_eth::{Filter, Log};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Returns whether a lie changes only answers to `eth_getLogs`.
pub(in crate::devchain) const fn is_about_logs(lie: &Lie) -> bool {
    matches!(lie, Lie::MissingLog(_) | Lie::AddedLog { .. } | Lie::ShuffledLogs(_) | Lie::LaggingLogs(_))
}

/// Returns the answer that `lie` makes of `truth`, the answer to `eth_getLogs` with these arguments; `None` if the lie
/// cannot change the answer.
pub(in crate::devchain) fn tell(
    state: &mut State,
    lie: &Lie,
    truth: &Bytes,
    params: Option<&RawValue>,
) -> Option<Bytes> {
    let mut logs: Vec<Log> = serde_json::from_slice(truth).ok()?;
    match lie {
        Lie::MissingLog(choice) => drop(logs.remove(chosen(*choice, logs.len())?)),
        Lie::AddedLog { choice, altered } => {
            let filter = Args::parse(params).ok()?.log_filter(0).ok()?;
            let mut log = added(ClientView::new(state), &filter, &logs, *choice)?;
            if *altered {
                log.inner.data.data = changed(&log.inner.data.data);
            }
            let place = |log: &Log| (log.block_number, log.log_index);
            let at = logs.partition_point(|other| place(other) <= place(&log));
            logs.insert(at, log);
        }
        Lie::ShuffledLogs(choice) => shuffle(&mut logs, *choice),
        Lie::LaggingLogs(lag) => return Some(lagging(state, *lag, params)),
        _ => return None,
    }
    Some(json(&logs).into())
}

fn chosen(choice: u64, count: usize) -> Option<usize> {
    usize::try_from(choice.checked_rem(count as u64)?).ok()
}

/// Returns a copy of a log from elsewhere that could be one of `logs`.
fn added(view: ClientView<'_>, filter: &Filter, logs: &[Log], choice: u64) -> Option<Log> {
    let tree = &view.state.tree;
    let canonical = (0..=view.head().number()).filter_map(|number| tree.at(number));
    let mut others: Vec<_> = canonical
        .chain(tree.orphans())
        .flat_map(|block| block.logs())
        .filter(|log| filter.matches(&log.inner) && !logs.contains(log))
        .collect();
    if others.is_empty() {
        others = logs.to_vec();
    }
    let mut log = others.swap_remove(chosen(choice, others.len())?);
    let hosts = blocks(view, filter).ok()?;
    let is_orphaned =
        hosts.iter().any(|host| Some(host.number()) == log.block_number) && !logs.contains(&log);
    if is_orphaned {
        return Some(log);
    }
    let hosts: Vec<_> = hosts.into_iter().filter(|host| !host.transactions.is_empty()).collect();
    let host = &hosts[chosen(choice / 7, hosts.len())?];
    log.block_hash = Some(host.hash());
    log.block_number = Some(host.number());
    log.block_timestamp = Some(host.header.timestamp);
    log.transaction_hash = host.transactions.last().map(|tx| *tx.tx_hash());
    log.transaction_index = Some(host.transactions.len() as u64 - 1);
    log.log_index = Some(host.logs().len() as u64);
    Some(log)
}

/// Returns other data of at least the same length.
fn changed(data: &Data) -> Data {
    let mut data = data.to_vec();
    match data.last_mut() {
        Some(last) => *last ^= 1,
        None => data.push(1),
    }
    data.into()
}

/// Changes the order. Two or more logs never stay in order.
fn shuffle(logs: &mut [Log], choice: u64) {
    let before = logs.to_vec();
    let mut dice = Dice::new(choice, "shuffle", 0);
    for last in (1..logs.len()).rev() {
        let other = usize::try_from(dice.below(last as u64 + 1)).unwrap_or(last);
        logs.swap(last, other);
    }
    if logs == before && logs.len() > 1 {
        logs.rotate_left(1);
    }
}

/// Returns the answer with a head that is `blocks` lower. An unknown block has no logs.
fn lagging(state: &mut State, blocks: u64, params: Option<&RawValue>) -> Bytes {
    let lag = state.visibility.lag;
    state.visibility.lag = lag.saturating_add(blocks);
    let told = call(state, "eth_getLogs", params);
    state.visibility.lag = lag;
    told.unwrap_or(Bytes::from_static(b"[]"))
}
