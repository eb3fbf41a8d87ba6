//! Task ids: random, so that knowing one is the right to use it where nothing better is known.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A UUIDv4 in its hyphenated form: 122 random bits, safe in a URL and in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Uuid);

impl TaskId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Its sixteen bytes, which are ordered as ids are.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The first eight digits: enough to follow a task in a log, too little to use it.
    #[must_use]
    pub fn short(&self) -> String {
        self.0.simple().to_string()[..8].to_owned()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// The text is no task id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a task id")]
pub struct NotATaskId;

impl FromStr for TaskId {
    type Err = NotATaskId;

    fn from_str(text: &str) -> Result<Self, NotATaskId> {
        let id = Uuid::try_parse(text).map_err(|_| NotATaskId)?;
        if id.hyphenated().to_string() == text { Ok(Self(id)) } else { Err(NotATaskId) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn b06_ids_are_random_and_safe_to_carry() {
        let ids: Vec<String> = (0..10_000).map(|_| TaskId::random().to_string()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in &ids {
            assert_eq!(id.len(), 36);
            assert_eq!(id.as_bytes()[14], b'4', "random, not derived from time: {id}");
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{id}");
        }
        let heads: HashSet<&str> = ids.iter().map(|id| &id[..8]).collect();
        assert!(heads.len() > 9_990, "no prefix that counts or tells the time");
    }

    #[test]
    fn only_the_canonical_form_is_an_id() {
        let id = TaskId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(TaskId::from_bytes(*id.bytes()), id);
        assert!(!id.to_string().contains(&format!("{}-{}", id.short(), "x")));
        for text in ["", "x", &id.to_string().to_uppercase().replace('-', ""), &format!("{{{id}}}")] {
            assert_eq!(text.parse::<TaskId>(), Err(NotATaskId), "{text}");
        }
    }
}
