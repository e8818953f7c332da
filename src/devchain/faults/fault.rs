//! Faults of the node, and the calls that they strike.

use parking_lot::Mutex;
use serde_json::Value;
use std::time::Duration;

/// A misbehaviour of the node.
///
/// A transport fault ([`Fault::Hang`], [`Fault::Status`], …) strikes the whole HTTP answer, even if it matches only
/// one call of a batch; a content fault strikes only the entry of that call. The node executes no call of a
/// request that [`Fault::Hang`], [`Fault::Reset`], [`Fault::Status`], [`Fault::Refused`] or [`Fault::RateLimited`]
/// strikes. It does not execute a call that [`Fault::Error`] strikes. Other faults do not prevent the execution.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Answers this much later, with the state at the arrival of the call.
    Delay(Duration),
    /// Lets the call wait this long, then answers with the state after the wait.
    Queue(Duration),
    /// Sends the body in small pieces with this pause between them.
    Drip(Duration),
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Reset,
    /// Closes the connection in the middle of the body.
    ResetMidBody,
    /// Answers with this HTTP status and a page of HTML.
    Status(u16),
    /// Answers with this HTTP status and a JSON-RPC error, as gateways do.
    Refused {
        /// The HTTP status.
        status: u16,
        /// JSON-RPC code of the error.
        code: i64,
        /// Text of the error.
        message: String,
    },
    /// Answers with status 429, and with `retry-after` in seconds if one is given.
    RateLimited {
        /// Whole seconds.
        retry_after: Option<u64>,
    },
    /// Answers 200 with a body that is not JSON.
    Garbage,
    /// Answers 200 with the first half of the right body.
    Truncated,
    /// Gives the reply another id.
    WrongId,
    /// Answers with a JSON-RPC error.
    Error {
        /// JSON-RPC code of the error.
        code: i64,
        /// Text of the error.
        message: String,
    },
    /// Answers `null`.
    Null,
    /// Answers with untrue data.
    Lie(Lie),
}

/// Untrue data in an answer. The node lies only about data that it has: `null` and errors do not change.
#[derive(Clone, Debug, PartialEq)]
pub enum Lie {
    /// A block, transaction, receipt or list of receipts other than the requested one, from this chain if possible.
    WrongHash,
    /// A block without its transactions, or an empty list as the receipts of a block.
    EmptiedTransactions,
    /// A list without its last element.
    Shortened,
    /// The receipt of another transaction; in a block's receipts, one receipt of another transaction.
    OtherReceipt,
    /// The receipt from an orphaned block with the same transaction, or the receipts of an orphaned block of the same
    /// number. If no orphan fits, the answer is that of [`Lie::OtherReceipt`].
    OrphanedReceipt,
    /// A single transaction or receipt with another `blockHash`, but with its true number and index. The hash is that of
    /// an orphan of the same number if `orphan` is set and there is one, otherwise of no block.
    Misplaced {
        /// Whether to prefer the hash of an orphan.
        orphan: bool,
    },
    /// A block of another chain with the right number, or a transaction or receipts from such a block.
    ForeignBlock,
    /// One value changed, or one element of a list dropped, duplicated or moved, at any depth, chosen by this number.
    /// The change is never in `size` or `totalDifficulty`, which no hash of Ethereum covers.
    Bent(u64),
    /// Like [`Lie::Bent`], with an unknown member added, so that the answer looks like that of a new fork.
    Disguised(u64),
    /// One member dropped, at any depth, chosen by this number. It is never a member that honest nodes leave out.
    Dropped(u64),
    /// One member made null, at any depth, chosen by this number.
    Nulled(u64),
    /// All members of this name changed, at any depth.
    Everywhere(String, Value),
    /// One member changed, in the result or in each element of a list. A scalar result changes as a whole.
    Field(String, Value),
    /// The answer to `eth_getLogs` without one log, chosen by this number.
    MissingLog(u64),
    /// The answer to `eth_getLogs` with one more log, which matches the filter and fits into the order. It is a copy of
    /// a log from elsewhere: from an orphan with a number of the range, or from another block, moved to the end of a
    /// block of the range.
    AddedLog {
        /// Chooses the log and the block.
        choice: u64,
        /// Whether the copy has other data than the original.
        altered: bool,
    },
    /// The answer to `eth_getLogs` in another order, chosen by this number.
    ShuffledLogs(u64),
    /// The answer to `eth_getLogs` of a node whose head is this many blocks lower. Higher blocks contribute no logs, and
    /// there is no error.
    LaggingLogs(u64),
}

/// A fault that has no effect until [`FaultBuilder::times`], [`FaultBuilder::once`] or [`FaultBuilder::always`]
/// activates it.
#[derive(Debug)]
#[must_use = "a fault strikes only after `once`, `times` or `always`"]
pub struct FaultBuilder<'a> {
    faults: &'a Mutex<Faults>,
    fault: Fault,
    pattern: String,
}

/// The faults in force, oldest first.
#[derive(Debug, Default)]
pub(in crate::devchain) struct Faults {
    rules: Vec<Rule>,
}

/// The faults that strike one call.
#[derive(Clone, Debug, Default)]
pub(in crate::devchain) struct Struck {
    pub(in crate::devchain) wait: Option<Fault>,
    pub(in crate::devchain) failure: Option<Fault>,
}

#[derive(Debug)]
struct Rule {
    pattern: String,
    fault: Fault,
    /// Number of calls that the fault still strikes; `None` is unlimited.
    left: Option<usize>,
}

// === impl Fault ===

