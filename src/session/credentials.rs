//! Clients' credentials: in memory only, and only the latest that the upstream accepted.

use hmac::{Hmac, KeyInit, Mac};
use http::HeaderValue;
use sha2::Sha256;

use crate::task::Fingerprint;

/// Makes fingerprints of secrets under the key of this deployment.
#[derive(Clone)]
pub struct Fingerprints {
    keyed: Hmac<Sha256>,
}

impl Fingerprints {
    /// Fingerprints under `secret`.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self { keyed: Hmac::new_from_slice(secret).expect("any length is a key") }
    }

    /// Fingerprints under a key that is forgotten with the test.
    #[cfg(test)]
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system gives randomness");
        Self::new(&key)
    }

    /// The fingerprint of a credential.
    #[must_use]
    pub fn credential(&self, credential: &[u8]) -> Fingerprint {
        self.of(b"credential", credential)
    }

    /// The fingerprint of a session of the upstream at `path`.
    #[must_use]
    pub fn session(&self, path: &str, session: &str) -> Fingerprint {
        self.of(path.as_bytes(), session.as_bytes())
    }

    fn of(&self, kind: &[u8], secret: &[u8]) -> Fingerprint {
        let mut mac = self.keyed.clone();
        mac.update(kind);
        mac.update(&[0]);
        mac.update(secret);
        let full = mac.finalize().into_bytes();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Fingerprint(short)
    }
}

impl std::fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fingerprints(..)")
    }
}

/// How many accepted credentials are remembered per session.
const MAX_ACCEPTED: usize = 16;

/// The credentials that an upstream accepted on one session; `None` is a request without one.
#[derive(Debug, Default)]
pub struct Credentials {
    /// The latest accepted last.
    accepted: Vec<Option<HeaderValue>>,
    /// Of those, the one that was brought last, and its turn.
    latest: Option<(u64, HeaderValue)>,
}

impl Credentials {
    /// The upstream accepted a request with this credential, which was brought in this turn. Upstreams answer in any
    /// order: one that was brought before the latest does not become the latest again, nor does none.
    pub fn accept(&mut self, credential: Option<&HeaderValue>, turn: u64) {
        if let Some(credential) = credential
            && self.latest.as_ref().is_none_or(|(latest, _)| *latest <= turn)
        {
            self.latest = Some((turn, credential.clone()));
        }
        if self.accepted.last().is_some_and(|last| last.as_ref() == credential) {
            return;
        }
        self.accepted.retain(|known| known.as_ref() != credential);
        self.accepted.push(credential.cloned());
        if self.accepted.len() > MAX_ACCEPTED {
            self.accepted.remove(0);
        }
    }

    /// Whether the upstream accepted this credential before.
    #[must_use]
    pub fn knows(&self, credential: Option<&HeaderValue>) -> bool {
        self.accepted.iter().any(|known| known.as_ref() == credential)
    }

    /// The latest that was brought and accepted.
    #[must_use]
    pub fn latest(&self) -> Option<HeaderValue> {
        self.latest.as_ref().map(|(_, credential)| credential.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_key_and_kind() {
        let (one, two) = (Fingerprints::new(b"k1"), Fingerprints::new(b"k2"));
        assert_eq!(one.credential(b"a"), Fingerprints::new(b"k1").credential(b"a"));
        assert_ne!(one.credential(b"a"), one.credential(b"b"));
        assert_ne!(one.credential(b"a"), two.credential(b"a"));
        assert_ne!(one.credential(b"a"), one.session("/mcp", "a"));
        assert_ne!(one.session("/a", "s"), one.session("/b", "s"));
    }

    #[test]
    fn the_latest_accepted_wins() {
        let mut credentials = Credentials::default();
        let (t1, t2) = (HeaderValue::from_static("t1"), HeaderValue::from_static("t2"));
        assert_eq!(credentials.latest(), None);
        credentials.accept(Some(&t1), 1);
        credentials.accept(Some(&t2), 2);
        assert_eq!(credentials.latest(), Some(t2));
        assert!(credentials.knows(Some(&t1)) && !credentials.knows(None));
        credentials.accept(Some(&t1), 3);
        assert_eq!(credentials.latest(), Some(t1));
    }

    #[test]
    fn a_late_answer_puts_no_old_one_back_and_none_takes_none_away() {
        let mut credentials = Credentials::default();
        let (t1, t2) = (HeaderValue::from_static("t1"), HeaderValue::from_static("t2"));
        credentials.accept(None, 0);
        assert_eq!(credentials.latest(), None);
        credentials.accept(Some(&t2), 2);
        credentials.accept(Some(&t1), 1);
        credentials.accept(None, 3);
        assert_eq!(credentials.latest(), Some(t2));
        assert!(credentials.knows(Some(&t1)) && credentials.knows(None));
    }
}
