//! `tasks/*`: read, wait for, answer, cancel and list tasks of ours, each as its record was announced.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::call::{Answer, Body, Error, Outgoing};
use crate::dialect::{Dialect, core, ext};
use crate::jsonrpc::{Edit, Envelope, Id, Rope, entries, members, remove, result_response, splice};
use crate::mcp::{OwnTasks, Params, method};
use crate::store::ApplyError;
use crate::task::{Event, ListQuery, QuestionKey, Status, StoreError, Task, TaskId, Timestamp};

use super::access;
use super::caller::Caller;
use super::hello::result_in;
use super::{Framing, Gateway, Reply};
use crate::worker::Worker;

const NOT_AVAILABLE: &str = "Task is not available in this session";
const EXPIRED: &str = "Task has expired";
/// What cursors of ours begin with: they share one space with the upstream's.
const OURS: &str = "taskgate:";
/// How many tasks a page of `tasks/list` has.
const PAGE: usize = 50;

impl Gateway {
    pub(super) async fn tasks(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if caller.upstream_tasks() == OwnTasks::Core {
            return self.tasks_of_both(caller, message, id).await;
        }
        self.own_tasks(caller, message, id).await
    }

    /// `tasks/*` where the upstream has tasks too: what names one of ours is ours, all else goes on.
    async fn tasks_of_both(&self, caller: Caller, message: &Envelope, call: &Id) -> Reply {
        let params = Params::peek(message.params());
        let is_ours = if message.method() == method::TASKS_LIST {
            list_cursor(&params).is_some_and(|cursor| cursor.starts_with(OURS))
        } else {
            let id = params.task_id().unwrap_or_default();
            match access::find(&self.inner.worker, &caller, &id).await {
                Ok(found) => found.is_some(),
                // It may be ours: theirs would say that there is no such task.
                Err(error) => return self.fails(&caller, call, &unavailable(&error)),
            }
        };
        if is_ours {
            return self.own_tasks(caller, message, call).await;
        }
        if message.method() != method::TASKS_LIST || !self.has_list(&caller) {
            return self.forward(&caller, message, call);
        }
        let mut assignment = self.assignment(&caller, message.text().clone(), call);
        assignment.inline = usize::MAX;
        let steps = self.inner.worker.start(assignment);
        let (method, dialect) = (caller.method, caller.dialect.word());
        // After the last page of theirs comes the first of ours, if there is one.
        let gateway = self.clone();
        let steps = self.edited(
            steps,
            |_| {},
            move |answer| async move {
                let page = gateway.page_of(&caller, None, 1).await;
                // Whoever asks for ours is told if they cannot be read.
                if page.is_ok_and(|(tasks, _)| tasks.is_empty()) { answer } else { and_ours(answer) }
            },
        );
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::Either, method, dialect }
    }

    pub(super) async fn own_tasks(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if let Err(error) = caller.check_version() {
            return self.fails(&caller, id, &error);
        }
        let params = Params::peek(message.params());
        let done = match message.method() {
            method::TASKS_GET => self.get_task(&caller, &params).await,
            method::TASKS_CANCEL => self.cancel_task(&caller, &params).await,
            method::TASKS_UPDATE => self.update_task(&caller, message, &params).await,
            method::TASKS_RESULT if caller.speaks_core() => return self.wait_for_task(caller, &params, id).await,
            method::TASKS_LIST if caller.speaks_core() && self.has_list(&caller) => {
                self.list_tasks(&caller, &params).await
            }
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
        if caller.reads(&task) == Dialect::Core {
            return Ok(core::read(&task, tasks.now(), caller.spelling()).into());
        }
        let result = self.outcome_of(caller, &task).await?;
        Ok(ext::read(&task, result, tasks.now(), caller.spelling()))
    }

    /// The result of a task as the caller's era has it, if it is completed; marks any outcome as read.
    pub(super) async fn outcome_of(&self, caller: &Caller, task: &Task) -> Result<Option<Bytes>, Error> {
        let tasks = &self.inner.worker.tasks;
        let result = match task.status {
            Status::Completed { .. } => {
                let result = tasks.result(task.id).await.map_err(|error| unavailable(&error))?;
                Some(caller.as_read(result.ok_or_else(expired)?))
            }
            Status::Working { .. }
            | Status::InputRequired { .. }
            | Status::Failed { .. }
            | Status::Cancelled { .. } => None,
        };
        if task.status.ended().is_some() && !task.fetched {
            let _ = tasks.apply(task.id, Event::Fetched, None).await;
        }
        Ok(result)
    }

    async fn cancel_task(&self, caller: &Caller, params: &Params<'_>) -> Result<Rope, Error> {
        let task = self.task_of(caller, params).await?;
        let dialect = caller.reads(&task);
        let ended = |task: &Task| {
            let word = task.status.word();
            Error::InvalidParams(format!("Cannot cancel a task that has ended: it is {word}"))
        };
        if dialect == Dialect::Core && task.status.ended().is_some() {
            return Err(ended(&task));
        }
        let after = self.cancel(&task).await.map_err(|error| unavailable(&error))?;
        if dialect != Dialect::Core {
            return Ok(ext::acknowledged().into());
        }
        match after.status {
            Status::Cancelled { .. } => Ok(core::read(&after, self.inner.worker.tasks.now(), caller.spelling()).into()),
            _ => Err(ended(&after)),
        }
    }

    /// Answers to what the task asked: those of open questions count, all others are ignored.
    async fn update_task(&self, caller: &Caller, message: &Envelope, params: &Params<'_>) -> Result<Rope, Error> {
        let task = self.task_of(caller, params).await?;
        if caller.reads(&task) == Dialect::Core && !caller.extension {
            return Err(Error::MethodNotFound("this task is answered on the stream of tasks/result".into()));
        }
        let missing = || Error::InvalidParams("inputResponses is missing: it is an object of answers by key".into());
        let members = entries(message.params().unwrap_or_default());
        let responses = members.get("inputResponses").ok_or_else(missing)?;
        let responses: HashMap<String, &RawValue> = serde_json::from_str(responses).map_err(|_| missing())?;
        if responses.values().any(|response| !response.get().starts_with('{')) {
            return Err(Error::InvalidParams("each answer in inputResponses is an object".into()));
        }
        for (key, response) in responses {
            let Some(key) = QuestionKey::parse(&key) else { continue };
            let response = result_response(&Id::from_string(key.as_str()), response.get());
            self.hand_in(&task, key, response).await?;
        }
        Ok(ext::acknowledged().into())
    }

    /// Hands in an answer; only the first one to an open question counts. Where nobody would pass it on, the question
    /// stays open: for who goes on with the task after a restart, or runs it now.
    pub(super) async fn hand_in(&self, task: &Task, key: QuestionKey, response: Bytes) -> Result<(), Error> {
        let Worker { tasks, ports, .. } = &self.inner.worker;
        let is_open = task.status.questions().iter().any(|question| question.key == key);
        if is_open && !ports.is_open(task.id) {
            return Err(if self.is_draining() { Error::ShuttingDown } else { Error::StoreUnavailable });
        }
        match tasks.apply(task.id, Event::Answered(key.clone()), None).await {
            Ok(_) => ports.answer(task.id, key, response),
            Err(ApplyError::Rejected(_) | ApplyError::Missing | ApplyError::Superseded) => {}
            Err(ApplyError::Store(error)) => return Err(unavailable(&error)),
        }
        Ok(())
    }

    /// A response whose id is the key of a question: whoever may see the task may answer it. Whether it was one.
    pub(super) async fn answered(&self, caller: &Caller, message: &Envelope) -> Result<bool, Error> {
        let text = message.id().and_then(|id| serde_json::from_str::<String>(id.raw()).ok());
        let Some(key) = text.as_deref().and_then(QuestionKey::parse) else { return Ok(false) };
        let Some(task) = self.inner.worker.ports.asker(&key) else { return Ok(true) };
        if message.error().is_some() == message.result().is_some() {
            return Err(Error::InvalidRequest("a response has either a result or an error".into()));
        }
        let found = access::find(&self.inner.worker, caller, &task.to_string()).await;
        if let Some(task) = found.map_err(|error| unavailable(&error))? {
            self.hand_in(&task, key, message.text().clone()).await?;
        }
        Ok(true)
    }

    async fn list_tasks(&self, caller: &Caller, params: &Params<'_>) -> Result<Rope, Error> {
        let wrong = || Error::InvalidParams("cursor is none that tasks/list gave out".into());
        let after = match params.cursor() {
            Some(_) => match list_cursor(params).as_deref().and_then(|text| text.strip_prefix(OURS)) {
                Some("") => None,
                Some(text) => {
                    let (created, id) = core::read_cursor(text).ok_or_else(wrong)?;
                    // A page begins after a task of the caller's own, also when that is forgotten by now.
                    let id_text = id.to_string();
                    let found = access::find(&self.inner.worker, caller, &id_text).await;
                    if found.map_err(|error| unavailable(&error))?.is_none() && self.is_ours(Some(&id_text)).await {
                        return Err(wrong());
                    }
                    Some((created, id))
                }
                None => return Err(wrong()),
            },
            None => None,
        };
        let tasks = &self.inner.worker.tasks;
        let (page, more) = self.page_of(caller, after, PAGE).await?;
        let next = page.last().filter(|_| more).map(|task| format!("{OURS}{}", core::cursor(task)));
        Ok(core::listed(&page, next.as_deref(), tasks.now()).into())
    }

    async fn page_of(
        &self,
        caller: &Caller,
        after: Option<(Timestamp, TaskId)>,
        limit: usize,
    ) -> Result<(Vec<Task>, bool), Error> {
        let Some(session) = caller.identity.session else { return Ok((Vec::new(), false)) };
        let upstream = caller.leg.upstream.options.path.clone();
        let query = ListQuery { upstream, session, after, limit };
        self.inner.worker.tasks.list(query).await.map_err(|error| unavailable(&error))
    }

    /// Cancels a task; one that has ended stays as it is. Returns the task as it stands.
    pub(super) async fn cancel(&self, task: &Task) -> Result<Task, StoreError> {
        match self.inner.worker.tasks.apply(task.id, Event::Cancelled, None).await {
            Ok(task) => Ok(task),
            Err(ApplyError::Rejected(task)) => Ok(*task),
            Err(ApplyError::Missing | ApplyError::Superseded) => Ok(task.clone()),
            Err(ApplyError::Store(error)) => Err(error),
        }
    }

    pub(super) async fn task_of(&self, caller: &Caller, params: &Params<'_>) -> Result<Task, Error> {
        let tasks = &self.inner.worker.tasks;
        let id = params.task_id().ok_or_else(|| Error::InvalidParams("taskId is missing: it is a string".into()))?;
        let task = access::find(&self.inner.worker, caller, &id).await.map_err(|error| unavailable(&error))?;
        let task = task.ok_or_else(|| Error::InvalidParams(NOT_AVAILABLE.into()))?;
        if task.is_expired(tasks.now()) {
            return Err(expired());
        }
        Ok(task)
    }
}

