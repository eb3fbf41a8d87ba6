//! One text for every way of writing the same JSON value.
//!
//! Whether two calls ask for the same cannot hang on the order in which their clients write members.

use serde::de::IgnoredAny;

use super::quote;

/// What is nested deeper has no canonical text.
const DEEPEST: usize = 128;

/// `text` with members sorted by name, strings spelled one way, and no white space; numbers keep their digits, so that
/// `1` and `1.0` differ. Members of the same name keep their order: readers differ in which of them counts.
///
/// `None` if it is no JSON in Unicode, or is nested beyond 128 levels.
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    // From here on the grammar can be taken for granted.
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut writer = Writer { text, at: 0, out: String::with_capacity(text.len()) };
    writer.value(DEEPEST)?;
    Some(writer.out)
}

/// Reads from `at`, and writes what it read.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self, levels: usize) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(levels.checked_sub(1)?),
            b'[' => self.list(levels.checked_sub(1)?),
            b'"' => self.string(),
            _ => self.word(),
        }
    }

    fn object(&mut self, levels: usize) -> Option<()> {
        self.sign()?;
        let from = self.out.len();
        let mut members = Vec::new();
        loop {
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {
                    let start = self.out.len() - from;
                    self.string()?;
                    let named = self.out.len() - from;
                    self.sign()?;
                    self.value(levels)?;
                    members.push((start, named, self.out.len() - from));
                }
            }
        }
        let written = self.out.split_off(from);
        members.sort_by_key(|(start, named, _)| &written[*start..*named]);
        for (start, _, end) in members {
            if self.out.len() > from {
                self.out.push(',');
            }
            self.out.push_str(&written[start..end]);
        }
        self.sign()
    }

    fn list(&mut self, levels: usize) -> Option<()> {
        self.sign()?;
        loop {
            match self.peek()? {
                b']' => return self.sign(),
                b',' => self.sign()?,
                _ => self.value(levels)?,
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.peek()?;
        let mut inner = self.text.as_bytes()[self.at + 1..].iter();
        let mut escaped = false;
        while let Some(byte) = inner.next().filter(|byte| **byte != b'"') {
            if *byte == b'\\' {
                escaped = true;
                inner.next();
            }
        }
        let raw = &self.text[self.at..self.text.len() - inner.len()];
        self.at += raw.len();
        if escaped {
            self.out.push_str(&quote(&serde_json::from_str::<String>(raw).ok()?));
        } else {
            self.out.push_str(raw);
        }
        Some(())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let end = rest.find(|letter: char| matches!(letter, ',' | ']' | '}') || letter.is_ascii_whitespace());
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        self.out.push_str(word);
        Some(())
    }

    /// One of the signs between values.
    fn sign(&mut self) -> Option<()> {
        let sign = self.peek()?;
        self.at += 1;
        self.out.push(char::from(sign));
        Some(())
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn one_text_for_one_value() {
        for (text, expected) in [
            ("{}", "{}"),
            (" { } ", "{}"),
            ("\t[\r\n]", "[]"),
            (r#"{"b":1,"a":[ 1 , 2 ]}"#, r#"{"a":[1,2],"b":1}"#),
            (r#"{"a":{"d":1 , "c": {"y":[],"x":{}}}}"#, r#"{"a":{"c":{"x":{},"y":[]},"d":1}}"#),
            (r#"{"\u0062":"\u00e9\/","a":"\""}"#, r#"{"a":"\"","b":"é/"}"#),
            (r#"["\\", "a\\\"b", "日,]}"]"#, r#"["\\","a\\\"b","日,]}"]"#),
            (r#"{"n": 1.50, "m":1e400 ,"o":-0}"#, r#"{"m":1e400,"n":1.50,"o":-0}"#),
            ("[true, false ,null]", "[true,false,null]"),
            (r#" "x y" "#, r#""x y""#),
            ("7", "7"),
            (r#"{"a":2,"b":0,"a":1}"#, r#"{"a":2,"a":1,"b":0}"#),
            (r#"{"ab":1,"a":2,"a!":3}"#, r#"{"a!":3,"a":2,"ab":1}"#),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
            assert_eq!(canonical(expected).as_deref(), Some(expected), "again: {text}");
        }
    }

    #[test]
    fn other_values_have_other_texts() {
        let texts = [
            "1",
            "1.0",
            "\"1\"",
            "[1]",
            "{\"1\":1}",
            "{\"1\":\"1\"}",
            "null",
            "{}",
            "[]",
            "\"\"",
            "[[1],2]",
            "[[1,2]]",
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[at + 1..] {
                assert_ne!(canonical(one), canonical(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn what_is_no_json_has_none() {
        for text in ["", " ", "{", "{\"a\":}", "[1,]", "[1] 2", "nul", "\"a", r#""\ud800""#, r#""\x""#, "{'a':1}"] {
            assert_eq!(canonical(text), None, "{text}");
        }
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(canonical(&nested(128)), Some(nested(128)));
        assert_eq!(canonical(&nested(129)), None);
        assert_eq!(canonical(&nested(1_000_000)), None);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_the_same_value(value in json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let text = canonical(&pretty).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), &value);
            prop_assert_eq!(canonical(&value.to_string()), Some(text));
        }
    }
}
