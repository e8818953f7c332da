//! Reads JSON objects strictly, and rejects any object that two JSON readers could understand differently.
//!
//! Each name may occur only once, whether it is written with escapes or without. Values must have the form that
//! Ethereum's JSON-RPC defines, so strings with escapes are invalid.
//!
//! Members differ in whether a node may leave them out or set them to `null`; each accessor documents its case. A
//! required member that is absent or `null` makes an answer unprovable, not wrong.

use std::borrow::Cow;

use super::{
    names,
    value::{Value, shown, shown_json},
};
use crate::{
    jsonrpc::{Scanner, SyntaxError, unescape},
    verify::{Failure, Part, Reason},
};

/// The members of one object, as slices of its text.
#[derive(Debug)]
pub(super) struct Object<'a> {
    /// The part of the answer that this object is, for error messages.
    part: Option<Part>,
    /// Sorted by name, so that lookups and the search for duplicates stay fast for an object of a million members.
    members: Vec<Member<'a>>,
}

/// A name and the text of its value.
type Member<'a> = (Cow<'a, str>, &'a str);

// === impl Object ===

impl<'a> Object<'a> {
    /// Reads the members of the object in `text`.
    pub(super) fn read(text: &'a str, part: Option<Part>) -> Result<Self, Failure> {
        let Ok(Some(mut members)) = members(text) else {
            return Err(misread(part, "value", "an object", &shown_json(text.trim_start())));
        };
        members.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let twice = format!("{} twice", shown(&pair[0].0));
            return Err(misread(part, "names", "each name once", &twice));
        }
        if let Some((name, _)) = members.iter().find(|(name, _)| names::is_lookalike(name)) {
            return Err(misread(part, "names", "each name in its own case", &shown(name)));
        }
        Ok(Self { part, members })
    }

    /// Reads the members of a nested object, which belongs to the same part.
    pub(super) fn inner<'b>(&self, text: &'b str) -> Result<Object<'b>, Failure> {
        Object::read(text, self.part)
    }

    /// Returns whether the member is present, even as `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the text of a member; `None` if it is absent or `null`.
    pub(super) fn raw(&self, name: &str) -> Option<&'a str> {
        self.find(name).filter(|raw| *raw != "null")
    }

    /// Returns a required member. If it is absent or `null`, the object is unprovable.
    pub(super) fn get<V: Value>(&self, name: &'static str) -> Result<V, Failure> {
        self.maybe(name)?.ok_or_else(|| self.missing(name))
    }

    /// Returns a member that may be absent. If it is `null`, the object is unprovable.
    pub(super) fn optional<V: Value>(&self, name: &'static str) -> Result<Option<V>, Failure> {
        if self.has(name) { self.get(name).map(Some) } else { Ok(None) }
    }

    /// Returns a member that must be present, but may be `null`.
    pub(super) fn nullable<V: Value>(&self, name: &'static str) -> Result<Option<V>, Failure> {
        if self.has(name) { self.maybe(name) } else { Err(self.missing(name)) }
    }

    /// Returns a member that may be absent or `null`.
    pub(super) fn maybe<V: Value>(&self, name: &'static str) -> Result<Option<V>, Failure> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        match V::read(raw) {
            Some(value) => Ok(Some(value)),
            None => Err(misread(self.part, name, V::WHAT, &shown_json(raw))),
        }
    }

    /// Returns the elements of a required list.
    pub(super) fn list(&self, name: &'static str) -> Result<Vec<&'a str>, Failure> {
        let raw = self.raw(name).ok_or_else(|| self.missing(name))?;
        elements(self.part, name, raw)
    }

    /// Returns the values of a required list.
    pub(super) fn values<V: Value>(&self, name: &'static str) -> Result<Vec<V>, Failure> {
        let read =
            |raw: &str| V::read(raw).ok_or_else(|| misread(self.part, name, V::WHAT, &shown_json(raw)));
        self.list(name)?.into_iter().map(read).collect()
    }

    /// Checks that a required member is `expected`.
    pub(super) fn must_be<V: Value>(
        &self,
        reason: Reason,
        name: &'static str,
        expected: &V,
    ) -> Result<(), Failure> {
        let got = self.get::<V>(name)?;
        if got == *expected { Ok(()) } else { Err(self.wrong(reason, name, &expected.shown())) }
    }

    /// Checks that a member is absent or `expected`. If it is `null`, the object is unprovable.
    pub(super) fn may_be<V: Value>(
        &self,
        reason: Reason,
        name: &'static str,
        expected: &V,
    ) -> Result<(), Failure> {
        if self.has(name) { self.must_be(reason, name, expected) } else { Ok(()) }
    }

    /// Checks that a member is absent or `null`.
    pub(super) fn must_not_be(&self, name: &'static str) -> Result<(), Failure> {
        if self.raw(name).is_some() { Err(self.wrong(Reason::Derived, name, "missing")) } else { Ok(()) }
    }

    /// Returns the failure of a member that should be `expected`.
    pub(super) fn wrong(&self, reason: Reason, name: &'static str, expected: &str) -> Failure {
        let got = self.raw(name).map_or_else(|| "missing".to_owned(), shown_json);
        Failure::field(reason, self.part, name, expected, got)
    }

    /// Returns `failure`, or [`Failure::Unprovable`] if the object has a member that is not among `known`, because then
    /// the answer may be right.
    pub(super) fn excuse(&self, known: &[&str], failure: Failure) -> Failure {
        match self.unknown(known) {
            Some(what) => Failure::Unprovable { part: self.part, what },
            None => failure,
        }
    }

    /// Returns the first member that is not among `known` and not `null`, for messages.
    pub(super) fn unknown(&self, known: &[&str]) -> Option<String> {
        let mut members = self.members.iter();
        let unknown = members.find(|(name, raw)| *raw != "null" && !known.contains(&name.as_ref()))?;
        Some(shown(&unknown.0))
    }

    /// Returns the failure of a required member that is absent or `null`.
    pub(super) fn missing(&self, field: &'static str) -> Failure {
        Failure::Missing { part: self.part, field }
    }

    /// Returns the failure of an object that contains something that this version does not know.
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

/// Returns the members of an object; `None` for any other value.
fn members(text: &str) -> Result<Option<Vec<Member<'_>>>, SyntaxError> {
    let mut scanner = Scanner::new(text);
    if scanner.peek() != Some(b'{') {
        return Ok(None);
    }
    scanner.enter();
    // 32 members are enough for the largest objects of today's nodes.
    let mut members = Vec::with_capacity(32);
    let mut first = true;
    while let Some(name) = scanner.next_member(&mut first)? {
        let value = scanner.value()?;
        members.push((unescape(&text[name]), &text[value]));
    }
    scanner.end()?;
    Ok(Some(members))
}

