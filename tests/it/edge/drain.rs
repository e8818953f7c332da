//! Shutdown: the program answers every request that it has received.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use holdfast::devchain::Fault;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{self, Instant},
};

use crate::support::{
    client::{self, Raw, post, post_head},
    eventually, process, proxy, upstream,
};

/// Long enough to be noticed as a wait.
const DELAY: Duration = Duration::from_millis(500);

/// Time that a draining server gives accepted connections to send their first request.
const HEARING: Duration = Duration::from_millis(250);

/// A time longer than any test waits.
const FOR_EVER: &str = "10m";

#[tokio::test]
async fn draining_server_is_not_ready_but_still_serves() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.drain_delay = DELAY * 8).run().await;
    let client = client::http(&proxy);
    let (address, ready) = (proxy.address(), proxy.admin_url("/ready"));
    assert_eq!(client.get(&ready).await.status, 200);

    let stopping = tokio::spawn(proxy.app.stop());
    tokio::task::yield_now().await;
    let told = client.get(&ready).await;
    assert_eq!(told.status, 503);
    assert!(told.text().contains("shutting down"), "{}", told.text());
    assert_eq!(Raw::connect(address).await.call("eth_gasPrice").await.status, 200);
    assert!(!stopping.is_finished());

    stopping.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn every_request_whose_head_was_read_is_answered() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let (address, http2) = (proxy.address(), client::http2(&proxy));
    node.fail(Fault::Delay(DELAY)).on("eth_gasPrice").always();

    let mut idle = Raw::connect(address).await;
    assert_eq!(idle.call("eth_chainId").await.status, 200);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut client = Raw::connect(address).await;
        client.write(post(&client::call("eth_gasPrice"))).await;
        waiting.push(client);
    }
    let streams =
        tokio::spawn(async move { join_all((0..5).map(|_| http2.ask("eth_gasPrice", json!([])))).await });
    // The client has not sent the body yet. `100 Continue` shows that the server has read the headers.
    let body = client::call("eth_chainId");
    let mut sending = Raw::connect(address).await;
    sending
        .write(format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        ))
        .await;
    assert_eq!(sending.response().await.status, 100);
    eventually("all calls arrive", async || node.count("eth_gasPrice") == 10).await;

    let stopping = tokio::spawn(proxy.app.stop());
    // The server closes idle connections at once and accepts no new ones.
    assert_eq!(idle.read_to_end().await, "");
    eventually("no more connections", async || TcpStream::connect(address).await.is_err()).await;
    assert!(!stopping.is_finished());

    sending.write(body).await;
    assert_eq!(sending.response().await.status, 200);
    for mut client in waiting {
        let answer = client.response().await;
        assert!(answer.outcome().is_ok());
        assert_eq!(client.read_to_end().await, "");
    }
    assert!(streams.await.unwrap().iter().all(Result::is_ok));
    stopping.await.unwrap();
}

/// If the node does not answer in time, a single call gets an error, and a batch keeps its finished answers.
#[tokio::test]
async fn drain_answers_calls_that_the_node_left_unanswered() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        // The proxy fails pending calls after nine tenths of this time. The last tenth must suffice to deliver the
        // errors.
        .config(|config| config.connections.drain_timeout = DELAY * 12)
        .run()
        .await;
    let [mut alone, mut batch, mut unsent] = [
        Raw::connect(proxy.address()).await,
        Raw::connect(proxy.address()).await,
        Raw::connect(proxy.address()).await,
    ];
    node.fail(Fault::Hang).on("eth_gasPrice").always();
    let hangs = client::call("eth_gasPrice");
    alone.write(post(&hangs)).await;
    batch.write(post(&format!("[{},{hangs}]", client::call("eth_chainId")))).await;
    unsent.write(post_head(hangs.len())).await;
    eventually("the calls arrive", async || node.count("eth_gasPrice") == 2).await;

    let stopping = tokio::spawn(proxy.app.stop());
    let answer = alone.response().await;
    assert_eq!((answer.status.as_u16(), answer.code()), (504, Some(-32011)));
    let answers = batch.response().await.json();
    assert!(answers[0]["result"].is_string(), "{answers}");
    assert_eq!(answers[1]["error"]["code"], -32011, "{answers}");
    // The server does not wait for an unfinished request.
    assert_eq!(unsent.read_to_end().await, "");
    stopping.await.unwrap();
}

#[tokio::test]
async fn signal_ends_the_program_after_pending_answers() {
    let node = upstream::devchain().run().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut process = process::serve(&node).set("DRAIN_DELAY", "3s").run().await;
        let ready = format!("{}/ready", process.admin_url());
        let client = process.client();
        node.clear_calls();
        node.fail(Fault::Delay(DELAY * 4)).on("eth_gasPrice").times(3);

        let mut waiting = Vec::new();
        for _ in 0..3 {
            let mut client = Raw::connect(process.address()).await;
            client.write(post(&client::call("eth_gasPrice"))).await;
            waiting.push(client);
        }
        eventually("all calls arrive", async || node.count("eth_gasPrice") == 3).await;
        process.signal(signal);
        process.says("shutting down").await;
        assert_eq!(client.get(&ready).await.status, 503);
        assert_eq!(Raw::connect(process.address()).await.call("eth_chainId").await.status, 200);

        for mut client in waiting {
            assert!(client.response().await.outcome().is_ok());
        }
        assert_eq!(process.exit_code().await, Some(0), "{}", process.said());
        process.says("stopped").await;
        assert!(TcpStream::connect(process.address()).await.is_err());
    }
}

