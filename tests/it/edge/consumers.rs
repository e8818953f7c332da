//! Real consumers behind the proxy: a relay compares every answer that they get with the node's own.

use std::{process::Command, time::Duration};

use alloy_primitives::{Address, U256};
use alloy_provider::{Provider, ProviderBuilder};
use alloy_rpc_types_eth::{BlockId, BlockNumberOrTag, Filter, TransactionRequest};
use serde_json::{Value, json};

use crate::support::{
    anvil::{Anvil, SENDER},
    client::{self, Client},
    consumers::{self, Call, Follower, Kind, Rpc, RpcKind},
    program::{Program, output, text},
    proxy::{self, Proxy},
    relay::{self, Relay},
    tools,
};

/// Creates a contract that emits a log with a topic and one without, as in `tests/clients/support.mjs`.
const LOGGER: &str = "0x601580600b6000396000f3602a60005263c0ffee0060206000a160206000a000";

/// A chain with Ethereum's rules.
const ETHEREUM: &str = "1";

/// An unknown chain, because forks of a known chain apply the hardforks of its block numbers.
const UNKNOWN: &str = "5150";

/// A node with some history, the proxy in front of it, and the relay for a consumer.
struct Setting {
    node: Client,
    logger: String,
    relay: Relay,
    _proxy: Proxy,
    anvil: Anvil,
}

async fn setting(test: &str, chain_id: &str) -> Option<Setting> {
    let binary = tools::anvil(test)?;
    // With epochs of one slot, all but the last two blocks are final.
    let arguments = ["--chain-id", chain_id, "--slots-in-an-epoch", "1", "--no-mining"];
    let anvil = Anvil::start(binary, &arguments).await;
    let proxy = proxy::new()
        .upstream_url(anvil.url())
        .config(|config| config.chain.max_staleness = Duration::ZERO)
        .run()
        .await;
    let relay = relay::between(&proxy.url(), anvil.url()).await;
    let node = client::at(anvil.url());
    let mut setting = Setting { node, logger: String::new(), relay, _proxy: proxy, anvil };
    let hash = setting.send(json!({ "data": LOGGER, "gas": "0x100000" })).await;
    setting.node.call("evm_mine", json!([])).await;
    let receipt = setting.node.call("eth_getTransactionReceipt", json!([hash])).await.json();
    setting.logger = receipt["result"]["contractAddress"].as_str().unwrap().to_owned();
    setting.mine(8).await;
    Some(setting)
}

// === impl Setting ===

impl Setting {
    /// Sends a transaction to the node.
    async fn send(&self, mut transaction: Value) -> Value {
        transaction["from"] = json!(SENDER);
        self.node.call("eth_sendTransaction", json!([transaction])).await.json()["result"].take()
    }

    /// Mines blocks with transfers and logs at the node, and an empty block after them.
    async fn mine(&self, blocks: u64) {
        for block in 0..blocks {
            for at in 0..3 {
                self.send(json!({ "to": format!("0x{:040x}", 0x1000 + block + at), "value": "0x1" })).await;
                self.send(json!({ "to": self.logger })).await;
            }
            self.node.call("evm_mine", json!([])).await;
        }
        self.node.call("evm_mine", json!([])).await;
    }

    async fn head(&self) -> u64 {
        consumers::number(
            &self.node.call("eth_getBlockByNumber", json!(["latest", false])).await.json()["result"],
        )
    }

    /// Runs a program with the URL of the relay and these arguments.
    async fn run(&self, mut command: Command, arguments: &[&str]) {
        command.arg(self.relay.url()).args(arguments);
        let ran = output(command).await;
        self.made(&[]);
        assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
        print!("{}", text(&ran.stdout));
    }

    /// Checks that the consumer called these methods, and that all its answers were the node's.
    fn made(&self, methods: &[&str]) {
        let calls = self.relay.calls();
        println!("{calls:?}");
        assert!(methods.iter().all(|method| calls.contains_key(*method)), "{methods:?} of {calls:?}");
    }

