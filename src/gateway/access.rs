//! What a caller may touch, a task or its session: one place for every method and dialect.

use crate::task::{Access, Identity, StoreError, Task, TaskId};
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
        Access::IfAccepted => caller.leg.is_judged() && may_use_session(&caller.leg, caller.identity).await,
    };
    if granted
        && ports.lacks_credential(task.id)
        && let Some(credential) = caller.leg.credential()
        && may_lend(&task, caller).await
    {
        ports.bring(task.id, credential);
    }
    Ok(granted.then_some(task))
}

/// Whether the work may go on with the caller's credential: that which made the task, or one that is accepted on the
/// task's session. Not everybody who may read a task may speak for its owner.
async fn may_lend(task: &Task, caller: &Caller) -> bool {
    let (made, who) = (task.owner.creator(), caller.identity);
    let in_its_session = made.session.is_some() && made.session == who.session;
    made.credential == who.credential || (in_its_session && may_use_session(&caller.leg, who).await)
}

/// Whether the session that the caller names is one that it may end, listen to, and withdraw calls of: its credential is
/// accepted there by the upstream, which is asked at most once. Where that would say nothing, since the upstream is shown
/// a credential of ours instead, or does not know the session, the caller must have begun it.
pub(super) async fn may_use_session(leg: &Leg, who: Identity) -> bool {
    let Some(session) = &leg.session else { return false };
    if leg.is_judged() && session.repeated().is_none() {
        return session.knows(leg.credential()) || ask::accepts(leg).await;
    }
    let began = session.began_with(who.credential);
    if began {
        leg.vouched();
    }
    began
}
