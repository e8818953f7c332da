//! Cached answers as gzip. The proxy deflates each entry once, builds answers around the deflated bytes, and never
//! uses the deflated form of replaced content.

use std::{
    io::Read,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    process::Command,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use bytesize::ByteSize;
use flate2::{Decompress, FlushDecompress, read::GzDecoder};
use holdfast::{
    cache::{self, Cache, Deflated, Whole},
    config::Config,
    devchain::DevChain,
    eth::{At, Block, BlockHash, BlockNumber},
    verify::{self, Verified},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    client::{self, Response},
    eventually,
    in_memory::{self, InMemory},
    program::{output, text},
    proxy, tools, upstream,
};

fn call(method: &str, params: &Value, id: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn is_gzip(response: &http::Response<Bytes>) -> bool {
    response.headers().get("content-encoding").is_some_and(|encoding| encoding == "gzip")
}

/// Repeats a call until the answer is gzip. Returns the answer and the number of plain answers before it.
async fn until_gzip(program: &InMemory, body: &str) -> (Bytes, usize) {
    for plain in 0..1000 {
        let response = program.respond(body.to_owned()).await;
        if is_gzip(&response) {
            return (response.into_body(), plain);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the answer stays plain: {body}");
}

fn hash_at(chain: &DevChain, number: u64) -> String {
    chain.hash_at(number).unwrap().to_string()
}

#[tokio::test]
async fn blocks_and_receipts_are_gzip_after_their_second_hit() {
    let chain = upstream::devchain().blocks(3, 40).chain();
    let mut config = Config::default();
    config.chain.max_staleness = Duration::from_secs(3600);
    let program = in_memory::program(&chain, &config);
    let gzip = program.clone().accepting("gzip, deflate, br");
    let hash = hash_at(&chain, 2);
    let asked = [
        ("eth_getBlockByNumber", json!(["0x2", true])),
        ("eth_getBlockByNumber", json!(["0x2", false])),
        ("eth_getBlockReceipts", json!([hash])),
    ];
    for ((method, params), made) in asked.into_iter().zip(1..) {
        let body = call(method, &params, &json!("an \"id\" é"));
        // The first hit marks the entry; the second deflates it.
        while gzip.respond(body.clone()).await.headers()["cache-status"]
            .as_bytes()
            .starts_with(b"holdfast; fwd")
        {}
        let response = gzip.respond(body.clone()).await;
        assert!(!is_gzip(&response), "{method}: the second hit must still be plain");
        assert_eq!(response.headers()["vary"], "accept-encoding");
        eventually("a deflated form", || async { program.metric("contents_deflated_total") == made }).await;
        let (answer, plain) = until_gzip(&gzip, &body).await;
        assert!(plain <= 1, "{method}: {plain}");
        let told = program.respond(body.clone()).await;
        assert!(!is_gzip(&told) && !told.headers().contains_key("vary"), "{:?}", told.headers());
        assert!(told.body() == &answer, "{method}");
        let response = gzip.respond(body).await;
        assert_eq!(response.headers()["vary"], "accept-encoding");
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(response.headers()["cache-status"].as_bytes().starts_with(b"holdfast; hit"));
    }
    // The call by hash uses the same deflated block as the call by number.
    let by_hash = call("eth_getBlockByHash", &json!([hash, true]), &json!(1));
    assert!(is_gzip(&gzip.respond(by_hash).await));
    assert_eq!(program.metric("contents_deflated_total"), 3, "each entry is deflated once");
    let sent = program.metric("responses_compressed_total");
    assert!(sent >= 7 && program.metric("response_bytes_saved_total") > sent * 1024, "{sent}");
}

#[tokio::test]
async fn batch_is_gzip_if_any_of_its_answers_is_deflated() {
    let chain = upstream::devchain().blocks(3, 40).chain();
    let program = in_memory::program(&chain, &Config::default());
    let gzip = program.clone().accepting("gzip");
    let block = call("eth_getBlockByNumber", &json!(["0x2", true]), &json!(1));
    let receipts = call("eth_getBlockReceipts", &json!(["0x2"]), &json!(2.5));
    let id = call("eth_chainId", &json!([]), &json!("x"));
    let wrong = call("eth_getBlockByNumber", &json!(["0x02", true]), &Value::Null);
    let other = call("eth_getBlockByNumber", &json!(["0x3", true]), &json!(3));
    for body in [&block, &receipts] {
        until_gzip(&gzip, body).await;
    }
    let transaction = call("eth_getTransactionByBlockNumberAndIndex", &json!(["0x2", "0x1"]), &json!(3));
    for (calls, expected) in [
        (vec![&id, &block, &wrong, &receipts, &other], true),
        (vec![&block, &block, &receipts], true),
        (vec![&id, &transaction, &wrong], false),
    ] {
        let calls: Vec<_> = calls.into_iter().map(String::as_str).collect();
        let body = format!("[{}]", calls.join(","));
        let answer = gzip.respond(body.clone()).await;
        assert_eq!(is_gzip(&answer), expected, "{}", calls.len());
        assert!(answer.body() == program.respond(body).await.body());
    }
}

#[tokio::test]
async fn clients_that_decline_gzip_get_plain_answers() {
    let chain = upstream::devchain().blocks(3, 40).chain();
    let off = Config {
        http: holdfast::http::Config { compress: false, ..Default::default() },
        ..Config::default()
    };
    for (config, accepted, varies) in [
        (Config::default(), None, false),
        (Config::default(), Some("identity"), true),
        (Config::default(), Some("gzip;q=0, *"), true),
        (Config::default(), Some("gzip;q=0.5, identity"), true),
        (Config::default(), Some("deflate, br, zstd"), true),
        (off, Some("gzip"), false),
    ] {
        let program = in_memory::program(&chain, &config);
        let program = accepted.map_or(program.clone(), |accepted| program.accepting(accepted));
        for _ in 0..6 {
            let body = call("eth_getBlockByNumber", &json!(["0x2", true]), &json!(1));
            let response = program.respond(body).await;
            assert!(!is_gzip(&response), "{accepted:?}");
            assert_eq!(response.headers().contains_key("vary"), varies, "{accepted:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(program.metric("contents_deflated_total"), 0, "{accepted:?}");
    }
}

#[tokio::test]
async fn small_answers_parts_and_errors_stay_plain() {
    let chain = upstream::devchain().blocks(3, 40).chain();
    chain.mine(0);
    let program = in_memory::program(&chain, &Config::default()).accepting("gzip");
    let transaction = chain.transactions_of(chain.hash_at(2).unwrap())[1].to_string();
    for (method, params) in [
        ("eth_getTransactionByHash", json!([transaction])),
        ("eth_getTransactionReceipt", json!([transaction])),
        ("eth_getTransactionByBlockNumberAndIndex", json!(["0x2", "0x1"])),
        ("eth_getBlockTransactionCountByNumber", json!(["0x2"])),
        ("eth_getBlockReceipts", json!(["0x4"])),
        ("eth_getBlockByNumber", json!(["0x02", true])),
        ("eth_getBlockByNumber", json!(["0xffff", true])),
    ] {
        for _ in 0..6 {
            assert!(!is_gzip(&program.respond(call(method, &params, &json!(1))).await), "{method}");
        }
    }
    for garbage in ["garbage", "", "[]"] {
        assert!(!is_gzip(&program.respond(garbage).await), "{garbage:?}");
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(program.metric("contents_deflated_total"), 0);
}

#[tokio::test]
async fn orphan_is_served_as_gzip_by_hash_but_not_by_number() {
    let chain = upstream::devchain().blocks(5, 40).chain();
    let mut config = in_memory::consistent();
    config.chain.max_staleness = Duration::ZERO;
    let program = in_memory::program(&chain, &config);
    let gzip = program.clone().accepting("gzip");
    let old = hash_at(&chain, 5);
    let by_number = call("eth_getBlockByNumber", &json!(["0x5", true]), &json!(1));
    let by_hash = call("eth_getBlockByHash", &json!([old, true]), &json!(1));
    until_gzip(&gzip, &by_number).await;
    until_gzip(&gzip, &by_hash).await;

    chain.reorg(1, 2);
    let new = hash_at(&chain, 5);
    assert_ne!(old, new);
    let told = |response: &http::Response<Bytes>| -> Value {
        serde_json::from_slice::<Value>(response.body()).unwrap()["result"]["hash"].clone()
    };
    assert_eq!(told(&gzip.respond(by_number.clone()).await), new);
    let answer = gzip.respond(by_hash.clone()).await;
    assert_eq!(told(&answer), old);
    assert!(is_gzip(&answer));
    assert!(answer.body() == program.respond(by_hash).await.body());
    let (answer, _) = until_gzip(&gzip, &by_number).await;
    assert!(answer == program.respond(by_number).await.body());
}

#[tokio::test]
async fn gzip_has_the_right_length_over_sockets() {
    let node = upstream::devchain().blocks(3, 200).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let body = call("eth_getBlockByNumber", &json!(["0x2", true]), &json!(1));
    for client in [client::http(&proxy), client::http2(&proxy)] {
        let post = || client.post().header("content-type", "application/json").body(body.clone());
        let plain = Response::of(post().header("accept-encoding", "identity")).await;
        assert_eq!(plain.header("content-encoding"), None);
        // The client library requests gzip itself, and removes the header when it decodes the body.
        let saved = proxy.metric("holdfast_responses_compressed_total").await;
        eventually("an answer as gzip", || async {
            assert!(Response::of(post()).await.body == plain.body);
            proxy.metric("holdfast_responses_compressed_total").await > saved
        })
        .await;
    }
    let mut raw = client::Raw::connect(proxy.address()).await;
    let head = client::post_head(body.len()).replace("host:", "accept-encoding: gzip\r\nhost:");
    for _ in 0..3 {
        // All requests use one connection, where a wrong length would break the next answer.
        raw.write(format!("{head}{body}")).await;
        let response = raw.response().await;
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert!(response.header("vary").is_some_and(|vary| vary.contains("accept-encoding")));
        assert_eq!(response.header("content-length"), Some(response.body.len().to_string().as_str()));
        assert!(response.body.len() < 100_000, "{}", response.body.len());
    }
}

/// Returns the address of this machine in its network, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn forwarded_answers_are_gzip_for_clients_elsewhere() {
    let Some(elsewhere) = own_address() else {
        let test = "gzip::forwarded_answers_are_gzip_for_clients_elsewhere";
        return tools::skip(test, "this machine has no network address");
    };
    let node = upstream::devchain().blocks(100, 1).run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.listen = "0.0.0.0:0".parse().unwrap())
        .run()
        .await;
    let port = proxy.address().port();
    let long = ("eth_feeHistory", json!(["0x64", "latest", [10, 50, 90]]));
    let short = ("eth_gasPrice", json!([]));
    for (address, (method, params), encoding) in [
        (elsewhere, &long, Some("gzip")),
        (elsewhere, &short, None),
        (Ipv4Addr::LOCALHOST.into(), &long, None),
    ] {
        let body = call(method, params, &json!("an id"));
        let mut raw = client::Raw::connect((address, port).into()).await;
        raw.write(format!("{}{body}", client::post_head(body.len()))).await;
        let plain = raw.response().await;
        let truth: Value = serde_json::from_slice(&node.answer(method, params).unwrap()).unwrap();
        assert_eq!((plain.header("content-encoding"), &plain.json()["result"]), (None, &truth), "{address}");
        let head = client::post_head(body.len()).replace("host:", "accept-encoding: gzip\r\nhost:");
        raw.write(format!("{head}{body}")).await;
        let answer = raw.response().await;
        assert_eq!(answer.header("content-encoding"), encoding, "{address} {method}");
        if encoding.is_some() {
            assert!(
                answer.body.len() * 2 < plain.body.len(),
                "{} of {}",
                answer.body.len(),
                plain.body.len()
            );
            let mut text = Vec::new();
            GzDecoder::new(&answer.body[..]).read_to_end(&mut text).unwrap();
            assert!(text == plain.body);
        }
    }
}

#[tokio::test]
async fn vary_lists_both_origin_and_accept_encoding() {
    let node = upstream::devchain().blocks(3, 40).run().await;
    let proxy = proxy::new()
        .upstream(&node)
        .config(|config| config.http.allowed_origins = vec!["https://app.example.org".to_owned()])
        .run()
        .await;
    let post = client::http(&proxy).post().header("content-type", "application/json");
    let post = post.header("origin", "https://app.example.org").header("accept-encoding", "gzip");
    let response = Response::of(post.body(client::call("eth_chainId"))).await;
    let vary: Vec<_> = response.headers.get_all("vary").iter().map(|vary| vary.to_str().unwrap()).collect();
    let vary = vary.join(", ");
    assert!(vary.contains("accept-encoding") && vary.contains("origin"), "{vary}");
}

/// Runs a command with two arguments: the URL of a proxy, and the hash of a block whose forms are all deflated.
async fn run(mut command: Command) {
    let node = upstream::devchain().blocks(3, 100).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let client = client::http(&proxy);
    let hash = hash_at(&node, 2);
    eventually("all forms", || async {
        for (method, params) in [
            ("eth_getBlockByHash", json!([hash, true])),
            ("eth_getBlockByHash", json!([hash, false])),
            ("eth_getBlockReceipts", json!([hash])),
        ] {
            client.call(method, params).await;
        }
        proxy.metric("holdfast_contents_deflated_total").await == 3
    })
    .await;
    command.args([&proxy.url(), &hash]);
    let ran = output(command).await;
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    print!("{}", text(&ran.stdout));
}

#[tokio::test]
async fn python_decodes_gzip() {
    if let Some(command) = tools::bare_script("gzip::python_decodes_gzip", &["python3", "-B"], "gunzip.py") {
        run(command).await;
    }
}

/// `requests` is the library that web3.py uses.
#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn requests_decodes_gzip() {
    if let Some(command) = tools::python_script("gzip::requests_decodes_gzip", "gunzip.py") {
        run(command).await;
    }
}

#[tokio::test]
async fn node_decodes_gzip() {
    if let Some(command) = tools::bare_script("gzip::node_decodes_gzip", &["node"], "gunzip.mjs") {
        run(command).await;
    }
}

#[tokio::test]
#[ignore = "runs in tests/run --all"]
async fn go_decodes_gzip() {
    const TEST: &str = "gzip::go_decodes_gzip";
    if let Some(command) = tools::bare_script(TEST, &["go", "run"], "gunzip.go") {
        run(command).await;
    }
}

#[tokio::test]
async fn curl_decodes_gzip() {
    let Some(curl) = tools::curl("gzip::curl_decodes_gzip") else { return };
    let mut command = Command::new("sh");
    let script = r#"
        set -e
        body="{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getBlockByHash\",\"params\":[\"$2\",true]}"
        ask() { "$0" -sS --fail -H 'content-type: application/json' -d "$body" "$@"; }
        url=$1
        shift 2
        ask -D - -o /dev/null --compressed "$url" | grep -i '^content-encoding: gzip'
        test "$(ask --compressed "$url" | sha256sum)" = "$(ask "$url" | sha256sum)"
        test "$(ask --http2-prior-knowledge --compressed "$url" | sha256sum)" = "$(ask "$url" | sha256sum)"
        # With a decoder other than curl's.
        test "$(ask -H 'accept-encoding: gzip' "$url" | gunzip | sha256sum)" = "$(ask "$url" | sha256sum)"
    "#;
    command.arg("-c").arg(script).arg(curl);
    run(command).await;
}

// === the cache: a deflated form belongs to the served content, or there is none ===

/// Returns a block in two wordings: equal hashes, different bytes.
fn wordings(chain: &DevChain, number: u64) -> [Verified<Block>; 2] {
    let hash = chain.hash_at(number).unwrap();
    let text = chain.block_json(hash, true).unwrap();
    let spaced = Bytes::from(String::from_utf8(text.to_vec()).unwrap().replace("\":", "\": "));
    assert_ne!(text, spaced);
    [text, spaced].map(|text| verify::block(&text, At::Hash(BlockHash(hash))).unwrap())
}

fn inflated(deflated: &Deflated) -> Vec<u8> {
    let mut text = Vec::with_capacity(deflated.len() + 1);
    let mut inflate = Decompress::new(false);
    inflate.decompress_vec(deflated.bytes(), &mut text, FlushDecompress::Sync).unwrap();
    text
}

fn deflate(cache: &Cache, block: &Arc<Verified<Block>>) {
    let whole = Whole::full(block);
    cache.insert_deflated(&whole, Deflated::new(&whole, &block.full()).unwrap());
}

fn cache(size: ByteSize) -> Cache {
    Cache::new(&cache::Config { size, ..Default::default() }, cache::Metrics::default())
}

#[test]
fn deflated_block_is_dropped_with_its_content() {
    let chain = upstream::devchain().blocks(2, 20).chain();
    let cache = cache(ByteSize::mib(8));
    let [first, second] = wordings(&chain, 1);
    let has = |block: &Arc<Verified<Block>>| cache.deflated(&Whole::full(block)).is_some();

    let first = cache.insert_block(first);
    deflate(&cache, &first);
    assert!(has(&first));
    assert!(cache.deflated(&Whole::hashes(&first)).is_none(), "only the full form was deflated");

    // The block is replaced: the new content has no deflated form, and the cache drops the form of the old content.
    let second = cache.insert_block(second);
    assert!(!has(&first) && !has(&second));
    cache.settle();
    assert_eq!(cache.count("deflated"), 0);
    // The cache does not insert a deflated form whose content it has replaced in the meantime.
    deflate(&cache, &first);
    assert!(!has(&first) && !has(&second));
    assert_eq!(cache.count("deflated"), 0);
    // The new content has a deflated form. The old content has none, although a request may still serve it.
    deflate(&cache, &second);
    assert!(!has(&first) && has(&second));

    // Removing a block removes its deflated form, too.
    cache.forget(&cache.held_in(|home| home.block == second.hash()));
    assert!(!has(&second));
    cache.settle();
    assert_eq!((cache.count("deflated"), cache.count("block")), (0, 0));
    deflate(&cache, &second);
    assert!(!has(&second), "a late deflated form must not restore a removed block");

    let [third, _] = wordings(&chain, 1);
    let third = cache.insert_block(third);
    deflate(&cache, &third);
    assert!(has(&third));
    cache.clear();
    assert!(!has(&third));
    deflate(&cache, &third);
    assert!(!has(&third));
}

#[test]
fn deflated_receipts_are_dropped_with_their_content() {
    let chain = upstream::devchain().blocks(2, 20).chain();
    let cache = cache(ByteSize::mib(8));
    let hash = chain.hash_at(1).unwrap();
    let json = chain.receipts_json(hash).unwrap();
    let read = || verify::receipts(&json, BlockHash(hash), BlockNumber(1), None).unwrap();
    let insert = || cache.insert_receipts(read());
    let receipts = insert();
    let whole = Whole::receipts(&receipts).unwrap();
    cache.insert_deflated(&whole, Deflated::new(&whole, &receipts.all()).unwrap());
    assert!(cache.deflated(&whole).is_some_and(|deflated| inflated(&deflated) == receipts.all()));
    cache.remove_unproved_receipts(BlockHash(hash));
    assert!(cache.deflated(&whole).is_none());

    let receipts = insert();
    let whole = Whole::receipts(&receipts).unwrap();
    cache.insert_deflated(&whole, Deflated::new(&whole, &receipts.all()).unwrap());
    assert!(cache.deflated(&whole).is_some());
    insert();
    assert!(cache.deflated(&whole).is_none());
}

#[test]
fn deflated_forms_count_toward_the_cache_size() {
    let chain = upstream::devchain().blocks(60, 10).chain();
    let limit = ByteSize::kib(600);
    let cache = cache(limit);
    for number in 1..=60 {
        let [block, _] = wordings(&chain, number);
        let block = cache.insert_block(block);
        cache.settle();
        let before = cache.sizes().1;
        deflate(&cache, &block);
        cache.settle();
        let (_, after) = cache.sizes();
        assert!(after <= limit.as_u64(), "{after}");
        if number == 1 {
            let deflated = cache.deflated(&Whole::full(&block)).unwrap();
            assert!(after - before >= deflated.bytes().len() as u64, "{before}, {after}");
            assert!(deflated.bytes().len() < deflated.len() * 7 / 10, "{}", deflated.bytes().len());
        }
    }
    assert!(cache.count("deflated") > 1 && cache.count("deflated") < 60);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn deflated_form_always_matches_the_served_content(
        steps in proptest::collection::vec((0usize..7, 0usize..2, 0usize..4), 1..60)
    ) {
        let chain = upstream::devchain().blocks(2, 3).chain();
        let cache = cache(ByteSize::kib(48));
        let blocks = [wordings(&chain, 1), wordings(&chain, 2)];
        // Blocks that concurrent requests still serve or deflate.
        let mut held: Vec<Arc<Verified<Block>>> = Vec::new();
        let mut made: Vec<(Whole, Deflated)> = Vec::new();
        for (step, which, of) in steps {
            let hash = blocks[which][0].hash();
            match step {
                0 | 1 => held.push(cache.insert_block(blocks[which][of % 2].clone())),
                2 => held.extend(cache.block(hash)),
                3 if !held.is_empty() => {
                    let block = &held[of % held.len()];
                    let whole = Whole::full(block);
                    let deflated = Deflated::new(&whole, &block.full()).unwrap();
                    made.push((whole, deflated));
                }
                4 if !made.is_empty() => {
                    let (whole, deflated) = made.swap_remove(of % made.len());
                    cache.insert_deflated(&whole, deflated);
                }
                5 => cache.forget(&cache.held_in(|home| home.block == hash)),
                6 => drop(held.pop()),
                _ => {}
            }
            for block in &held {
                if let Some(deflated) = cache.deflated(&Whole::full(block)) {
                    prop_assert!(inflated(&deflated) == block.full());
                }
            }
        }
    }
}
