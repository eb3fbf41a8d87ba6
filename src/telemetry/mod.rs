//! Logs, metrics and readiness: what operators see.

pub mod log;
pub mod metrics;
mod readiness;

pub use metrics::Metrics;
pub use readiness::Readiness;
