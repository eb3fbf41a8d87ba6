//! Waiting for a task on an event stream, as `tasks/result` and `get_job_result` do.
//!
//! The stream is registered with the task meanwhile, so that its questions and its progress can be put on it.

use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::{Answer, Error, Outgoing, Side, Step};
use crate::dialect::core;
use crate::jsonrpc::{Id, error_response, rope_response};
use crate::mcp::Params;
use crate::task::Task;
use crate::worker::{Carried, Carrier, Marking, failed};

use super::caller::Caller;
use super::{Gateway, Reply};

/// How long a poll waits for a task that is being cut off.
const LAST_LOOK: std::time::Duration = std::time::Duration::from_millis(500);
/// How many events may wait for a slow client.
pub(super) const EVENTS: usize = 16;

/// How waiting for a task ended.
pub(super) enum Waited {
    /// The task as it stands now.
    Task(Box<Task>),
    /// The client has left.
    Abandoned,
}

impl Gateway {
    /// `tasks/result`: waits for the end however long it takes, and can be asked again.
    pub(super) async fn wait_for_task(&self, caller: Caller, params: &Params<'_>, id: &Id) -> Reply {
        let task = match self.task_of(&caller, params).await {
            Ok(task) => task,
            Err(error) => return self.fails(&caller, id, &error),
        };
        if task.status.ended().is_some() {
            let answer = self.result_of(&caller, &task, id).await;
            return caller.reply(answer);
        }
        let (steps, receiver) = mpsc::channel(EVENTS);
        let reply = caller.reply(Outgoing::Later(receiver));
        let (gateway, id) = (self.clone(), id.clone());
        drop(self.inner.worker.work.spawn(async move {
            // Headers at once: the wait may be longer than a client, or a proxy, gives an answer to begin.
            let _ = steps.send(Step::open(HeaderMap::new())).await;
            if let Waited::Task(task) = gateway.wait(&caller, task, None, (Marking::Related, &steps)).await {
                let answer = gateway.result_of(&caller, &task, &id).await;
                let _ = steps.send(Step::done(answer)).await;
            }
        }));
        reply
    }

    /// What `tasks/result` says of a task that has ended.
    async fn result_of(&self, caller: &Caller, task: &Task, id: &Id) -> Answer {
        let told = match self.outcome_of(task).await {
            Ok(result) => core::outcome(task, result.as_ref()),
            Err(error) => return self.failure(caller, id, &error),
        };
        match told {
            Ok(result) => {
                self.tally(caller).done(Side::None);
                Answer::rope(rope_response(id, result))
            }
            Err(Some(error)) => {
                self.tally(caller).done(Side::None);
                Answer::message(http::StatusCode::OK, error_response(Some(id), &error))
            }
            // It did not end: the process goes down.
            Err(None) => self.failure(caller, id, &Error::ShuttingDown),
        }
    }

    fn failure(&self, caller: &Caller, id: &Id, error: &Error) -> Answer {
        self.tally(caller).done(error.side());
        failed(error, id, caller.in_session())
    }

    /// Waits until the task ends, at most until `until`, or until the client leaves.
    pub(super) async fn wait(
        &self,
        caller: &Caller,
        task: Task,
        until: Option<Instant>,
        (marking, steps): (Marking, &mpsc::Sender<Step>),
    ) -> Waited {
        let worker = &self.inner.worker;
        let _carried: Option<Carried> = caller
            .takes_events()
            .then(|| {
                let carrier = Carrier { steps: steps.clone(), abilities: caller.abilities, marking };
                worker.ports.carry(task.id, carrier)
            })
            .flatten();
        let now = tokio::select! {
            waited = worker.tasks.wait(task.id, until) => waited.ok().flatten(),
            // Whoever runs it writes its end down now.
            () = worker.work.severed() => {
                worker.tasks.wait(task.id, Some(Instant::now() + LAST_LOOK)).await.ok().flatten()
            }
            () = steps.closed() => {
                self.tally(caller).done(Side::Client);
                return Waited::Abandoned;
            }
        };
        Waited::Task(Box::new(now.unwrap_or(task)))
    }
}