/// The stop signal comes while some clients reuse connections and others open new ones.
#[tokio::test]
async fn under_load_every_call_that_reached_the_node_is_answered() {
    let node = upstream::devchain().run().await;
    let mut process = process::serve(&node).set("DRAIN_DELAY", "0s").run().await;
    let (address, client) = (process.address(), process.client());
    node.clear_calls();
    node.fail(Fault::Delay(Duration::from_millis(20))).on("eth_gasPrice").always();
    let answers = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for at in 0..24 {
        let (answers, client) = (answers.clone(), client.clone());
        clients.spawn(async move {
            loop {
                let answer = if at % 2 == 0 {
                    let sent = client.post().body(client::call("eth_gasPrice")).send().await;
                    match sent {
                        Ok(answer) => answer.text().await.unwrap_or_default(),
                        Err(_) => return,
                    }
                } else {
                    let Ok(mut stream) = TcpStream::connect(address).await else { return };
                    let request =
                        post(&client::call("eth_gasPrice")).replacen("\r\n", "\r\nconnection: close\r\n", 1);
                    let mut answer = String::new();
                    let asked = stream.write_all(request.as_bytes()).await;
                    if asked.is_err() || stream.read_to_string(&mut answer).await.is_err() {
                        return;
                    }
                    answer
                };
                if !answer.contains("\"result\"") {
                    return;
                }
                answers.fetch_add(1, Relaxed);
            }
        });
    }
    eventually("the clients get answers", async || answers.load(Relaxed) > 200).await;
    process.signal(Signal::TERM);
    clients.join_all().await;
    assert_eq!(process.exit_code().await, Some(0), "{}", process.said());
    assert_eq!(
        answers.load(Relaxed),
        node.count("eth_gasPrice"),
        "a call that was carried out was not answered"
    );
}

/// The client sends its request before it can know that the server stops.
#[tokio::test]
async fn connection_accepted_before_shutdown_is_served() {
    let node = upstream::devchain().run().await;
    for _ in 0..20 {
        let proxy = proxy::new().upstream(&node).run().await;
        let mut before = Raw::connect(proxy.address()).await;
        eventually("it is accepted", async || proxy.metric("holdfast_connections").await >= 1).await;
        let (address, begun) = (proxy.address(), Instant::now());
        let stopping = tokio::spawn(proxy.app.stop());
        eventually("no more connections", async || TcpStream::connect(address).await.is_err()).await;
        let _ = before.0.write_all(post(&client::call("eth_chainId")).as_bytes()).await;
        let is_timely = begun.elapsed() < HEARING / 2;
        let answer = before.read_to_end().await;
        stopping.await.unwrap();
        if answer.starts_with("HTTP/1.1 200") {
            return;
        }
        // A late request may go unanswered.
        assert!(!is_timely, "{answer:?}");
    }
    panic!("every request was late");
}

#[tokio::test]
async fn second_signal_ends_the_program_at_once() {
    let node = upstream::devchain().run().await;
    // The second signal comes while a request hangs, or during the drain delay.
    for (delay, asked) in [("0s", 1), (FOR_EVER, 0)] {
        let mut process = process::serve(&node)
            .set("DRAIN_DELAY", delay)
            .set("CONNECTIONS__DRAIN_TIMEOUT", FOR_EVER)
            .set("CALL_TIMEOUT", FOR_EVER)
            .set("UPSTREAM__TIMEOUT", FOR_EVER)
            .run()
            .await;
        node.clear_calls();
        node.fail(Fault::Hang).on("eth_gasPrice").times(asked);
        let mut client = Raw::connect(process.address()).await;
        for _ in 0..asked {
            client.write(post(&client::call("eth_gasPrice"))).await;
        }
        eventually("the call arrives", async || node.count("eth_gasPrice") == asked as u64).await;

        process.signal(Signal::TERM);
        process.says("shutting down").await;
        // Signals within a second of the first one do not count.
        process.signal(Signal::INT);
        eventually("both signals are noticed", async || {
            process.said().matches("stop signal received").count() == 2
        })
        .await;
        assert!(process.is_running());
        time::sleep(Duration::from_secs(1)).await;
        process.signal(Signal::TERM);
        assert_eq!(process.exit_code().await, Some(0), "{}", process.said());
        process.says("second stop signal").await;
    }
}

/// The second signal ends the program while proofs run and wait. They end with it, and are no fault.
#[tokio::test]
async fn stop_during_proofs_is_no_fault() {
    // There is a proof thread for each core. Their work takes much longer than the second between the signals.
    let blocks = 20 * thread::available_parallelism().unwrap().get();
    let node = upstream::devchain().blocks(blocks, 400).run().await;
    for _ in 0..2 {
        let mut process = process::serve(&node)
            .set("CONNECTIONS__DRAIN_TIMEOUT", FOR_EVER)
            .set("VERIFY__LEVEL", "full")
            .run()
            .await;
        node.clear_calls();
        let mut clients = Vec::new();
        for number in 1..=blocks {
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [format!("{number:#x}"), true] });
            let mut client = Raw::connect(process.address()).await;
            client.write(post(&call.to_string())).await;
            clients.push(client);
        }
        eventually("the proofs begin", async || node.count("eth_getBlockByNumber") >= 20).await;
        process.signal(Signal::TERM);
        process.says("shutting down").await;
        // Signals within a second of the first one do not count.
        time::sleep(Duration::from_secs(1)).await;
        process.signal(Signal::TERM);
        assert_eq!(process.exit_code().await, Some(0), "{}", process.said());
        // Proofs were still waiting.
        process.says("second stop signal").await;
        let said = process.said();
        assert!(!said.contains("ERROR") && !said.contains("bug"), "{said}");
    }
}
