//! Seals what a restart needs to know and nobody else may read, session ids above all.
//!
//! AES-256-GCM-SIV (RFC 8452) under a key made from the deployment's secret: a nonce that came twice would cost nothing.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::task::Sealed;

const NONCE: usize = 12;

/// Seals and opens under one key.
#[derive(Clone)]
pub struct Seal {
    key: Arc<RandomizedNonceKey>,
}

impl Seal {
    /// Seals under a key made from `secret`.
    ///
    /// # Panics
    /// Never: every secret makes a key of the right length.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length is a key");
        mac.update(b"what a restart needs");
        let key = mac.finalize().into_bytes();
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).expect("a hash has the length of a key");
        Self { key: Arc::new(key) }
    }

    /// Seals `plain`; it opens only for the same `purpose`. `None` if the system has no randomness to give.
    #[must_use]
    pub fn close(&self, plain: &[u8], purpose: &str) -> Option<Sealed> {
        let mut text = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(purpose.as_bytes()), &mut text).ok()?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.extend_from_slice(&text);
        Some(Sealed(Bytes::from(sealed)))
    }

    /// What was sealed for `purpose`; `None` under another secret, or if a byte was changed.
    #[must_use]
    pub fn open(&self, sealed: &Sealed, purpose: &str) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.0.split_at_checked(NONCE)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut text).ok()?;
        Some(plain.to_vec())
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_what_it_closed_for_that_purpose() {
        let (seal, other) = (Seal::new(b"one"), Seal::new(b"two"));
        let sealed = seal.close(b"session-1", "/mcp").unwrap();
        assert_eq!(seal.open(&sealed, "/mcp").as_deref(), Some(&b"session-1"[..]));
        assert_eq!(seal.open(&sealed, "/other"), None);
        assert_eq!(other.open(&sealed, "/mcp"), None);
        assert_ne!(seal.close(b"session-1", "/mcp").unwrap(), sealed);
        for at in 0..sealed.0.len() {
            let mut bytes = sealed.0.to_vec();
            bytes[at] ^= 1;
            assert_eq!(seal.open(&Sealed(bytes.into()), "/mcp"), None, "{at}");
        }
        assert_eq!(seal.open(&Sealed(Bytes::from_static(b"short")), "/mcp"), None);
    }
}
