//! Whether this process should get new work, and if not, why.
//!
//! It lives on the lowest floor so that any room can raise its hand; the admin listener shows it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared handle to the reasons for not being ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<Cow<'static, str>>>>);

impl Readiness {
    /// Ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Not ready because of `reason`, until that is cleared. Saying it twice changes nothing.
    pub fn set(&self, reason: impl Into<Cow<'static, str>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(reason.into());
    }

    /// `reason` is over.
    pub fn clear(&self, reason: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(reason);
    }

    /// What stands against it, sorted; empty means ready.
    #[must_use]
    pub fn reasons(&self) -> Vec<Cow<'static, str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_ready_when_every_reason_is_cleared() {
        let readiness = Readiness::new();
        let elsewhere = readiness.clone();
        elsewhere.set("store unavailable");
        elsewhere.set("store unavailable");
        elsewhere.set(format!("upstream {} unreachable", "solver"));
        readiness.clear("store unavailable");
        assert_eq!(readiness.reasons(), ["upstream solver unreachable"]);
        readiness.clear("upstream solver unreachable");
        assert!(readiness.reasons().is_empty());
    }
}
