//! A deferred call as a record: pure rules, no I/O.

mod owner;

pub use owner::OwnerMode;
