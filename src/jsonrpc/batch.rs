//! A batch taken apart: each message a slice of the same text.
//!
//! How many there may be is limited while reading, since an array of a few megabytes can have millions of members.

use std::fmt;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{ReadError, offset_in};

/// The members of a JSON array, whatever they are; at least one, at most `most`.
///
/// # Errors
/// If the text is no JSON array in UTF-8, or has none or too many members.
pub fn split(text: &Bytes, most: usize) -> Result<Vec<Bytes>, ReadError> {
    let syntax = |error: serde_json::Error| ReadError::Syntax(error.to_string());
    let source = std::str::from_utf8(text).map_err(|error| ReadError::Syntax(error.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(source);
    let (members, count) = reader.deserialize_seq(Members { most }).map_err(syntax)?;
    reader.end().map_err(syntax)?;
    match count {
        0 => Err(ReadError::Shape("a batch has at least one message".into())),
        _ if count > most => {
            Err(ReadError::Shape(format!("a batch has at most {most} messages, and this one has {count}")))
        }
        _ => Ok(members.into_iter().map(|raw| text.slice(offset_in(source, raw.get()))).collect()),
    }
}

/// Keeps that many members and counts them all.
struct Members {
    most: usize,
}

impl<'de> Visitor<'de> for Members {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < self.most
            && let Some(member) = members.next_element()?
        {
            kept.push(member);
        }
        let mut count = kept.len();
        while members.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((kept, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{INVALID_REQUEST, PARSE_ERROR};

    fn read(text: &str) -> Result<Vec<Bytes>, i64> {
        split(&Bytes::copy_from_slice(text.as_bytes()), 3).map_err(|error| error.code())
    }

    #[test]
    fn members_keep_their_bytes() {
        let members = read(" [ {\"id\" : 1.0} ,\n7, [\"a\", null]] ").unwrap();
        assert_eq!(members, ["{\"id\" : 1.0}", "7", "[\"a\", null]"]);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for (text, code) in [
            ("[]", INVALID_REQUEST),
            ("[1,2,3,4]", INVALID_REQUEST),
            ("[1,2", PARSE_ERROR),
            ("[1,2,3,4", PARSE_ERROR),
            ("[1] x", PARSE_ERROR),
            ("[1,]", PARSE_ERROR),
        ] {
            assert_eq!(read(text), Err(code), "{text}");
        }
        assert_eq!(split(&Bytes::from_static(b"[\"\xff\"]"), 3).unwrap_err().code(), PARSE_ERROR);
        let error = split(&Bytes::from_static(b"[1,2,3,4,5]"), 3).unwrap_err();
        assert_eq!(error, ReadError::Shape("a batch has at most 3 messages, and this one has 5".into()));
    }
}
