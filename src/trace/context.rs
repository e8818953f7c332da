//! The client's trace context, parsed from its request headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header with the ids of the request's trace and parent span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Header with vendor-specific trace data.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of a `traceparent`: `00-`, 32 digits for the trace, 16 for the span, two for the flags, with dashes between.
const LENGTH: usize = 55;

/// The supported version of `traceparent`.
const VERSION: &[u8] = b"00";

/// Longest `tracestate` to propagate, in bytes. The standard asks for no more, and a higher limit would let clients
/// inflate the headers of upstream requests.
const LONGEST_STATE: usize = 512;

/// Largest number of members that the standard allows in a `tracestate`.
const MOST_MEMBERS: usize = 32;

/// Longest key of a `tracestate` member, in bytes.
const LONGEST_KEY: usize = 256;

/// Longest value of a `tracestate` member, in bytes.
const LONGEST_VALUE: usize = 256;

/// A client's trace context. Its headers are well-formed, so upstream requests can carry them. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    parent: HeaderValue,
    state: Option<HeaderValue>,
}

// === impl TraceContext ===

impl TraceContext {
    /// Reads the trace context from a request's headers. Returns `None` if `traceparent` is absent, repeated or
    /// invalid, because the request then belongs to no trace. Ignores an invalid `tracestate`.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let parent = checked_parent(parent)?;
        Some(Self(Arc::new(Inner { parent, state: checked_state(headers) })))
    }

    /// The `traceparent` to propagate.
    pub fn parent(&self) -> &HeaderValue {
        &self.0.parent
    }

    /// The `tracestate` to propagate.
    pub fn state(&self) -> Option<&HeaderValue> {
        self.0.state.as_ref()
    }

    /// The trace id, 32 hex digits.
    pub fn trace_id(&self) -> &str {
        self.part(3, 35)
    }

    /// The id of the client's span, 16 hex digits.
    pub fn span_id(&self) -> &str {
        self.part(36, 52)
    }

    /// Returns whether the `sampled` flag is set, that is, whether the client records this trace.
    pub fn is_sampled(&self) -> bool {
        flags(self.0.parent.as_bytes()) & 1 == 1
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.0.parent.to_str().ok().and_then(|parent| parent.get(from..to)).unwrap_or_default()
    }
}

