//! Changes to the members of an object and of objects inside it; every byte that no change names stays.

use std::ops::Range;

use bytes::Bytes;

use crate::jsonrpc::{Edit, Member, Object, members, quote, remove_where, splice};

/// What becomes of one member.
#[derive(Clone, Debug)]
pub(super) enum Change<'a> {
    /// It goes.
    Remove,
    /// It has this value, JSON text.
    Set(String),
    /// It has this value unless it has one.
    Default(String),
    /// It is an object with these changes; one that is absent or no object is made, if they set anything.
    Inside(Vec<Named<'a>>),
    /// The same, and it goes if the changes leave nothing in it.
    Pruned(Vec<Named<'a>>),
}

/// A change and the member it is for. No name stands twice in a list.
pub(super) type Named<'a> = (&'a str, Change<'a>);

/// The object with these changes; what is no object is left alone. New members come first.
pub(super) fn apply(object: &Bytes, changes: &[Named<'_>]) -> Bytes {
    let found = std::str::from_utf8(object).ok().and_then(|text| edits(text, 0, changes));
    match found {
        Some(Edits { edits, .. }) if !edits.is_empty() => splice(object, edits),
        _ => object.clone(),
    }
}

/// [`apply`] for text.
pub(super) fn apply_text(object: &str, changes: &[Named<'_>]) -> String {
    let edited = apply(&Bytes::copy_from_slice(object.as_bytes()), changes);
    String::from_utf8(edited.into()).expect("text stays text when members change")
}

struct Edits {
    edits: Vec<Edit>,
    /// Whether there were members and none is left.
    emptied: bool,
}

fn edits(text: &str, base: usize, changes: &[Named<'_>]) -> Option<Edits> {
    let found = members(text)?;
    let (mut edits, mut added, mut doomed) = (Vec::new(), Vec::new(), Vec::new());
    for (name, change) in changes {
        let mut known = found.iter().filter(|member| member.name == *name).peekable();
        if known.peek().is_none() {
            added.extend(fresh(change).map(|value| format!("{}:{value}", quote(name))));
        }
        for member in known {
            match changed(member, base, change) {
                Some(more) => edits.extend(more),
                None => doomed.push(member.at.start),
            }
        }
    }
    edits.extend(remove_where(&found, base, |member| doomed.contains(&member.at.start)));
    let kept = found.len() - doomed.len();
    if !added.is_empty() {
        let open = base + text.find('{').unwrap_or_default() + 1;
        let comma = if kept == 0 { "" } else { "," };
        edits.push(Edit::insert(open, format!("{}{comma}", added.join(","))));
    }
    Some(Edits { edits, emptied: !found.is_empty() && kept == 0 && added.is_empty() })
}

/// The edits of a member that is there; `None` if it goes.
fn changed(member: &Member<'_>, base: usize, change: &Change<'_>) -> Option<Vec<Edit>> {
    let at = base + member.value_at.start..base + member.value_at.end;
    match change {
        Change::Remove => None,
        Change::Set(value) => Some(vec![Edit::new(at, value)]),
        Change::Default(_) => Some(Vec::new()),
        Change::Inside(inner) => Some(within(member, at, inner).edits),
        Change::Pruned(inner) => {
            let Edits { edits, emptied } = within(member, at, inner);
            (!emptied).then_some(edits)
        }
    }
}

fn within(member: &Member<'_>, at: Range<usize>, inner: &[Named<'_>]) -> Edits {
    edits(member.value, at.start, inner).unwrap_or_else(|| {
        let made = object(inner).map(|value| Edit::new(at, value));
        Edits { edits: made.into_iter().collect(), emptied: false }
    })
}

/// The value of a member that was not there.
fn fresh(change: &Change<'_>) -> Option<String> {
    match change {
        Change::Remove => None,
        Change::Set(value) | Change::Default(value) => Some(value.clone()),
        Change::Inside(inner) | Change::Pruned(inner) => object(inner),
    }
}

fn object(changes: &[Named<'_>]) -> Option<String> {
    let mut set = changes.iter().filter_map(|(name, change)| Some((name, fresh(change)?))).peekable();
    set.peek()?;
    Some(set.fold(Object::new(), |object, (name, value)| object.raw(name, &value)).finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn changes() -> Vec<Named<'static>> {
        vec![
            ("gone", Change::Remove),
            ("set", Change::Set("1.0".into())),
            ("kept", Change::Default("2".into())),
            ("in", Change::Inside(vec![("a", Change::Remove)])),
            ("_meta", Change::Pruned(vec![("a", Change::Remove), ("b", Change::Remove)])),
        ]
    }

    #[test]
    fn changes_what_is_named_and_nothing_else() {
        for (before, after) in [
            ("{}", r#"{"set":1.0,"kept":2}"#),
            (r#" { "x" : 1e400 } "#, r#" {"set":1.0,"kept":2, "x" : 1e400 } "#),
            (r#"{"gone":1, "set":0,"kept":{} ,"y":[ ]}"#, r#"{"set":1.0,"kept":{} ,"y":[ ]}"#),
            (r#"{"gone":1,"gone":2}"#, r#"{"set":1.0,"kept":2}"#),
            (r#"{"set":0,"kept":0,"s\u0065t":3}"#, r#"{"set":1.0,"kept":0,"s\u0065t":1.0}"#),
            (r#"{"set":0,"kept":0,"in":{"a":1}}"#, r#"{"set":1.0,"kept":0,"in":{}}"#),
            (r#"{"set":0,"kept":0,"_meta":{ "a":1,"b":2 }}"#, r#"{"set":1.0,"kept":0}"#),
            (r#"{"set":0,"kept":0,"_meta":{"a":1, "c" :2 }}"#, r#"{"set":1.0,"kept":0,"_meta":{"c" :2 }}"#),
            (r#"{"set":0,"kept":0,"_meta":{}}"#, r#"{"set":1.0,"kept":0,"_meta":{}}"#),
            (r#"{"set":0,"kept":0,"_meta":null,"in":[1]}"#, r#"{"set":1.0,"kept":0,"_meta":null,"in":[1]}"#),
            ("[1]", "[1]"),
            ("null", "null"),
            ("{", "{"),
            ("", ""),
        ] {
            assert_eq!(apply_text(before, &changes()), after, "{before}");
        }
    }

    #[test]
    fn makes_the_objects_that_it_sets_something_in() {
        let deep = [("p", Change::Inside(vec![("_meta", Change::Pruned(vec![("k", Change::Set("1".into()))]))]))];
        for (before, after) in [
            (r#"{"x":1}"#, r#"{"p":{"_meta":{"k":1}},"x":1}"#),
            (r#"{"p":{ }}"#, r#"{"p":{"_meta":{"k":1} }}"#),
            (r#"{"p":null}"#, r#"{"p":{"_meta":{"k":1}}}"#),
            (r#"{"p":{"_meta":["a"]}}"#, r#"{"p":{"_meta":{"k":1}}}"#),
            (r#"{"p":{"_meta": {"z":0}}}"#, r#"{"p":{"_meta": {"k":1,"z":0}}}"#),
        ] {
            assert_eq!(apply_text(before, &deep), after, "{before}");
        }
    }

    proptest! {
        #[test]
        fn any_order_of_members_stays_an_object(names in prop::collection::vec("gone|set|kept|in|_meta|x|y", 0..7)) {
            let members: Vec<String> = names.iter().map(|name| format!(" {}:{{\"a\":1 , \"k\":1.50}}", quote(name))).collect();
            let edited = apply_text(&format!("{{{} }}", members.join(" ,")), &changes());
            let value: Value = serde_json::from_str(&edited).unwrap();
            prop_assert!(value.get("gone").is_none() && value["set"] == 1.0 && !value["kept"].is_null());
            for name in ["x", "y"] {
                let kept = names.iter().any(|other| other == name);
                prop_assert_eq!(edited.contains(&format!("{}:{{\"a\":1 , \"k\":1.50}}", quote(name))), kept);
            }
        }

        #[test]
        fn bytes_that_are_no_object_stay(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            if std::str::from_utf8(&bytes).ok().and_then(members).is_none() {
                prop_assert_eq!(apply(&bytes, &changes()), bytes);
            }
        }
    }
}
