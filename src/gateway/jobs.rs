//! The tools that taskgate adds: read, cancel and list jobs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::call::{Error, Outgoing, Side, outlet};
use crate::dialect::{JobNames, error_object, job};
use crate::jsonrpc::{Envelope, Id, Rope, entries, rope_response};
use crate::mcp::{Era, Params};
use crate::task::{ListQuery, OwnerMode, StoreError, Task, TaskId};
use crate::worker::Marking;

use super::access;
use super::caller::Caller;
use super::job_input::JobInput;
use super::wait::{EVENTS, kept_whole};
use super::{Gateway, Reply};

/// The longest wait that a caller can ask for: most clients have a shorter patience than that.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// How many jobs are listed.
const LISTED: usize = 100;

/// A call of one of the job tools.
#[derive(Debug)]
pub(super) struct JobCall {
    tool: JobTool,
    pub(super) job_id: Option<String>,
    wait: Result<Option<Duration>, ()>,
    pub(super) names: JobNames,
    /// How the job's questions are asked and answered, of a client that cannot be asked on the way.
    pub(super) input: Option<JobInput>,
}

/// One of the tools that taskgate adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobTool {
    Result,
    Cancel,
    List,
}

impl Gateway {
    /// The job tool that goes by this name, its own or its fallback one.
    pub(super) fn job_tool(&self, tool: &str) -> Option<JobTool> {
        let jobs = &self.inner.options.jobs;
        let plain = tool.strip_prefix("taskgate_").unwrap_or(tool);
        let tools = [
            (&jobs.result_tool, JobTool::Result),
            (&jobs.cancel_tool, JobTool::Cancel),
            (&jobs.list_tool, JobTool::List),
        ];
        tools.into_iter().find(|(name, _)| *name == plain || *name == tool).map(|(_, kind)| kind)
    }

    /// The call of a job tool, unless the upstream has a tool of that name and the job is none of ours.
    pub(super) async fn job_call(&self, caller: &Caller, kind: JobTool, message: &Envelope) -> Option<JobCall> {
        let params = Params::peek(message.params());
        let tool = params.name()?;
        let arguments = entries(params.arguments().unwrap_or_default());
        let job_id = arguments.get("job_id").and_then(|text| serde_json::from_str::<String>(text).ok());
        let is_ours = self.is_ours(job_id.as_deref()).await;
        let catalog = match caller.catalog() {
            None if !is_ours => self.learn_catalog(caller).await,
            known => known,
        };
        let names = self.inner.job_names(catalog.as_deref());
        let offered = names.as_ref().is_some_and(|names| names.iter().any(|name| name == tool))
            && (kind != JobTool::List || self.has_list(caller));
        if !offered && !is_ours {
            return None;
        }
        let wait = seconds(arguments.get("wait_s").copied());
        let asked = (caller.era == Era::Stateless).then(|| JobInput::of(caller, message));
        Some(JobCall { tool: kind, job_id, wait, names: names.unwrap_or_default(), input: asked })
    }

    /// Whether this caller can be told apart from others, so that it has jobs of its own to list.
    pub(super) fn has_list(&self, caller: &Caller) -> bool {
        self.inner.options.owner == OwnerMode::Session && caller.identity.session.is_some()
    }

    /// Whether there is a task with this id, whoever's it is.
    pub(super) async fn is_ours(&self, job_id: Option<&str>) -> bool {
        let Some(id) = job_id.and_then(|id| id.trim().parse::<TaskId>().ok()) else { return false };
        matches!(self.inner.worker.tasks.get(id).await, Ok(Some(_)))
    }

    pub(super) async fn job(&self, caller: Caller, call: JobCall, id: &Id) -> Reply {
        if let Err(error) = caller.check_version() {
            return self.fails(&caller, id, &error);
        }
        match call.tool {
            JobTool::Result => self.read_job(caller, call, id).await,
            JobTool::Cancel => {
                let text = self.cancel_job(&caller, &call).await.unwrap_or_else(|error| unavailable(&error));
                self.says(&caller, id, caller.as_told(text.into()))
            }
            JobTool::List => {
                let text = self.list_jobs(&caller).await.unwrap_or_else(|error| unavailable(&error));
                self.says(&caller, id, caller.as_told(text.into()))
            }
        }
    }

