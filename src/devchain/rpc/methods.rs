//! The methods of the node, answered as geth would.

use super::{
    answer::{Answer, quantity},
    args::Args,
    filters, logs, raw, reads, wallet,
};
use crate::devchain::chain::{error::RpcError, state::State, view::ClientView};
use bytes::Bytes;
use serde_json::value::RawValue;

/// Answers one call.
pub(in crate::devchain) fn call(state: &mut State, method: &str, params: Option<&RawValue>) -> Answer {
    let args = Args::parse(params)?;
    let view = ClientView::new(state);
    match method {
        "eth_getBlockByHash" => reads::block_by_hash(view, &args),
        "eth_getBlockByNumber" => reads::block_by_number(view, &args),
        "eth_getBlockReceipts" => reads::block_receipts(view, &args),
        "eth_getTransactionByHash" => reads::transaction_by_hash(view, &args),
        "eth_getTransactionByBlockHashAndIndex" => reads::transaction_by_index(view, args.hash_id(0)?, &args),
        "eth_getTransactionByBlockNumberAndIndex" => {
            reads::transaction_by_index(view, args.number_id(0)?, &args)
        }
        "eth_getTransactionReceipt" => reads::transaction_receipt(view, &args),
        "eth_getBlockTransactionCountByHash" => reads::transaction_count(view, args.hash_id(0)?, &args),
        "eth_getBlockTransactionCountByNumber" => reads::transaction_count(view, args.number_id(0)?, &args),
        "eth_getUncleCountByBlockHash" => reads::uncle_count(view, args.hash_id(0)?, &args),
        "eth_getUncleCountByBlockNumber" => reads::uncle_count(view, args.number_id(0)?, &args),
        "eth_getHeaderByHash" => raw::header_json(view, args.hash_id(0)?, &args),
        "eth_getHeaderByNumber" => raw::header_json(view, args.number_id(0)?, &args),
        "debug_getRawHeader" => raw::header(view, &args),
        "debug_getRawBlock" => raw::block(view, &args),
        "debug_getRawReceipts" => raw::receipts(view, &args),
        "debug_getRawTransaction" | "eth_getRawTransactionByHash" => raw::transaction_by_hash(view, &args),
        "eth_getRawTransactionByBlockHashAndIndex" => {
            raw::transaction_by_index(view, args.hash_id(0)?, &args)
        }
        "eth_getRawTransactionByBlockNumberAndIndex" => {
            raw::transaction_by_index(view, args.number_id(0)?, &args)
        }
        "eth_blockNumber" => reads::block_number(view, &args),
        "eth_chainId" => constant(&args, quantity(state.rules.config.chain_id)),
        "net_version" => constant(&args, format!("\"{}\"", state.rules.config.chain_id)),
        "web3_clientVersion" => {
            constant(&args, concat!("\"holdfast-devchain/", env!("CARGO_PKG_VERSION"), "\""))
        }
        "eth_syncing" => constant(&args, "false"),
        "eth_accounts" => constant(&args, "[]"),
        "eth_sendRawTransaction" => wallet::send_raw_transaction(state, &args),
        "eth_getTransactionCount" => wallet::transaction_count(view, &args),
        "eth_getBalance" => wallet::balance(view, &args),
        "eth_getCode" => wallet::code(view, &args),
        "eth_call" => wallet::call(view, &args),
        "eth_estimateGas" => wallet::estimate_gas(&args),
        "eth_gasPrice" => wallet::gas_price(view, &args),
        "eth_maxPriorityFeePerGas" => wallet::max_priority_fee(&args),
        "eth_feeHistory" => wallet::fee_history(view, &args),
        "eth_getLogs" => logs::logs(view, &args),
        "eth_newBlockFilter" => filters::new_block_filter(state, &args),
        "eth_newPendingTransactionFilter" => filters::new_pending_filter(state, &args),
        "eth_newFilter" => filters::new_log_filter(state, &args),
        "eth_getFilterChanges" => filters::changes(state, &args),
        "eth_getFilterLogs" => filters::logs(state, &args),
        "eth_uninstallFilter" => filters::uninstall(state, &args),
        _ => Err(RpcError::method_not_found(method)),
    }
}

/// Returns a constant answer; the method takes no arguments.
fn constant(args: &Args<'_>, text: impl Into<Bytes>) -> Answer {
    args.none()?;
    Ok(text.into())
}
