//! Reads positional parameters, with errors that name the parameter at fault.

use std::{fmt, str::FromStr};

use super::{TxHash, TxPosition, quantity};
use crate::jsonrpc::{JsonKind, Params, unescape};

/// Parameters that Holdfast rejects without a call to an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// Fewer parameters than the method takes.
    #[error("parameter {position} ({name}) is missing: {expected}")]
    Missing {
        /// Position of the parameter, counted from 1.
        position: usize,
        /// Name of the parameter.
        name: &'static str,
        /// Form of a valid value.
        expected: &'static str,
    },
    /// A parameter with an invalid value.
    #[error("parameter {position} ({name}): {problem}")]
    Invalid {
        /// Position of the parameter, counted from 1.
        position: usize,
        /// Name of the parameter.
        name: &'static str,
        /// The problem, and the form of a valid value.
        problem: String,
    },
    /// More parameters than the method takes.
    #[error("expected {expected} parameters, got {got}")]
    TooMany {
        /// Number of parameters that the method takes.
        expected: usize,
        /// Number of parameters in the request.
        got: usize,
    },
}

impl ParamError {
    /// Returns the error for parameters that name no block in a known form.
    pub fn unreadable() -> Self {
        let problem = "expected a block number, a tag or a hash in its usual form, and no further parameters";
        Self::Invalid { position: 1, name: "block", problem: problem.to_owned() }
    }

    /// Returns the error for a filter of logs in an unknown form.
    pub fn unreadable_filter() -> Self {
        let problem = "expected an object with blockHash, or with fromBlock and toBlock (hex numbers, latest, safe or \
                       finalized), and optionally address and topics";
        Self::Invalid { position: 1, name: "filter", problem: problem.to_owned() }
    }
}

/// Reads parameters one by one.
pub(super) struct Reader<'a, I: Iterator<Item = &'a str>> {
    elements: I,
    position: usize,
}

/// A parameter that is present but not parsed yet.
struct Param<'a> {
    raw: &'a str,
    position: usize,
    name: &'static str,
}

/// Returns the transaction hash if it is the only parameter and is written without spaces and escapes, as nearly all
/// clients write it. If this returns `None`, the caller uses [`read`], which accepts every valid form and reports
/// errors.
pub(super) fn single_hash(params: &Params) -> Option<TxHash> {
    let quoted = params.as_bytes().strip_prefix(b"[\"")?.strip_suffix(b"\"]")?;
    TxHash::from_ascii(quoted).ok()
}

// === impl Reader ===

/// Returns a reader at the first parameter.
pub(super) fn read(params: &Params) -> Reader<'_, impl Iterator<Item = &str>> {
    Reader { elements: params.elements(), position: 0 }
}

impl<'a, I: Iterator<Item = &'a str>> Reader<'a, I> {
    /// Reads a string that parses as a `T`: a hash, or a number or tag.
    pub(super) fn string<T>(&mut self, name: &'static str, expected: &'static str) -> Result<T, ParamError>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let param = self.next(name, expected)?;
        if JsonKind::of(param.raw.as_bytes()) != JsonKind::String {
            return Err(param.invalid(format_args!("expected {expected}")));
        }
        // No valid value needs escapes, so the raw text is tried first.
        let plain = &param.raw[1..param.raw.len() - 1];
        plain.parse().or_else(|_| unescape(param.raw).parse()).map_err(|error| param.invalid(error))
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(&mut self, name: &'static str) -> Result<bool, ParamError> {
        const EXPECTED: &str = "true or false";
        let param = self.next(name, EXPECTED)?;
        match param.raw {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(param.invalid(format_args!("expected {EXPECTED}"))),
        }
    }

    /// Reads a position: a JSON integer, or a hex quantity as nodes require it.
    pub(super) fn position(&mut self, name: &'static str) -> Result<TxPosition, ParamError> {
        const EXPECTED: &str = "an integer such as 3, or a hex quantity such as \"0x3\"";
        let param = self.next(name, EXPECTED)?;
        match JsonKind::of(param.raw.as_bytes()) {
            JsonKind::String => match quantity::parse(&unescape(param.raw)) {
                Ok(position) => Ok(TxPosition(position)),
                Err(error) => Err(param.invalid(error)),
            },
            // `u64` would accept leading zeros and a plus sign, but JSON has neither.
            JsonKind::Number => match param.raw.parse() {
                Ok(position) => Ok(TxPosition(position)),
                Err(_) => Err(param.invalid(format_args!("expected {EXPECTED}"))),
            },
            _ => Err(param.invalid(format_args!("expected {EXPECTED}"))),
        }
    }

    /// Returns the text of the next parameter.
    pub(super) fn raw(&mut self) -> Option<&'a str> {
        self.position += 1;
        self.elements.next()
    }

    /// Checks that no parameter is left.
    pub(super) fn end(self) -> Result<(), ParamError> {
        match self.elements.count() {
            0 => Ok(()),
            extra => Err(ParamError::TooMany { expected: self.position, got: self.position + extra }),
        }
    }

    fn next(&mut self, name: &'static str, expected: &'static str) -> Result<Param<'a>, ParamError> {
        self.position += 1;
        let position = self.position;
        match self.elements.next() {
            Some(raw) => Ok(Param { raw, position, name }),
            None => Err(ParamError::Missing { position, name, expected }),
        }
    }
}

// === impl Param ===

impl Param<'_> {
    fn invalid(&self, problem: impl fmt::Display) -> ParamError {
        ParamError::Invalid { position: self.position, name: self.name, problem: problem.to_string() }
    }
}
