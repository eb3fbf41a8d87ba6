//! What the Model Context Protocol says, as far as taskgate acts on it: names, versions, and peeks at parameters.

pub mod header;
pub mod method;

mod hello;
mod params;
mod text;
mod version;

pub use hello::{ClientHello, ServerHello, with_extension};
pub use params::{Meta, Params, meta_key};
pub use text::{rfc3339, text_block};
pub use version::{Era, Version};

/// The key of the tasks extension in `extensions` (SEP-2663).
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
