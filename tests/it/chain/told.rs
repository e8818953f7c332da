//! Blocks above the head that clients were told of: later calls see them, too.

use holdfast::{config::Config, devchain::DevChain};
use serde_json::{Value, json};

use crate::support::{
    in_memory::{self, InMemory},
    method::{BLOCK_BY_NUMBER, RECEIPT, TRANSACTION},
    nodes::hex,
    upstream,
};

/// Returns a proxy that knows the head of a chain, which then has one more block with transactions.
async fn behind_by_one() -> (DevChain, InMemory) {
    let chain = upstream::devchain().blocks(10, 3).chain();
    let program = in_memory::program(&chain, &Config::default());
    program.ask("eth_blockNumber", json!([])).await;
    chain.mine(3);
    (chain, program)
}

/// Checks that a client can read the head of the node by its number.
async fn head_is_shown(chain: &DevChain, program: &InMemory, what: &str) {
    let head = chain.head();
    let block = program.ask(BLOCK_BY_NUMBER, json!([hex(head.number), false])).await;
    assert_eq!(block["hash"], hex(head.hash), "{what}");
    assert_eq!(program.ask("eth_blockNumber", json!([])).await, hex(head.number), "{what}");
}

fn transaction(chain: &DevChain) -> String {
    hex(chain.transactions_of(chain.head().hash)[0])
}

#[tokio::test(start_paused = true)]
async fn block_of_an_answer_can_be_read() {
    type Params<'a> = &'a dyn Fn(&DevChain) -> Value;
    let calls: [(&str, Params<'_>); 3] = [
        (RECEIPT, &|chain| json!([transaction(chain)])),
        (TRANSACTION, &|chain| json!([transaction(chain)])),
        ("eth_getLogs", &|chain| json!([{ "fromBlock": "0x5", "toBlock": hex(chain.head().number) }])),
    ];
    for (method, params) in calls {
        let (chain, program) = behind_by_one().await;
        let answer = program.ask(method, params(&chain)).await;
        let named = answer.as_array().map_or(&answer, |logs| logs.last().unwrap());
        assert_eq!(named["blockHash"], hex(chain.head().hash), "{method}");
        head_is_shown(&chain, &program, method).await;
    }
}
