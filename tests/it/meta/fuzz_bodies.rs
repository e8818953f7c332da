//! The bodies of the fuzz targets as properties, which run without a fuzzer.
//!
//! Random bytes rarely get past the first bracket, and random tokens rarely form a request. Valid requests and answers
//! with a few mutations reach the code that these miss.

use std::sync::LazyLock;

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use serde_json::{Value, json};

use crate::support::{
    mutate::{Path, inside, places},
    vectors::{Fork, vector},
};

#[path = "../../../fuzz/bodies/answer.rs"]
mod answer;
#[path = "../../../fuzz/bodies/packet.rs"]
mod packet;
#[path = "../../../fuzz/bodies/trace.rs"]
mod trace;
#[path = "../../../fuzz/bodies/verify.rs"]
mod verify;

/// Valid and broken tokens of requests and answers.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    " ",
    "\n",
    "\u{b}",
    "é",
    "\u{feff}",
    "0",
    "-0",
    "01",
    "1.5e+3",
    "1.",
    "-",
    "1180591620717411303424",
    "true",
    "fals",
    "null",
    "nul",
    r#""a""#,
    r#""\u0061""#,
    r#""\ud800""#,
    r#""\x""#,
    r#""\u00"#,
    r#""fromBlock":"0x1""#,
    r#""toBlock":"latest""#,
    r#""topics":[null]"#,
    r#""jsonrpc""#,
    r#""2.0""#,
    r#""jsonrpc":"2.0""#,
    r#""id""#,
    r#""id":1"#,
    r#""\u0069d":null"#,
    r#""method""#,
    r#""method":"m""#,
    r#""params""#,
    r#""params":[]"#,
    r#""params":{}"#,
    r#""result":null"#,
    r#""result""#,
    r#""error""#,
    r#""error":{}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
    r#"{"id":1,"result":0}"#,
];

const ENTRIES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":"\u0061","method":"eth\u005fgetBlockByNumber","params":["latest",true]}"#,
    r#" { "params" : [ "0xAb" , 1.0e3 , {"a":[{}]} , null ] , "method" : "eth_call" , "id" : -0.5 , "jsonrpc" : "2.0" } "#,
    r#"{"jsonrpc":"2.0","method":"eth_subscribe","params":["newHeads"]}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"m","params":{"named":1}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"eth_getTransactionByBlockNumberAndIndex","params":["0x10","0x0"]}"#,
    r#"{"jsonrpc":"2.0","id":3,"result":{"number":"0x1","transactions":["\u0000é🦀"]}}"#,
    r#"{"id":4,"error":{"code":-32000,"message":"header not found","data":null},"jsonrpc":"2.0"}"#,
    r#"{"jsonrpc":"2.0","id":18446744073709551615,"error":null,"result":null}"#,
    r#"[]"#,
    r#"7"#,
];

/// Random sequences of tokens.
fn token_soup() -> impl Strategy<Value = String> {
    vec(select(TOKENS), 0..24).prop_map(|tokens| tokens.concat())
}

/// One entry, or a batch of up to four.
fn good_packet() -> impl Strategy<Value = String> {
    prop_oneof![
        select(ENTRIES).prop_map(ToOwned::to_owned),
        vec(select(ENTRIES), 0..5).prop_map(|entries| format!("[{}]", entries.join(","))),
    ]
}

