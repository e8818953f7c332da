//! Access control: keys, rate limits, host names and trusted proxies.

mod crowding;
mod fairness;
mod hosts;
mod keys;
mod rates;
mod rules;

use reqwest::{RequestBuilder, StatusCode};
use serde_json::json;

use crate::support::{
    client::{self, Response},
    proxy::key,
};

const KEY: &str = "hf_5d41402abc4b2a76b9719d911017c5925d41402abc4b2a76b9719d911017c592";
const OTHER: &str = "hf_7d793037a0760186574b0282f2f435e77d793037a0760186574b0282f2f435e7";

fn chain_id(request: RequestBuilder) -> RequestBuilder {
    request.header("content-type", "application/json").body(client::call("eth_chainId"))
}

async fn status(request: RequestBuilder) -> StatusCode {
    Response::of(request).await.status
}

fn refused(reason: &str) -> String {
    format!(r#"holdfast_requests_refused_total{{reason="{reason}"}}"#)
}

fn batch(methods: &[&str]) -> String {
    let calls = methods.iter().zip(0..);
    let calls: Vec<_> = calls
        .map(|(method, id)| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": [] }))
        .collect();
    json!(calls).to_string()
}
