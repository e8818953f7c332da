//! The calls that the node received.

use std::collections::{HashMap, VecDeque};

/// One call that the node received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The method, unescaped.
    pub method: String,
    /// The params as sent; empty if there were none.
    pub params: String,
    /// Number of its HTTP request, counted from 1; the calls of a batch share it.
    pub request: u64,
}

/// The newest calls, and counts of all calls.
#[derive(Debug)]
pub(in crate::devchain) struct CallLog {
    keep: usize,
    calls: VecDeque<RecordedCall>,
    counts: HashMap<String, u64>,
    requests: u64,
    lies: u64,
    at_once: usize,
    most_at_once: usize,
}

// === impl CallLog ===

impl CallLog {
    pub(in crate::devchain) fn new(keep: usize) -> Self {
        Self {
            keep,
            calls: VecDeque::new(),
            counts: HashMap::new(),
            requests: 0,
            lies: 0,
            at_once: 0,
            most_at_once: 0,
        }
    }

    /// Counts an HTTP request and returns its number.
    pub(in crate::devchain) fn begin(&mut self) -> u64 {
        self.requests += 1;
        self.at_once += 1;
        self.most_at_once = self.most_at_once.max(self.at_once);
        self.requests
    }

    /// Ends the work on a request.
    pub(in crate::devchain) const fn end(&mut self) {
        self.at_once -= 1;
    }

    pub(in crate::devchain) fn call(&mut self, request: u64, method: &str, params: &str) {
        match self.counts.get_mut(method) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(method.to_owned(), 1)),
        }
        if self.keep == 0 {
            return;
        }
        if self.calls.len() == self.keep {
            self.calls.pop_front();
        }
        self.calls.push_back(RecordedCall { method: method.to_owned(), params: params.to_owned(), request });
    }

    pub(in crate::devchain) fn calls(&self) -> Vec<RecordedCall> {
        self.calls.iter().cloned().collect()
    }

    pub(in crate::devchain) fn count(&self, method: &str) -> u64 {
        self.counts.get(method).copied().unwrap_or(0)
    }

    pub(in crate::devchain) fn calls_total(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(in crate::devchain) const fn requests_total(&self) -> u64 {
        self.requests
    }

    /// Counts an untrue answer.
    pub(in crate::devchain) const fn lie(&mut self) {
        self.lies += 1;
    }

    pub(in crate::devchain) const fn lies_total(&self) -> u64 {
        self.lies
    }

    pub(in crate::devchain) const fn most_at_once(&self) -> usize {
        self.most_at_once
    }

    pub(in crate::devchain) fn clear(&mut self) {
        // Requests in progress stay in the count.
        *self = Self { at_once: self.at_once, most_at_once: self.at_once, ..Self::new(self.keep) };
    }
}
