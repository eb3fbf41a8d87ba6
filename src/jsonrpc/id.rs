//! Request ids, kept as the JSON text they came in: `1`, `1.0` and `"1"` stay what they are.

use std::borrow::Cow;

use bytes::Bytes;
use uuid::Uuid;

/// What ids and tokens of our own making begin with.
pub const OURS: &str = "taskgate-";

/// The id of a request: the raw JSON text of a string or a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Bytes);

impl Id {
    /// Takes the raw text of a JSON string or number; anything else is no id. The text is copied: an id may outlive
    /// its message by far, and should not keep it in memory.
    #[must_use]
    pub fn from_raw(raw: &[u8]) -> Option<Self> {
        let first = *raw.first()?;
        let is_id = matches!(first, b'"' | b'-' | b'0'..=b'9') && std::str::from_utf8(raw).is_ok();
        is_id.then(|| Self(Bytes::copy_from_slice(raw)))
    }

    /// A string id.
    #[must_use]
    pub fn from_string(text: &str) -> Self {
        Self(Bytes::from(super::quote(text)))
    }

    /// An id of our own, for a request that nobody sent us.
    #[must_use]
    pub fn fresh() -> Self {
        Self::from_string(&format!("{OURS}{}", Uuid::new_v4().simple()))
    }

    /// The JSON text, as sent.
    #[must_use]
    pub fn raw(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    /// The text that servers key requests by: for them `1` and `"1"` are the same.
    #[must_use]
    pub fn key(&self) -> Cow<'_, str> {
        let raw = self.raw();
        match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            None => Cow::Borrowed(raw),
            Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
            Some(_) => Cow::Owned(serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_share_a_key() {
        for (raw, key) in [("1", "1"), ("\"1\"", "1"), ("\"a\\u0062\"", "ab"), ("1.0", "1.0"), ("\"\"", "")] {
            assert_eq!(Id::from_raw(raw.as_bytes()).unwrap().key(), key);
        }
        for raw in ["null", "true", "{}", "[]", ""] {
            assert_eq!(Id::from_raw(raw.as_bytes()), None, "{raw}");
        }
    }
}
