//! The time of day.
//!
//! Taken from the system once and moved on by the runtime's clock: it never jumps, and tests can pause it.

use std::time::Duration;

use tokio::time::Instant;

/// Tells the time since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Duration,
    since: Instant,
}

impl Clock {
    /// A clock that starts with the system's time.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place that asks the system
    pub fn system() -> Self {
        let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { start, since: Instant::now() }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// The time of an instant of the runtime's clock.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Duration {
        self.start + instant.saturating_duration_since(self.since)
    }
}
