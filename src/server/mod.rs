//! The listener and everything that speaks HTTP to clients.

mod options;

pub use options::Options;
