//! Logs and metrics.

pub mod log;
