//! Edits of JSON text by byte range: what is not edited keeps every byte.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One replacement in a text.
#[derive(Clone, Debug)]
pub struct Edit {
    at: Range<usize>,
    with: String,
}

impl Edit {
    /// Replaces the bytes `at` by `with`.
    #[must_use]
    pub fn new(at: Range<usize>, with: impl Into<String>) -> Self {
        Self { at, with: with.into() }
    }

    /// Inserts `with` before byte `at`.
    #[must_use]
    pub fn insert(at: usize, with: impl Into<String>) -> Self {
        Self::new(at..at, with)
    }
}

/// Applies edits that do not overlap.
#[must_use]
pub fn splice(text: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let mut out = BytesMut::with_capacity(text.len() + added);
    let mut from = 0;
    for edit in &edits {
        out.extend_from_slice(&text[from..edit.at.start]);
        out.extend_from_slice(edit.with.as_bytes());
        from = edit.at.end;
    }
    out.extend_from_slice(&text[from..]);
    out.freeze()
}

/// Where `part`, a slice of `whole`, lies in it.
#[must_use]
pub fn offset_in(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// One member of an object, with where it lies in the text of the object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its name, unescaped.
    pub name: Cow<'a, str>,
    /// From the opening quote of the name to the end of the value.
    pub at: Range<usize>,
    /// The text of its value.
    pub value: &'a str,
    /// Where the value lies.
    pub value_at: Range<usize>,
}

/// The members of the object that `text` is, in order; `None` if it is no object.
#[must_use]
pub fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let pairs: Pairs<'_> = serde_json::from_str(text).ok()?;
    let member = |(name, value): (&'_ RawValue, &'_ RawValue)| {
        let (name_at, value_at) = (offset_in(text, name.get()), offset_in(text, value.get()));
        (name_at.start..value_at.end, value_at)
    };
    pairs
        .0
        .into_iter()
        .map(|(name, value)| {
            let (at, value_at) = member((name, value));
            let inner = &name.get()[1..name.get().len() - 1];
            let unescaped = if inner.contains('\\') {
                Cow::Owned(serde_json::from_str(name.get()).ok()?)
            } else {
                Cow::Borrowed(inner)
            };
            Some(Member { name: unescaped, at, value: value.get(), value_at })
        })
        .collect()
}

/// The members of an object by name, for looking rather than editing; empty if `text` is no object.
#[must_use]
pub fn entries(text: &str) -> HashMap<Cow<'_, str>, &str> {
    members(text).unwrap_or_default().into_iter().map(|member| (member.name, member.value)).collect()
}

/// The edits that remove the members called `name` from the object at `base` of a larger text.
#[must_use]
pub fn remove(members: &[Member<'_>], base: usize, name: &str) -> Vec<Edit> {
    remove_where(members, base, |member| member.name == name)
}

/// The edits that remove every `unwanted` member from the object at `base` of a larger text. Members of several names
/// go in one call: the edits of two calls may overlap.
#[must_use]
pub fn remove_where(members: &[Member<'_>], base: usize, unwanted: impl Fn(&Member<'_>) -> bool) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut kept_before = false;
    for (index, member) in members.iter().enumerate() {
        if !unwanted(member) {
            kept_before = true;
            continue;
        }
        let at = match (members.get(index + 1), index.checked_sub(1)) {
            (_, Some(before)) if kept_before => members[before].at.end..member.at.end,
            (Some(after), _) => member.at.start..after.at.start,
            (None, _) => member.at.clone(),
        };
        edits.push(Edit::new(at.start + base..at.end + base, ""));
    }
    edits
}

/// Inserts `"name":value` as the first member of the object that begins at or after byte `from`.
#[must_use]
pub fn insert_first(text: &Bytes, from: usize, name: &str, value: &str) -> Bytes {
    let Some(open) = text[from..].iter().position(|byte| *byte == b'{').map(|at| from + at + 1) else {
        return text.clone();
    };
    let empty = text[open..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
    let comma = if empty { "" } else { "," };
    splice(text, vec![Edit::insert(open, format!("\"{name}\":{value}{comma}"))])
}

struct Pairs<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_members_wherever_they_stand() {
        for (text, expected) in [
            (r#"{"task":{},"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1, "task" : {"ttl":5} }"#, r#"{"a":1 }"#),
            (r#"{"a":1,"t\u0061sk":2,"b":3}"#, r#"{"a":1,"b":3}"#),
            (r#"{"task":1}"#, "{}"),
            (r#"{"task":1,"task":2}"#, "{}"),
            (r#"{"task":1,"task":2,"b":1}"#, r#"{"b":1}"#),
            (r#"{"b":1,"task":1,"task":2}"#, r#"{"b":1}"#),
            (r#"{"b":1}"#, r#"{"b":1}"#),
        ] {
            let edits = remove(&members(text).unwrap(), 0, "task");
            assert_eq!(splice(&Bytes::copy_from_slice(text.as_bytes()), edits), expected, "{text}");
        }
    }

    #[test]
    fn removes_members_of_several_names() {
        for (text, expected) in [
            (r#"{"a":1,"b":2}"#, "{}"),
            (r#"{"a":1,"b":2 , "c":3}"#, r#"{"c":3}"#),
            (r#"{"c":3, "a":1,"b":2 }"#, r#"{"c":3 }"#),
            (r#"{"a":1, "c":3, "b":2,"d":4}"#, r#"{"c":3,"d":4}"#),
        ] {
            let edits = remove_where(&members(text).unwrap(), 0, |member| matches!(&*member.name, "a" | "b"));
            assert_eq!(splice(&Bytes::copy_from_slice(text.as_bytes()), edits), expected, "{text}");
        }
    }

    #[test]
    fn inserts_at_the_front() {
        for (text, expected) in [("{}", r#"{"k":1}"#), (r#" { "a":2}"#, r#" {"k":1, "a":2}"#), ("7", "7")] {
            assert_eq!(insert_first(&Bytes::copy_from_slice(text.as_bytes()), 0, "k", "1"), expected);
        }
    }

    #[test]
    fn members_know_their_places() {
        let text = r#"{ "a" : [1, 2] , "b":{"c":"}"}}"#;
        let found = members(text).unwrap();
        assert_eq!(&text[found[0].at.clone()], r#""a" : [1, 2]"#);
        assert_eq!(&text[found[1].value_at.clone()], r#"{"c":"}"}"#);
        assert!(members("[1]").is_none());
    }
}
