//! How a deferral is phrased: one file per dialect, the same functions in the same order.
//!
//! `created` announces a task, `read` tells how it stands, `cancelled` answers a cancellation.

pub mod core;
mod error;
pub mod ext;
pub mod job;
mod select;
mod told;
mod tools;

pub use error::{code, error_object};
pub use select::{Declared, Dialect, reading, select};
pub use told::Spelling;
pub use tools::{Added, Effects, JobNames, Listing, OutputSchema, edit_tools_list};
