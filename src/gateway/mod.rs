//! What is done with a request once it is understood.

mod options;

pub use crate::dialect::OutputSchema;
pub use options::{Jobs, Options, SessionEnd};
