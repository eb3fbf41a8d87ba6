//! Which eras of the protocol an upstream speaks: learnt from what it answers, and corrected when proved wrong.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether an upstream speaks an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Nobody has asked yet, or it could not be told from the answer.
    Unknown,
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What is known of the eras that an upstream speaks.
#[derive(Debug, Default)]
pub struct Facts {
    stateless: Fact,
    handshake: Fact,
    /// Its latest result of `server/discover`, as JSON text.
    discovered: Mutex<Option<Arc<str>>>,
}

#[derive(Debug, Default)]
struct Fact(AtomicU8);

impl Fact {
    fn get(&self) -> Speaks {
        match self.0.load(Ordering::Relaxed) {
            0 => Speaks::Unknown,
            1 => Speaks::Yes,
            _ => Speaks::No,
        }
    }

    fn set(&self, speaks: Speaks) {
        self.0.store(speaks as u8, Ordering::Relaxed);
    }
}

impl Facts {
    /// Whether it answers requests of the stateless era (2026-07-28 and later).
    #[must_use]
    pub fn stateless(&self) -> Speaks {
        self.stateless.get()
    }

    /// Whether it opens sessions by `initialize`.
    #[must_use]
    pub fn handshake(&self) -> Speaks {
        self.handshake.get()
    }

    /// It was seen to answer a request of the stateless era, or not to.
    pub fn set_stateless(&self, speaks: Speaks) {
        self.stateless.set(speaks);
    }

    /// It was seen to answer `initialize`, or not to.
    pub fn set_handshake(&self, speaks: Speaks) {
        self.handshake.set(speaks);
    }

    /// Its latest result of `server/discover`, as JSON text.
    #[must_use]
    pub fn discovered(&self) -> Option<Arc<str>> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It answered `server/discover` with this result.
    pub fn set_discovered(&self, result: &str) {
        *self.discovered.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.into());
        self.set_stateless(Speaks::Yes);
    }
}