/// Validates a `traceparent`. Converts a `traceparent` of a later version to version 00.
fn checked_parent(value: &HeaderValue) -> Option<HeaderValue> {
    let (known, rest) = value.as_bytes().split_at_checked(LENGTH)?;
    let dashes = [2, 35, 52];
    let is_well_formed = known.iter().enumerate().all(|(at, byte)| match byte {
        b'-' => dashes.contains(&at),
        byte => !dashes.contains(&at) && matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    let is_nothing = |id: &[u8]| id.iter().all(|digit| *digit == b'0');
    if !is_well_formed || is_nothing(&known[3..35]) || is_nothing(&known[36..52]) {
        return None;
    }
    match &known[..2] {
        VERSION => rest.is_empty().then(|| value.clone()),
        b"ff" => None,
        // A later version may add fields after another dash. Drop these fields, and all flags but `sampled`, because
        // their meaning is unknown.
        _ if rest.is_empty() || rest.starts_with(b"-") => {
            let mut parent = known.to_vec();
            parent[..2].copy_from_slice(VERSION);
            parent[53..].copy_from_slice(if flags(known) & 1 == 1 { b"01" } else { b"00" });
            HeaderValue::from_bytes(&parent).ok()
        }
        _ => None,
    }
}

/// Returns the flags of a well-formed `traceparent`.
fn flags(parent: &[u8]) -> u8 {
    let digits = parent.get(53..LENGTH).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// Validates the `tracestate`. Joins several headers into one list.
fn checked_state(headers: &HeaderMap) -> Option<HeaderValue> {
    let values: Vec<_> = headers.get_all(TRACESTATE).iter().collect();
    let state = match values[..] {
        [] => return None,
        [one] => one.clone(),
        _ => {
            let values: Vec<_> = values.into_iter().map(HeaderValue::as_bytes).collect();
            HeaderValue::from_bytes(&values.join(&b',')).ok()?
        }
    };
    is_state(state.as_bytes()).then_some(state)
}

/// Returns whether `text` is a list of `key=value` members within the limits of the standard. Does not check that keys
/// are unique.
fn is_state(text: &[u8]) -> bool {
    let is_key = |key: &[u8]| {
        let is_allowed =
            |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
        matches!(key.first(), Some(b'a'..=b'z' | b'0'..=b'9'))
            && key.len() <= LONGEST_KEY
            && key.iter().all(is_allowed)
    };
    let is_value = |value: &[u8]| {
        let is_allowed = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
        !value.is_empty() && value.len() <= LONGEST_VALUE && value.iter().all(is_allowed)
    };
    let is_member = |member: &[u8]| {
        let at = member.iter().position(|byte| *byte == b'=');
        at.is_some_and(|at| is_key(&member[..at]) && is_value(&member[at + 1..]))
    };
    // The grammar allows empty members, which do not count towards the limit.
    let members =
        || text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    text.len() <= LONGEST_STATE && (1..=MOST_MEMBERS).contains(&members().count()) && members().all(is_member)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(headers: &[(&str, &str)]) -> Option<TraceContext> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        TraceContext::read(&map)
    }

    fn parent(value: &str) -> Option<String> {
        read(&[("traceparent", value)]).map(|context| context.parent().to_str().unwrap().to_owned())
    }

    fn state(values: &[&str]) -> Option<String> {
        let mut headers = vec![("traceparent", GOOD)];
        headers.extend(values.iter().map(|value| ("tracestate", *value)));
        read(&headers).unwrap().state().map(|state| state.to_str().unwrap().to_owned())
    }

    #[test]
    fn valid_traceparent_is_forwarded_unchanged() {
        for flags in ["00", "01", "03", "ff"] {
            let good = GOOD.replace("-01", &format!("-{flags}"));
            assert_eq!(parent(&good), Some(good));
        }
        let context = read(&[("traceparent", GOOD)]).unwrap();
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), "b7ad6b7169203331");
        assert!(context.is_sampled());
        assert!(!read(&[("traceparent", &GOOD.replace("-01", "-02"))]).unwrap().is_sampled());
    }

    #[test]
    fn later_version_is_read_as_version_00() {
        assert_eq!(parent(&GOOD.replacen("00", "cc", 1)).as_deref(), Some(GOOD));
        assert_eq!(
            parent(&format!("{}-fields of a later version", GOOD.replacen("00", "01", 1))).as_deref(),
            Some(GOOD)
        );
        let unsampled = GOOD.replace("-01", "-00");
        assert_eq!(parent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe"), Some(unsampled));
    }

    #[test]
    fn malformed_traceparent_is_ignored() {
        for wrong in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-"),
            &format!("{GOOD}-00"),
            &format!("{GOOD}0"),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replacen("00", "0g", 1),
            &GOOD.replacen('-', "_", 1),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x",
        ] {
            assert_eq!(parent(wrong), None, "{wrong}");
        }
        assert_eq!(read(&[("traceparent", GOOD), ("traceparent", GOOD)]), None);
        assert_eq!(read(&[("tracestate", "a=b")]), None);
    }

    #[test]
    fn tracestate_is_forwarded_unchanged_or_dropped() {
        for right in ["a=b", "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", "a=b,,c=d", "t@v=x", "1/_-*a=!\"#"] {
            assert_eq!(state(&[right]).as_deref(), Some(right));
        }
        assert_eq!(state(&["a=b", "c=d"]).as_deref(), Some("a=b,c=d"));
        for wrong in ["", "a", "a=", "=b", "A=b", "a=b=c", "a=\u{e9}", ",", "_a=b"] {
            assert_eq!(state(&[wrong]), None, "{wrong}");
        }
        assert_eq!(state(&[&vec!["a=b"; 33].join(",")]), None);
        assert!(state(&[&vec!["a=b"; 32].join(",")]).is_some());
        assert_eq!(state(&[&format!("a={}", "b".repeat(257))]), None);
        assert_eq!(
            state(&["a=b", &format!("c={}", "d".repeat(256)), &format!("e={}", "f".repeat(256))]),
            None
        );
    }

    proptest! {
        #[test]
        fn forwarded_context_is_always_well_formed(
            version in "[0-9a-f]{2}", middle in "[0-9a-f]{32}-[0-9a-f]{16}", flags in "[0-9a-f]{2}", rest in "(-?[ -~]{0,8})?",
            state_value in "[ -~]{0,40}",
        ) {
            let value = format!("{version}-{middle}-{flags}{rest}");
            if let Some(context) = read(&[("traceparent", value.trim()), ("tracestate", &state_value)]) {
                let sent = context.parent().to_str().unwrap();
                prop_assert_eq!(sent.len(), LENGTH);
                prop_assert_eq!(&sent[..52], format!("00-{middle}"));
                prop_assert_eq!(context.is_sampled(), u8::from_str_radix(&flags, 16).unwrap() & 1 == 1);
                prop_assert!(context.state().is_none_or(|state| state.to_str().unwrap() == state_value));
            }
        }
    }
}
