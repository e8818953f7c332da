//! Applies single changes to a block or its receipts, at any depth.

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// A step from a JSON value to a member or an element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Name(String),
    At(usize),
}

/// Place of a value: the steps from the root to it.
pub type Path = Vec<Step>;

/// A change to the value at a place.
#[derive(Clone, Copy, Debug)]
pub enum Mutation {
    /// Replaces the value by another of the same kind: changes a digit, adds one, or negates.
    Change(Index),
    /// Replaces the value by that of another member with the same name.
    Copy(Index),
    Null,
    /// Removes the member or element.
    Drop,
    /// Duplicates the element.
    Repeat,
    /// Swaps the element with another.
    Swap(Index),
    /// Adds an element.
    Add(Index),
}

impl Mutation {
    pub fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            3 => any::<Index>().prop_map(Self::Change),
            3 => any::<Index>().prop_map(Self::Copy),
            1 => Just(Self::Null),
            2 => Just(Self::Drop),
            1 => Just(Self::Repeat),
            1 => any::<Index>().prop_map(Self::Swap),
            1 => any::<Index>().prop_map(Self::Add),
        ]
    }

    /// Returns `whole` with this change at `path`, or `None` if that changes nothing.
    pub fn apply(self, whole: &Value, path: &[Step]) -> Option<Value> {
        let mut changed = whole.clone();
        let (last, above) = path.split_last()?;
        let parent = walk(&mut changed, above)?;
        match (self, parent, last) {
            (Self::Drop, Value::Object(members), Step::Name(name)) => {
                members.remove(name);
            }
            (Self::Drop, Value::Array(elements), Step::At(at)) => {
                elements.remove(*at);
            }
            (Self::Repeat, Value::Array(elements), Step::At(at)) => {
                elements.insert(*at, elements[*at].clone());
            }
            (Self::Swap(with), Value::Array(elements), Step::At(at)) => {
                let with = with.index(elements.len());
                elements.swap(*at, with);
            }
            (Self::Repeat | Self::Swap(_), ..) => return None,
            (mutation, parent, last) => {
                let value = inside(parent, last)?;
                match mutation {
                    Self::Null => *value = Value::Null,
                    Self::Change(digit) => *value = other(value, digit)?,
                    Self::Copy(which) => {
                        let places = namesakes(whole, path);
                        *value = at(whole, places.get(which.index(places.len().max(1)))?).clone();
                    }
                    Self::Add(which) => {
                        let elements = value.as_array_mut()?;
                        let place = which.index(elements.len() + 1);
                        let element =
                            elements.first().cloned().unwrap_or_else(|| json!(format!("0x{:064x}", 7)));
                        elements.insert(place, element);
                    }
                    _ => return None,
                }
            }
        }
        (changed != *whole).then_some(changed)
    }
}

/// Returns all places in a value, except the root.
pub fn places(whole: &Value) -> Vec<Path> {
    let mut found = Vec::new();
    let mut open = vec![Path::new()];
    while let Some(path) = open.pop() {
        let steps: Vec<_> = match at(whole, &path) {
            Value::Object(members) => members.keys().map(|name| Step::Name(name.clone())).collect(),
            Value::Array(elements) => (0..elements.len()).map(Step::At).collect(),
            _ => Vec::new(),
        };
        open.extend(steps.into_iter().map(|step| [path.clone(), vec![step]].concat()));
        found.push(path);
    }
    found.retain(|path| !path.is_empty());
    found
}

/// Returns the value at a place.
pub fn at<'a>(whole: &'a Value, path: &[Step]) -> &'a Value {
    path.iter().fold(whole, |value, step| match step {
        Step::Name(name) => &value[name],
        Step::At(at) => &value[at],
    })
}

/// Returns the names on a path.
pub fn names(path: &[Step]) -> Vec<&str> {
    let names = path.iter().filter_map(|step| match step {
        Step::Name(name) => Some(name.as_str()),
        Step::At(_) => None,
    });
    names.collect()
}

fn walk<'a>(whole: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(whole, |value, step| inside(value, step))
}

/// Returns the member or element that `step` leads to, if there is one.
pub fn inside<'a>(value: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    match step {
        Step::Name(name) => value.get_mut(name),
        Step::At(at) => value.get_mut(at),
    }
}

/// Returns the places that differ from `path` only in list positions.
fn namesakes(whole: &Value, path: &[Step]) -> Vec<Path> {
    let same = |place: &Path| place != path && place.len() == path.len() && names(place) == names(path);
    places(whole).into_iter().filter(same).collect()
}

/// Returns another value of the same kind.
fn other(value: &Value, which: Index) -> Option<Value> {
    Some(match value {
        Value::Null => json!(format!("0x{:040x}", 0x70)),
        Value::Bool(value) => json!(!value),
        Value::Number(number) => json!(number.as_u64()? + 1),
        Value::String(text) => {
            let digits = text.strip_prefix("0x")?;
            if digits.is_empty() {
                return Some(json!("0x00"));
            }
            let at = which.index(digits.len());
            let digit = u8::from_str_radix(&digits[at..=at], 16).ok()?;
            // The digit is never 0, because a quantity must not begin with 0.
            let digit = if digit == 15 { 1 } else { digit + 1 };
            json!(format!("0x{}{digit:x}{}", &digits[..at], &digits[at + 1..]))
        }
        Value::Array(_) | Value::Object(_) => return None,
    })
}
