//! Waiting for a task on an event stream, as `tasks/result` and `get_job_result` do.
//!
//! The stream is registered with the task meanwhile, so that its questions and its progress can be put on it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, timeout_at};

use crate::call::{Answer, Error, Outgoing, Outlet, Side, outlet};
use crate::dialect::core;
use crate::jsonrpc::{Id, Rope, error_response, rope_response};
use crate::mcp::{Era, Params};
use crate::task::{StoreError, Task, TaskId};
use crate::worker::{Carried, Carrier, Marking, failed};

use super::caller::Caller;
use super::job_input::askable;
use super::jobs::LONGEST_WAIT;
use super::tasks::{expired, unavailable};
use super::{Gateway, Reply};

/// How long a poll waits for a task that is being cut off.
const LAST_LOOK: Duration = Duration::from_millis(500);
/// How often a read that carries a question looks whether that is still so.
const STEP: Duration = Duration::from_millis(100);
/// How long a read goes on after its question was answered, in case the end comes of it.
const ANSWERED: Duration = Duration::from_secs(1);
/// How many events may wait for a slow client.
pub(super) const EVENTS: usize = 16;

impl Gateway {
    /// `tasks/result`: waits for the end however long it takes, and can be asked again.
    pub(super) async fn wait_for_task(&self, caller: Caller, params: &Params<'_>, id: &Id) -> Reply {
        let task = match self.task_of(&caller, params).await {
            Ok(task) => task,
            Err(error) => return self.fails(&caller, id, &error),
        };
        if task.status.ended().is_some() {
            let answer = self.result_of(&caller, &task, id, None).await;
            return caller.reply(answer);
        }
        let (steps, receiver) = outlet(EVENTS, self.log(&caller));
        let reply = caller.reply(Outgoing::Later(receiver));
        let (gateway, id) = (self.clone(), id.clone());
        drop(self.inner.worker.work.spawn(async move {
            let steps = Arc::new(steps);
            // The wait may be longer than a client, or a proxy, gives an answer to begin.
            steps.hold().await;
            let answer = match gateway.wait(&caller, task.id, None, (Marking::Related, &steps)).await {
                Some(Ok(task)) => gateway.result_of(&caller, &task, &id, Some(&steps)).await,
                Some(Err(error)) => gateway.failure(&caller, &id, &error),
                None => return,
            };
            steps.done(answer).await;
        }));
        reply
    }

    /// What `tasks/result` says of a task that has ended.
    async fn result_of(&self, caller: &Caller, task: &Task, id: &Id, steps: Option<&Outlet>) -> Answer {
        let told = match self.outcome_of(caller, task).await {
            Ok(result) => core::outcome(task, result.as_ref()),
            Err(error) => return self.failure(caller, id, &error),
        };
        match told {
            Ok(result) => {
                self.tally(caller).done(Side::None);
                let message = rope_response(id, result);
                steps.map_or_else(|| Answer::rope(message.clone()), |steps| kept_whole(steps, message.clone()))
            }
            Err(Some(error)) => {
                self.tally(caller).done(Side::None);
                Answer::message(StatusCode::OK, error_response(Some(id), &error))
            }
            // It did not end: the process goes down.
            Err(None) => self.failure(caller, id, &Error::ShuttingDown),
        }
    }

    fn failure(&self, caller: &Caller, id: &Id, error: &Error) -> Answer {
        self.tally(caller).done(error.side());
        failed(error, id, caller.standing())
    }

    /// Waits until the task ends, at most until `until`; returns it as it stands then, or why that is not known, or
    /// nothing if the client has left for good.
    pub(super) async fn wait(
        &self,
        caller: &Caller,
        task: TaskId,
        until: Option<Instant>,
        (marking, steps): (Marking, &Arc<Outlet>),
    ) -> Option<Result<Task, Error>> {
        let worker = &self.inner.worker;
        let carrier = Carrier { outlet: steps.clone(), abilities: caller.abilities, marking };
        let asks_on_stream = caller.era == Era::Handshake && caller.takes_events();
        let carried = if asks_on_stream { worker.ports.carry(task, carrier) } else { None };
        let left = async {
            steps.closed().await;
            worker.patience.gave_up(caller.habit(), caller.received.elapsed());
            if steps.is_resumable() {
                carried.as_ref().inspect(|carried| carried.left());
                // It can come back for the answer.
                std::future::pending::<()>().await;
            }
        };
        let now = tokio::select! {
            waited = self.while_asking(caller, task, until, carried.as_ref()) => waited,
            // Whoever runs it writes its end down now.
            () = worker.work.severed() => {
                worker.tasks.wait(task, Some(Instant::now() + LAST_LOOK)).await
            }
            () = left => {
                self.tally(caller).done(Side::Client);
                return None;
            }
        };
        // Nothing that runs is forgotten: if it is gone, it had ended.
        Some(now.map_err(|error| unavailable(&error)).and_then(|task| task.ok_or_else(expired)))
    }
}

impl Gateway {
    /// Waits until the task ends, or until `until`; but a read that carries an open question goes on as long as a read
    /// may: a person would be asked again by the next one.
    async fn while_asking(
        &self,
        caller: &Caller,
        task: TaskId,
        until: Option<Instant>,
        carried: Option<&Carried>,
    ) -> Result<Option<Task>, StoreError> {
        let now = self.ended_or_asked(caller, task, until).await?;
        let runs = now.as_ref().is_some_and(|task| task.status.ended().is_none());
        let Some(carried) = carried.filter(|carried| until.is_some() && runs && carried.asks()) else { return Ok(now) };
        let tasks = &self.inner.worker.tasks;
        let (longest, ended) = (caller.received + self.patience(caller, LONGEST_WAIT), tasks.ended(task));
        // That a question is open is known here: the store need not be asked.
        while carried.asks() && !ended.is_cancelled() && Instant::now() < longest {
            drop(timeout_at(longest.min(Instant::now() + STEP), ended.cancelled()).await);
        }
        // The answer is often all that was missing.
        drop(timeout_at(longest.min(Instant::now() + ANSWERED), ended.cancelled()).await);
        tasks.get(task).await
    }

    /// Waits until the task ends, or until `until`; for a client of the stateless era also until it asks something.
    async fn ended_or_asked(
        &self,
        caller: &Caller,
        task: TaskId,
        until: Option<Instant>,
    ) -> Result<Option<Task>, StoreError> {
        let tasks = &self.inner.worker.tasks;
        let Some(until) = until.filter(|_| caller.era == Era::Stateless) else { return tasks.wait(task, until).await };
        let observer = tasks.observe([task]);
        while timeout_at(until, observer.next()).await.is_ok() {
            let now = tasks.get(task).await?;
            let runs = now.as_ref().is_some_and(|task| task.status.ended().is_none());
            if !runs || now.as_ref().is_some_and(|task| askable(caller, task).next().is_some()) {
                return Ok(now);
            }
        }
        tasks.get(task).await
    }
}

/// An answer that is kept for a client which may come back has to be in one piece.
pub(super) fn kept_whole(steps: &Outlet, message: Rope) -> Answer {
    if steps.is_resumable() { Answer::message(StatusCode::OK, message.join()) } else { Answer::rope(message) }
}
