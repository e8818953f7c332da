//! Slow, idle and greedy peers: time-outs, unread answers, and limits on connections, requests and bytes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use holdfast::{app::raise_file_limit, devchain::Fault};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpSocket, TcpStream},
    time::{self, Instant},
};

use crate::support::{
    client::{self, PATIENCE, Raw, Response, post, post_head},
    eventually, proxy, upstream,
};

/// A short time-out for tests. No test must be faster than this.
const SHORT: Duration = Duration::from_millis(300);

/// Enough time for clients that are not slow on purpose. The time-outs apply to the admin listener, too.
const ENOUGH: Duration = Duration::from_secs(2);

/// A time longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(600);

const BIG: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",true]}"#;

// ## Time-outs

#[tokio::test]
async fn slow_request_head_times_out() {
    let node = upstream::devchain().run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.connections.head_timeout = ENOUGH).run().await;

    // One client is slow on its first request, the other on its second.
    let given_up = [0, 1].map(async |calls| {
        let mut client = Raw::connect(proxy.address()).await;
        for _ in 0..calls {
            assert_eq!(client.call("eth_chainId").await.status, 200);
        }
        let (mut reader, mut writer) = client.0.into_split();
        let dribble = async {
            for letter in b"POST / HTTP/1.1\r\nx-slow: ".iter().copied().chain(std::iter::repeat(b'x')) {
                if writer.write_u8(letter).await.is_err() {
                    break;
                }
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut read = Vec::new();
        tokio::select! {
            () = dribble => {}
            _ = reader.read_to_end(&mut read) => assert!(read.is_empty()),
            () = time::sleep(PATIENCE) => panic!("the server does not close the connection"),
        }
    });
    join_all(given_up).await;
    assert_eq!(proxy.metric(&proxy::closed("head")).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_body_is_cut_off_at_the_limit() {
    let node = upstream::devchain().run().await;
    let limit = bytesize::ByteSize::kib(256);
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_body = limit).run().await;
    let client = Raw::connect(proxy.address()).await;

    let (mut reader, mut writer) = client.0.into_split();
    let send = async {
        let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).await?;
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        loop {
            writer.write_all(chunk.as_bytes()).await?;
        }
    };
    let mut read = Vec::new();
    let (sent, _) = time::timeout(PATIENCE, async { tokio::join!(send, reader.read_to_end(&mut read)) })
        .await
        .expect("it is cut off");
    let _: io::Result<std::convert::Infallible> = sent;
    let answer = String::from_utf8_lossy(&read);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:?}");
    assert!(answer.contains("connection: close\r\n"), "the connection must not be reused: {answer:?}");
}

