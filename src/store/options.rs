//! What the store needs to know from the configuration.

use std::time::Duration;

use super::LEASE;

/// `[store]` and `[tasks] max_retained`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of finished results kept at most.
    pub max_retained: u64,
    /// How long a process may be silent before others take over what it runs.
    pub lease: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_retained: 256 << 20, lease: LEASE }
    }
}
