//! Everything at once for a while: load at saturation, two nodes that fail now and then, hostile clients. Afterwards,
//! no task and no open file may be left over.
//!
//! This test is not among the ordinary tests, because it takes long. `tests/run --all` runs it for `SOAK_SECONDS`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use holdfast::devchain::{DevChain, Fault};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{self, Instant},
};

use crate::support::{client, eventually, process, proxy, upstream};

/// Number of the large block, which is cached as well. The greedy clients ask for it.
const LARGE: u64 = 1;

/// Number of final, cached blocks. Queries about them must be answered throughout.
const KEPT: u64 = 40;

/// Address of the hostile clients. The other clients have another address.
const HOSTILE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// Limit on requests in flight. The hostile clients send more, but may use only half of the limit, so the other half is
/// left for the well-behaved clients.
const IN_FLIGHT: u64 = 40;

/// Limit on bytes in flight. The hostile clients leave more than half of it unread.
const BYTES: u64 = 8 << 20;

/// Cache size in bytes. It is small, so that the cache fills and evicts entries during the test.
const CACHE: u64 = 16 << 20;

/// Memory in bytes that the program may use beside its cache.
const BESIDE: u64 = 64 << 20;

/// Limit on connections.
const CONNECTIONS: usize = 256;

/// Number of hostile connections that only occupy slots. Together with the other connections, they exceed the limit.
const CROWD: usize = 240;

/// Limit on upstream connections.
const UPSTREAM: u64 = 16;

/// Time after which the server closes the connection of a client that reads nothing.
const STALL: Duration = Duration::from_secs(30);

/// Time until the program has released unused resources. It keeps an idle connection to a node for 50 s, and checks
/// for such connections every 50 s.
const REST: Duration = Duration::from_secs(120);

/// Tolerance in open files and tasks, because a connection to a node may be open or not when the counting begins.
const FEW: u64 = 2;

/// Results of the well-behaved clients.
#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    errors: Mutex<Vec<String>>,
    micros: Mutex<Vec<u64>>,
}

/// Results of the hostile clients.
#[derive(Default)]
struct Done {
    /// Requests that the server refused.
    refused: AtomicU64,
    /// Answers that began to arrive, and that the client reads slowly or not at all.
    unread: AtomicU64,
    hung_up: AtomicU64,
    reset: AtomicU64,
}

fn next(dice: &mut u64) -> u64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *dice >> 24
}

fn final_question(chain: &DevChain, dice: u64) -> (&'static str, Value) {
    let number = LARGE + 1 + dice % (KEPT - LARGE);
    let hash = chain.hash_at(number).unwrap();
    let transaction = format!("{:#x}", chain.transactions_of(hash)[(dice / KEPT % 3) as usize]);
    match dice / 128 % 4 {
        0 => ("eth_getBlockByNumber", json!([format!("{number:#x}"), true])),
        1 => ("eth_getBlockByHash", json!([format!("{hash:#x}"), false])),
        2 => ("eth_getTransactionReceipt", json!([transaction])),
        _ => ("eth_getTransactionByHash", json!([transaction])),
    }
}

/// Asks for final, cached data as fast as the proxy answers, and compares the answers with the truth.
async fn well_behaved(url: String, chain: DevChain, seen: Arc<Seen>, over: Arc<AtomicBool>, mut dice: u64) {
    let client = client::at(&url);
    let mut truth = HashMap::new();
    while !over.load(Relaxed) {
        let (method, params) = final_question(&chain, next(&mut dice));
        let true_answer: &Value = truth
            .entry((method, params.to_string()))
            .or_insert_with(|| serde_json::from_slice(&chain.answer(method, &params).unwrap()).unwrap());
        let begun = Instant::now();
        let answer = client.ask(method, params.clone()).await;
        seen.micros.lock().unwrap().push(u64::try_from(begun.elapsed().as_micros()).unwrap());
        match answer {
            Ok(text) if serde_json::from_str::<Value>(&text).ok().as_ref() == Some(true_answer) => {
                seen.answers.fetch_add(1, Relaxed);
            }
            Ok(wrong) => seen.errors.lock().unwrap().push(format!("{method} {params}: {wrong} is wrong")),
            Err(error) => seen.errors.lock().unwrap().push(format!("{method} {params}: {error}")),
        }
    }
}

