//! From a held call to a task: the record is committed first, then its client gets the handle.

use http::StatusCode;
use tracing::{info, warn};

use crate::call::{Answer, Body, Error, Standing};
use crate::dialect::{Dialect, core, ext, job};
use crate::jsonrpc::result_response;
use crate::mcp::with_result_type;
use crate::task::{Event, Status, Task, TaskId};
use crate::upstream::headers;

use super::deferred::Deferred;
use super::held::{End, Held};
use super::limits::Permit;
use super::timer::Timer;

impl Held {
    /// The threshold is reached: makes a task of the call, or holds it on if none can be made.
    pub(super) async fn defer(&mut self) -> Option<End> {
        self.threshold = Timer::Never;
        let is_core = self.is_core();
        let deferral = self.assignment.deferral.as_mut()?;
        // What is only in memory would end with the process: its client is better served by waiting.
        if self.worker.work.is_draining() && !is_core && !self.worker.tasks.is_durable() {
            return None;
        }
        let limits = &self.worker.limits;
        let permit = match deferral.permit.take() {
            None if self.client_left => limits.permit_for_nobody(),
            None => limits.permit(&deferral.owner),
            reserved => reserved,
        };
        let Some(permit) = permit else {
            info!(tool = &*deferral.tool, "too many tasks are running: the call is held");
            return None;
        };
        let task = self.task()?;
        match self.worker.tasks.create(&task).await {
            Ok(()) => {
                self.remember_session();
                Some(End::Deferred(Box::new(task), permit))
            }
            Err(error) if is_core => {
                warn!(tool = &*task.tool, %error, "no task can be made: the call is cancelled");
                Some(End::Stopped(Error::StoreUnavailable))
            }
            Err(error) => {
                warn!(tool = &*task.tool, %error, "no task can be made: the call is held");
                None
            }
        }
    }

    /// A session that taskgate has for a client which knows of none is found again after a restart only where a task of
    /// it runs.
    fn remember_session(&self) {
        let Some(session) = self.assignment.leg.session.clone().filter(|_| self.assignment.kept.is_some()) else {
            return;
        };
        if !self.worker.tasks.is_durable() {
            return;
        }
        let span = self.assignment.max_runtime.unwrap_or_default().saturating_mul(2);
        let worker = self.worker.clone();
        drop(self.worker.work.spawn(async move { worker.remember(&session, span).await }));
    }

    /// The call goes on by itself, and its client gets the handle.
    pub(super) async fn hand_over(mut self: Box<Self>, task: Task, permit: Permit) {
        let handle = self.handle(&task);
        self.place = None;
        let withdraws = self.assignment.listener.withdraws_by_leaving();
        let (steps, tasks, id) = (self.fall_silent(), self.worker.tasks.clone(), task.id);
        // A task of its own: what waiting took is given back, and a slow client holds up nothing.
        let work = self.worker.work.clone();
        drop(work.spawn(Deferred::run(self, task, permit)));
        if withdraws && !steps.is_read() {
            // It left before it could learn the id: nobody would ever ask for the task.
            let _ = tasks.apply(id, Event::Cancelled, None).await;
        }
        steps.done(handle).await;
    }

    fn in_handshake(&self) -> bool {
        self.assignment.listener.standing != Standing::Stateless
    }

    /// A result as the era of its client has it.
    fn typed(&self, result: String) -> String {
        if self.in_handshake() {
            return result;
        }
        String::from_utf8_lossy(&with_result_type(&result.into())).into_owned()
    }

    pub(super) fn is_core(&self) -> bool {
        self.assignment.deferral.as_ref().is_some_and(|deferral| deferral.dialect == Dialect::Core)
    }

    fn task(&self) -> Option<Task> {
        let deferral = self.assignment.deferral.as_ref()?;
        let tasks = &self.worker.tasks;
        let owner = match deferral.dialect {
            Dialect::Ext | Dialect::Core => deferral.owner,
            Dialect::Job => deferral.owner.of_job(),
        };
        Some(Task {
            id: TaskId::random(),
            upstream: self.assignment.leg.upstream.options.path.as_str().into(),
            tool: deferral.tool.clone(),
            made: deferral.dialect.makes(),
            owner,
            created: tasks.at(self.assignment.received),
            updated: tasks.now(),
            retention: deferral.retention,
            poll_interval: deferral.poll_interval,
            threshold: deferral.threshold,
            status: Status::Working { note: self.note.clone() },
            execution: self.execution(&self.assignment.leg.upstream.options.path),
            lease: Some(tasks.lease()),
            fetched: false,
            version: 0,
        })
    }

    /// What its client gets: the call is a task from now on.
    pub(super) fn handle(&self, task: &Task) -> Answer {
        self.assignment.ticket.call().defer();
        let Some(deferral) = &self.assignment.deferral else { return Answer::empty(StatusCode::ACCEPTED) };
        self.worker.metrics.deferred(deferral.dialect.word());
        let now = self.worker.tasks.now();
        let result = match deferral.dialect {
            Dialect::Ext => ext::created(task, now, self.in_handshake().then_some(&*deferral.names)),
            Dialect::Core => core::created(task, now),
            Dialect::Job => self.typed(job::created(task, &deferral.names)),
        };
        let message = result_response(&self.assignment.ticket.call().client_id, &result);
        let mut headers = self.upcall.headers();
        headers::to_client(&mut headers);
        Answer { status: StatusCode::OK, headers, body: Body::Message(message) }
    }
}
