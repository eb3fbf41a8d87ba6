//! The shared handle to tasks, and the engines that keep them.
//!
//! Engines have no rules: [`Tasks`] is the only writer, and [`conformance`] says what every engine must do.

pub mod conformance;
mod leases;
mod memory;
mod options;
mod tasks;

pub use crate::telemetry::Clock;
pub use leases::LEASE;
pub use memory::Memory;
pub use options::Options;
pub use tasks::{ApplyError, Tasks};
