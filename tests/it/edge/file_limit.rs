//! Limit on open files: too low at the start, or reached while running.

use rustix::process::{Resource, Rlimit};
use serde_json::json;

use crate::support::{client::Raw, eventually, process, proxy::closed, upstream};

#[cfg(target_os = "linux")]
#[tokio::test]
async fn program_survives_running_out_of_files() {
    let node = upstream::devchain().run().await;
    let mut process = process::serve(&node).run().await;
    // This call opens a connection to the node, which the program keeps open.
    assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());

    let mut keeper = Raw::connect(process.address()).await;
    assert_eq!(keeper.call("eth_chainId").await.status, 200);
    let few = Some(process.open_files() + 4);
    let before =
        rustix::process::prlimit(Some(process.id()), Resource::Nofile, Rlimit { current: few, maximum: few })
            .unwrap();
    assert!(before.current > few);
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(Raw::connect(process.address()).await);
    }
    process.says("cannot accept connections").await;
    assert!(process.is_running());
    // The program closes idle connections to make room, so a client with a request gets an answer.
    assert!(process.client().ask("eth_chainId", json!([])).await.is_ok());

    drop(crowd);
    drop(keeper);
    for _ in 0..10 {
        assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
    }
    assert!(process.is_running());
    assert!(process.metric(&closed("displaced")).await > 0);
    // The program logs the failure, but not at every attempt.
    assert!(process.said().matches("cannot accept connections").count() < 5, "{}", process.said());
}

#[tokio::test]
async fn soft_file_limit_is_raised() {
    let node = upstream::devchain().run().await;
    let process = process::serve(&node).ulimit("-S -n 64").set("LOG__LEVEL", "debug").run().await;

    process.says("raised the limit on open files").await;
    assert!(!process.said().contains("too low"), "{}", process.said());
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(Raw::connect(process.address()).await);
    }
    eventually("all are connected", async || process.metric("holdfast_connections").await >= 200).await;
    assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
}

#[tokio::test]
async fn low_hard_file_limit_reduces_the_connections() {
    let node = upstream::devchain().run().await;
    let mut process = process::serve(&node).ulimit("-n 128").run().await;

    process.says("limit on open files too low for connections.max").await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(Raw::connect(process.address()).await);
    }
    let displaced = closed("displaced");
    eventually("some make room", async || process.metric(&displaced).await >= 20).await;
    assert!(process.client().ask("eth_gasPrice", json!([])).await.is_ok());
    let connections = process.metric("holdfast_connections").await;
    assert!((32..128).contains(&connections), "{connections}");
    assert!(process.is_running());
    assert!(!process.said().contains("cannot accept connections"), "{}", process.said());
}
