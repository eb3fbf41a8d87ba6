//! Clients of the tests: bare HTTP, event streams, and a small MCP client above them.
//!
//! They send exactly what a story says and hide nothing of what comes back.

mod answer;
mod http;
mod mcp;
mod sse;

pub use answer::Answer;
pub use http::{H2, Http, Reply, raw_exchange};
pub use mcp::{Client, EXTENSION, text_request};
pub use sse::{Events, SseEvent};
