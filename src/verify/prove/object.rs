//! Reads JSON objects strictly: what two readers could read differently is refused.
//!
//! A name counts once, however it is written; values are taken as Ethereum's JSON-RPC writes them, and
//! strings with escapes are none of them. `null` is the same as leaving a member out.

use std::borrow::Cow;

use super::value::{Value, shown, shown_json};
use crate::{
    jsonrpc::{Scanner, SyntaxError, unescape},
    verify::{Failure, Part, Reason},
};

/// The members of one object, as slices of its text.
#[derive(Debug)]
pub(super) struct Object<'a> {
    /// Which part of the answer it is, for what is said about it.
    part: Option<Part>,
    /// By name, in order: an object of a million members is searched and checked for doubles all the same.
    members: Vec<Member<'a>>,
}

/// A name and the text of its value.
type Member<'a> = (Cow<'a, str>, &'a str);

// === impl Object ===

impl<'a> Object<'a> {
    /// Finds the members of the object that `text` is.
    pub(super) fn read(text: &'a str, part: Option<Part>) -> Result<Self, Failure> {
        let Ok(Some(mut members)) = members(text) else {
            return Err(misread(part, "value", "an object", &shown_json(text.trim_start())));
        };
        members.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let twice = format!("{} twice", shown(&pair[0].0));
            return Err(misread(part, "names", "each there once", &twice));
        }
        Ok(Self { part, members })
    }

    /// Finds the members of an object inside this one, which goes by the same part.
    pub(super) fn inner<'b>(&self, text: &'b str) -> Result<Object<'b>, Failure> {
        Object::read(text, self.part)
    }

    /// Is the member there, if only as `null`?
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The text of a member; `null` is none.
    pub(super) fn raw(&self, name: &str) -> Option<&'a str> {
        self.find(name).filter(|raw| *raw != "null")
    }

    /// A member that must be there.
    pub(super) fn get<V: Value>(&self, name: &'static str) -> Result<V, Failure> {
        self.maybe(name)?.ok_or_else(|| misread(self.part, name, V::WHAT, "missing"))
    }

    /// A member that may be left out.
    pub(super) fn maybe<V: Value>(&self, name: &'static str) -> Result<Option<V>, Failure> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        match V::read(raw) {
            Some(value) => Ok(Some(value)),
            None => Err(misread(self.part, name, V::WHAT, &shown_json(raw))),
        }
    }

    /// The elements of a list that must be there.
    pub(super) fn list(&self, name: &'static str) -> Result<Vec<&'a str>, Failure> {
        let raw = self.raw(name).ok_or_else(|| misread(self.part, name, "a list", "missing"))?;
        elements(self.part, name, raw)
    }

    /// The values of a list that must be there.
    pub(super) fn values<V: Value>(&self, name: &'static str) -> Result<Vec<V>, Failure> {
        let read = |raw: &str| {
            V::read(raw)
                .ok_or_else(|| misread(self.part, name, V::WHAT, &format!("with {}", shown_json(raw))))
        };
        self.list(name)?.into_iter().map(read).collect()
    }

    /// A member that must be there, and be this.
    pub(super) fn expect<V: Value>(
        &self,
        reason: Reason,
        name: &'static str,
        expected: &V,
    ) -> Result<(), Failure> {
        let got = self.get::<V>(name)?;
        if got == *expected { Ok(()) } else { Err(self.wrong(reason, name, &expected.shown())) }
    }

    /// A member that, if it is there, must be this.
    pub(super) fn expect_if_there<V: Value>(
        &self,
        reason: Reason,
        name: &'static str,
        expected: &V,
    ) -> Result<(), Failure> {
        if self.raw(name).is_some() { self.expect(reason, name, expected) } else { Ok(()) }
    }

    /// A member that must be left out here.
    pub(super) fn expect_none(&self, name: &'static str) -> Result<(), Failure> {
        if self.raw(name).is_some() { Err(self.wrong(Reason::Derived, name, "missing")) } else { Ok(()) }
    }

    /// Says of a member what it must be instead.
    pub(super) fn wrong(&self, reason: Reason, name: &'static str, expected: &str) -> Failure {
        let got = self.raw(name).map_or_else(|| "missing".to_owned(), shown_json);
        Failure::field(reason, self.part, name, expected, got)
    }

    /// A failure that nothing unknown excuses is one; with something unknown there, it may be right.
    pub(super) fn excuse(&self, known: &[&str], failure: Failure) -> Failure {
        match self.unknown(known) {
            Some(what) => Failure::Unprovable { part: self.part, what },
            None => failure,
        }
    }

    /// The first member that is not among `known`, as it is shown.
    pub(super) fn unknown(&self, known: &[&str]) -> Option<String> {
        let mut members = self.members.iter();
        let unknown = members.find(|(name, raw)| *raw != "null" && !known.contains(&name.as_ref()))?;
        Some(shown(&unknown.0))
    }

    /// Says that something about it is beyond this version.
    pub(super) fn beyond(&self, what: String) -> Failure {
        Failure::Unprovable { part: self.part, what }
    }

    fn find(&self, name: &str) -> Option<&'a str> {
        let at = self.members.binary_search_by(|member| member.0.as_ref().cmp(name)).ok()?;
        Some(self.members[at].1)
    }
}

fn misread(part: Option<Part>, name: &'static str, expected: &str, got: &str) -> Failure {
    Failure::field(Reason::Member, part, name, expected, got)
}

/// The members of an object; none, if it is something else.
fn members(text: &str) -> Result<Option<Vec<Member<'_>>>, SyntaxError> {
    let mut scanner = Scanner::new(text);
    if scanner.peek() != Some(b'{') {
        return Ok(None);
    }
    scanner.enter();
    // As many as the largest of them have.
    let mut members = Vec::with_capacity(32);
    let mut first = true;
    while let Some(name) = scanner.next_member(&mut first)? {
        let value = scanner.value()?;
        members.push((unescape(&text[name]), &text[value]));
    }
    scanner.end()?;
    Ok(Some(members))
}

/// The elements of a list that is an answer's whole.
pub(super) fn list<'a>(text: &'a str, name: &'static str) -> Result<Vec<&'a str>, Failure> {
    elements(None, name, text)
}

fn elements<'a>(part: Option<Part>, name: &'static str, text: &'a str) -> Result<Vec<&'a str>, Failure> {
    let read = || -> Result<_, SyntaxError> {
        let mut scanner = Scanner::new(text);
        if scanner.peek() != Some(b'[') {
            return Ok(None);
        }
        scanner.enter();
        let mut elements = Vec::new();
        let mut first = true;
        while scanner.next_element(&mut first)? {
            elements.push(&text[scanner.value()?]);
        }
        scanner.end()?;
        Ok(Some(elements))
    };
    read().ok().flatten().ok_or_else(|| misread(part, name, "a list", &shown_json(text.trim_start())))
}
