//! What the store needs to know from the configuration.

use std::path::PathBuf;
use std::time::Duration;

use super::LEASE;
use super::embedded::Faults;

/// `[store]` and `[tasks] max_retained`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engine.
    pub kind: Kind,
    /// Bytes of finished results kept at most.
    pub max_retained: u64,
    /// How many expired ids are remembered.
    pub max_remembered: usize,
    /// How many sessions are remembered, where they are past a restart.
    pub max_sessions: usize,
    /// How long a process may be silent before others take over what it runs.
    pub lease: Duration,
    /// What a test lets go wrong below the embedded engine.
    #[doc(hidden)]
    pub faults: Faults,
}

/// Where tasks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In memory: gone with the process.
    Memory,
    /// In one file.
    Embedded {
        /// The file; relative to the working directory.
        path: PathBuf,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: Kind::Memory,
            max_retained: 256 << 20,
            max_remembered: 100_000,
            max_sessions: 100_000,
            lease: LEASE,
            faults: Faults::default(),
        }
    }
}
