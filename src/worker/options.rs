//! Bounds on background work.

/// Limits of `[tasks]` on running calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tasks running at once; over it calls are held.
    pub max_running: usize,
    /// The same per credential and session.
    pub max_running_per_owner: usize,
}
