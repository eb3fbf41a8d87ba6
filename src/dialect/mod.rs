//! How a deferral is phrased: one file per dialect, the same functions in the same order.
//!
//! `created` announces a task, `read` tells how it stands, `cancelled` answers a cancellation.

mod error;
pub mod ext;
pub mod job;
mod select;
mod tools;

pub use error::{code, error_object};
pub use select::{Declared, Dialect, select};
pub use tools::{Added, JobNames, Listing, OutputSchema, edit_tools_list};
