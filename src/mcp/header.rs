//! HTTP header names of the Streamable HTTP transport, in lower case.

/// Names the session.
pub const SESSION_ID: &str = "mcp-session-id";
/// Names the protocol version of a request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Names the event after which a stream is resumed.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Repeats the method of a request (2026-07-28).
pub const METHOD: &str = "mcp-method";
/// Repeats what a request is about: the tool, prompt, resource or task (2026-07-28).
pub const NAME: &str = "mcp-name";
/// Begins the names of headers that repeat an argument (2026-07-28).
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Whether a header, by its name in lower case, repeats what the body of a request says (2026-07-28): of another body it
/// would not be true.
#[must_use]
pub fn repeats_body(name: &str) -> bool {
    matches!(name, METHOD | NAME) || name.starts_with(PARAM_PREFIX)
}
