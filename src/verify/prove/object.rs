//! Reads JSON objects strictly: what two readers could read differently is refused.
//!
//! A name counts once, however it is written; values are taken as Ethereum's JSON-RPC writes them, and
//! strings with escapes are none of them.
//!
//! Which members a node may leave out differs by member, and so does where `null` is allowed; each accessor
//! says which it takes. A required member that is absent or `null` makes an answer unprovable, not wrong.

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
        if let Some((name, _)) = members.iter().find(|(name, _)| names::is_lookalike(name)) {
            return Err(misread(part, "names", "each in its own case", &shown(name)));
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

    /// Returns a required member: absent or `null`, the object is unprovable.
    pub(super) fn get<V: Value>(&self, name: &'static str) -> Result<V, Failure> {
        self.maybe(name)?.ok_or_else(|| self.missing(name))
    }

    /// Returns a member that may be absent; `null`, the object is unprovable.
    pub(super) fn optional<V: Value>(&self, name: &'static str) -> Result<Option<V>, Failure> {
        if self.has(name) { self.get(name).map(Some) } else { Ok(None) }
    }

    /// Returns a member that must be present, if only as `null`.
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

    /// Checks that a member is absent or `expected`; `null`, the object is unprovable.
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

    /// Says that a required member is absent or `null`.
    pub(super) fn missing(&self, field: &'static str) -> Failure {
        Failure::Missing { part: self.part, field }
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
    fn a_name_is_the_same_however_it_is_written() {
        assert_eq!(object(r#" { "\u0061" : "0x1" } "#).get::<u64>("a"), Ok(1));
        let twice = r#"{"a":1,"b":2,"\u0061":3}"#;
        assert_eq!(refused(Object::read(twice, None)), "names is a twice, not each there once");
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for (text, shown) in [("[]", "a list"), ("\"0x1\"", "0x1"), ("null", "null"), (" 7", "7")] {
            let part = Some(Part::Withdrawal(2));
            let message = format!("withdrawals[2].value is {shown}, not an object");
            assert_eq!(refused(Object::read(text, part)), message);
        }
        assert!(Object::read("{", None).is_err());
        assert!(Object::read("{} {}", None).is_err());
    }

    #[test]
    fn null_is_present_and_no_value() {
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
            "a is missing or null, and the answer is unprovable without it"
        );
        assert_eq!(object.unknown(&[]), None);
    }

    #[test]
    fn errors_name_the_member() {
        let object = object(r#"{"a":"0x01","list":["0x1","0x02"],"x":{}}"#);
        assert_eq!(refused(object.get::<u64>("a")), "a is 0x01, not a quantity of 64 bits");
        assert_eq!(refused(object.values::<u64>("list")), "list is 0x02, not a quantity of 64 bits");
        assert_eq!(refused(object.list("x")), "x is an object, not a list");
        assert_eq!(
            refused(object.list("y")),
            "y is missing or null, and the answer is unprovable without it"
        );
        assert_eq!(object.unknown(&["a", "list"]), Some("x".to_owned()));
    }
}
