//! `requestState`: what a client brings back with its answers, sealed, so that it names only a call of its own.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::session::Seal;
use crate::task::{Sealed, Timestamp};

/// What seals are made for, so that none can stand for another.
const SEALED_FOR: &str = "requestState";
/// How long one is good for beyond what a person may take to answer: nobody can come back with it after that.
const LATE: Duration = Duration::from_secs(60);
/// Longer texts are none of ours.
const MAX_LENGTH: usize = 2_048;

/// Whose the request is, and which: only its equal may come back to the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purpose {
    /// The path of the upstream.
    pub path: String,
    /// Keyed hash of the caller's credential, in hexadecimal; empty without one.
    pub owner: String,
    /// Digest of the request: its method, what it names, and its arguments.
    pub digest: String,
}

/// What `requestState` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The call, or the task, that asked.
    pub exchange: Uuid,
    /// How often it had asked by then.
    pub round: u32,
    /// Whose it is, and which.
    pub purpose: Purpose,
    /// From when on it is not accepted any more.
    pub expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Text {
    exchange: String,
    round: u32,
    expires: u64,
    #[serde(flatten)]
    purpose: Purpose,
}

impl State {
    /// The state as text; `None` if the system has no randomness to give.
    #[must_use]
    pub fn seal(&self, seal: &Seal) -> Option<String> {
        let text = Text {
            exchange: self.exchange.simple().to_string(),
            round: self.round,
            expires: self.expires.0,
            purpose: self.purpose.clone(),
        };
        let text = serde_json::to_vec(&text).ok()?;
        Some(URL_SAFE_NO_PAD.encode(seal.close(&text, SEALED_FOR)?.0))
    }

    /// The state that `text` is; `None` if it was not made under this secret, or was changed.
    fn open(seal: &Seal, text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let sealed = Sealed(Bytes::from(URL_SAFE_NO_PAD.decode(text).ok()?));
        let text: Text = serde_json::from_slice(&seal.open(&sealed, SEALED_FOR)?).ok()?;
        Some(Self {
            exchange: text.exchange.parse().ok()?,
            round: text.round,
            purpose: text.purpose,
            expires: Timestamp(text.expires),
        })
    }

    /// How long it is good for, where a question waits this long for its answer.
    #[must_use]
    pub fn span(input_timeout: Duration) -> Duration {
        input_timeout.saturating_add(LATE)
    }

    /// The state that `text` is, if it was made for this request and is not too old.
    #[must_use]
    pub fn accept(seal: &Seal, text: &str, purpose: &Purpose, now: Timestamp) -> Option<Self> {
        Self::open(seal, text).filter(|state| state.fits(purpose, now))
    }

    fn fits(&self, purpose: &Purpose, now: Timestamp) -> bool {
        self.purpose == *purpose && self.expires.since(now) > Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_as_it_was_made() {
        let seal = Seal::new(b"secret");
        let purpose = Purpose { path: "/mcp".into(), owner: "a".into(), digest: "b".into() };
        let state = State { exchange: Uuid::new_v4(), round: 2, purpose, expires: Timestamp(1_000) };
        let text = state.seal(&seal).unwrap();
        assert_eq!(State::open(&seal, &text), Some(state.clone()));
        assert_eq!(State::open(&Seal::new(b"other"), &text), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let opened = State::open(&seal, std::str::from_utf8(&changed).unwrap());
            assert!(opened.is_none() || opened == Some(state.clone()), "byte {at}");
        }
        for odd in ["", "=", "é", &"A".repeat(3_000)] {
            assert_eq!(State::open(&seal, odd), None);
        }
        let purpose =
            |owner: &str, digest: &str| Purpose { path: "/mcp".into(), owner: owner.into(), digest: digest.into() };
        assert!(state.fits(&purpose("a", "b"), Timestamp(999)));
        assert!(!state.fits(&purpose("a", "b"), Timestamp(1_000)), "expired");
        assert!(!state.fits(&purpose("x", "b"), Timestamp(0)), "another owner");
        assert!(!state.fits(&purpose("a", "x"), Timestamp(0)), "other arguments");
    }
}
