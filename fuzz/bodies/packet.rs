//! Properties of the packet parser for arbitrary bytes from a client.

use bytes::{Buf, Bytes};
use holdfast::{
    eth::{LogsCall, Query},
    jsonrpc::{Answer, Call, Entry, Packet, PacketError, Params, RawId, ReplyWriter},
};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

const LOGS: &str = "eth_getLogs";

/// Small enough that random bytes exceed it.
const SMALL_BATCH: usize = 2;

/// Parses `data` as a packet, answers it, and panics if a property does not hold.
pub fn packet(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let read = Packet::read(&body, usize::MAX);
    agrees_with_serde_json(data, &read);
    the_limit_changes_nothing_else(&body, &read);
    if let Ok(packet) = read {
        entries(&packet).iter().for_each(|entry| check_entry(entry, &body));
        replies_carry_the_ids(&packet);
    }
}

fn entries(packet: &Packet) -> &[Entry] {
    match packet {
        Packet::Single(entry) => std::slice::from_ref(entry),
        Packet::Batch(entries) => entries,
    }
}

/// Checks that the parser and `serde_json` agree whether `data` is JSON, and on the number of entries.
fn agrees_with_serde_json(data: &[u8], read: &Result<Packet, PacketError>) {
    // `IgnoredAny` does not check that strings are UTF-8.
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(matches!(read, Err(PacketError::NotUtf8 { .. })), "{read:?}");
        return;
    };
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let elements = serde_json::from_str::<Vec<IgnoredAny>>(text).ok().map(|elements| elements.len());
    match read {
        Ok(Packet::Single(_)) => assert!(is_json && elements.is_none(), "{text:?}"),
        Ok(Packet::Batch(entries)) => assert_eq!(Some(entries.len()), elements, "{text:?}"),
        Err(PacketError::EmptyBatch) => assert_eq!(elements, Some(0), "{text:?}"),
        Err(PacketError::NotJson(error)) => {
            assert!(!is_json, "{text:?}: {error}");
            assert!(error.at <= text.len(), "{text:?}: {error}");
        }
        Err(PacketError::NotUtf8 { .. } | PacketError::BatchTooLong { .. }) => panic!("{text:?}: {read:?}"),
    }
}

fn the_limit_changes_nothing_else(body: &Bytes, read: &Result<Packet, PacketError>) {
    let limited = Packet::read(body, SMALL_BATCH);
    match (&limited, read) {
        // The parser stops at the limit, so it does not notice that the rest is not JSON.
        (Err(PacketError::BatchTooLong { max }), Err(PacketError::NotJson(_))) => {
            assert_eq!(*max, SMALL_BATCH);
        }
        (Err(PacketError::BatchTooLong { .. }), Ok(Packet::Batch(entries))) => {
            assert!(entries.len() > SMALL_BATCH);
        }
        (Ok(limited), Ok(packet)) => {
            assert_eq!(entries(limited).len(), entries(packet).len());
            assert!(matches!(packet, Packet::Single(_)) || entries(packet).len() <= SMALL_BATCH);
        }
        (Err(limited), Err(error)) => assert_eq!(limited, error),
        _ => panic!("{limited:?}, but {read:?}"),
    }
}

fn check_entry(entry: &Entry, body: &Bytes) {
    match entry {
        Entry::Call(Call { id, method, params }) => {
            if let Some(id) = id {
                check_id(id, body);
            }
            let _ = method.as_str();
            check_params(params, body);
        }
        Entry::Refused { id, error } => {
            if *id != RawId::NULL {
                check_id(id, body);
            }
            serde_json::from_slice::<IgnoredAny>(&error.to_json()).expect("an error is JSON");
        }
        Entry::Ignored => {}
    }
}

/// Checks that the id is a number, a string or null of the body.
fn check_id(id: &RawId, body: &Bytes) {
    let raw = id.as_bytes();
    assert!(body.windows(raw.len()).any(|there| there == raw), "{id:?} is not in the body");
    // A long id is not copied.
    assert!(raw.len() < 32 || is_within(raw, body), "{id:?} is a copy");
    assert!(
        serde_json::from_slice::<&RawValue>(raw).is_ok_and(|value| value.get().as_bytes() == raw),
        "{id:?}"
    );
    assert!(!matches!(raw[0], b'[' | b'{' | b't' | b'f'), "{id:?}");
}

/// Checks that the params are an array within the body, with the same elements as in `serde_json`.
fn check_params(params: &Params, body: &Bytes) {
    let raw = params.as_bytes();
    assert!(*params == Params::EMPTY || is_within(raw, body), "{params:?} is a copy");
    let elements: Vec<&RawValue> = serde_json::from_slice(raw).expect("params are an array");
    if let Some(call) = LogsCall::read(LOGS, params) {
        assert_eq!(LogsCall::read(LOGS, &call.params()), Some(call), "{params:?}");
    }
    assert!(params.elements().eq(elements.iter().map(|element| element.get())), "{params:?}");

    // A query parses to itself from its own canonical params.
    for method in Query::METHODS {
        if let Some(Ok(query)) = Query::read(method, params) {
            assert_eq!(Query::read(method, &query.params()), Some(Ok(query)));
        }
    }
}

/// Answers every entry, with its own params as the result, and checks the bytes of the replies.
fn replies_carry_the_ids(packet: &Packet) {
    let mut writer = match packet {
        Packet::Single(_) => ReplyWriter::single(),
        Packet::Batch(_) => ReplyWriter::batch(),
    };
    let mut expected = Vec::new();
    for entry in entries(packet) {
        let (id, member, answer) = match entry {
            Entry::Call(Call { id: Some(id), params, .. }) => {
                (id, "result", Answer::Result(params.as_bytes().clone()))
            }
            Entry::Refused { id, error } => (id, "error", Answer::from(error)),
            Entry::Call(Call { id: None, .. }) | Entry::Ignored => continue,
        };
        let (Answer::Result(text) | Answer::Error(text)) = &answer;
        let parts: [&[u8]; 7] =
            [br#"{"jsonrpc":"2.0","id":"#, id.as_bytes(), b",\"", member.as_bytes(), b"\":", text, b"}"];
        expected.push(parts.concat());
        writer.write(id, answer);
    }
    assert_eq!(writer.is_empty(), expected.is_empty());

    let expected = match packet {
        Packet::Batch(_) if !expected.is_empty() => {
            [b"[", expected.join(&b","[..]).as_slice(), b"]"].concat()
        }
        _ => expected.concat(),
    };
    assert_eq!(writer.len() + usize::from(expected.starts_with(b"[")), expected.len());
    let written = writer.finish().map(|mut rope| rope.copy_to_bytes(rope.remaining()));
    assert_eq!(written.as_deref().unwrap_or_default(), expected);
    if let Some(written) = written {
        serde_json::from_slice::<IgnoredAny>(&written).expect("replies are JSON");
    }
}

fn is_within(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}