/// Asks for data that must be fetched, and accepts any answer.
async fn curious(url: String, chain: DevChain, over: Arc<AtomicBool>) {
    let client = client::at(&url);
    let mut number = KEPT + 1;
    while !over.load(Relaxed) {
        number = if number >= chain.head().number { KEPT + 1 } else { number + 1 };
        let _ = client.call("eth_getBlockByNumber", json!([format!("{number:#x}"), true])).await;
        let _ = client.call("eth_getBlockByNumber", json!(["latest", false])).await;
        let balances: Vec<_> = (0..500)
            .map(|id| {
                json!({ "jsonrpc": "2.0", "id": id, "method": "eth_getBalance",
                              "params": [format!("0x{id:040x}"), "latest"] })
            })
            .collect();
        let _ = client.send(json!(balances).to_string()).await;
    }
}

/// Again and again, makes one or both nodes fail for a while and then recover, and mines the same blocks on both.
async fn troubled(nodes: [DevChain; 2], over: Arc<AtomicBool>) {
    let faults = [
        Fault::Reset,
        Fault::Status(500),
        Fault::Garbage,
        Fault::Delay(Duration::from_millis(200)),
        Fault::Hang,
    ];
    for (turn, fault) in faults.into_iter().cycle().enumerate() {
        if over.load(Relaxed) {
            break;
        }
        // Sometimes one node fails, sometimes the other, sometimes both.
        for (at, node) in nodes.iter().enumerate() {
            if turn % 3 != at {
                node.fail(fault.clone()).any().times(50);
            }
        }
        time::sleep(Duration::from_millis(300)).await;
        nodes.iter().for_each(|node| node.clear_faults());
        for node in &nodes {
            node.mine(3);
        }
        time::sleep(Duration::from_millis(700)).await;
    }
    nodes.iter().for_each(|node| node.clear_faults());
}

/// Connects from the hostile address, with a receive buffer of `keeps` bytes.
async fn connect(address: SocketAddr, keeps: Option<u32>) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((HOSTILE, 0).into())?;
    if let Some(bytes) = keeps {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect(address).await
}

/// Connects and sends `says`. Then keeps the connection open until the server closes it, and sends small chunks if
/// `goes_on` is set.
async fn hostile(address: SocketAddr, says: Vec<u8>, goes_on: bool) {
    loop {
        let Ok(mut stream) = connect(address, None).await else { continue };
        if stream.write_all(&says).await.is_err() {
            continue;
        }
        let mut thrown_out = [0; 1];
        loop {
            if goes_on {
                if stream.write_all(b"1\r\n[\r\n").await.is_err() {
                    break;
                }
                time::sleep(Duration::from_millis(50)).await;
            } else if matches!(
                time::timeout(Duration::from_millis(500), stream.read(&mut thrown_out)).await,
                Ok(Ok(0) | Err(_))
            ) {
                break;
            }
        }
    }
}

