//! Bounds on what is remembered of sessions.

use std::time::Duration;

/// Session limits of `[server]`.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many sessions are remembered; idle ones go first, never one with running work.
    pub max_sessions: usize,
    /// A session without a request for this long is forgotten.
    pub idle: Duration,
}
