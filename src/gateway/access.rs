//! The task that a caller means, if it may see it: one place for every method and dialect.

use crate::task::{Access, StoreError, Task, TaskId};
use crate::upstream::Leg;
use crate::worker::Worker;

use super::ask;
use super::caller::Caller;

/// The task with this id, as far as `caller` is concerned: a foreign one is an unknown one.
pub(super) async fn find(worker: &Worker, caller: &Caller, id: &str) -> Result<Option<Task>, StoreError> {
    let Worker { tasks, ports, .. } = worker;
    let Ok(id) = id.trim().parse::<TaskId>() else { return Ok(None) };
    let Some(task) = tasks.get(id).await?.filter(|task| *task.upstream == *caller.leg.upstream.options.path) else {
        return Ok(None);
    };
    let granted = match task.owner.admits(&caller.identity) {
        Access::Granted => true,
        Access::Denied => false,
        Access::IfAccepted => may_use_session(&caller.leg).await,
    };
    if granted {
        ports.bring(task.id, caller.leg.credential());
    }
    Ok(granted.then_some(task))
}

/// Whether the upstream accepts the caller's credential on the session that the caller names; asked at most once.
pub(super) async fn may_use_session(leg: &Leg) -> bool {
    let Some(session) = &leg.session else { return false };
    session.knows(leg.credential()) || ask::accepts(leg).await
}