#[tokio::test]
async fn short_unread_body_keeps_the_connection_open() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let mut client = Raw::connect(proxy.address()).await;
    // The server refuses the request because of its headers.
    let refused = post(r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#)
        .replace("content-type: application/json", "content-type: text/plain");
    for _ in 0..3 {
        client.write(&refused).await;
        let answer = client.response().await;
        assert_eq!((answer.status.as_u16(), answer.header("connection")), (415, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_sends_too_much_gets_413() {
    let node = upstream::devchain().run().await;
    let limit = bytesize::ByteSize::kib(64);
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_body = limit).run().await;

    for client in [client::http(&proxy), client::http2(&proxy)] {
        for _ in 0..10 {
            let answer = client.send(vec![b' '; 4 << 20]).await;
            assert_eq!((answer.status.as_u16(), answer.code()), (413, Some(-32600)));
        }
    }
}

// ## Unread answers

#[tokio::test]
async fn client_that_reads_no_answers_is_closed() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.connections.stall_timeout = SHORT).run().await;
    let client = client::http(&proxy);
    node.clear_calls();

    let mut greedy = Raw::connect(proxy.address()).await;
    greedy.write(post(BIG).repeat(300)).await;
    let stalled = proxy::closed("stalled");
    eventually("the greedy one is closed", async || {
        assert!(client.ask("eth_blockNumber", json!([])).await.is_ok());
        proxy.metric(&stalled).await == 1
    })
    .await;
    // The proxy does not fetch blocks for answers that the client does not read.
    assert!(node.count("eth_getBlockByNumber") < 100, "{}", node.count("eth_getBlockByNumber"));
    assert!(client.ask("eth_gasPrice", json!([])).await.is_ok());
}

/// Opens an HTTP/2 connection whose streams accept `window` bytes, and more only if the test releases capacity.
async fn h2_client(
    proxy: &proxy::Proxy,
    window: u32,
) -> (h2::client::SendRequest<Bytes>, h2::client::Connection<TcpStream, Bytes>) {
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    h2::client::Builder::new().initial_window_size(window).handshake(stream).await.unwrap()
}

async fn h2_ask(send: &mut h2::client::SendRequest<Bytes>, body: &'static str) -> h2::client::ResponseFuture {
    h2_ask_with(send, http::HeaderMap::new(), body).await
}

async fn h2_ask_with(
    send: &mut h2::client::SendRequest<Bytes>,
    headers: http::HeaderMap,
    body: &'static str,
) -> h2::client::ResponseFuture {
    let mut request = http::Request::post("http://localhost/").header("content-type", "application/json");
    request.headers_mut().unwrap().extend(headers);
    *send = send.clone().ready().await.unwrap();
    let (response, mut stream) = send.send_request(request.body(()).unwrap(), false).unwrap();
    stream.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
    response
}

#[tokio::test]
async fn http2_client_without_window_is_closed_as_stalled() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    // There are two request slots. If closing the connection did not free its slot, the server would shed other
    // clients.
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.connections.stall_timeout = SHORT * 3;
            config.http.max_in_flight = 2;
        })
        .run()
        .await;
    let client = client::http(&proxy);

    // The client reads nothing, or only the beginning, or nothing while it sends pings.
    for (at, (window, pings)) in [(0, false), (100_000, false), (0, true)].into_iter().enumerate() {
        let (mut send, mut connection) = h2_client(&proxy, window).await;
        let mut ping_pong = connection.ping_pong().unwrap();
        let ended = tokio::spawn(connection);
        let response = h2_ask(&mut send, BIG).await;
        let (head, _body) = response.await.unwrap().into_parts();
        assert_eq!(head.status, 200);

        let alive = async {
            while ping_pong.ping(h2::Ping::opaque()).await.is_ok() {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        let others = async {
            while client.ask("eth_blockNumber", json!([])).await.is_ok() {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = ended => {}
            () = alive, if pings => {}
            () = others => panic!("others are not served"),
            () = time::sleep(PATIENCE) => panic!("it is not closed: window {window}, pings {pings}"),
        }
        let closed = proxy.metric(&proxy::closed("stalled")).await;
        assert_eq!(closed, at as u64 + 1, "window {window}, pings {pings}");
    }
}

#[tokio::test]
async fn slow_but_steady_reader_is_not_closed() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let proxy =
        proxy::new().upstream(&node).config(|config| config.connections.stall_timeout = ENOUGH).run().await;
    let direct = node.answer("eth_getBlockByNumber", ("latest", true)).unwrap();

    let (mut send, connection) = h2_client(&proxy, 65_535).await;
    tokio::spawn(connection);
    let mut body = h2_ask(&mut send, BIG).await.await.unwrap().into_body();
    let begun = Instant::now();
    let (mut taken, mut rests) = (0, 0);
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        taken += piece.len();
        body.flow_control().release_capacity(piece.len()).unwrap();
        // The client pauses after each 16 KiB, regardless of the sizes of the pieces.
        if taken >> 14 > rests {
            rests = taken >> 14;
            time::sleep(ENOUGH / 20).await;
        }
    }
    assert!(taken > direct.len());
    assert!(begun.elapsed() > ENOUGH, "too fast to show anything: {:?}", begun.elapsed());
    assert_eq!(proxy.metric(&proxy::closed("stalled")).await, 0);
}

/// A connection that never reads.
struct Unread(TcpStream);

