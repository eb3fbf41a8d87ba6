//! The side road: follows calls in flight, whoever waits for them.

mod options;

pub use options::Options;
