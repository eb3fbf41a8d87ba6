//! The task that a caller means, if it may see it: one place for every method and dialect.

use crate::store::Tasks;
use crate::task::{Access, StoreError, Task, TaskId};

use super::ask;
use super::caller::Caller;

/// The task with this id, as far as `caller` is concerned: a foreign one is an unknown one.
pub(super) async fn find(tasks: &Tasks, caller: &Caller, id: &str) -> Result<Option<Task>, StoreError> {
    let Ok(id) = id.trim().parse::<TaskId>() else { return Ok(None) };
    let Some(task) = tasks.get(id).await?.filter(|task| *task.upstream == *caller.leg.upstream.options.path) else {
        return Ok(None);
    };
    let granted = match task.owner.admits(&caller.identity) {
        Access::Granted => true,
        Access::Denied => false,
        Access::IfAccepted => is_accepted(caller).await,
    };
    Ok(granted.then_some(task))
}

/// Whether the upstream accepts the caller's credential on the session it names; asked once.
async fn is_accepted(caller: &Caller) -> bool {
    let Some(session) = caller.session() else { return false };
    session.knows(caller.leg.credential()) || ask::accepts(caller).await
}
