//! Which calls are deferred, and on which terms: pure rules.

mod arguments;
mod names;
mod plan;
mod rules;
mod selector;
mod terms;

pub use plan::{Ability, Plan, may_defer, plan};
pub use rules::Rules;
pub use selector::{Selector, SelectorError};
pub use terms::{Mode, Retry, Terms, WithoutTasks};
