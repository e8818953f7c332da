//! Connection limits: one address cannot crowd out others, and a refused request closes its connection.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use holdfast::{app::raise_file_limit, devchain::Fault};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::Builder,
    task::{self, JoinSet},
    time::{self, Instant},
};

use super::{KEY, key};
use crate::support::{
    client::{self, Raw, post},
    eventually, process, proxy, upstream,
};

const HOSTILE: &str = "127.0.0.2";
const VICTIM: &str = "127.0.0.3";

/// Connects from this loopback address.
async fn connect_from(from: &str, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0))?;
    socket.connect(to).await
}

/// Opens one connection after the other and sends requests over each until the server closes it. Keeps the last
/// four open on the client side. Every second connection sends bodies that the server does not read.
async fn crowd(to: SocketAddr, requests: Arc<AtomicU64>) {
    let mut displaced = VecDeque::new();
    for unread in [false, true].into_iter().cycle() {
        let mut request = post(&client::call("eth_chainId"));
        if unread {
            request = request.replace("application/json", "text/plain");
        }
        let Ok(mut stream) = connect_from(HOSTILE, to).await else {
            time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let mut answer = [0; 4096];
        while stream.write_all(request.as_bytes()).await.is_ok()
            && matches!(time::timeout(Duration::from_secs(5), stream.read(&mut answer)).await, Ok(Ok(1..)))
        {
            requests.fetch_add(1, Relaxed);
            time::sleep(Duration::from_millis(50)).await;
        }
        displaced.push_back(stream);
        if displaced.len() > 4 {
            displaced.pop_front();
        }
    }
}

#[tokio::test]
async fn crowd_of_one_address_displaces_only_its_own_connections() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.connections.max = 8).run().await;
    let mut lasting = Raw(connect_from(VICTIM, proxy.address()).await.unwrap());
    assert_eq!(lasting.call("eth_chainId").await.status, 200);
    let requests = Arc::new(AtomicU64::new(0));
    let mut hostile = JoinSet::new();
    for _ in 0..24 {
        hostile.spawn(crowd(proxy.address(), requests.clone()));
    }
    eventually("the server displaces hostile connections", async || {
        requests.load(Relaxed) > 24 && proxy.metric(&proxy::closed("displaced")).await > 24
    })
    .await;
    for _ in 0..20 {
        let newcomer = client::from(VICTIM.parse().unwrap(), &proxy.url());
        assert!(newcomer.ask("eth_chainId", json!([])).await.is_ok());
    }
    assert_eq!(lasting.call("eth_chainId").await.status, 200, "an idle connection of another address stays");
}

#[tokio::test]
async fn busy_connections_of_one_address_make_room_for_another() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.connections.max = 4).run().await;
    node.fail(Fault::Hang).on("eth_gasPrice").always();
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut client = Raw(connect_from(HOSTILE, proxy.address()).await.unwrap());
        client.write(post(&client::call("eth_gasPrice"))).await;
        busy.push(client);
    }
    eventually("their calls arrive", async || node.count("eth_gasPrice") == 4).await;
    let newcomer = client::from(VICTIM.parse().unwrap(), &proxy.url());
    assert!(newcomer.ask("eth_chainId", json!([])).await.is_ok());
    assert_eq!(proxy.metric(&proxy::closed("displaced")).await, 1);
}

/// Requests several large blocks over one connection after the other, and reads 1 KiB of them per second.
async fn read_slowly(from: &str, to: SocketAddr, request: String, reading: Arc<AtomicU64>) {
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        // With a small buffer, the kernel holds almost nothing of an unread answer.
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0)).unwrap();
        if let Ok(mut stream) = socket.connect(to).await
            && stream.write_all(request.as_bytes()).await.is_ok()
        {
            let mut answer = [0; 1024];
            let mut is_first = true;
            while let Ok(1..) = stream.read(&mut answer).await {
                let is_answer = answer.starts_with(b"HTTP/1.1 200");
                reading.fetch_add(u64::from(std::mem::take(&mut is_first) && is_answer), Relaxed);
                time::sleep(Duration::from_secs(1)).await;
            }
        }
        time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_two_addresses_do_not_shut_out_a_third() {
    raise_file_limit(8192);
    let node = upstream::devchain().blocks(1, 1000).run().await;
    // The default limits of a listener that is not on loopback.
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.http.max_per_client = Some(config.http.max_in_flight / 2);
            config.max_bytes_per_client =
                Some(bytesize::ByteSize::b(config.max_bytes_in_flight.as_u64() / 2));
        })
        .run()
        .await;
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash",
        "params": [format!("{:#x}", node.head().hash), true],
    });
    // The answer is larger than the kernel's socket buffers.
    let request = post(&json!(vec![call; 8]).to_string());
    let reading = Arc::new(AtomicU64::new(0));
    let mut slow = JoinSet::new();
    for at in 0..1200 {
        let from = if at % 2 == 0 { HOSTILE } else { "127.0.0.4" };
        slow.spawn(read_slowly(from, proxy.address(), request.clone(), reading.clone()));
    }
    eventually("slow readers hold connections and answers", async || {
        reading.load(Relaxed) > 32 && proxy.metric(&proxy::closed("displaced")).await > 0
    })
    .await;
    for _ in 0..100 {
        let newcomer = client::from(VICTIM.parse().unwrap(), &proxy.url());
        // On a busy machine, the requests of the slow readers may all be in flight for a moment.
        eventually("a newcomer is served", async || {
            newcomer.call("eth_chainId", json!([])).await.status == 200
        })
        .await;
    }
    assert!(proxy.metric("holdfast_connections").await > 900);
}

