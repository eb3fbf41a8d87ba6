//! A call's arguments as CEL values, from their JSON text.
//!
//! CEL tells signed, unsigned and floating numbers apart and JSON does not: every whole number that fits is made
//! signed, so that arithmetic with literals works, and every other one floating, so that comparisons still do.

use std::collections::HashMap;
use std::fmt;

use cel::Value;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The arguments by name; `null` counts as none, and anything but an object is no answer.
///
/// A number outside the range of a double is infinite. An argument that cannot be read (such a number within a list
/// or an object, or nesting beyond 128 levels) is left out, as if it were missing.
pub(super) fn parse(json: &str) -> Option<HashMap<String, Value>> {
    let raw: Option<HashMap<String, &RawValue>> = serde_json::from_str(json).ok()?;
    let values = raw.unwrap_or_default().into_iter();
    Some(values.filter_map(|(name, raw)| Some((name, value(raw.get())?))).collect())
}

fn value(json: &str) -> Option<Value> {
    match serde_json::from_str(json) {
        Ok(Argument(value)) => Some(value),
        Err(_) => json.parse().ok().map(Value::Float),
    }
}

/// One value within the arguments.
struct Argument(Value);

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentVisitor).map(Argument)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond 2^63 only the magnitude matters to a rule")]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Argument(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = HashMap::new();
        while let Some((key, Argument(value))) = entries.next_entry::<String, _>()? {
            map.insert(key, value);
        }
        Ok(Value::from(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_what_a_literal_would_be() {
        let args = parse(r#"{"a": 7, "b": -7, "c": 1.5, "d": 18446744073709551615, "e": 1e400, "f": -1e400}"#).unwrap();
        assert_eq!(args["a"], Value::Int(7));
        assert_eq!(args["b"], Value::Int(-7));
        assert_eq!(args["c"], Value::Float(1.5));
        assert_eq!(args["d"], Value::Float(18_446_744_073_709_551_615.0));
        assert_eq!(args["e"], Value::Float(f64::INFINITY));
        assert_eq!(args["f"], Value::Float(f64::NEG_INFINITY));
    }

    #[test]
    fn only_objects_are_arguments() {
        assert_eq!(parse("null"), Some(HashMap::new()));
        assert_eq!(parse(" {} "), Some(HashMap::new()));
        for json in ["[]", "7", "\"a\"", "{", "", "{\"a\": }"] {
            assert_eq!(parse(json), None, "{json}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_out_alone() {
        let deep = format!("{{\"a\": {}{}, \"b\": [1, {{\"c\": \"d\"}}]}}", "[".repeat(500), "]".repeat(500));
        let args = parse(&deep).unwrap();
        assert!(!args.contains_key("a"));
        assert!(args.contains_key("b"));
        let args = parse(r#"{"a": [1e400], "b": "x"}"#).unwrap();
        assert_eq!(args.into_iter().collect::<Vec<_>>(), [("b".to_owned(), Value::from("x"))]);
    }
}
