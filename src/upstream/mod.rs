//! Everything that speaks HTTP to upstream servers.

mod options;

pub use options::Options;