impl Fault {
    /// Returns whether the fault only delays an answer; such faults combine with others.
    const fn is_wait(&self) -> bool {
        matches!(self, Self::Delay(_) | Self::Queue(_))
    }

    /// Returns whether the fault strikes the whole HTTP answer instead of one entry.
    pub(in crate::devchain) const fn is_transport(&self) -> bool {
        !matches!(self, Self::WrongId | Self::Error { .. } | Self::Null | Self::Lie(_))
    }

    /// Returns whether the fault keeps the node from executing the call.
    pub(in crate::devchain) const fn spares_the_call(&self) -> bool {
        matches!(
            self,
            Self::Hang | Self::Reset | Self::Status(_) | Self::Refused { .. } | Self::RateLimited { .. }
        )
    }
}

impl From<Lie> for Fault {
    fn from(lie: Lie) -> Self {
        Self::Lie(lie)
    }
}

// === impl FaultBuilder ===

impl<'a> FaultBuilder<'a> {
    pub(in crate::devchain) fn new(faults: &'a Mutex<Faults>, fault: Fault) -> Self {
        Self { faults, fault, pattern: String::from("*") }
    }

    /// Strikes only calls whose method matches `pattern`, in which `*` stands for any text. The pattern may also
    /// include parameters: `eth_getBlockByNumber["0x2c"*`.
    pub fn on(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = pattern.into();
        self
    }

    /// Strikes calls of any method. This is the default.
    pub fn any(self) -> Self {
        self.on("*")
    }

    /// Strikes the next call that matches.
    pub fn once(self) {
        self.times(1);
    }

    /// Strikes the next `count` calls that match.
    pub fn times(self, count: usize) {
        self.faults.lock().add(self.pattern, self.fault, Some(count));
    }

    /// Strikes every call that matches, until [`DevChain::clear_faults`](crate::devchain::DevChain::clear_faults).
    pub fn always(self) {
        self.faults.lock().add(self.pattern, self.fault, None);
    }
}

// === impl Faults ===

impl Faults {
    pub(in crate::devchain) fn add(&mut self, pattern: String, fault: Fault, left: Option<usize>) {
        self.rules.push(Rule { pattern, fault, left });
    }

    pub(in crate::devchain) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Uses up the faults that strike this call: the oldest matching wait and the oldest matching failure. If two
    /// failures match one method, the first strikes one call and the second the next.
    pub(in crate::devchain) fn strike(&mut self, method: &str, params: &str) -> Struck {
        let call = format!("{method}{params}");
        let fits = |rule: &Rule| matches(&rule.pattern, method) || matches(&rule.pattern, &call);
        let wait = self.take(|rule| rule.fault.is_wait() && fits(rule));
        let failure = self.take(|rule| !rule.fault.is_wait() && fits(rule));
        Struck { wait, failure }
    }

    fn take(&mut self, fits: impl Fn(&Rule) -> bool) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|rule| rule.left != Some(0) && fits(rule))?;
        if let Some(left) = &mut rule.left {
            *left -= 1;
        }
        let fault = rule.fault.clone();
        self.rules.retain(|rule| rule.left != Some(0));
        Some(fault)
    }
}

// === impl Struck ===

impl Struck {
    /// Returns the wait before the node executes the call.
    pub(in crate::devchain) const fn queued(&self) -> Option<Duration> {
        match self.wait {
            Some(Fault::Queue(wait)) => Some(wait),
            _ => None,
        }
    }

    /// Returns the wait before the answer is sent.
    pub(in crate::devchain) const fn delayed(&self) -> Option<Duration> {
        match self.wait {
            Some(Fault::Delay(wait)) => Some(wait),
            _ => None,
        }
    }
}

/// Returns whether `text` matches a pattern with `*` for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, text) in [
            ("*", "eth_call"),
            ("eth_*", "eth_call"),
            ("eth_getBlock*", "eth_getBlockByHash"),
            ("*Receipt*", "eth_getTransactionReceipt"),
            ("eth_*By*Index", "eth_getTransactionByBlockHashAndIndex"),
            ("eth_call", "eth_call"),
        ] {
            assert!(matches(pattern, text), "{pattern} should match {text}");
        }
        for (pattern, text) in
            [("eth_getBlock*", "eth_getTransactionByHash"), ("eth_call", "eth_calls"), ("", "x")]
        {
            assert!(!matches(pattern, text), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn failures_apply_in_turn_and_a_delay_with_each() {
        let mut faults = Faults::default();
        faults.add("*".into(), Fault::Null, Some(1));
        faults.add("eth_*".into(), Fault::Garbage, Some(1));
        faults.add("*".into(), Fault::Delay(Duration::from_secs(1)), None);
        assert_eq!(faults.strike("eth_call", "[]").failure, Some(Fault::Null));
        assert_eq!(faults.strike("net_version", "[]").failure, None);
        let struck = faults.strike("eth_call", "[]");
        assert_eq!(struck.failure, Some(Fault::Garbage));
        assert_eq!(struck.wait, Some(Fault::Delay(Duration::from_secs(1))));
        assert_eq!(faults.strike("eth_call", "[]").failure, None);
    }

    #[test]
    fn pattern_may_include_parameters() {
        let mut faults = Faults::default();
        faults.add(r#"eth_getBlockByNumber["0x1"*"#.into(), Fault::Null, None);
        assert_eq!(faults.strike("eth_getBlockByNumber", r#"["0x10",true]"#).failure, None);
        assert_eq!(faults.strike("eth_getBlockByNumber", r#"["0x1",true]"#).failure, Some(Fault::Null));
    }
}
