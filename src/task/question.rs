//! What an upstream asks while a task runs: the client's user, its model, or its roots.

use std::sync::Arc;

use uuid::Uuid;

/// One open question of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its name towards clients: the key of `inputRequests` (SEP-2663), and the id of the relayed request.
    pub key: QuestionKey,
    /// The method of the request.
    pub method: Arc<str>,
    /// Its parameters, as JSON text.
    pub params: Option<Arc<str>>,
    /// The id it has upstream, as JSON text.
    pub upstream_id: Arc<str>,
}

/// Names one question for ever: random, so that no key is used twice and none can be guessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey(Arc<str>);

impl QuestionKey {
    /// A new key.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{}{}", Self::PREFIX, Uuid::new_v4().simple()).into())
    }

    /// The key that this text is, if it has the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(Self::PREFIX)?;
        let is_key = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| Self(text.into()))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    const PREFIX: &str = "ask-";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_other_ids() {
        let key = QuestionKey::random();
        assert_eq!(QuestionKey::parse(key.as_str()), Some(key.clone()));
        assert_ne!(key, QuestionKey::random());
        for text in ["", "ask-", "ask-12", "0", &key.as_str()[1..], &format!("{}0", key.as_str())] {
            assert_eq!(QuestionKey::parse(text), None, "{text}");
        }
    }
}