/// Returns the elements of an answer that is a list.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object<'_> {
        Object::read(text, None).unwrap()
    }

    fn refused<T: std::fmt::Debug>(read: Result<T, Failure>) -> String {
        read.unwrap_err().to_string()
    }

    #[test]
    fn escaped_member_names_are_equal_to_plain_ones() {
        assert_eq!(object(r#" { "\u0061" : "0x1" } "#).get::<u64>("a"), Ok(1));
        let twice = r#"{"a":1,"b":2,"\u0061":3}"#;
        assert_eq!(refused(Object::read(twice, None)), "names is a twice, not each name once");
    }

    #[test]
    fn non_object_is_refused() {
        for (text, shown) in [("[]", "a list"), ("\"0x1\"", "0x1"), ("null", "null"), (" 7", "7")] {
            let part = Some(Part::Withdrawal(2));
            let message = format!("withdrawals[2].value is {shown}, not an object");
            assert_eq!(refused(Object::read(text, part)), message);
        }
        assert!(Object::read("{", None).is_err());
        assert!(Object::read("{} {}", None).is_err());
    }

    #[test]
    fn null_member_is_present_without_a_value() {
        let object = object(r#"{"a":null}"#);
        assert_eq!((object.has("a"), object.raw("a"), object.has("b")), (true, None, false));
        let missing = |field| Failure::Missing { part: None, field };
        assert_eq!(object.maybe::<u64>("a"), Ok(None));
        assert_eq!((object.get::<u64>("a"), object.get::<u64>("b")), (Err(missing("a")), Err(missing("b"))));
        assert_eq!((object.optional::<u64>("a"), object.optional::<u64>("b")), (Err(missing("a")), Ok(None)));
        assert_eq!((object.nullable::<u64>("a"), object.nullable::<u64>("b")), (Ok(None), Err(missing("b"))));
        assert_eq!(object.may_be::<u64>(Reason::Derived, "a", &1), Err(missing("a")));
        assert_eq!(object.may_be::<u64>(Reason::Derived, "b", &1), Ok(()));
        assert_eq!(
            refused(object.get::<u64>("a")),
            "a is missing or null; the answer cannot be proved without it"
        );
        assert_eq!(object.unknown(&[]), None);
    }

    #[test]
    fn errors_name_the_member() {
        let object = object(r#"{"a":"0x01","list":["0x1","0x02"],"x":{}}"#);
        assert_eq!(refused(object.get::<u64>("a")), "a is 0x01, not a quantity of 64 bits");
        assert_eq!(refused(object.values::<u64>("list")), "list is 0x02, not a quantity of 64 bits");
        assert_eq!(refused(object.list("x")), "x is an object, not a list");
        assert_eq!(refused(object.list("y")), "y is missing or null; the answer cannot be proved without it");
        assert_eq!(object.unknown(&["a", "list"]), Some("x".to_owned()));
    }
}
