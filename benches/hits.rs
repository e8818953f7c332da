//! Runs cache hits through the HTTP service, so that `benches/instructions` can count instructions: `hits CASE COUNT`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../tests/it/support/in_memory.rs"]
mod in_memory;

use std::time::Duration;

use bytes::{Buf, Bytes};
use holdfast::{
    config::Config,
    devchain::{self, DevChain},
};
use http_body_util::BodyExt;
use tokio::runtime::Runtime;

use self::in_memory::InMemory;

fn call(id: usize, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":[{params}]}}"#)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [case, count] = &arguments[..] else {
        println!("usage: hits tx|receipt|hashes|block|batch COUNT (see benches/instructions)");
        return;
    };
    let count: usize = count.parse().unwrap();
    let chain = DevChain::new(devchain::Config::default());
    let hash = chain.mine(200).hash;
    // Mines until the block is final, more than an hour below the finalized block.
    chain.mine_many(400, 0);
    let transactions: Vec<String> =
        chain.transactions_of(hash).iter().map(|hash| format!(r#""{hash:#x}""#)).collect();
    let body = |at: usize| {
        let transaction = &transactions[at % transactions.len()];
        let id = 1_000_000 + at;
        match case.as_str() {
            "tx" => call(id, "eth_getTransactionByHash", transaction),
            "receipt" => call(id, "eth_getTransactionReceipt", transaction),
            "hashes" => call(id, "eth_getBlockByNumber", r#""0x1",false"#),
            "block" => call(id, "eth_getBlockByHash", &format!(r#""{hash:#x}",true"#)),
            "batch" => {
                let entry =
                    |(to, hash): (usize, &String)| call(id * 100 + to, "eth_getTransactionByHash", hash);
                format!(
                    "[{}]",
                    transactions.iter().enumerate().take(100).map(entry).collect::<Vec<_>>().join(",")
                )
            }
            other => panic!("no such case: {other}"),
        }
    };
    // The bodies are built in advance, and their number is the same in every run, so that the count does not include
    // building them.
    let bodies: Vec<Bytes> = (0..64).map(|at| body(at).into()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let program = runtime.block_on(async {
        let mut config = Config::default();
        // Under Valgrind the program is slow, so with the default the count would include refreshes of the head.
        config.chain.max_staleness = Duration::from_secs(3600);
        let program = in_memory::program(&chain, &config);
        for warm in [
            call(3, "eth_getBlockByNumber", r#""latest",false"#),
            call(4, "eth_getBlockByNumber", r#""finalized",false"#),
            call(1, "eth_getBlockByNumber", r#""0x1",true"#),
            call(2, "eth_getBlockReceipts", r#""0x1""#),
            body(0),
        ] {
            program.send(warm).await;
        }
        program
    });
    run_hits(&runtime, &program, &bodies, count);
}

/// The counted function. `benches/instructions` refers to it by name and counts only its instructions, because the
/// proof threads spin while they wait and would add random counts.
#[inline(never)]
fn run_hits(runtime: &Runtime, program: &InMemory, bodies: &[Bytes], count: usize) {
    runtime.block_on(async {
        for at in 0..count {
            let response = program.respond_raw(bodies[at % bodies.len()].clone(), None).await;
            let status = response.headers()["cache-status"].to_str().unwrap();
            assert!(status.contains("hit") && !status.contains("miss"), "{status}");
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let Ok(mut rope) = frame.unwrap().into_data() else { continue };
                // Consumes the body as a socket does, without a copy.
                rope.advance(rope.remaining());
            }
        }
    });
}
