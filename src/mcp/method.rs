//! Method names that taskgate acts on; all others pass.

/// Opens a session.
pub const INITIALIZE: &str = "initialize";
/// Asks whether somebody is there.
pub const PING: &str = "ping";
/// Lists tools.
pub const TOOLS_LIST: &str = "tools/list";
/// Calls a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// Reads a task.
pub const TASKS_GET: &str = "tasks/get";
/// Answers a task's questions.
pub const TASKS_UPDATE: &str = "tasks/update";
/// Cancels a task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// Waits for a task's result (2025-11-25).
pub const TASKS_RESULT: &str = "tasks/result";
/// Lists tasks (2025-11-25).
pub const TASKS_LIST: &str = "tasks/list";
/// Tells what has become of a task (2025-11-25).
pub const TASKS_STATUS: &str = "notifications/tasks/status";
/// Withdraws a request.
pub const CANCELLED: &str = "notifications/cancelled";
/// Carries a log message.
pub const LOG_MESSAGE: &str = "notifications/message";
/// Tells how far a request is.
pub const PROGRESS: &str = "notifications/progress";
/// Says that the list of tools is another now.
pub const TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
/// Asks the client's user.
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// Asks the client's model.
pub const SAMPLING_CREATE: &str = "sampling/createMessage";
/// Asks for the client's roots.
pub const ROOTS_LIST: &str = "roots/list";
/// Asks what a server can do (2026-07-28).
pub const DISCOVER: &str = "server/discover";
/// Sets from which level on log messages are wanted (handshake era).
pub const SET_LEVEL: &str = "logging/setLevel";
/// Asks to be told when a resource changes (handshake era).
pub const SUBSCRIBE: &str = "resources/subscribe";
/// Takes that back.
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Asks to be told when lists or resources change (2026-07-28).
pub const LISTEN: &str = "subscriptions/listen";
/// Says that such a subscription stands, and what of it is honoured (2026-07-28).
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// Tells how a task stands (SEP-2663).
pub const TASKS_CHANGED: &str = "notifications/tasks";
/// Says that the list of prompts is another now.
pub const PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
/// Says that the list of resources is another now.
pub const RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
/// Says that a resource is another now.
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
/// Lists prompts.
pub const PROMPTS_LIST: &str = "prompts/list";
/// Reads a prompt.
pub const PROMPTS_GET: &str = "prompts/get";
/// Lists resources.
pub const RESOURCES_LIST: &str = "resources/list";
/// Lists resource templates.
pub const RESOURCE_TEMPLATES_LIST: &str = "resources/templates/list";
/// Reads a resource.
pub const RESOURCES_READ: &str = "resources/read";
