//! HTTP requests from which the proxy can read no JSON-RPC request. It refuses them with an HTTP status, and with a
//! JSON-RPC error as the body if clients expect one.
//!
//! The tables also contain unusual but valid requests.

use std::time::Duration;

use bytes::Bytes;
use bytesize::ByteSize;
use reqwest::RequestBuilder;

use super::{INVALID_REQUEST, PARSE, Reply};
use crate::support::client::{self, Client};

/// The limits in force for these tables.
pub(super) const MAX_BODY: ByteSize = ByteSize(2048);
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// A good call.
pub(super) const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

/// The expected response to a request.
pub(super) struct Back {
    pub(super) status: u16,
    body: Body,
}

enum Body {
    /// An error with this code and id `null`, whose message contains these words.
    Error(i64, &'static str),
    /// The answer to [`CALL`].
    Result,
    /// Plain text, not JSON, that contains these words.
    Text(&'static str),
}

const fn refused(status: u16, says: &'static str) -> Back {
    Back { status, body: Body::Error(INVALID_REQUEST, says) }
}

const fn text(status: u16, says: &'static str) -> Back {
    Back { status, body: Body::Text(says) }
}

const FINE: Back = Back { status: 200, body: Body::Result };

/// Requests that an HTTP client library can send.
#[rustfmt::skip]
pub(super) fn requests(client: &Client) -> Vec<(&'static str, RequestBuilder, Back)> {
    const POST: &str = "send JSON-RPC calls with POST";
    const TYPE: &str = "send the header content-type: application/json";
    const SOCKET: &str = "WebSocket is not served here";
    let request = |method: &str| client.request(method.parse().unwrap());
    let typed = |content_type: &str| client.post().header("content-type", content_type).body(CALL);
    let multipart = "--x\r\ncontent-disposition: form-data; name=\"q\"\r\n\r\n1\r\n--x--\r\n";
    let socket = |request: RequestBuilder| {
        request.header("connection", "upgrade").header("upgrade", "WebSocket").header("sec-websocket-version", "13")
    };
    vec![
        // Methods.
        ("GET",                         request("GET"),                                        text(200, "Its status is at http://127.0.0.1:")),
        ("GET with a call",             request("GET").header("content-type", "application/json").body(CALL), text(200, "point a wallet at it")),
        ("GET by a browser",            request("GET").header("accept", "text/html,*/*"),      text(200, "Its status is at http://127.0.0.1:")),
        ("HEAD",                        request("HEAD"),                                       text(200, "")),
        ("PUT",                         request("PUT").header("content-type", "application/json").body(CALL), refused(405, POST)),
        ("PATCH",                       request("PATCH").header("content-type", "application/json").body(CALL), refused(405, POST)),
        ("DELETE",                      request("DELETE"),                                     refused(405, POST)),
        ("TRACE",                       request("TRACE"),                                      refused(405, POST)),
        ("a method of its own",         request("BREW"),                                       refused(405, POST)),
        ("post in small letters",       request("post").header("content-type", "application/json").body(CALL), refused(405, POST)),
        ("a WebSocket",                 socket(request("GET")),                                refused(405, SOCKET)),
        ("a WebSocket by POST",         socket(typed("application/json")),                     refused(405, SOCKET)),
        // Content types.
        ("no content type",             client.post().body(CALL),                              FINE),
        ("no content type, a web page", client.post().header("origin", "https://page.example").body(CALL), refused(415, TYPE)),
        ("an empty content type",       typed(""),                                             refused(415, TYPE)),
        ("text/plain",                  typed("text/plain"),                                   refused(415, TYPE)),
        ("text/json",                   typed("text/json"),                                    refused(415, TYPE)),
        ("application/jsonx",           typed("application/jsonx"),                            refused(415, TYPE)),
        ("application/json-rpc",        typed("application/json-rpc"),                         FINE),
        ("application/vnd.api+json",    typed("application/vnd.api+json"),                     refused(415, TYPE)),
        ("application",                 typed("application"),                                  refused(415, TYPE)),
        ("json",                        typed("json"),                                         refused(415, TYPE)),
        ("*/*",                         typed("*/*"),                                          refused(415, TYPE)),
        ("two types in one",            typed("text/plain, application/json"),                 refused(415, TYPE)),
        ("a type as a parameter",       typed("text/plain; x=application/json"),               refused(415, TYPE)),
        ("a form",                      typed("application/x-www-form-urlencoded"),            refused(415, TYPE)),
        ("a form in parts",             typed("multipart/form-data; boundary=x").body(multipart), refused(415, TYPE)),
        ("a form without a type",       client.post().body("q=1"),                             Back { status: 200, body: Body::Error(PARSE, "the body is not JSON") }),
        ("a packed body",               client.post().header("content-type", "application/json").header("content-encoding", "gzip").body(CALL), refused(415, "send the body uncompressed")),
        ("a body packed as itself",     client.post().header("content-type", "application/json").header("content-encoding", "identity").body(CALL), FINE),
        ("a type that is no text",      client.post().header("content-type", b"application/json\xff".as_slice()).body(CALL), refused(415, TYPE)),
        ("neither body nor type",       client.post(),                                         Back { status: 200, body: Body::Error(PARSE, "the body is not JSON") }),
        // Odd but valid.
        ("a body of just the limit",    typed("application/json").body(format!("{CALL:2048}")), FINE),
        ("a charset",                   typed("application/json; charset=utf-8"),              FINE),
        ("a charset and odd case",      typed("Application/JSON ;Charset=\"UTF-8\""),          FINE),
        ("an empty parameter",          typed("application/json;"),                            FINE),
        ("a parameter unheard of",      typed("application/json; q=1; boundary=x"),            FINE),
        ("another accepted type",       typed("application/json").header("accept", "text/html"), FINE),
        ("another upgrade",             typed("application/json").header("connection", "upgrade").header("upgrade", "h2c"), FINE),
    ]
}

/// Requests that no library would send, as raw bytes.
#[rustfmt::skip]
pub(super) fn bytes() -> Vec<(&'static str, Bytes, Back)> {
    const LARGE: &str = "the body is larger than 2048 bytes";
    const LATE: &str = "the body did not arrive within 1 s";
    let post = |headers: &str, body: &str| {
        Bytes::from(format!("POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}\r\n{body}"))
    };
    let chunk = |len: usize| format!("{len:x}\r\n{}\r\n", " ".repeat(len));
    let call = format!("{:x}\r\n{CALL}\r\n", CALL.len());
    let length = CALL.len();
    let chunked = "transfer-encoding: chunked\r\n";
    vec![
        // Bodies. A body announced as too large is refused before it arrives. After a body that never ends, the proxy
        // closes the connection, though the client has not asked for that.
        ("announced too large",          post("content-length: 2049\r\n", ""),                        refused(413, LARGE)),
        ("announced far too large",      post("content-length: 1099511627776\r\n", ""),               refused(413, LARGE)),
        ("announced, asking to go on",   post("expect: 100-continue\r\ncontent-length: 2049\r\n", ""), refused(413, LARGE)),
        ("too large in one chunk",       post(chunked, &chunk(2049)),                                 refused(413, LARGE)),
        ("too large in two",             post(chunked, &[chunk(2048), chunk(1)].concat()),            refused(413, LARGE)),
        ("too large in many",            post(chunked, &chunk(1).repeat(2049)),                       refused(413, LARGE)),
        ("shorter than announced",       Bytes::from(client::post_head(99) + CALL),                   refused(408, LATE)),
        ("no last chunk",                post(chunked, &call),                                        refused(408, LATE)),
        ("a chunk of no length",         post(chunked, "x\r\n"),                                      refused(400, "the body is incomplete")),
        // Request heads that hyper refuses, without a body.
        ("a length that is no number",   post("content-length: many\r\n", CALL),                      text(400, "")),
        ("a length past all numbers",    post("content-length: 99999999999999999999\r\n", ""),        text(400, "")),
        ("a negative length",            post("content-length: -1\r\n", CALL),                        text(400, "")),
        ("two lengths",                  post(&format!("content-length: {length}\r\ncontent-length: 1\r\n"), CALL), text(400, "")),
        ("an encoding not last chunked", post("transfer-encoding: chunked, gzip\r\n", CALL),          text(400, "")),
        ("a head too large",             post(&format!("x-long: {}\r\n", "x".repeat(70_000)), ""),    text(431, "")),
        ("too many headers",             post(&"x: y\r\n".repeat(200), ""),                           text(431, "")),
        ("a name with a space",          post("bad name: x\r\n", ""),                                 text(400, "")),
        ("not HTTP",                     "hello\r\n\r\n".into(),                                      text(400, "")),
        ("JSON without HTTP",            format!("{CALL}\r\n\r\n").into(),                            text(400, "")),
        ("TLS",                          b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".as_slice().into(), text(400, "")),
        ("a version unheard of",         "POST / HTTP/7.0\r\nhost: localhost\r\n\r\n".into(),                 text(400, "")),
        // Odd but valid.
        ("a body in chunks",             post(chunked, &format!("{call}0\r\n\r\n")),                  FINE),
        ("a line break after the body",  post(&format!("content-length: {length}\r\n"), &format!("{CALL}\r\n")), FINE),
        ("a path and a query",           Bytes::from(format!("POST /v3/key?x=y HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{CALL}")), FINE),
        ("HTTP/1.0",                     Bytes::from(format!("POST / HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{CALL}")), FINE),
    ]
}

// === impl Back ===

impl Back {
    pub(super) fn check(&self, name: &str, status: u16, body: &[u8]) {
        assert_eq!(status, self.status, "{name}: {}", String::from_utf8_lossy(body));
        let reply = || -> Reply<'_> {
            serde_json::from_slice(body)
                .unwrap_or_else(|error| panic!("{name}: {error}: {}", String::from_utf8_lossy(body)))
        };
        match self.body {
            Body::Error(code, says) => reply().check(name, Some(code), "null", says),
            Body::Result => reply().check(name, None, "1", ""),
            Body::Text(says) => {
                let body = std::str::from_utf8(body).unwrap();
                assert!(body.contains(says) && !body.starts_with('{'), "{name}: {body}");
            }
        }
    }
}
