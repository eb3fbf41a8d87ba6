//! A call whose client has a handle: it goes on alone, and its end is written down once.

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::call::Error;
use crate::jsonrpc::{Envelope, ErrorObject, Kind as MessageKind, members};
use crate::mcp::method;
use crate::store::ApplyError;
use crate::task::{Event, Failure, Note, Task};
use crate::telemetry::metrics::Counted;
use crate::upstream::{self, Arrived};

use super::answer::{from_upstream, response};
use super::held::Held;
use super::limits::Permit;
use super::timer::Timer;
use super::upcall::Came;

/// A call in flight that is a task.
pub(super) struct Deferred {
    held: Box<Held>,
    task: Task,
    runtime: Timer,
    _permit: Permit,
    _counted: Counted,
}

/// How the work ended.
enum End {
    /// The upstream answered with this result.
    Result(Bytes),
    /// There will be none.
    Failed(Failure),
    /// The task ended by other means: it was cancelled.
    Cancelled,
    /// It had to be stopped.
    Stopped(Error),
}

impl Deferred {
    /// Follows the call to its end, and writes that down.
    pub(super) async fn run(mut held: Box<Held>, task: Task, permit: Permit) {
        let counted = held.worker.metrics.running();
        held.counted = None;
        let ended = held.worker.tasks.ended(task.id);
        let _need = held.worker.attend(&held.assignment.leg, held.assignment.max_result);
        let mut deferred = Self { runtime: held.runtime, held, task, _permit: permit, _counted: counted };
        let end = deferred.wait(&ended).await;
        Box::pin(deferred.conclude(end)).await;
    }

    async fn conclude(&mut self, end: End) {
        if let End::Result(_) | End::Failed(Failure::Upstream(_)) = end {
            self.held.observe();
        }
        match end {
            End::Result(result) => self.complete(result).await,
            End::Failed(failure) => self.settle(Event::Failed(failure), None).await,
            End::Cancelled => self.held.cancel("the task was cancelled").await,
            End::Stopped(error) => {
                let too_long = matches!(error, Error::MaxRuntime(_));
                self.settle(Event::Failed(error.into_failure()), None).await;
                if too_long {
                    self.held.cancel("the call ran too long").await;
                }
            }
        }
    }

    async fn wait(&mut self, ended: &CancellationToken) -> End {
        let call = self.held.assignment.ticket.call().clone();
        let work = self.held.worker.work.clone();
        let mut busy = false;
        loop {
            // As while it was held: a talkative upstream must not outrun its deadline.
            if busy && self.runtime.is_due() {
                return self.too_long();
            }
            let end = tokio::select! {
                biased;
                () = ended.cancelled() => Some(End::Cancelled),
                came = self.held.upcall.next() => match came {
                    Ok(came) => {
                        busy = came.says_something();
                        self.came(came).await
                    }
                    Err(error) => Some(End::Failed(lost(error))),
                },
                () = call.touched() => { Box::pin(self.elsewhere()).await; None }
                () = self.runtime.reached() => Some(self.too_long()),
                () = self.held.patience.reached() => { self.held.decline_questions(); None }
                () = work.severed() => {
                    Some(End::Stopped(Error::OutcomeUnknown("the proxy shut down while it ran".into())))
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    fn too_long(&self) -> End {
        End::Stopped(Error::MaxRuntime(self.held.assignment.max_runtime.unwrap_or_default()))
    }

    async fn came(&mut self, came: Came) -> Option<End> {
        match came {
            Came::Head => {
                if self.held.upcall.status().is_success() {
                    self.held.upcall.with_headers(|headers| self.held.assignment.leg.accepted(headers));
                }
                None
            }
            Came::Part(Arrived::Large) => None,
            Came::Part(Arrived::Body(body)) => {
                let upcall = &self.held.upcall;
                Some(match response(upcall.status(), upcall.kind(), &body) {
                    Ok(message) => outcome(&message),
                    Err(error) => End::Failed(error.into_failure()),
                })
            }
            Came::Part(Arrived::Event(event)) => {
                let message = event.data.and_then(|data| Envelope::read(data).ok())?;
                match message.kind() {
                    MessageKind::Response => Some(outcome(&message)),
                    MessageKind::Request => {
                        self.decline(&message);
                        None
                    }
                    MessageKind::Notification => {
                        Box::pin(self.notice(&message)).await;
                        None
                    }
                }
            }
        }
    }

    fn decline(&self, message: &Envelope) {
        if let Some(id) = message.id() {
            self.held.refuse(id, message.method());
        }
    }

    async fn notice(&mut self, message: &Envelope) {
        if message.method() == method::PROGRESS
            && let Some(note) = Note::read(message.params())
        {
            let _ = self.held.worker.tasks.apply(self.task.id, Event::Progress(note), None).await;
        }
    }

    /// Something came on the session's own stream.
    async fn elsewhere(&mut self) {
        for message in self.held.assignment.ticket.call().take_progress() {
            if let Ok(message) = Envelope::read(message) {
                self.notice(&message).await;
            }
        }
        for message in self.held.assignment.ticket.call().take_questions() {
            if let Ok(message) = Envelope::read(message) {
                self.decline(&message);
            }
        }
    }

    async fn complete(&mut self, result: Bytes) {
        let bytes = result.len() as u64;
        let limit = self.held.assignment.max_result;
        if bytes > limit {
            let failure = Error::TooLarge { limit }.into_failure();
            return self.settle(Event::Failed(failure), None).await;
        }
        let text = std::str::from_utf8(&result).unwrap_or_default();
        let is_error = members(text)
            .is_some_and(|found| found.iter().any(|member| member.name == "isError" && member.value == "true"));
        self.settle(Event::Completed { bytes, is_error }, Some(result)).await;
        if let Some(exchange) = self.held.upcall.take() {
            exchange.drain().await;
        }
    }

    /// Writes the end down; keeps it in memory and tries again while the store does not work.
    async fn settle(&mut self, event: Event, result: Option<Bytes>) {
        let tasks = &self.held.worker.tasks;
        let mut wait = std::time::Duration::from_millis(100);
        loop {
            match tasks.apply(self.task.id, event.clone(), result.clone()).await {
                // Rejected: somebody was first, with a cancellation.
                Ok(_) | Err(ApplyError::Rejected(_)) => return,
                Err(ApplyError::Missing) => return error!(task = self.task.id.short(), "the task is gone"),
                Err(ApplyError::Store(problem)) => {
                    warn!(task = self.task.id.short(), error = %problem, "its end cannot be stored yet");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(std::time::Duration::from_secs(5));
                }
            }
        }
    }
}

fn lost(error: upstream::Error) -> Failure {
    from_upstream(error).into_failure()
}

fn outcome(message: &Envelope) -> End {
    if let Some(result) = message.result() {
        return End::Result(result);
    }
    let error = message.error().and_then(|text| serde_json::from_str::<ErrorObject>(text).ok());
    End::Failed(match error {
        Some(error) => Failure::Upstream(error),
        None => Error::Protocol { text: "its error is no JSON-RPC error".into(), status: None }.into_failure(),
    })
}
