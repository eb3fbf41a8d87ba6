//! What `initialize` told us, by session.

mod options;

pub use options::Options;
