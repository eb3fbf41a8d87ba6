//! The end of a task, written down once, however long the store does not work.
//!
//! What an upstream brought is kept in memory meanwhile; a shutdown waits a moment for it and no longer, since the
//! next start tells the truth about a task that it finds running.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tracing::{error, warn};

use crate::call::Error;
use crate::store::ApplyError;
use crate::task::{Event, Task, TaskId};

use super::Worker;
use super::answer::tool_error;
use super::deferred::Deferred;

/// How soon a write is tried again, at first and at last.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);
/// How much longer it is tried once the process ends.
const LAST: Duration = Duration::from_secs(1);

impl Worker {
    /// Writes the end of a task down, and returns the task as it ended, whoever was first. `None` if it is not this
    /// process's any more, or if the process ends before the store works: then it is still running in the store, and
    /// whoever starts next goes on with it or tells that its outcome is unknown. Not cancel safe: the end is lost.
    pub(super) async fn settle(&self, id: TaskId, event: Event, result: Option<Bytes>) -> Option<Task> {
        let trying = self.try_to_settle(id, event, result);
        let last_words = async {
            self.work.severed().await;
            sleep(LAST).await;
        };
        tokio::select! {
            biased;
            task = trying => task,
            () = last_words => {
                error!(task = id.short(), "its end cannot be stored before the process ends: it may be lost");
                None
            }
        }
    }

    async fn try_to_settle(&self, id: TaskId, event: Event, result: Option<Bytes>) -> Option<Task> {
        let mut wait = SOONEST;
        loop {
            match self.tasks.report(id, event.clone(), result.clone()).await {
                Ok(task) => return Some(task),
                // Somebody was first, with a cancellation.
                Err(ApplyError::Rejected(task)) => return Some(*task),
                Err(ApplyError::Missing) => {
                    error!(task = id.short(), "the task is gone");
                    return None;
                }
                Err(ApplyError::Superseded) => {
                    warn!(task = id.short(), "another process has taken the task over");
                    return None;
                }
                Err(ApplyError::Store(problem)) => {
                    warn!(task = id.short(), error = %problem, "its end cannot be stored yet");
                }
            }
            let is_leaving = self.work.is_severed();
            tokio::select! {
                () = sleep(if is_leaving { SOONEST } else { wait }) => {}
                () = self.work.severed(), if !is_leaving => {}
            }
            wait = (wait * 2).min(LATEST);
        }
    }
}

impl Deferred {
    /// The upstream has answered with this result.
    pub(super) async fn complete(&mut self, result: Bytes) {
        let bytes = result.len() as u64;
        let limit = self.held.assignment.max_result;
        if bytes > limit {
            let failure = Error::TooLarge { limit }.into_failure();
            return self.settle(Event::Failed(failure), None).await;
        }
        let text = std::str::from_utf8(&result).unwrap_or_default();
        let tool_error = tool_error(text);
        self.settle(Event::Completed { bytes, tool_error }, Some(result)).await;
        if let Some(exchange) = self.held.upcall.take() {
            exchange.drain().await;
        }
    }

    /// Writes the end down.
    pub(super) async fn settle(&mut self, event: Event, result: Option<Bytes>) {
        if let Some(task) = self.held.worker.settle(self.task.id, event, result).await {
            self.task = task;
            self.announce_status();
        }
    }
}
