//! HTTP header names of the Streamable HTTP transport, in lower case.

/// Names the session.
pub const SESSION_ID: &str = "mcp-session-id";
/// Names the protocol version of a request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Names the event after which a stream is resumed.
pub const LAST_EVENT_ID: &str = "last-event-id";
