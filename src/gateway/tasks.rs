//! `tasks/*`: read and cancel tasks of ours.

use crate::call::Error;
use crate::dialect::ext;
use crate::jsonrpc::{Envelope, Id, Rope, entries};
use crate::mcp::{Params, method};
use crate::store::ApplyError;
use crate::task::{Event, Status, StoreError, Task};

use super::access;
use super::caller::Caller;
use super::{Gateway, Reply};

const NOT_AVAILABLE: &str = "Task is not available in this session";
const EXPIRED: &str = "Task has expired";

impl Gateway {
    pub(super) async fn tasks(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if let Err(error) = caller.check_version() {
            return self.fails(&caller, id, &error);
        }
        let params = Params::peek(message.params());
        let done = match message.method() {
            method::TASKS_GET => self.get_task(&caller, &params).await,
            method::TASKS_CANCEL => self.cancel_task(&caller, &params).await,
            method::TASKS_UPDATE => self.update_task(&caller, message, &params).await,
            other => Err(Error::MethodNotFound(format!("{other} is not offered here"))),
        };
        match done {
            Ok(result) => self.says(&caller, id, result),
            Err(error) => self.fails(&caller, id, &error),
        }
    }

    async fn get_task(&self, caller: &Caller, params: &Params<'_>) -> Result<Rope, Error> {
        let task = self.task_of(caller, params).await?;
        let tasks = &self.inner.worker.tasks;
        let result = match task.status {
            Status::Completed { .. } => {
                let result = tasks.result(task.id).await.map_err(|error| unavailable(&error))?;
                Some(result.ok_or_else(|| Error::InvalidParams(EXPIRED.into()))?)
            }
            Status::Working { .. } | Status::Failed { .. } | Status::Cancelled { .. } => None,
        };
        if task.status.ended().is_some() && !task.fetched {
            let _ = tasks.apply(task.id, Event::Fetched, None).await;
        }
        Ok(ext::read(&task, result, tasks.now()))
    }

    async fn cancel_task(&self, caller: &Caller, params: &Params<'_>) -> Result<Rope, Error> {
        let task = self.task_of(caller, params).await?;
        self.cancel(&task).await.map_err(|error| unavailable(&error))?;
        Ok(ext::acknowledged().into())
    }

    async fn update_task(&self, caller: &Caller, message: &Envelope, params: &Params<'_>) -> Result<Rope, Error> {
        self.task_of(caller, params).await?;
        if !entries(message.params().unwrap_or_default()).contains_key("inputResponses") {
            return Err(Error::InvalidParams("inputResponses is missing".into()));
        }
        Ok(ext::acknowledged().into())
    }

    /// Cancels a task; one that has ended stays as it is. Returns the task as it stands.
    pub(super) async fn cancel(&self, task: &Task) -> Result<Task, StoreError> {
        match self.inner.worker.tasks.apply(task.id, Event::Cancelled, None).await {
            Ok(task) => Ok(task),
            Err(ApplyError::Rejected(task)) => Ok(*task),
            Err(ApplyError::Missing) => Ok(task.clone()),
            Err(ApplyError::Store(error)) => Err(error),
        }
    }

    async fn task_of(&self, caller: &Caller, params: &Params<'_>) -> Result<Task, Error> {
        let tasks = &self.inner.worker.tasks;
        let id = params.task_id().ok_or_else(|| Error::InvalidParams("taskId is missing: it is a string".into()))?;
        let task = access::find(tasks, caller, &id).await.map_err(|error| unavailable(&error))?;
        let task = task.ok_or_else(|| Error::InvalidParams(NOT_AVAILABLE.into()))?;
        if task.is_expired(tasks.now()) {
            return Err(Error::InvalidParams(EXPIRED.into()));
        }
        Ok(task)
    }
}

fn unavailable(error: &StoreError) -> Error {
    tracing::warn!(%error, "a task cannot be read");
    Error::StoreUnavailable
}
