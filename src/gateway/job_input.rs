//! Questions of a job, to a client of the stateless era: a read of the job ends with them, and its retry brings what the
//! client says and waits on.

use bytes::Bytes;
use uuid::Uuid;

use crate::call::Error;
use crate::jsonrpc::{Envelope, Id, Rope, result_response};
use crate::mcp::rounds;
use crate::task::{Question, QuestionKey, Task, TaskId};
use crate::worker::{Purpose, State};

use super::Gateway;
use super::bridge::{answers, purpose, rejected};
use super::caller::Caller;
use super::jobs::JobCall;
use super::tasks::unavailable;

/// What a read of a job brings along.
#[derive(Debug)]
pub(super) struct JobInput {
    purpose: Purpose,
    state: Option<String>,
    answers: Result<Vec<(QuestionKey, Bytes)>, Error>,
}

impl JobInput {
    pub(super) fn of(caller: &Caller, message: &Envelope) -> Self {
        let state = rounds::Retry::read(message.params()).request_state.map(std::borrow::Cow::into_owned);
        Self { purpose: purpose(caller, message), state, answers: answers(message) }
    }
}

impl Gateway {
    /// Hands the answers in that a read of this job brings; returns the job as it stands then.
    pub(super) async fn hear(&self, task: Task, call: &JobCall) -> Result<Task, Error> {
        let Some(JobInput { purpose, state: Some(state), answers }) = &call.input else { return Ok(task) };
        let worker = &self.inner.worker;
        let state = State::accept(&worker.seal, state, purpose, worker.tasks.now());
        if state.is_none_or(|state| state.exchange != named(task.id)) {
            return Err(rejected());
        }
        for (key, answer) in answers.clone()? {
            let text = std::str::from_utf8(&answer).unwrap_or("{}");
            let response = result_response(&Id::from_string(key.as_str()), text);
            self.hand_in(&task, key, response).await?;
        }
        let now = worker.tasks.get(task.id).await.map_err(|error| unavailable(&error))?;
        Ok(now.unwrap_or(task))
    }

    /// What a read of a job says: its questions, if its client can be asked no other way, else how it stands.
    pub(super) async fn job_said(&self, caller: &Caller, task: &Task, call: &JobCall) -> Rope {
        match self.job_questions(caller, task, call) {
            Some(asks) => asks.into(),
            None => self.job_text(caller, task, &call.names).await,
        }
    }

    fn job_questions(&self, caller: &Caller, task: &Task, call: &JobCall) -> Option<String> {
        let input = call.input.as_ref()?;
        let questions: Vec<&Question> = askable(caller, task).collect();
        if questions.is_empty() {
            return None;
        }
        let worker = &self.inner.worker;
        let expires = worker.tasks.now().plus(State::span(self.inner.options.input_timeout));
        let state = State { exchange: named(task.id), round: 0, purpose: input.purpose.clone(), expires };
        let state = state.seal(&worker.seal)?;
        let questions =
            questions.iter().map(|question| (question.key.as_str(), &*question.method, question.params.as_deref()));
        Some(rounds::input_required(questions, Some(&state), None))
    }
}

/// The open questions of a task that this caller can be asked.
pub(super) fn askable<'a>(caller: &'a Caller, task: &'a Task) -> impl Iterator<Item = &'a Question> {
    task.status.questions().iter().filter(|question| caller.abilities.allow(&question.method))
}

fn named(task: TaskId) -> Uuid {
    Uuid::from_bytes(*task.bytes())
}
