//! Which calls are deferred, and on which terms: pure rules.

mod terms;

pub use terms::{Mode, Retry, Terms, WithoutTasks};
