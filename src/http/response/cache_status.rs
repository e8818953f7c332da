//! The `cache-status` header (RFC 9211): where an answer came from.

use std::fmt::Write;

use http::{HeaderName, HeaderValue};

use crate::proxy::Outcome;

pub(in crate::http) const NAME: HeaderName = HeaderName::from_static("cache-status");

/// The value for a response without an answer: a refusal, an error, or an empty body.
pub(in crate::http) const UNANSWERED: &str = "holdfast; detail=none";

/// Counts the outcomes of a batch.
#[derive(Debug, Default)]
pub(in crate::http) struct CacheTally {
    counts: [u32; Outcome::NAMES.len()],
    unanswered: u32,
}

// === impl CacheTally ===

impl CacheTally {
    pub(in crate::http) fn add(&mut self, outcome: Option<Outcome>) {
        match outcome {
            Some(outcome) => self.counts[outcome.index()] += 1,
            None => self.unanswered += 1,
        }
    }

    /// Returns the header of the batch, such as `holdfast; detail="hit=98,miss=2"`.
    pub(in crate::http) fn cache_status(&self) -> HeaderValue {
        let mut text = String::from("holdfast; detail=\"");
        let named = Outcome::NAMES.into_iter().zip(self.counts).chain([("none", self.unanswered)]);
        for (position, (name, count)) in named.filter(|(_, count)| *count > 0).enumerate() {
            let comma = if position > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{name}={count}");
        }
        text.push('"');
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(UNANSWERED))
    }
}