    /// Lets a fork of the chain at block `at` read state, a block, a transaction and its receipt.
    async fn compare_fork(&self, fork: &Client, at: u64) {
        let block = self.node.call("eth_getBlockByNumber", json!(["0x3", false])).await.json();
        let hash = &block["result"]["transactions"][0];
        // Hardhat does not execute calls at blocks of an unknown chain, only at its own.
        fork.call("evm_mine", json!([])).await;
        // Not the state of the sender, because forks give test accounts a new balance.
        let state = |block: &str| {
            [
                ("eth_getBalance", json!([format!("0x{:040x}", 0x1001), block])),
                ("eth_getTransactionCount", json!([self.logger, block])),
                ("eth_getCode", json!([self.logger, block])),
                ("eth_getStorageAt", json!([self.logger, "0x0", block])),
                ("eth_call", json!([{ "to": self.logger }, block])),
            ]
        };
        for ((method, forked), (_, original)) in state("latest").into_iter().zip(state(&format!("{at:#x}"))) {
            assert_eq!(fork.ask(method, forked).await, self.node.ask(method, original).await, "{method}");
        }
        for (method, params, member) in [
            ("eth_getBlockByNumber", json!(["0x3", true]), "hash"),
            ("eth_getBlockByHash", json!([block["result"]["hash"], false]), "hash"),
            ("eth_getTransactionByHash", json!([hash]), "blockHash"),
            ("eth_getTransactionReceipt", json!([hash]), "blockHash"),
        ] {
            let got = fork.call(method, params).await.json();
            assert_eq!(got["result"][member], block["result"]["hash"], "{method}: {got}");
        }
    }
}

impl Rpc for Client {
    async fn batch(&mut self, calls: Vec<Call>) -> Vec<Value> {
        let request = |(id, (method, params))| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let requests: Vec<Value> = calls.into_iter().enumerate().map(request).collect();
        let body = if let [only] = &requests[..] { only.to_string() } else { json!(requests).to_string() };
        let mut answer = self.send(body).await.json();
        match &mut answer {
            Value::Array(answers) => {
                answers.sort_by_key(|answer| answer["id"].as_u64());
                answers.iter_mut().map(|answer| answer["result"].take()).collect()
            }
            answer => vec![answer["result"].take()],
        }
    }
}

