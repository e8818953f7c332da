//! Counts of the sources of logs, with which the tests check that they cover each source.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use super::{check::ProgramCount, world::Call};

/// Source of an answer to `eth_getLogs`.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Cached receipts.
    Receipts,
    /// Blooms that exclude the filter.
    Bloom,
    /// Receipts fetched for the call.
    Fetched,
    /// The node, with checks of the logs.
    Forwarded,
    /// The node, without checks: the proxy does not know the numbers of the range. This is rare.
    Bypass,
}

/// Number of answers to `eth_getLogs` by source, over all programs.
#[derive(Debug, Default)]
pub struct LogSources {
    counts: [AtomicUsize; Source::COUNT],
    /// Answers with logs, of any source.
    found: AtomicUsize,
}

// === impl Source ===

impl Source {
    const COUNT: usize = Self::Bypass as usize + 1;

    /// Returns a number of programs one of which has logs from this source, with a margin.
    fn one_in(self) -> u32 {
        match self {
            Self::Receipts => 20,
            Self::Bloom | Self::Fetched | Self::Forwarded => 7,
            Self::Bypass => 100,
        }
    }

    /// Returns the source that `cache-status` names.
    fn of(status: &str) -> Option<Self> {
        let is_hit = status.starts_with("holdfast; hit");
        match status {
            _ if status.contains("fwd=bypass") => Some(Self::Bypass),
            _ if status.contains("detail=logs") => Some(Self::Forwarded),
            _ if status.contains("detail=bloom") => Some(Self::Bloom),
            _ if status.contains("detail=receipts") && is_hit => Some(Self::Receipts),
            _ if status.contains("detail=receipts") => Some(Self::Fetched),
            _ => None,
        }
    }
}

// === impl LogSources ===

impl LogSources {
    /// Counts an answer with this `cache-status`.
    pub fn count(&self, call: &Call, status: &str, result: &Bytes) {
        if !call.asks_for_logs() {
            return;
        }
        if result != "[]" {
            self.found.fetch_add(1, Relaxed);
        }
        if let Some(source) = Source::of(status) {
            self.counts[source as usize].fetch_add(1, Relaxed);
        }
    }

    /// Checks that the programs reached these sources and found logs, unless they were few.
    pub fn must_reach(&self, sources: &[Source], ran: ProgramCount) {
        ran.must_cover("an answer has logs", 7, self.found.load(Relaxed));
        for source in sources {
            let event = format!("logs came from {source:?}");
            ran.must_cover(&event, source.one_in(), self.counts[*source as usize].load(Relaxed));
        }
    }
}

/// Returns whether logs with this `cache-status` may be those of a forwarded range. The status of a batch only counts
/// outcomes.
pub fn is_forwarded(status: &str) -> bool {
    ["fwd=bypass", "proof=none", "miss=", "bypass="].iter().any(|mark| status.contains(mark))
}
