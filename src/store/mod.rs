//! The shared handle to tasks, and the engines that keep them.
//!
//! Engines have no rules: [`Tasks`] is the only writer, and [`conformance`] says what every engine must do.

pub mod conformance;
pub mod embedded;
mod health;
mod leases;
mod memory;
mod observe;
mod options;
mod tasks;

pub use crate::telemetry::Clock;
pub use embedded::{Embedded, OpenError};
pub use leases::LEASE;
pub use memory::Memory;
pub use observe::Observer;
pub use options::{Kind, Options};
pub use tasks::{ApplyError, Tasks};

use std::sync::Arc;

use crate::task::TaskStore;

/// Opens the engine that `options` name.
///
/// # Errors
/// If its file cannot be used.
pub async fn open(options: Options, clock: Clock) -> Result<Arc<dyn TaskStore>, OpenError> {
    Ok(match options.kind.clone() {
        Kind::Memory => Arc::new(Memory::new(options, clock)),
        Kind::Embedded { path } => Arc::new(Embedded::open(path, options, clock).await?),
    })
}
