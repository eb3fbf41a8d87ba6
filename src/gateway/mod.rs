//! What is done with a request once it is understood.

mod options;

pub use options::{Jobs, Options, OutputSchema, SessionEnd};