/// Lets a consumer follow the chain while blocks arrive, and checks that it called these methods.
async fn follow(test: &str, kind: Kind, methods: &[&str]) {
    let Some(setting) = setting(test, ETHEREUM).await else { return };
    let mut rpc = client::at(&setting.relay.url());
    let mut follower = Follower::new(kind);
    for blocks in [0, 1, 1, 3, 0, 2] {
        follower.poll(&mut rpc).await;
        follower.poll(&mut rpc).await;
        setting.mine(blocks).await;
    }
    follower.poll(&mut rpc).await;
    setting.made(methods);
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn ethclient_gets_the_answers_of_the_node() {
    const TEST: &str = "ethclient_gets_the_answers_of_the_node";
    let Some(program) = tools::go_program(TEST, "ethclient") else { return };
    let Some(setting) = setting(TEST, ETHEREUM).await else { return };
    setting.run(program, &[]).await;
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn op_node_gets_the_answers_of_the_node() {
    const TEST: &str = "op_node_gets_the_answers_of_the_node";
    for (kind, methods) in [
        ("standard", &["eth_getBlockReceipts", "eth_getProof"][..]),
        ("basic", &["eth_getTransactionReceipt", "eth_getProof"]),
        ("debug_geth", &["debug_getRawReceipts"]),
    ] {
        let Some(program) = tools::go_program(TEST, "opnode") else { return };
        let Some(setting) = setting(TEST, ETHEREUM).await else { return };
        setting.run(program, &[kind]).await;
        setting.made(methods);
    }
}

#[tokio::test]
async fn followers_get_the_answers_of_the_node() {
    const TEST: &str = "followers_get_the_answers_of_the_node";
    for (kind, methods) in [
        (Kind::OpNode(RpcKind::Standard), &["eth_getBlockReceipts"][..]),
        (Kind::OpNode(RpcKind::Basic), &["eth_getTransactionReceipt"]),
        (Kind::OpNode(RpcKind::DebugGeth), &["debug_getRawReceipts"]),
        (Kind::KonaHost, &["debug_getRawHeader", "debug_getRawReceipts"]),
        (Kind::Ponder, &["eth_getLogs", "eth_getBlockReceipts"]),
        (Kind::GraphNode, &["eth_getLogs", "eth_getBlockReceipts", "eth_call"]),
        (Kind::Blockscout, &["eth_getTransactionReceipt", "eth_getBalance"]),
    ] {
        follow(TEST, kind, methods).await;
    }
}

/// Catch-up reads batches of old blocks, from the newest to the oldest.
#[tokio::test]
async fn blockscout_catches_up_with_the_answers_of_the_node() {
    const TEST: &str = "blockscout_catches_up_with_the_answers_of_the_node";
    let Some(setting) = setting(TEST, ETHEREUM).await else { return };
    let mut rpc = client::at(&setting.relay.url());
    for last in (0..=setting.head().await).rev().step_by(4) {
        consumers::blockscout(&mut rpc, last.saturating_sub(3), last).await;
    }
    setting.made(&["eth_getTransactionReceipt"]);
}

#[tokio::test]
async fn alloy_gets_the_answers_of_the_node() {
    let Some(setting) = setting("alloy_gets_the_answers_of_the_node", ETHEREUM).await else { return };
    let provider = ProviderBuilder::new().connect_http(setting.relay.url().parse().unwrap());
    let logger: Address = setting.logger.parse().unwrap();
    provider.get_chain_id().await.unwrap();
    for tag in [BlockNumberOrTag::Latest, BlockNumberOrTag::Safe, BlockNumberOrTag::Finalized] {
        provider.get_block_by_number(tag).full().await.unwrap().unwrap();
    }
    // Twice, because the second answer may come from the cache.
    for number in (0..=provider.get_block_number().await.unwrap()).chain(0..4) {
        let at = BlockId::number(number);
        let block = provider.get_block(at).full().await.unwrap().unwrap();
        assert_eq!(block.header.hash_slow(), block.header.hash);
        let by_hash = provider.get_block_by_hash(block.header.hash).hashes().await.unwrap().unwrap();
        assert_eq!(by_hash.transactions.len(), block.transactions.len());
        let receipts = provider.get_block_receipts(at).await.unwrap().unwrap();
        assert_eq!(receipts.len(), block.transactions.len());
        for (index, receipt) in receipts.iter().enumerate() {
            let hash = receipt.transaction_hash;
            assert_eq!(provider.get_transaction_receipt(hash).await.unwrap().as_ref(), Some(receipt));
            let transaction = provider.get_transaction_by_hash(hash).await.unwrap();
            let placed = provider.get_transaction_by_block_hash_and_index(block.header.hash, index);
            assert_eq!(placed.await.unwrap(), transaction);
        }
        provider.get_logs(&Filter::new().at_block_hash(block.header.hash)).await.unwrap();
        provider.get_balance(SENDER.parse().unwrap()).block_id(at).await.unwrap();
        provider.get_code_at(logger).block_id(at).await.unwrap();
        provider.get_storage_at(logger, U256::ZERO).block_id(at).await.unwrap();
        provider.call(TransactionRequest::default().to(logger)).block(at).await.unwrap();
    }
    setting.made(&["eth_getBlockReceipts"]);
}

#[tokio::test]
async fn cast_prints_the_same_as_without_the_proxy() {
    const TEST: &str = "cast_prints_the_same_as_without_the_proxy";
    let Some(cast) = tools::cast(TEST) else { return };
    let Some(setting) = setting(TEST, ETHEREUM).await else { return };
    let block = setting.node.call("eth_getBlockByNumber", json!(["0x3", false])).await.json();
    let hash = block["result"]["transactions"][1].as_str().unwrap();
    for arguments in [
        &["chain-id"][..],
        &["block-number"],
        &["block", "3", "--full", "--json"],
        &["block", "finalized", "--json"],
        &["tx", hash, "--json"],
        &["receipt", hash, "--json"],
        &["logs", "--from-block", "2", "--to-block", "3", "--json"],
        &["balance", SENDER, "--block", "3"],
        &["nonce", SENDER, "--block", "3"],
        &["code", &setting.logger],
        &["storage", &setting.logger, "0"],
        &["call", &setting.logger, "--block", "3"],
    ] {
        let print = async |url: &str| {
            let mut command = Command::new(&cast);
            command.args(arguments).args(["--rpc-url", url]);
            let ran = output(command).await;
            assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
            text(&ran.stdout)
        };
        assert_eq!(print(&setting.relay.url()).await, print(setting.anvil.url()).await, "{arguments:?}");
    }
    setting.made(&["eth_getTransactionReceipt"]);
}

#[tokio::test]
async fn anvil_forks_through_the_proxy() {
    const TEST: &str = "anvil_forks_through_the_proxy";
    let Some(setting) = setting(TEST, UNKNOWN).await else { return };
    let Some(binary) = tools::anvil(TEST) else { return };
    for at in [setting.head().await, 5] {
        let (url, number) = (setting.relay.url(), at.to_string());
        let arguments = ["--fork-url", &url, "--fork-block-number", &number, "--no-storage-caching"];
        let fork = Anvil::start(binary.clone(), &arguments).await;
        setting.compare_fork(&client::at(fork.url()), at).await;
    }
    setting.made(&["eth_getBlockByNumber"]);
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn hardhat_forks_through_the_proxy() {
    const TEST: &str = "hardhat_forks_through_the_proxy";
    let Some(mut command) = tools::hardhat(TEST) else { return };
    let Some(setting) = setting(TEST, UNKNOWN).await else { return };
    command.args(["node", "--hostname", "127.0.0.1", "--port", "0", "--fork", &setting.relay.url()]);
    let hardhat = Program::start(command);
    let line = hardhat.line("JSON-RPC server at ").await;
    let (_, url) = line.trim().split_once("server at ").unwrap();
    setting.compare_fork(&client::at(url), setting.head().await).await;
    setting.made(&["eth_getBlockByNumber"]);
}
