//! Reads positional parameters, and says what is wrong with them.

use std::{fmt, str::FromStr};

use super::{TxHash, TxPosition, quantity};
use crate::jsonrpc::{JsonKind, Params, unescape};

/// Parameters that are refused without asking a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// Fewer than the operation wants.
    #[error("parameter {position} ({name}) is missing: {expected}")]
    Missing {
        /// Counted from 1.
        position: usize,
        /// What the parameter is called.
        name: &'static str,
        /// What would be right.
        expected: &'static str,
    },
    /// Present and wrong.
    #[error("parameter {position} ({name}): {problem}")]
    Invalid {
        /// Counted from 1.
        position: usize,
        /// What the parameter is called.
        name: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// More than the operation wants.
    #[error("expected {expected} parameters, got {got}")]
    TooMany {
        /// How many the operation takes.
        expected: usize,
        /// How many came.
        got: usize,
    },
}

/// Takes parameters one by one.
pub(super) struct Reader<'a, I: Iterator<Item = &'a str>> {
    elements: I,
    position: usize,
}

/// A parameter that is there, to be read as what it should be.
struct Param<'a> {
    raw: &'a str,
    position: usize,
    name: &'static str,
}

/// The hash of a transaction that is the only parameter; `None` unless it stands there as nearly everybody writes it,
/// without spaces and escapes. Whoever is told nothing [reads](read) on: what is wrong is said there.
pub(super) fn single_hash(params: &Params) -> Option<TxHash> {
    let quoted = params.as_bytes().strip_prefix(b"[\"")?.strip_suffix(b"\"]")?;
    TxHash::from_ascii(quoted).ok()
}

// === impl Reader ===

/// Starts at the first parameter.
pub(super) fn read(params: &Params) -> Reader<'_, impl Iterator<Item = &str>> {
    Reader { elements: params.elements(), position: 0 }
}

impl<'a, I: Iterator<Item = &'a str>> Reader<'a, I> {
    /// A string that reads as a `T`: a hash, or a number or tag.
    pub(super) fn string<T>(&mut self, name: &'static str, expected: &'static str) -> Result<T, ParamError>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let param = self.next(name, expected)?;
        if JsonKind::of(param.raw.as_bytes()) != JsonKind::String {
            return Err(param.invalid(format_args!("expected {expected}")));
        }
        // Nothing that is looked for here has a backslash in it, so escapes come second.
        let plain = &param.raw[1..param.raw.len() - 1];
        plain.parse().or_else(|_| unescape(param.raw).parse()).map_err(|error| param.invalid(error))
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, name: &'static str) -> Result<bool, ParamError> {
        const EXPECTED: &str = "true or false";
        let param = self.next(name, EXPECTED)?;
        match param.raw {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(param.invalid(format_args!("expected {EXPECTED}"))),
        }
    }

    /// A position: a JSON integer, or a hex quantity as nodes want it.
    pub(super) fn position(&mut self, name: &'static str) -> Result<TxPosition, ParamError> {
        const EXPECTED: &str = "an integer such as 3, or a hex quantity such as \"0x3\"";
        let param = self.next(name, EXPECTED)?;
        match JsonKind::of(param.raw.as_bytes()) {
            JsonKind::String => match quantity::parse(&unescape(param.raw)) {
                Ok(position) => Ok(TxPosition(position)),
                Err(error) => Err(param.invalid(error)),
            },
            // A JSON integer has no leading zeros and no plus, so what `u64` reads is just that.
            JsonKind::Number => match param.raw.parse() {
                Ok(position) => Ok(TxPosition(position)),
                Err(_) => Err(param.invalid(format_args!("expected {EXPECTED}"))),
            },
            _ => Err(param.invalid(format_args!("expected {EXPECTED}"))),
        }
    }

    /// No parameter may be left.
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
