//! Tests of the development chain itself. They check its behaviour by examples.

mod control;
mod faults;
mod methods;
mod sending;
mod truth;
mod wire;

use super::{Config, DevChain, NodeResponse};
use alloy_primitives::B256;
use alloy_rpc_types_eth::{Block, TransactionReceipt};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn chain() -> DevChain {
    DevChain::new(Config::default())
}

fn parse<T: DeserializeOwned>(text: &Bytes) -> T {
    serde_json::from_slice(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

fn full_block(chain: &DevChain, hash: B256) -> Block {
    parse(&chain.block_json(hash, true).unwrap())
}

fn receipts(chain: &DevChain, hash: B256) -> Vec<TransactionReceipt> {
    parse(&chain.receipts_json(hash).unwrap())
}

/// Returns the answer of the node without faults.
fn ask(chain: &DevChain, method: &str, params: impl Serialize) -> Value {
    parse(&chain.answer(method, params).unwrap())
}

fn error_code(chain: &DevChain, method: &str, params: impl Serialize) -> i64 {
    chain.answer(method, params).unwrap_err().code
}

/// Returns the body of a request.
fn request(id: impl Serialize, method: &str, params: impl Serialize) -> Bytes {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().into()
}

/// Sends a request, to which faults apply, and returns the JSON of the reply.
async fn post(chain: &DevChain, method: &str, params: impl Serialize) -> Value {
    match chain.serve(request(1, method, params)).await {
        NodeResponse::Reply { status: 200, body, .. } => parse(&body),
        other => panic!("{method} got {other:?}"),
    }
}
