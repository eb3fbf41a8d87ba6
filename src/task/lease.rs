//! Who runs a task, and what may be done when nobody does any more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::Timestamp;

/// One process from its start to its end: a random number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub u128);

impl ReplicaId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4().as_u128())
    }
}

/// The right to run tasks, until it is over; it belongs to the holder and is renewed for all its tasks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who runs it.
    pub holder: ReplicaId,
    /// Somebody else may take it over from then on.
    pub until: Timestamp,
}

/// Bytes that only whoever sealed them can read, and that are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(pub Bytes);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// What is needed to speak to the upstream about the call again: session, query, version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// All of it, sealed.
    pub sealed: Sealed,
}

/// How a running task comes to its result, which decides what a restart may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Nothing was sent yet: it may be sent.
    Unstarted,
    /// By an exchange that ends with its process.
    Local {
        /// The request to send again, if the call may be repeated.
        repeat: Option<Sealed>,
    },
    /// By a stream that the upstream continues after the last event that came.
    Resumable {
        /// The id of that event.
        cursor: Arc<str>,
        /// How long the upstream wants to be left alone before (`retry`).
        wait: Option<Duration>,
        /// The way there.
        way: Way,
    },
    /// By a task of the upstream's own.
    Delegated {
        /// Its id there.
        task: Arc<str>,
        /// The way there.
        way: Way,
    },
}

impl Execution {
    /// What must not be repeated and cannot be resumed; also what is left of every task that has ended.
    pub const LOCAL: Self = Self::Local { repeat: None };

    /// One word for logs and exports.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unstarted => "unstarted",
            Self::Local { .. } => "local",
            Self::Resumable { .. } => "resumable",
            Self::Delegated { .. } => "delegated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_not_shown() {
        let way = Way { sealed: Sealed(Bytes::from_static(b"session-id")) };
        let execution = Execution::Delegated { task: "t-1".into(), way };
        assert!(!format!("{execution:?}").contains("session-id"));
        assert_ne!(ReplicaId::random(), ReplicaId::random());
    }
}
