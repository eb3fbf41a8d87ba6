//! What the Model Context Protocol says, as far as taskgate acts on it: names, versions, and peeks at parameters.

pub mod code;
pub mod downward;
pub mod header;
pub mod method;
pub mod results;
pub mod rounds;
pub mod routing;
pub mod subscription;
pub mod upward;

mod abilities;
mod hello;
mod params;
mod patch;
mod progress;
mod text;
mod version;

pub use abilities::Abilities;
pub use hello::{ClientHello, Lists, OwnTasks, ServerHello, with_extension, with_tasks, without_tasks};
pub use params::{Meta, Params, meta_key};
pub use progress::{fresh_token, is_own_token};
pub use results::{with_result_type, without_result_type};
pub use rounds::{own_request, well_formed};
pub use text::{rfc3339, text_block};
pub use version::{Era, STATELESS, Version};

/// The levels of log messages, most talkative first (RFC 5424 without its numbers).
pub const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The key of the tasks extension in `extensions` (SEP-2663).
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The key of `_meta` that says which task a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The key of `_meta` with one sentence for the model while a task runs (2025-11-25).
pub const IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";