impl AsyncRead for Unread {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Unread {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn unread_http2_answers_count_as_bytes_in_flight() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let limit = bytesize::ByteSize::mib(8);
    let proxy = proxy::new().upstream(&node).config(|config| config.max_bytes_in_flight = limit).run().await;
    let client = client::http(&proxy);

    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let mut greedy = h2::client::Builder::new();
    greedy.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
    let (mut send, connection) = greedy.handshake::<_, Bytes>(Unread(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut untaken = Vec::new();
    for _ in 0..90 {
        untaken.push(h2_ask(&mut send, BIG).await);
    }
    // Answers that do not fit into the kernel's buffers still count toward the limit, because the connection does not
    // copy them into a buffer of its own.
    eventually("large answers are refused", async || client.send(BIG).await.status == 503).await;
    assert_eq!(client.call("eth_chainId", json!([])).await.status, 200);

    connection.abort();
    eventually("there is room again", async || client.send(BIG).await.status == 200).await;
}

/// Opens a connection with a small receive buffer, so that the kernel holds almost nothing of an unread answer.
async fn narrow(proxy: &proxy::Proxy) -> Raw {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Raw(socket.connect(proxy.address()).await.unwrap())
}

/// Returns a call for a large block with the size of its answer, and a batch of such calls with the size of its
/// answer. The batch's answer is larger than the socket buffers of both sides.
fn big_and_bigger(node: &upstream::Node) -> ((String, usize), (String, usize)) {
    let params = json!([format!("{:#x}", node.head().hash), true]);
    let size = node.answer("eth_getBlockByHash", &params).unwrap().len();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash", "params": params });
    let many = (12 << 20) / size;
    ((call.to_string(), size), (post(&json!(vec![call; many]).to_string()), many * size))
}

#[tokio::test]
async fn unread_http1_answers_count_as_bytes_of_their_client() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let ((big, size), (bigger, much)) = big_and_bigger(&node);
    // The limit suffices for two such batches, but not for one more large block.
    let limit = bytesize::ByteSize::b((2 * much + size / 2) as u64);
    let proxy =
        proxy::new().upstream(&node).config(|config| config.max_bytes_per_client = Some(limit)).run().await;
    let client = client::http(&proxy);
    assert_eq!(client.send(big.clone()).await.status, 200);

    let mut unread = [narrow(&proxy).await, narrow(&proxy).await];
    for client in &mut unread {
        client.write(&bigger).await;
    }
    eventually("large answers are refused", async || client.send(big.clone()).await.status == 503).await;
    assert_eq!(client.call("eth_chainId", json!([])).await.status, 200);
    // Clients at another address are not affected.
    let other = client::from("127.0.0.9".parse().unwrap(), &proxy.url());
    assert_eq!(other.send(big.clone()).await.status, 200);

    drop(unread);
    eventually("there is room again", async || client.send(big.clone()).await.status == 200).await;
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_answer_is_sent() {
    let node = upstream::devchain().blocks(1, 1000).run().await;
    let (_, (bigger, _)) = big_and_bigger(&node);
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_in_flight = 2).run().await;
    let client = client::http(&proxy);

    let mut unread = [narrow(&proxy).await, narrow(&proxy).await];
    for client in &mut unread {
        client.write(&bigger).await;
        // The answer has begun to arrive.
        assert_eq!(client.0.read_u8().await.unwrap(), b'H');
    }
    assert_eq!(client.call("eth_chainId", json!([])).await.status, 503);

    drop(unread);
    eventually("there is room again", async || client.call("eth_chainId", json!([])).await.status == 200)
        .await;
}

#[tokio::test]
async fn http2_heads_and_streams_are_limited() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let call: &'static str = client::call("eth_chainId").leak();
    let padded = |bytes: usize| {
        let value = http::HeaderValue::from_str(&"x".repeat(1 << 10)).unwrap();
        (0..bytes >> 10).map(|at| (format!("x-{at}").parse().unwrap(), value.clone())).collect()
    };
    let (mut send, connection) = h2_client(&proxy, 65_535).await;
    tokio::spawn(connection);
    let fits = h2_ask_with(&mut send, padded(48 << 10), call).await.await.unwrap();
    assert_eq!(fits.status(), 200);
    let refused = h2_ask_with(&mut send, padded(256 << 10), call).await.await;
    assert!(refused.as_ref().map_or(true, |answer| answer.status() == 431), "{refused:?}");
    // By now the client has received the server's settings.
    assert!(send.current_max_send_streams() <= 128, "{}", send.current_max_send_streams());

