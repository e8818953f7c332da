//! Tests with a real node: every answer through the proxy equals the direct answer of the node.

use serde_json::{Value, json};

use crate::support::{
    anvil::{Anvil, SENDER},
    client::{self, Client},
    eventually,
    program::succeed,
    proxy, tools,
};

async fn value(client: &Client, method: &str, params: Value) -> Value {
    serde_json::from_str(&client.ask(method, params).await.unwrap()).unwrap()
}

async fn height(node: &Client) -> u64 {
    let head = value(node, "eth_blockNumber", json!([])).await;
    u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// Mines transfers, a contract creation, and a few empty blocks.
async fn make_history(node: &Client) {
    for count in 0..5 {
        let transfer =
            json!([{ "from": SENDER, "to": format!("0x{:040x}", 0x1000 + count), "value": "0x1" }]);
        value(node, "eth_sendTransaction", transfer).await;
    }
    // Creates a contract of one byte: PUSH1 1 PUSH1 0 RETURN.
    value(
        node,
        "eth_sendTransaction",
        json!([{ "from": SENDER, "data": "0x60016000f3", "gas": "0x100000" }]),
    )
    .await;
    value(node, "anvil_mine", json!(["0x5"])).await;
}

async fn questions(node: &Client) -> Vec<(&'static str, Value)> {
    let mut questions = vec![
        ("eth_chainId", json!([])),
        ("net_version", json!([])),
        ("web3_clientVersion", json!([])),
        ("eth_blockNumber", json!([])),
        ("eth_getBalance", json!([SENDER, "latest"])),
        ("eth_getTransactionCount", json!([SENDER, "latest"])),
        ("eth_gasPrice", json!([])),
        ("eth_feeHistory", json!(["0x4", "latest", [10, 50]])),
        ("eth_getLogs", json!([{ "fromBlock": "0x0", "toBlock": "latest" }])),
        ("eth_call", json!([{ "to": SENDER, "data": "0x" }, "latest"])),
        ("eth_noSuchMethod", json!([])),
        ("eth_getBalance", json!(["nonsense"])),
    ];
    for tag in ["latest", "safe", "finalized", "earliest"] {
        questions.push(("eth_getBlockByNumber", json!([tag, false])));
        questions.push(("eth_getTransactionByBlockNumberAndIndex", json!([tag, "0x0"])));
    }
    for number in 0..=height(node).await + 1 {
        let number = format!("{number:#x}");
        let block = value(node, "eth_getBlockByNumber", json!([number, false])).await;
        for full in [true, false] {
            questions.push(("eth_getBlockByNumber", json!([number, full])));
            if let Some(hash) = block["hash"].as_str() {
                questions.push(("eth_getBlockByHash", json!([hash, full])));
                questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x0"])));
                questions.push(("eth_getTransactionByBlockHashAndIndex", json!([hash, "0x63"])));
            }
        }
        questions.push(("eth_getTransactionByBlockNumberAndIndex", json!([number, "0x0"])));
        questions.push(("eth_getBlockReceipts", json!([number])));
        for transaction in block["transactions"].as_array().into_iter().flatten() {
            questions.push(("eth_getTransactionByHash", json!([transaction])));
            questions.push(("eth_getTransactionReceipt", json!([transaction])));
        }
    }
    questions
}

#[tokio::test]
async fn answers_of_a_real_node_are_passed_on_byte_for_byte() {
    let Some(binary) = tools::anvil("answers_of_a_real_node_are_passed_on_byte_for_byte") else { return };
    for arguments in [&[][..], &["--chain-id", "4242"], &["--hardfork", "london"]] {
        let node = Anvil::start(binary.clone(), arguments).await;
        let proxy = proxy::new().upstream_url(node.url()).run().await;
        let (direct, through) = (client::at(node.url()), client::http(&proxy));
        make_history(&direct).await;

        let questions = questions(&direct).await;
        assert!(questions.len() > 100, "{}", questions.len());
        for (method, params) in questions {
            let expected = direct.ask(method, params.clone()).await;
            assert_eq!(
                through.ask(method, params.clone()).await,
                expected,
                "{method} {params} {arguments:?}"
            );
        }
    }
}

/// A node that changes, and clients that call it directly and through the proxy.
struct Changing {
    /// Client through which the test changes the node.
    hand: Client,
    direct: Client,
    through: Client,
    /// All transactions so far, including dropped ones.
    transactions: Vec<Value>,
}

// === impl Changing ===

impl Changing {
    /// Makes a change, and then compares every answer with the node's own twice, so that the second answer can come
    /// from the cache.
    async fn change(&mut self, method: &str, params: Value) -> Value {
        let result = value(&self.hand, method, params.clone()).await;
        let mut questions = questions(&self.direct).await;
        for (_, params) in questions.iter().filter(|(method, _)| *method == "eth_getTransactionReceipt") {
            if !self.transactions.contains(&params[0]) {
                self.transactions.push(params[0].clone());
            }
        }
        for transaction in &self.transactions {
            questions.push(("eth_getTransactionByHash", json!([transaction])));
            questions.push(("eth_getTransactionReceipt", json!([transaction])));
        }
        for _ in 0..2 {
            for (asked, of) in &questions {
                let expected = self.direct.ask(asked, of.clone()).await;
                let answer = self.through.ask(asked, of.clone()).await;
                assert_eq!(answer, expected, "{asked} {of} after {method} {params}");
            }
        }
        result
    }

    /// Sends a transaction and waits until the node has mined it.
    async fn send(&mut self, to: u64) {
        self.transactions.push(transfer(&self.hand, &self.direct, to).await);
    }

    async fn change_everything(&mut self) {
        for to in 0x2000..0x2006 {
            self.send(to).await;
        }
        self.change("evm_mine", json!([])).await;
        self.change("anvil_mine", json!(["0x8"])).await;
        self.send(0x3000).await;
        self.send(0x3001).await;
        self.change("evm_mine", json!([])).await;

        // Replaces the newest blocks by empty blocks, and then by a block with another transaction.
        self.change("anvil_reorg", json!([3, []])).await;
        self.send(0x3002).await;
        let other = json!([{ "from": SENDER, "to": format!("0x{:040x}", 0x3003), "value": "0x2" }, 0]);
        self.change("anvil_reorg", json!([2, [other]])).await;
        // This reorg goes below the finalized block.
        self.change("anvil_reorg", json!([12, []])).await;

        let snapshot = self.change("evm_snapshot", json!([])).await;
        self.send(0x4000).await;
        self.send(0x4001).await;
        self.change("anvil_mine", json!(["0x2"])).await;
        self.change("evm_revert", json!([snapshot])).await;
        // The chain reaches the same numbers with other blocks.
        self.send(0x4002).await;
        self.change("evm_mine", json!([])).await;

        self.change("anvil_rollback", json!([2])).await;
        self.send(0x5000).await;
        self.change("anvil_mine", json!(["0x3"])).await;
        self.change("anvil_rollback", json!([10])).await;
        self.change("evm_mine", json!([])).await;
    }
}

#[tokio::test]
async fn development_node_may_be_changed_without_the_proxy() {
    let Some(binary) = tools::anvil("development_node_may_be_changed_without_the_proxy") else {
        return;
    };
    let node = Anvil::start(binary, &["--slots-in-an-epoch", "4"]).await;
    let proxy = proxy::new().upstream_url(node.url()).run().await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let hand = direct.clone();
    Changing { hand, direct, through, transactions: Vec::new() }.change_everything().await;
}

#[tokio::test]
async fn any_node_may_be_changed_through_the_proxy() {
    let Some(binary) = tools::anvil("any_node_may_be_changed_through_the_proxy") else { return };
    let node = Anvil::start(binary, &["--chain-id", "4242", "--slots-in-an-epoch", "4"]).await;
    let development = ["evm_*", "anvil_*"].map(str::to_owned);
    let proxy = proxy::new()
        .upstream_url(node.url())
        .config(|config| config.methods.allow.extend(development))
        .run()
        .await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let hand = through.clone();
    Changing { hand, direct, through, transactions: Vec::new() }.change_everything().await;
    // The cache has answered many of the calls for receipts.
    let mut hits = 0;
    for outcome in ["hit", "derived"] {
        let labels = format!(r#"method="eth_getTransactionReceipt",outcome="{outcome}""#);
        hits += proxy.metric(&format!("holdfast_calls_total{{{labels}}}")).await;
    }
    assert!(hits > 100, "{hits}");
}

/// After a snapshot, a reorg below it and a revert, anvil mines on a parent that it no longer shows.
#[tokio::test]
async fn blocks_that_do_not_link_are_answered_as_by_the_node() {
    let Some(binary) = tools::anvil("blocks_that_do_not_link_are_answered_as_by_the_node") else { return };
    for arguments in [&[][..], &["--chain-id", "4242"]] {
        let node = Anvil::start(binary.clone(), arguments).await;
        let development = ["evm_*", "anvil_*"].map(str::to_owned);
        let proxy = proxy::new()
            .upstream_url(node.url())
            .config(|config| {
                config.methods.allow.extend(development);
                // On a development chain, the endpoint need not be `consistent`.
                config.upstream.endpoints[0].consistent = !arguments.is_empty();
            })
            .run()
            .await;
        let (direct, through) = (client::at(node.url()), client::http(&proxy));
        let hand = through.clone();
        let mut changing = Changing { hand, direct, through, transactions: Vec::new() };
        for to in 0xa000..0xa004 {
            changing.send(to).await;
        }
        let snapshot = value(&changing.hand, "evm_snapshot", json!([])).await;
        changing.change("anvil_mine", json!(["0x2"])).await;
        changing.change("anvil_reorg", json!([4, []])).await;
        let _ = changing.hand.ask("evm_revert", json!([snapshot])).await;
        changing.send(0xa010).await;
        changing.change("evm_mine", json!([])).await;
        let block =
            async |number| value(&changing.direct, "eth_getBlockByNumber", json!([number, false])).await;
        assert_ne!(block("0x5").await["parentHash"], block("0x4").await["hash"], "the blocks do not link");
    }
}

/// Makes all calls about these blocks and transactions through the proxy, and compares with the node's own answers.
async fn all_agree(direct: &Client, through: &Client, numbers: u64, transactions: &[Value]) {
    for number in 0..=numbers {
        let number = format!("{number:#x}");
        for full in [true, false] {
            let params = json!([number, full]);
            let expected = direct.ask("eth_getBlockByNumber", params.clone()).await;
            assert!(through.ask("eth_getBlockByNumber", params).await == expected, "block {number}");
        }
    }
    for hash in transactions {
        for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
            let expected = direct.ask(method, json!([hash])).await;
            assert!(through.ask(method, json!([hash])).await == expected, "{method} {hash}");
        }
    }
}

/// Sends a transaction through `hand` and waits until the node has mined it. The node may answer before it mines.
async fn transfer(hand: &Client, node: &Client, to: u64) -> Value {
    let transfer = json!([{ "from": SENDER, "to": format!("0x{to:040x}"), "value": "0x1" }]);
    let hash = value(hand, "eth_sendTransaction", transfer).await;
    eventually("the transaction is mined", async || {
        !value(node, "eth_getTransactionReceipt", json!([hash])).await.is_null()
    })
    .await;
    hash
}

#[tokio::test]
async fn node_that_reverts_below_its_finalized_block_is_followed() {
    let Some(binary) = tools::anvil("node_that_reverts_below_its_finalized_block_is_followed") else {
        return;
    };
    let node = Anvil::start(binary, &["--chain-id", "5555", "--slots-in-an-epoch", "1"]).await;
    let proxy = proxy::new().upstream_url(node.url()).consistent().run().await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let snapshot = value(&direct, "evm_snapshot", json!([])).await;
    let mut transactions = Vec::new();
    for to in 0x6000..0x6014 {
        transactions.push(transfer(&direct, &direct, to).await);
    }
    value(&through, "eth_getBlockByNumber", json!(["finalized", false])).await;
    all_agree(&direct, &through, 21, &transactions).await;
    // Without the proxy's knowledge, the node returns to the snapshot and continues with another branch.
    value(&direct, "evm_revert", json!([snapshot])).await;
    for to in 0x7000..0x7005 {
        transactions.push(transfer(&direct, &direct, to).await);
    }
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(value(&through, "eth_blockNumber", json!([])).await, "0x5");
    all_agree(&direct, &through, 21, &transactions).await;
}

#[tokio::test]
async fn transaction_mined_twice_is_answered_as_by_the_node() {
    let Some(binary) = tools::anvil("transaction_mined_twice_is_answered_as_by_the_node") else { return };
    let node = Anvil::start(binary, &[]).await;
    let proxy = proxy::new().upstream_url(node.url()).run().await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let first = transfer(&direct, &direct, 0x8000).await;
    all_agree(&direct, &through, 1, std::slice::from_ref(&first)).await;
    value(&direct, "anvil_setNonce", json!([SENDER, "0x0"])).await;
    let fees = value(&direct, "eth_getTransactionByHash", json!([first])).await;
    let again = json!([{
        "from": SENDER, "to": format!("0x{:040x}", 0x8000), "value": "0x1", "nonce": "0x0", "gas": fees["gas"],
        "maxFeePerGas": fees["maxFeePerGas"], "maxPriorityFeePerGas": fees["maxPriorityFeePerGas"],
    }]);
    let second = value(&direct, "eth_sendTransaction", again).await;
    assert_eq!(first, second, "the very same transaction");
    eventually("the transaction is mined again", async || {
        value(&direct, "eth_getTransactionReceipt", json!([first])).await["blockNumber"] == "0x2"
    })
    .await;
    all_agree(&direct, &through, 2, &[first]).await;
}

#[tokio::test]
async fn development_node_may_change_its_chain_id() {
    let Some(binary) = tools::anvil("development_node_may_change_its_chain_id") else { return };
    let node = Anvil::start(binary, &[]).await;
    let proxy = proxy::new().upstream_url(node.url()).run().await;
    let (direct, through) = (client::at(node.url()), client::http(&proxy));
    let hash = transfer(&direct, &direct, 0x9000).await;
    for (hand, id) in [(&direct, 1337_u64), (&through, 31337), (&direct, 4243)] {
        assert_ne!(value(&through, "eth_chainId", json!([])).await, format!("{id:#x}"));
        value(hand, "anvil_setChainId", json!([id])).await;
        assert_eq!(value(&through, "eth_chainId", json!([])).await, format!("{id:#x}"));
        all_agree(&direct, &through, 2, std::slice::from_ref(&hash)).await;
    }
}

#[tokio::test]
async fn website_cannot_spend_unlocked_accounts() {
    const TEST: &str = "node::website_cannot_spend_unlocked_accounts";
    let (Some(binary), Some(browser)) = (tools::anvil(TEST), tools::chromium(TEST)) else { return };
    let Some(mut command) = tools::node_script(TEST, "playwright-core", "website.mjs") else { return };
    let node = Anvil::start(binary, &[]).await;
    // A web page may not call these methods even though the operator allows them.
    let allowed = ["eth_*", "net_*", "web3_*", "anvil_*", "personal_*"].map(str::to_owned);
    let proxy = proxy::new()
        .upstream_url(node.url())
        .config(|config| config.methods.allow = allowed.to_vec())
        .run()
        .await;
    command.args([&proxy.url(), node.url()]).arg(browser);
    succeed(command).await;
}