/// Asks for a large answer, and reads `takes` bytes of it now and then, or none, until the connection is closed.
async fn greedy(address: SocketAddr, asks: String, takes: usize, done: Arc<Done>) {
    loop {
        let Ok(mut stream) = connect(address, Some(4096)).await else { continue };
        if stream.write_all(asks.as_bytes()).await.is_err() {
            continue;
        }
        let mut head = [0; 12];
        // Only peeks, because some of these clients must not read anything.
        match time::timeout(Duration::from_secs(5), stream.peek(&mut head)).await {
            Ok(Ok(12)) if head.ends_with(b"200") => drop(done.unread.fetch_add(1, Relaxed)),
            Ok(Ok(12)) => {
                done.refused.fetch_add(1, Relaxed);
                time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            _ => continue,
        }
        if takes == 0 {
            time::sleep(STALL * 2).await;
        } else {
            let mut piece = vec![0; takes];
            while matches!(stream.read(&mut piece).await, Ok(1..)) {
                time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Asks for data that must be fetched, and hangs up before it arrives.
async fn fickle(address: SocketAddr, chain: DevChain, done: Arc<Done>, mut dice: u64) {
    loop {
        let calls: Vec<_> = (0..20)
            .map(|id| {
                let number = KEPT + 1 + next(&mut dice) % (chain.head().number - KEPT);
                let method = ["eth_getBlockByNumber", "eth_getBlockReceipts"][id % 2];
                let params = [json!([format!("{number:#x}"), true]), json!([format!("{number:#x}")])];
                json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params[id % 2] })
            })
            .collect();
        let Ok(mut stream) = connect(address, None).await else { continue };
        if stream.write_all(client::post(&json!(calls).to_string()).as_bytes()).await.is_ok() {
            done.hung_up.fetch_add(1, Relaxed);
        }
        time::sleep(Duration::from_millis(next(&mut dice) % 30)).await;
    }
}

/// Keeps a connection that it rarely uses, and reconnects when displaced. Together with the other connections, these
/// exceed the limit.
async fn crowd(address: SocketAddr) {
    let asks = client::post(&client::call("eth_chainId"));
    loop {
        let Ok(mut stream) = connect(address, None).await else { continue };
        let mut answer = [0; 1024];
        while stream.write_all(asks.as_bytes()).await.is_ok()
            && matches!(stream.read(&mut answer).await, Ok(1..))
        {
            time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Opens streams and resets them: at once, or when the answer has begun.
async fn resets(address: SocketAddr, asks: Bytes, done: Arc<Done>) {
    loop {
        let Ok(stream) = connect(address, None).await else { continue };
        let Ok((mut send, connection)) = h2::client::handshake(stream).await else { continue };
        let connection = tokio::spawn(connection);
        // Continues until the server closes the connection, as it does after too many resets.
        for turn in 0.. {
            let Ok(ready) = send.clone().ready().await else { break };
            send = ready;
            let request = http::Request::post("http://localhost/").header("content-type", "application/json");
            let Ok((response, mut stream)) = send.send_request(request.body(()).unwrap(), false) else {
                break;
            };
            if stream.send_data(asks.clone(), true).is_err() {
                break;
            }
            if turn % 2 == 0 {
                let _ = time::timeout(Duration::from_secs(5), response).await;
            }
            stream.send_reset(h2::Reason::CANCEL);
            done.reset.fetch_add(1, Relaxed);
            time::sleep(Duration::from_millis(2)).await;
        }
        drop(send);
        connection.abort();
    }
}

/// Requests for much cached data: one large block many times, and many small ones.
fn large_questions() -> [String; 2] {
    let call = |number: u64| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber",
                "params": [format!("{number:#x}"), true] })
    };
    let large = json!(vec![call(LARGE); 20]);
    let small: Value = (0..1000).map(|at| call(LARGE + 1 + at % (KEPT - LARGE))).collect();
    [large, small].map(|batch| client::post(&batch.to_string()))
}

fn hostilities() -> Vec<(Vec<u8>, bool)> {
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x1",true]}"#;
    let pipelined = format!("{head}content-length: {}\r\n\r\n{call}", call.len()).repeat(300);
    vec![
        (head.into(), false),
        (format!("{head}content-length: 1000000\r\n\r\n[[[[").into(), false),
        (format!("{head}transfer-encoding: chunked\r\n\r\n").into(), true),
        (pipelined.into(), false),
        (format!("{head}content-length: 100000\r\n\r\n{}", "[".repeat(100_000)).into(), false),
        (format!("{head}x: {}\r\n", "a".repeat(60_000)).into(), false),
        (b"\x16\x03\x01 not HTTP at all".to_vec(), false),
    ]
}

/// Returns the resident memory, without the pages of the program's own file, because a debug build touches many of
/// them, and the system drops them under pressure. `cargo bench --bench e2e -- --growth` measures all resident memory
/// of the release build.
fn resident(process: &process::Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes SOAK_SECONDS; tests/run --all runs it"]
async fn soak_is_survived_without_leaks() {
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let node = || upstream::devchain().blocks(LARGE as usize, 600).run();
    let (node, other) = (node().await, node().await);
    for node in [&node, &other] {
        node.mine_many(299, 3);
    }
    let process = process::serve(&node)
        .also(&other)
        .set("CACHE__SIZE", &CACHE.to_string())
        .set("UPSTREAM__TIMEOUT", "1s")
        .set("CONNECTIONS__MAX", &CONNECTIONS.to_string())
        .set("HTTP__MAX_IN_FLIGHT", &IN_FLIGHT.to_string())
        .set("HTTP__MAX_PER_CLIENT", &(IN_FLIGHT / 2).to_string())
        .set("MAX_BYTES_IN_FLIGHT", &BYTES.to_string())
        .set("MAX_BYTES_PER_CLIENT", &(BYTES / 2).to_string())
        .set("UPSTREAM__MAX_IN_FLIGHT", &UPSTREAM.to_string())
        .run()
        .await;
    let address = process.address();
    let url = format!("http://{address}");
    let client = client::at(&url);
    client.ask("eth_getBlockByNumber", json!(["finalized", false])).await.unwrap();
    for number in 1..=KEPT {
        client.ask("eth_getBlockByNumber", json!([format!("{number:#x}"), true])).await.unwrap();
        client.ask("eth_getBlockReceipts", json!([format!("{number:#x}")])).await.unwrap();
    }
    drop(client);
    let (files_before, tasks_before) = (process.open_files(), process.metric("holdfast_tasks").await);
    assert!(tasks_before > 0);
    let before = resident(&process);

    let (seen, done) = (Arc::new(Seen::default()), Arc::new(Done::default()));
    let over = Arc::new(AtomicBool::new(false));
    let chain = (*node).clone();
    let mut tasks = vec![tokio::spawn(troubled([chain.clone(), (*other).clone()], over.clone()))];
    for dice in 0..4 {
        tasks.push(tokio::spawn(well_behaved(url.clone(), chain.clone(), seen.clone(), over.clone(), dice)));
    }
    for _ in 0..2 {
        tasks.push(tokio::spawn(curious(url.clone(), chain.clone(), over.clone())));
    }
    let mut hostile_tasks = JoinSet::new();
    for (says, goes_on) in hostilities().into_iter().cycle().take(70) {
        hostile_tasks.spawn(hostile(address, says, goes_on));
    }
    for (at, asks) in large_questions().into_iter().cycle().take(20).enumerate() {
        let takes = [0, 512][at / 2 % 2];
        hostile_tasks.spawn(greedy(address, asks, takes, done.clone()));
    }
    for dice in 0..4 {
        hostile_tasks.spawn(fickle(address, chain.clone(), done.clone(), dice));
    }
    let small =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": ["0x2", true] });
    for asks in [small.to_string(), client::call("eth_gasPrice")] {
        hostile_tasks.spawn(resets(address, asks.into(), done.clone()));
    }
    for _ in 0..CROWD {
        hostile_tasks.spawn(crowd(address));
    }
    let mut most = 0;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        time::sleep(Duration::from_millis(500)).await;
        most = most.max(resident(&process));
    }
    over.store(true, Relaxed);
    for task in tasks {
        time::timeout(Duration::from_secs(40), task).await.expect("all clients end").unwrap();
    }
    // The hostile clients would continue for ever.
    hostile_tasks.shutdown().await;

    let mut micros = std::mem::take(&mut *seen.micros.lock().unwrap());
    micros.sort_unstable();
    let (answers, errors) = (seen.answers.load(Relaxed), std::mem::take(&mut *seen.errors.lock().unwrap()));
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    println!(
        "{seconds} s: {answers} answers about final blocks, p50 {} µs, p99 {} µs; {} MiB resident before, at most {} MiB then",
        at(0.5),
        at(0.99),
        before >> 20,
        most >> 20
    );
    let [refused, unread, hung_up, reset] =
        [&done.refused, &done.unread, &done.hung_up, &done.reset].map(|count| count.load(Relaxed));
    // The server closes stalled connections after a while, or sooner if other clients need their slots.
    let stalled = process.metric(&proxy::closed("stalled")).await;
    let displaced = process.metric(&proxy::closed("displaced")).await;
    let closed = stalled + displaced;
    println!(
        "{refused} requests refused, {unread} answers not read and {closed} connections closed for it, \
         {hung_up} requests abandoned, {reset} streams reset"
    );
    assert!(
        [refused, unread, displaced, hung_up, reset].iter().all(|count| *count > 0),
        "a hostile client had no effect"
    );
    assert!(answers > 0 && errors.is_empty(), "{} errors: {:?}", errors.len(), errors.first());
    assert!(most as f64 <= 1.35 * (CACHE + BESIDE) as f64, "{} MiB", most >> 20);
    eventually("nothing in flight", || async {
        client::metric(&process.admin_url(), "holdfast_upstream_in_flight").await == 0
    })
    .await;
    let rest = Instant::now() + REST;
    loop {
        let (files, tasks) = (process.open_files(), process.metric("holdfast_tasks").await);
        if files <= files_before + FEW && tasks <= tasks_before + FEW {
            println!("{tasks} tasks and {files} files, {tasks_before} and {files_before} before");
            break;
        }
        assert!(
            Instant::now() < rest,
            "{tasks} tasks and {files} files are left, {tasks_before} and {files_before} there were before"
        );
        time::sleep(Duration::from_millis(500)).await;
    }
}
