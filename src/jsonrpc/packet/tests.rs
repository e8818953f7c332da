use proptest::prelude::*;

use super::*;
use crate::jsonrpc::{Answer, ReplyWriter};

fn read(body: &str) -> Result<Packet, PacketError> {
    Packet::read(&Bytes::copy_from_slice(body.as_bytes()), 10)
}

fn single(body: &str) -> Entry {
    match read(body).unwrap() {
        Packet::Single(entry) => entry,
        Packet::Batch(_) => panic!("a batch: {body}"),
    }
}

fn call(body: &str) -> Call {
    match single(body) {
        Entry::Call(call) => call,
        other => panic!("not a call: {other:?}"),
    }
}

fn refusal(body: &str) -> (String, Code) {
    match single(body) {
        Entry::Refused { id, error } => (String::from_utf8(id.as_bytes().to_vec()).unwrap(), error.code),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_call_is_read_as_slices_of_the_body() {
    let body = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[1, 2]}"#);
    let Ok(Packet::Single(Entry::Call(call))) = Packet::read(&body, 1) else { panic!() };
    assert_eq!(call.method.as_str(), "eth_call");
    assert_eq!(call.params.as_bytes(), "[1, 2]");
    let within = body.as_ptr_range();
    assert!(within.contains(&call.params.as_bytes().as_ptr()));
    assert!(within.contains(&call.method.as_str().as_ptr()));
}

#[test]
fn escaped_member_names_are_recognized() {
    let call = call(r#"{"\u006asonrpc":"2\u002e0","id":1,"m\u0065thod":"eth\u005fcall"}"#);
    assert_eq!(call.method.as_str(), "eth_call");
}

#[test]
fn last_duplicate_member_wins() {
    let call = call(
        r#"{"id":1,"jsonrpc":"1.0","method":"a","params":[1],"id":2,"jsonrpc":"2.0","method":"b","params":[2]}"#,
    );
    assert_eq!(call.id.unwrap().as_bytes(), b"2");
    assert_eq!(call.method.as_str(), "b");
    assert_eq!(call.params.as_bytes(), "[2]");
}

#[test]
fn no_id_is_a_notification_and_null_is_an_id() {
    assert!(call(r#"{"jsonrpc":"2.0","method":"a"}"#).id.is_none());
    assert_eq!(call(r#"{"jsonrpc":"2.0","method":"a","id":null}"#).id, Some(RawId::NULL));
}

#[test]
fn params_may_be_left_out_or_null() {
    assert_eq!(call(r#"{"jsonrpc":"2.0","method":"a","id":1}"#).params, Params::EMPTY);
    assert_eq!(call(r#"{"jsonrpc":"2.0","method":"a","id":1,"params":null}"#).params, Params::EMPTY);
}

#[test]
fn invalid_requests_are_refused_with_their_id() {
    for (body, id, code) in [
        (r#"5"#, "null", Code::InvalidRequest),
        (r#""eth_call""#, "null", Code::InvalidRequest),
        (r#"{}"#, "null", Code::InvalidRequest),
        (r#"{"id":7}"#, "7", Code::InvalidRequest),
        (r#"{"id":7,"jsonrpc":"2.0"}"#, "7", Code::InvalidRequest),
        (r#"{"id":7,"jsonrpc":2.0,"method":"a"}"#, "7", Code::InvalidRequest),
        (r#"{"id":7,"jsonrpc":"2.0","method":1}"#, "7", Code::InvalidRequest),
        (r#"{"id":true,"jsonrpc":"2.0","method":"a"}"#, "null", Code::InvalidRequest),
        (r#"{"id":[1],"jsonrpc":"2.0","method":"a"}"#, "null", Code::InvalidRequest),
        (r#"{"id":7,"jsonrpc":"2.0","method":"a","params":{}}"#, "7", Code::InvalidParams),
        (r#"{"id":7,"jsonrpc":"2.0","method":"a","params":"x"}"#, "7", Code::InvalidParams),
    ] {
        assert_eq!(refusal(body), (id.to_owned(), code), "{body}");
    }
    assert!(matches!(single(r#"{"jsonrpc":"2.0","method":"a","params":{}}"#), Entry::Ignored));
}

#[test]
fn malformed_and_oversized_batches_are_refused_whole() {
    assert_eq!(read("[]").unwrap_err(), PacketError::EmptyBatch);
    assert_eq!(read(&format!("[{}1]", "1,".repeat(10))).unwrap_err(), PacketError::BatchTooLong { max: 10 });
    for body in
        ["", " ", "{", "[1,]", r#"{"id":1}x"#, "[1] [2]", "\u{feff}{}", "[{]", r#"{"id":1,"#, r#"{"id":1,}"#]
    {
        assert!(matches!(read(body), Err(PacketError::NotJson(_))), "{body}");
    }
    let bytes = Bytes::from_static(b"[\"\xff\"]");
    assert_eq!(Packet::read(&bytes, 1).unwrap_err(), PacketError::NotUtf8 { at: 2 });
}

/// Generates any JSON text that is a valid id.
pub(super) fn any_id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        proptest::collection::vec(any::<u16>(), 0..8)
            .prop_map(
                |units| units.iter().fold("\"".to_owned(), |id, unit| format!("{id}\\u{unit:04x}")) + "\""
            ),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?",
    ]
}

/// Generates an entry of a batch, with the id and error code of its answer; `None` if it gets no answer.
fn any_entry() -> impl Strategy<Value = (String, Option<(String, Option<Code>)>)> {
    prop_oneof![
        any_id().prop_map(|id| (
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":[{{"deep":[[1]]}}]}}"#),
            Some((id, None))
        )),
        any_id().prop_map(|id| (format!(r#"{{"id" : {id}}}"#), Some((id, Some(Code::InvalidRequest))))),
        any_id().prop_map(|id| (
            format!(r#"{{"params":{{}},"method":"m","id":{id},"jsonrpc":"2.0"}}"#),
            Some((id, Some(Code::InvalidParams)))
        )),
        Just((r#"{"jsonrpc":"2.0","method":"note"}"#.to_owned(), None)),
        prop_oneof![Just("1"), Just("null"), Just("[]"), Just("[[{}]]"), Just("\"x\""), Just("{}")]
            .prop_map(|junk| (junk.to_owned(), Some(("null".to_owned(), Some(Code::InvalidRequest))))),
    ]
}

proptest! {
    #[test]
    fn any_id_is_returned_byte_for_byte(id in any_id(), space in "[ \n\t]{0,2}") {
        let call = call(&format!(r#"{{"jsonrpc":"2.0","id":{space}{id}{space},"method":"m"}}"#));
        let mut writer = ReplyWriter::single();
        writer.write(&call.id.unwrap(), Answer::Result(Bytes::from_static(b"0")));
        let reply: Vec<u8> = writer.finish().unwrap().take_piece(usize::MAX).to_vec();
        prop_assert_eq!(String::from_utf8(reply).unwrap(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":0}}"#));
    }

    #[test]
    fn packets_are_valid_json(tokens in proptest::collection::vec(proptest::sample::select(&[
        "{", "}", "[", "]", ",", ":", "\"id\":", "\"id\"", "\"jsonrpc\":", "\"method\" :", "\"params\":", "1", "\"2.0\"", " ",
    ][..]), 0..14)) {
        let text = tokens.concat();
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(!matches!(read(&text), Err(PacketError::NotJson(_))), is_json, "{}", text);
    }

    #[test]
    fn any_mix_of_entries_is_parsed_in_order(entries in proptest::collection::vec(any_entry(), 1..10)) {
        let texts: Vec<_> = entries.iter().map(|(text, _)| text.as_str()).collect();
        let Packet::Batch(read) = read(&format!(" [ {} ] ", texts.join(" , "))).unwrap() else { panic!() };
        let got: Vec<_> = read.into_iter().filter_map(|entry| match entry {
            Entry::Call(call) => call.id.map(|id| (id, None)),
            Entry::Refused { id, error } => Some((id, Some(error.code))),
            Entry::Ignored => None,
        }).map(|(id, code)| (String::from_utf8(id.as_bytes().to_vec()).unwrap(), code)).collect();
        let expected: Vec<_> = entries.into_iter().filter_map(|(_, expected)| expected).collect();
        prop_assert_eq!(got, expected);
    }
}