    let (mut send, connection) = h2_client(&proxy, 65_535).await;
    tokio::spawn(connection);
    assert_eq!(h2_ask(&mut send, call).await.await.unwrap().status(), 200);
}

// ## Many connections

#[tokio::test]
async fn idle_connections_do_not_delay_other_clients() {
    raise_file_limit(8192);
    let node = upstream::devchain().blocks(1, 1000).run().await;
    // The idle connections must not time out.
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.connections.first_byte_timeout = FOR_EVER)
        .run()
        .await;
    let client = client::http(&proxy);

    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(Raw::connect(proxy.address()).await);
    }
    let mut greedy = Raw::connect(proxy.address()).await;
    greedy.write(post(BIG).repeat(100)).await;
    eventually("all are connected", async || proxy.metric("holdfast_connections").await >= 1001).await;

    for _ in 0..100 {
        assert!(client.ask("eth_blockNumber", json!([])).await.is_ok());
    }
    assert!(client::http(&proxy).ask("eth_chainId", json!([])).await.is_ok());
    // The server has closed none of the idle connections to make room.
    assert_eq!(proxy.metric(&proxy::closed("displaced")).await, 0);
    assert_eq!(idle.first_mut().unwrap().call("eth_chainId").await.status, 200);
}

#[tokio::test]
async fn an_idle_connection_makes_room_for_a_newcomer() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.connections.max = 2).run().await;

    // One connection has sent nothing, one is between calls, and one waits for its answer.
    let mut silent = Raw::connect(proxy.address()).await;
    let mut between = Raw::connect(proxy.address()).await;
    assert_eq!(between.call("eth_chainId").await.status, 200);
    let mut busy = Raw::connect(proxy.address()).await;
    node.fail(Fault::Delay(ENOUGH)).on("eth_gasPrice").once();
    busy.write(post(&client::call("eth_gasPrice"))).await;
    eventually("the call arrives", async || node.count("eth_gasPrice") == 1).await;

    let mut first = Raw::connect(proxy.address()).await;
    assert_eq!(first.call("eth_chainId").await.status, 200);
    let mut second = Raw::connect(proxy.address()).await;
    assert_eq!(second.call("eth_chainId").await.status, 200);
    assert_eq!(between.read_to_end().await, "");
    assert_eq!(first.read_to_end().await, "");
    assert_eq!(proxy.metric(&proxy::closed("displaced")).await, 2);

    // The busy connection stays, and so does the one without a request, which takes one of the extra places.
    assert_eq!(busy.response().await.status, 200);
    assert!(time::timeout(SHORT, silent.0.read_u8()).await.is_err());
}

#[tokio::test]
async fn unfinished_heads_make_room_for_newcomers() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| {
            config.connections.max = 2;
            config.connections.head_timeout = FOR_EVER;
        })
        .run()
        .await;

    let mut idle = Raw::connect(proxy.address()).await;
    assert_eq!(idle.call("eth_chainId").await.status, 200);
    let mut later = Raw::connect(proxy.address()).await;
    assert_eq!(later.call("eth_chainId").await.status, 200);
    later.write("POST / HTT").await;
    let mut newcomer = Raw::connect(proxy.address()).await;
    assert_eq!(newcomer.call("eth_chainId").await.status, 200);
    assert_eq!(later.read_to_end().await, "");
    assert_eq!(
        idle.call("eth_chainId").await.status,
        200,
        "an idle connection goes after an unfinished head"
    );

    // A listener of this size has eight extra places for connections whose first head is unfinished.
    let mut half_sent = Vec::new();
    for half in 1..=9 {
        let mut client = Raw::connect(proxy.address()).await;
        client.write("POST / HTT").await;
        half_sent.push(client);
        // A network that has other newcomers waits for its next one.
        let open = 2 + half.min(8);
        eventually("it is open", async || proxy.metric("holdfast_connections").await == open).await;
    }
    assert_eq!(half_sent[0].read_to_end().await, "", "the oldest one goes");
    assert_eq!(idle.call("eth_chainId").await.status, 200);
    assert_eq!(proxy.metric(&proxy::closed("displaced")).await, 2);
}

