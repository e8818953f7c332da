//! Properties of the trace context for arbitrary headers from a client.

use holdfast::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use http::{HeaderMap, HeaderValue};

/// Parses the lines of `data` as headers, the first as `traceparent` and the others as `tracestate`. Panics if the headers
/// to the node violate the standard.
pub fn trace(data: &[u8]) {
    let mut headers = HeaderMap::new();
    let mut lines = data.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok());
    if let Some(parent) = lines.next() {
        headers.insert(TRACEPARENT, parent);
    }
    for state in lines {
        headers.append(TRACESTATE, state);
    }
    let Some(context) = TraceContext::read(&headers) else { return };
    is_parent(context.parent().to_str().expect("the header is text"));
    let came = headers[TRACEPARENT].as_bytes();
    assert_eq!(&context.parent().as_bytes()[2..52], &came[2..52]);
    assert!(!came.starts_with(b"00") || context.parent() == headers[TRACEPARENT]);
    if let Some(state) = context.state() {
        is_state(state.to_str().expect("the header is text"));
    }
}

fn is_parent(parent: &str) {
    let [version, trace, span, flags] = parent.split('-').collect::<Vec<_>>()[..] else { panic!("{parent}") };
    assert_eq!(version, "00");
    for (part, length) in [(trace, 32), (span, 16), (flags, 2)] {
        assert_eq!(part.len(), length, "{parent}");
        assert!(part.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{parent}");
    }
    assert!(trace.bytes().any(|digit| digit != b'0') && span.bytes().any(|digit| digit != b'0'), "{parent}");
}

fn is_state(state: &str) {
    assert!(state.len() <= 512);
    let members: Vec<_> = state.split(',').map(|member| member.trim_matches([' ', '\t'])).collect();
    let members: Vec<_> = members.into_iter().filter(|member| !member.is_empty()).collect();
    assert!(!members.is_empty() && members.len() <= 32);
    for member in members {
        let (key, value) = member.split_once('=').expect("a key and a value");
        assert!(!key.is_empty() && !value.is_empty() && !value.contains('='), "{state}");
        assert!(
            !key.contains(|letter: char| letter.is_ascii_uppercase() || letter.is_whitespace()),
            "{state}"
        );
    }
}
