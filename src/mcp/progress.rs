//! Progress tokens of our own making: they tell which progress no client has asked for.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::jsonrpc::OURS;

/// A token that no other request has, as JSON text.
#[must_use]
pub fn fresh_token() -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("\"{OURS}{:016x}{n:x}\"", KEY.hash_one(n))
}

/// Whether a token, as JSON text, is one of these.
#[must_use]
pub fn is_own_token(token: &str) -> bool {
    token.strip_prefix('"').is_some_and(|text| text.starts_with(OURS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_ours_are_told_from_others() {
        let (one, two) = (fresh_token(), fresh_token());
        assert_ne!(one, two);
        assert!(is_own_token(&one) && is_own_token(&two));
        for other in ["", "7", "\"\"", "\"mine\"", "taskgate-1"] {
            assert!(!is_own_token(other), "{other}");
        }
    }
}
