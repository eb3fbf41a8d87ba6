//! The time that is written down.
//!
//! Taken from the system once and moved on by the runtime's clock: it never jumps, and tests can pause it.

use tokio::time::Instant;

use crate::task::Timestamp;

/// Tells the time in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Timestamp,
    since: Instant,
}

impl Clock {
    /// A clock that starts with the system's time.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place that asks the system
    pub fn system() -> Self {
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { start: Timestamp::default().plus(unix), since: Instant::now() }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The time of an instant of the runtime's clock.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Timestamp {
        self.start.plus(instant.saturating_duration_since(self.since))
    }
}
