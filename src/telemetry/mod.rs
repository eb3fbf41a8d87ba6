//! Logs, metrics and readiness: what operators see.

pub mod access;
mod clock;
pub mod log;
pub mod metrics;
mod readiness;

pub use metrics::Metrics;
pub use readiness::Readiness;

pub use clock::Clock;