/// Holds a connection open from this address without sending anything, and replaces it when the server closes it.
async fn stay_silent(from: String, to: SocketAddr) {
    loop {
        let mut stream = connect_from(&from, to).await.unwrap();
        let _ = stream.read_u8().await;
        time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends 45 requests with a valid key over one connection, and returns the number of those without an answer. Opens
/// another connection after each of these.
async fn lost_requests(to: SocketAddr) -> u32 {
    let (mut lost, mut open) = (0, None);
    for _ in 0..45 {
        let answered = time::timeout(Duration::from_secs(10), async {
            let mut stream = match open.take() {
                Some(stream) => stream,
                None => connect_from(VICTIM, to).await?,
            };
            stream.write_all(keyed(KEY).as_bytes()).await?;
            let mut answer = [0; 4096];
            let length = stream.read(&mut answer).await?;
            Ok::<_, std::io::Error>(answer[..length].starts_with(b"HTTP/1.1 200").then_some(stream))
        });
        open = answered.await.ok().and_then(Result::ok).flatten();
        lost += u32::from(open.is_none());
        time::sleep(Duration::from_millis(100)).await;
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_many_addresses_displace_no_key() {
    raise_file_limit(8192);
    let node = upstream::devchain().run().await;
    for addresses in [30, 103] {
        let keys = vec![key("wallet", KEY)];
        let proxy = proxy::new().upstream(&node).config(|config| config.http.keys = keys).run().await;
        let displaced = proxy::closed("displaced");
        let mut silent = JoinSet::new();
        for at in 0..1030 {
            silent.spawn(stay_silent(format!("127.0.1.{}", 1 + at % addresses), proxy.address()));
            // Too many at once would overflow the backlog, and wait for a retransmission.
            time::sleep(Duration::from_millis(1)).await;
        }
        eventually("the listener is full", async || proxy.metric(&displaced).await > 0).await;
        let pool: JoinSet<_> = (0..40).map(|_| lost_requests(proxy.address())).collect();
        let lost: u32 = pool.join_all().await.into_iter().sum();
        let displaced = proxy.metric(&displaced).await;
        println!("{addresses} addresses: {lost} of 1800 requests lost, {displaced} connections displaced");
        assert_eq!(lost, 0, "{addresses} addresses");
    }
}

// ## Refused requests

/// Returns a request with `key` in `x-api-key`.
fn keyed(key: &str) -> String {
    let head = format!("POST / HTTP/1.1\r\nx-api-key: {key}\r\n");
    post(&client::call("eth_chainId")).replace("POST / HTTP/1.1\r\n", &head)
}

#[tokio::test]
async fn connection_without_a_key_is_closed_after_the_refusal() {
    let node = upstream::devchain().run().await;
    let keys = proxy::new().upstream(&node).config(|config| config.http.keys = vec![key("wallet", KEY)]);
    let proxy = keys.clone().run().await;
    let mut stranger = Raw::connect(proxy.address()).await;
    let refused = stranger.call("eth_chainId").await;
    assert_eq!((refused.status.as_u16(), refused.header("connection")), (401, Some("close")));
    assert_eq!(stranger.read_to_end().await, "");

    let mut known = Raw::connect(proxy.address()).await;
    known.write(keyed(KEY)).await;
    assert_eq!(known.response().await.status, 200);
    assert_eq!(known.call("eth_chainId").await.status, 401);
    known.write(keyed(KEY)).await;
    assert_eq!(known.response().await.status, 200, "a connection with a valid key lasts");

    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let behind = keys.config(|config| config.http.trusted_proxies = proxies).run().await;
    let mut proxied = Raw::connect(behind.address()).await;
    for _ in 0..3 {
        assert_eq!(proxied.call("eth_chainId").await.status, 401);
    }
}

/// Starts a proxy that answers one call an hour to each client.
async fn one_call_an_hour(node: &upstream::Node) -> proxy::Proxy {
    let proxy = proxy::new().upstream(node).config(|config| config.http.rate = "1/h".parse().ok());
    proxy.config(|config| config.http.burst = std::num::NonZeroU32::new(1)).run().await
}

#[tokio::test]
async fn connection_for_another_host_or_over_its_rate_is_closed() {
    let node = upstream::devchain().run().await;
    let proxy = one_call_an_hour(&node).await;
    let mut rebound = Raw::connect(proxy.address()).await;
    rebound.write(post(&client::call("eth_chainId")).replace("localhost", "evil.example.org")).await;
    assert_eq!(rebound.response().await.status, 403);
    assert_eq!(rebound.read_to_end().await, "");
    let mut often = Raw::connect(proxy.address()).await;
    assert_eq!(often.call("eth_chainId").await.status, 200);
    assert_eq!(often.call("eth_chainId").await.status, 429);
    assert_eq!(often.read_to_end().await, "");
}

#[tokio::test]
async fn refused_stream_ends_its_connection_once_others_are_answered() {
    let node = upstream::devchain().run().await;
    let proxy = one_call_an_hour(&node).await;
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut ask = |method: &str| {
        let request = http::Request::post("http://localhost/").header("content-type", "application/json");
        let (response, mut stream) = send.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from(client::call(method)), true).unwrap();
        response
    };
    node.fail(Fault::Delay(Duration::from_millis(500))).on("eth_gasPrice").once();
    let slow = ask("eth_gasPrice");
    eventually("the call arrives", async || node.count("eth_gasPrice") == 1).await;
    assert_eq!(ask("eth_chainId").await.unwrap().status(), 429);
    let slow = slow.await.unwrap();
    assert_eq!(slow.status(), 200, "an open stream is answered");
    drop(slow);
    time::timeout(client::PATIENCE, ended).await.expect("the connection ends").unwrap().unwrap();
}

// ## Measurements, run by hand

/// Number of hostile connections.
const CROWD: usize = 1500;

/// Number of requests that the measured client sends in five seconds.
const REQUESTS: u32 = 50;

/// Returns the number of answers within five seconds to a client that sends ten requests a second, each over a new
/// connection. The client runs on its own thread, so that it waits for the program and not for other tasks of the
/// test.
async fn answers(to: SocketAddr, request: &str) -> u32 {
    let request = request.to_owned();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    task::spawn_blocking(move || runtime.block_on(count_answers(to, &request))).await.unwrap()
}

async fn count_answers(to: SocketAddr, request: &str) -> u32 {
    let (begun, mut answered) = (Instant::now(), 0);
    for at in 0..REQUESTS {
        time::sleep_until(begun + Duration::from_millis(100) * at).await;
        let answer = time::timeout(Duration::from_secs(2), async {
            let mut stream = connect_from(VICTIM, to).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = vec![0; 4096];
            let length = stream.read(&mut answer).await?;
            Ok::<_, std::io::Error>(answer[..length].starts_with(b"HTTP/1.1 200"))
        });
        answered += u32::from(matches!(answer.await, Ok(Ok(true))));
        if begun.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
    answered
}

/// Returns the number of answers to a client beside a crowd of another address, and the number of requests that the
/// crowd gets answered meanwhile.
async fn answers_beside_a_crowd(to: SocketAddr, request: &str) -> (u32, u64) {
    let requests = Arc::new(AtomicU64::new(0));
    let mut hostile = JoinSet::new();
    for _ in 0..CROWD {
        hostile.spawn(crowd(to, requests.clone()));
    }
    time::sleep(Duration::from_secs(2)).await;
    let before = requests.load(Relaxed);
    let answered = answers(to, request).await;
    (answered, requests.load(Relaxed) - before)
}

/// Compares a client beside a crowd at a full listener with the same client beside the same crowd at a listener with
/// room for all, in interleaved rounds, without and with keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "a measurement for a release build; docs/performance.md has the command"]
async fn victim_of_a_crowd_keeps_its_answers() {
    raise_file_limit(32_768);
    let node = upstream::devchain().run().await;
    let hash = holdfast::http::KeyHash::of(KEY.as_bytes()).to_string();
    let file = crate::support::program::file(
        "crowding.toml",
        &format!("[[http.keys]]\nname = \"wallet\"\nsha256 = \"{hash}\"\n"),
    );
    let none = crate::support::program::file("crowding-without-keys.toml", "");
    for (name, file, request) in
        [("without keys", &none, post(&client::call("eth_chainId"))), ("with keys", &file, keyed(KEY))]
    {
        let full = process::serve(&node).file(file).run().await;
        let roomy = process::serve(&node).file(file).set("CONNECTIONS__MAX", "8192").run().await;
        let mut ratios = Vec::new();
        for round in 1..=5 {
            let (crowded, requests) = answers_beside_a_crowd(full.address(), &request).await;
            let (control, others) = answers_beside_a_crowd(roomy.address(), &request).await;
            println!(
                "{name}, round {round}: {crowded} answers beside {requests} requests of {CROWD} connections; \
                 {control} beside {others} where no connection is displaced"
            );
            ratios.push(f64::from(crowded) / f64::from(control.max(1)));
        }
        assert_eq!(roomy.metric(&proxy::closed("displaced")).await, 0);
        ratios.sort_by(f64::total_cmp);
        println!("{name}: median {:.2} of {ratios:.2?}", ratios[2]);
        assert!(ratios[2] >= 0.9, "{name}: {ratios:?}");
    }
}
