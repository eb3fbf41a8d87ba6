//! The shared handle to tasks, and the engines that keep them.

mod options;

pub use options::Options;