/// The cursor of `tasks/list`, if it is a string.
fn list_cursor(params: &Params<'_>) -> Option<String> {
    serde_json::from_str(params.cursor()?).ok()
}

/// A page of the upstream's tasks; if it is the last, ours are said to follow.
fn and_ours(mut answer: Answer) -> Answer {
    let Some((message, result)) = result_in(&answer) else { return answer };
    let text = std::str::from_utf8(&result).unwrap_or_default();
    let goes_on = entries(text).get("nextCursor").is_some_and(|cursor| !matches!(*cursor, "null" | "\"\""));
    if let (false, Some(at)) = (goes_on, message.result_at()) {
        let mut edits = remove(&members(text).unwrap_or_default(), at.start, "nextCursor");
        let comma = if entries(text).keys().all(|name| name == "nextCursor") { "" } else { "," };
        edits.push(Edit::insert(at.start + 1, format!("\"nextCursor\":\"{OURS}\"{comma}")));
        answer.body = Body::Message(splice(message.text(), edits));
    }
    answer
}

pub(super) fn expired() -> Error {
    Error::InvalidParams(EXPIRED.into())
}

pub(super) fn unavailable(error: &StoreError) -> Error {
    tracing::warn!(%error, "a task cannot be read");
    Error::StoreUnavailable
}
