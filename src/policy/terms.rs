//! The terms of one call, complete: a rule laid over the defaults.

use std::time::Duration;

/// Whether a call is deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// When it outlasts the threshold.
    #[default]
    Auto,
    /// At once.
    Async,
    /// Never: it is held.
    Sync,
}

/// What a client without tasks gets for a tool that may be deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutTasks {
    /// A job handle.
    #[default]
    Job,
    /// The call is held.
    Hold,
    /// The call is refused before anything is sent.
    Refuse,
}

/// Whether a call may be sent again after its connection broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    #[default]
    Never,
    /// Once, if the tool declares itself idempotent or read-only.
    Idempotent,
}

/// Every setting that may differ per tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether the call is deferred.
    pub mode: Mode,
    /// How long it is waited for, from the last byte of the client's request.
    pub threshold: Duration,
    /// How long a finished task is kept, from the end of the work.
    pub ttl: Duration,
    /// The longest retention a client may ask for.
    pub max_ttl: Duration,
    /// The longest interval told to pollers.
    pub poll_interval: Duration,
    /// How long the call may run before it is cancelled.
    pub max_runtime: Duration,
    /// How long a question of the upstream's may wait for an answer before it is declined.
    pub input_timeout: Duration,
    /// What clients without tasks get.
    pub without_tasks: WithoutTasks,
    /// Whether it may be sent again.
    pub retry: Retry,
    /// Whether equal calls of one session share one exchange while it runs.
    pub coalesce: bool,
    /// Largest answer that is buffered, in bytes.
    pub max_result: u64,
}
