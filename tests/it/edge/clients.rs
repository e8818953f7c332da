//! Real client libraries do not notice the proxy.

use std::{process::Command, time::Duration};

use crate::support::{anvil::Anvil, program::succeed, proxy, tools};

/// Runs a script of `tests/clients` with a fresh node whose chain id is `chain_id`, and a proxy in front of it.
async fn run(test: &str, script: impl Fn() -> Option<Command>, chain_id: &str) {
    let Some(binary) = tools::anvil(test) else { return };
    let Some(mut command) = script() else { return };
    let node = Anvil::start(binary, &["--chain-id", chain_id]).await;
    // The scripts mine directly on the node and expect to see the blocks at once. On a development chain that
    // is the default anyway.
    let proxy = proxy::new()
        .upstream_url(node.url())
        .config(|config| config.chain.max_staleness = Duration::ZERO)
        .run()
        .await;
    command.args([&proxy.url(), node.url()]);
    succeed(command).await;
}

#[tokio::test]
async fn clients_do_not_notice_the_proxy() {
    const TEST: &str = "clients_do_not_notice_the_proxy";
    for chain_id in ["31337", "1"] {
        run(TEST, || tools::node_script(TEST, "viem", "viem.mjs"), chain_id).await;
        run(TEST, || tools::node_script(TEST, "ethers", "ethers.mjs"), chain_id).await;
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn further_clients_do_not_notice_the_proxy() {
    const TEST: &str = "further_clients_do_not_notice_the_proxy";
    for chain_id in ["31337", "1"] {
        run(TEST, || tools::node_script(TEST, "web3", "web3js.mjs"), chain_id).await;
        run(TEST, || tools::python_script(TEST, "web3py.py"), chain_id).await;
    }
}

#[tokio::test]
async fn odd_ids_are_returned_unchanged() {
    const TEST: &str = "odd_ids_are_returned_unchanged";
    run(TEST, || tools::node_script(TEST, "viem", "ids.mjs"), "31337").await;
}
