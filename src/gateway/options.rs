//! What the gateway needs to know from the configuration.

use std::time::Duration;

use crate::dialect::OutputSchema;
use crate::task::OwnerMode;

/// `[jobs]`, `[dialect]` and the settings of `[tasks]` that are not per rule.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names and behaviour of the job tools.
    pub jobs: Jobs,
    /// Whether the tasks extension is honoured when declared in the handshake era.
    pub handshake_extension: bool,
    /// Who owns a task.
    pub owner: OwnerMode,
    /// What happens to a session's tasks when it is deleted.
    pub on_session_end: SessionEnd,
    /// Largest answer that is buffered where no rule says otherwise, in bytes.
    pub max_result: u64,
    /// How long a question may wait for an answer where no rule says otherwise.
    pub input_timeout: Duration,
    /// When the answers to a batch stop waiting for each other and become an event stream.
    pub keepalive: Duration,
    /// Whether progress is asked for when the client did not.
    pub harvest_progress: bool,
}

/// `[jobs]`, resolved.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// Name of the tool that reads a job.
    pub result_tool: String,
    /// Name of the tool that cancels one.
    pub cancel_tool: String,
    /// Name of the tool that lists them.
    pub list_tool: String,
    /// How long a read waits at most when the caller does not say.
    pub wait: Duration,
    /// What happens to `outputSchema` of tools that may be deferred.
    pub output_schema: OutputSchema,
}

/// `[tasks] on_session_end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionEnd {
    /// Tasks that nobody could read any more are cancelled.
    #[default]
    Auto,
    /// All tasks go on.
    Keep,
    /// All tasks are cancelled.
    Cancel,
}