/// A transmission error.
#[derive(Clone, Debug)]
enum Mutation {
    Cut(Index),
    Drop(Index, usize),
    Set(Index, u8),
    Insert(Index, &'static str),
    Repeat(Index, usize),
}

impl Mutation {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            any::<Index>().prop_map(Self::Cut),
            (any::<Index>(), 1usize..8).prop_map(|(at, len)| Self::Drop(at, len)),
            (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Self::Set(at, byte)),
            (any::<Index>(), select(TOKENS)).prop_map(|(at, token)| Self::Insert(at, token)),
            (any::<Index>(), 1usize..64).prop_map(|(at, len)| Self::Repeat(at, len)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: &Index| at.index(bytes.len() + 1);
        let (at, end, instead) = match self {
            Self::Cut(at) => (place(at), bytes.len(), Vec::new()),
            Self::Drop(at, len) => (place(at), place(at) + len, Vec::new()),
            Self::Set(at, byte) => (place(at), place(at) + 1, vec![*byte]),
            Self::Insert(at, token) => (place(at), place(at), token.as_bytes().to_vec()),
            Self::Repeat(at, len) => {
                let at = place(at);
                (at, at, bytes[at..bytes.len().min(at + len)].to_vec())
            }
        };
        bytes.splice(at..end.min(bytes.len()), instead);
    }
}

fn mutated_packet() -> impl Strategy<Value = Vec<u8>> {
    (good_packet(), vec(Mutation::any(), 0..4)).prop_map(|(packet, mutations)| {
        let mut bytes = packet.into_bytes();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}

/// Trace headers with mutated bytes.
fn damaged_trace() -> impl Strategy<Value = Vec<u8>> {
    let version = select(vec!["00", "01", "cc", "ff"]);
    let states =
        vec(select(vec!["a=b", "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", "a=b,,c=d", "x", ""]), 0..3);
    (version, states, vec(Mutation::any(), 0..3)).prop_map(|(version, states, mutations)| {
        let parent = format!("{version}-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let mut bytes = [vec![parent.as_str()], states].concat().join("\n").into_bytes();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}

/// A valid block and its receipts.
struct Content {
    block: Value,
    receipts: Value,
    places: Vec<Path>,
}

static CONTENT: LazyLock<Content> = LazyLock::new(|| {
    let vector = vector(Fork::Prague);
    let block = serde_json::from_str(&vector.block).unwrap();
    let receipts = serde_json::from_str(&vector.receipts).unwrap();
    let places = places(&block).into_iter().chain(places(&receipts)).collect();
    Content { block, receipts, places }
});

/// Unexpected values.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(vec![
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!(""),
            json!("0x"),
            json!("0x0"),
            json!("0x00"),
            json!("0x0x0"),
            json!("0X1"),
            json!("0xg"),
            json!("\u{e9}"),
            json!([]),
            json!([[]]),
            json!([null]),
            json!({}),
            json!({ "": {} }),
            json!(["0x1"]),
        ]),
        (1usize..70, any::<u8>()).prop_map(|(length, digit)| {
            json!(format!(
                "0x{}",
                char::from_digit(u32::from(digit % 16), 16).unwrap_or('0').to_string().repeat(length)
            ))
        }),
        select(TOKENS).prop_map(|token| json!(token)),
    ]
}

/// The content, with up to two values replaced.
fn odd_content() -> impl Strategy<Value = Vec<u8>> {
    vec((any::<Index>(), odd_value()), 0..3).prop_map(|replaced| {
        let (mut block, mut receipts) = (CONTENT.block.clone(), CONTENT.receipts.clone());
        for (place, value) in replaced {
            let path = &CONTENT.places[place.index(CONTENT.places.len())];
            for whole in [&mut block, &mut receipts] {
                // The path may belong to the other value, or lead through a replaced one.
                if let Some(found) = path.iter().try_fold(whole, |whole, step| inside(whole, step)) {
                    *found = value.clone();
                }
            }
        }
        format!("{block}\0{receipts}").into_bytes()
    })
}

/// The content, or a part of it, with mutated bytes.
fn damaged_content() -> impl Strategy<Value = Vec<u8>> {
    let part = select(vec!["", "/transactions/0", "/transactions/9"]);
    (part, vec(Mutation::any(), 0..3)).prop_map(|(part, mutations)| {
        let block = CONTENT.block.pointer(part).unwrap_or(&Value::Null);
        let mut bytes = format!("{block}\0{}", CONTENT.receipts).into_bytes();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn verifier_handles_any_value_in_valid_content(bytes in odd_content()) {
        verify::verify(&bytes);
    }

    #[test]
    fn verifier_handles_damaged_content(bytes in damaged_content()) {
        verify::verify(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsers_handle_any_bytes(bytes in vec(any::<u8>(), 0..64)) {
        packet::packet(&bytes);
        answer::answer(&bytes);
        verify::verify(&bytes);
        trace::trace(&bytes);
    }

    #[test]
    fn trace_parser_handles_damaged_headers(bytes in damaged_trace()) {
        trace::trace(&bytes);
    }

    #[test]
    fn parsers_handle_any_tokens(text in token_soup()) {
        packet::packet(text.as_bytes());
        answer::answer(text.as_bytes());
        verify::verify(text.as_bytes());
    }

    #[test]
    fn parsers_handle_damaged_packets(bytes in mutated_packet()) {
        packet::packet(&bytes);
        answer::answer(&bytes);
        verify::verify(&bytes);
    }
}

#[test]
fn parsers_handle_deep_and_wide_json() {
    let deep = 100_000;
    for (open, close) in [("[", "]"), (r#"{"":"#, "}"), (r#"{"params":["#, "]}")] {
        let inner = if close == "}" { "1" } else { "" };
        let good = [open.repeat(deep).as_str(), inner, &close.repeat(deep)].concat();
        let call =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","result":{good},"params":[{good},{good}]}}"#);
        for text in [good.clone(), open.repeat(deep), call, format!("[{}0]", "0,".repeat(deep))] {
            packet::packet(text.as_bytes());
            answer::answer(text.as_bytes());
            verify::verify(text.as_bytes());
        }
    }
}

#[test]
fn verifier_handles_deep_and_wide_content() {
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    let names: String = (0..20_000).map(|name| format!("\"{name}\":0,")).collect();
    let (block, receipts) = (CONTENT.block.to_string(), CONTENT.receipts.to_string());
    let content = |block: &str, receipts: &str| format!("{block}\0{receipts}").into_bytes();
    for extra in [format!("\"deep\":{deep},"), names] {
        // Adds the member to the block, to transactions, and to receipts and logs.
        for (at, _) in block.match_indices('{').take(3) {
            let more = [&block[..=at], &extra, &block[at + 1..]].concat();
            verify::verify(&content(&more, &receipts));
        }
        for (at, _) in receipts.match_indices('{').take(3) {
            let more = [&receipts[..=at], &extra, &receipts[at + 1..]].concat();
            verify::verify(&content(&block, &more));
        }
    }
    for (name, _) in CONTENT.block.as_object().unwrap() {
        let replaced = block.replacen(&format!("\"{name}\":"), &format!("\"{name}\":{deep},\"x\":"), 1);
        verify::verify(&content(&replaced, &receipts));
    }
}