#[tokio::test]
async fn few_newcomers_are_served_while_all_connections_are_busy() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.connections.max = 2).run().await;
    node.fail(Fault::Hang).on("eth_gasPrice").always();

    // All have the same address, and a listener of this size serves eight that exceed its limit.
    let mut busy = Vec::new();
    for arrived in 1..=10 {
        let mut client = Raw::connect(proxy.address()).await;
        client.write(post(&client::call("eth_gasPrice"))).await;
        eventually("the call arrives", async || node.count("eth_gasPrice") == arrived).await;
        busy.push(client);
    }
    let mut newcomer = Raw::connect(proxy.address()).await;
    newcomer.write(post(&client::call("eth_gasPrice"))).await;
    assert_eq!(newcomer.read_to_end().await, "", "no connection may be closed for it");
    assert_eq!(proxy.metric(&proxy::closed("displaced")).await, 1);

    drop(busy.pop());
    eventually("there is room again", async || proxy.metric("holdfast_connections").await == 9).await;
    let mut newcomer = Raw::connect(proxy.address()).await;
    assert_eq!(newcomer.call("eth_chainId").await.status, 200);
}

// ## Overload

#[tokio::test]
async fn requests_over_the_limit_are_shed_before_their_bodies() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).config(|config| config.http.max_in_flight = 2).run().await;
    let client = client::http(&proxy);
    let body = client::call("eth_chainId");

    let mut holders = Vec::new();
    for _ in 0..2 {
        let mut holder = Raw::connect(proxy.address()).await;
        holder.write(post_head(body.len())).await;
        holders.push(holder);
    }
    eventually("requests are shed", async || client.call("eth_chainId", json!([])).await.status == 503).await;

    let mut shed = Raw::connect(proxy.address()).await;
    shed.write(post_head(1000)).await;
    let answer = shed.response().await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, Some(-32013)));
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let page =
        client.post().header("content-type", "application/json").header("origin", "https://example.org");
    let answer = Response::of(page.body(body.clone())).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, Some(-32013)));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));

    // The admitted requests are served, and afterwards every client is.
    for mut holder in holders {
        holder.write(&body).await;
        assert_eq!(holder.response().await.status, 200);
    }
    for _ in 0..10 {
        assert_eq!(client.call("eth_chainId", json!([])).await.status, 200);
    }
}

#[tokio::test]
async fn bytes_over_the_limit_are_refused() {
    let node = upstream::devchain().run().await;
    let limit = bytesize::ByteSize::kib(256);
    let proxy = proxy::new().upstream(&node).config(|config| config.max_bytes_in_flight = limit).run().await;
    let client = client::http(&proxy);
    let padded = format!("{}{}", " ".repeat(100 << 10), client::call("eth_chainId"));
    assert_eq!(client.send(padded.clone()).await.status, 200);

    // While the content of a buffer moves into a larger buffer, both count towards the limit.
    let mut holder = Raw::connect(proxy.address()).await;
    holder.write(post_head(255 << 10)).await;
    holder.write(vec![b' '; 120 << 10]).await;
    eventually("bytes are refused", async || client.send(padded.clone()).await.status == 503).await;
    let answer = client.send(padded.clone()).await;
    assert_eq!(answer.code(), Some(-32013));
    assert!(answer.header("retry-after").is_some());
    // Small requests always fit.
    assert_eq!(client.call("eth_chainId", json!([])).await.status, 200);

    drop(holder);
    eventually("bytes are given back", async || client.send(padded.clone()).await.status == 200).await;
}