    /// Waits for the end of a job, in steps, so that the stream is kept alive and a client that leaves is noticed.
    async fn read_job(&self, caller: Caller, call: JobCall, id: &Id) -> Reply {
        let task = match self.named(&caller, &call).await {
            Ok(task) => task,
            Err(text) => return self.says(&caller, id, caller.as_told(text.into())),
        };
        let Ok(asked) = call.wait else {
            let text = job::bad_arguments("wait_s is a number of seconds, from 0 to 25.");
            return self.says(&caller, id, caller.as_told(text.into()));
        };
        let task = match self.hear(task, &call).await {
            Ok(task) => task,
            Err(error) => return self.fails(&caller, id, &error),
        };
        let until = caller.received + self.how_long(&caller, &task, asked);
        if task.status.ended().is_some() || until <= Instant::now() {
            let text = self.job_said(&caller, &task, &call).await;
            return self.says(&caller, id, text);
        }
        let (steps, receiver) = outlet(EVENTS, self.log(&caller));
        let reply = caller.reply(Outgoing::Later(receiver));
        let (gateway, id) = (self.clone(), id.clone());
        drop(self.inner.worker.work.spawn(async move {
            let steps = Arc::new(steps);
            let text = match gateway.wait(&caller, task.id, Some(until), (Marking::Plain, &steps)).await {
                Some(Ok(task)) => gateway.job_said(&caller, &task, &call).await,
                Some(Err(Error::StoreUnavailable)) => job::unavailable(&error_object(&Error::StoreUnavailable)).into(),
                Some(Err(_)) => job::expired().into(),
                None => return,
            };
            gateway.tally(&caller).done(Side::None);
            steps.done(kept_whole(&steps, rope_response(&id, text))).await;
        }));
        reply
    }

    /// How long this read waits: as long as it was asked to, else longer from read to read.
    fn how_long(&self, caller: &Caller, task: &Task, asked: Option<Duration>) -> Duration {
        if task.status.ended().is_some() {
            return Duration::ZERO;
        }
        let reads = self.inner.worker.tasks.count_read(task.id);
        let wait = match asked {
            Some(asked) => asked.min(LONGEST_WAIT),
            None => task.threshold.saturating_mul(1 << reads.min(16)).min(self.inner.options.jobs.wait),
        };
        self.patience(caller, wait)
    }

    /// How a job stands, as text; marks an outcome as read.
    pub(super) async fn job_text(&self, caller: &Caller, task: &Task, names: &JobNames) -> Rope {
        let result = match self.outcome_of(caller, task).await {
            Ok(result) => result,
            Err(Error::StoreUnavailable) => {
                return caller.as_told(job::unavailable(&error_object(&Error::StoreUnavailable)).into());
            }
            // Its result is not kept any more.
            Err(_) => None,
        };
        caller.as_told(job::read(task, result.as_ref(), self.inner.worker.tasks.now(), names))
    }

    async fn cancel_job(&self, caller: &Caller, call: &JobCall) -> Result<String, StoreError> {
        let task = match self.named(caller, call).await {
            Ok(task) => task,
            Err(text) => return Ok(text),
        };
        let task = self.cancel(&task).await?;
        Ok(job::cancelled(&task, &call.names))
    }

    async fn list_jobs(&self, caller: &Caller) -> Result<String, StoreError> {
        let tasks = &self.inner.worker.tasks;
        let Some(session) = caller.identity.session.filter(|_| self.has_list(caller)) else {
            return Ok(job::not_found());
        };
        let upstream = caller.leg.upstream.options.path.clone();
        let query = ListQuery { upstream, session, after: None, limit: LISTED };
        Ok(job::listed(&tasks.list(query).await?.0, tasks.now()))
    }

    /// The job a call names; what to say instead if there is none for this caller.
    async fn named(&self, caller: &Caller, call: &JobCall) -> Result<Task, String> {
        let tasks = &self.inner.worker.tasks;
        let Some(job_id) = &call.job_id else {
            return Err(job::bad_arguments("job_id is missing: pass the job_id of the handle."));
        };
        match access::find(&self.inner.worker, caller, job_id).await {
            Ok(Some(task)) if task.is_expired(tasks.now()) => Err(job::expired()),
            Ok(Some(task)) => Ok(task),
            Ok(None) => Err(job::not_found()),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

/// What a model is told while the store does not work.
fn unavailable(error: &StoreError) -> String {
    tracing::warn!(%error, "a job cannot be read");
    job::unavailable(&error_object(&Error::StoreUnavailable))
}

/// Seconds from JSON; models write numbers as strings.
fn seconds(text: Option<&str>) -> Result<Option<Duration>, ()> {
    let Some(text) = text.filter(|text| *text != "null") else { return Ok(None) };
    let number: f64 = text.trim_matches('"').trim().parse().map_err(|_| ())?;
    if number.is_nan() || number < 0.0 {
        return Err(());
    }
    Ok(Some(Duration::try_from_secs_f64(number).unwrap_or(LONGEST_WAIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_as_models_write_them() {
        for (text, expected) in [
            (None, Ok(None)),
            (Some("null"), Ok(None)),
            (Some("0"), Ok(Some(Duration::ZERO))),
            (Some("1.5"), Ok(Some(Duration::from_millis(1_500)))),
            (Some("\"10\""), Ok(Some(Duration::from_secs(10)))),
            (Some("1e300"), Ok(Some(LONGEST_WAIT))),
            (Some("-1"), Err(())),
            (Some("true"), Err(())),
            (Some("[]"), Err(())),
        ] {
            assert_eq!(seconds(text), expected, "{text:?}");
        }
    }
}
