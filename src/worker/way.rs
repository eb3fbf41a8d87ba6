//! What is written down of a running call, so that another process can go on with it.
//!
//! Sealed, since it names the session; the client's credential is not part of it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::mcp::{Era, header};
use crate::task::{Execution, Sealed, Task, Timestamp, Way};

use super::held::Held;

/// All that is needed to speak to the upstream about a call again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) session: Option<String>,
    pub(super) query: Option<String>,
    pub(super) version: Option<String>,
    /// The id that the call has upstream, as JSON text.
    pub(super) call: String,
    /// Whether the upstream was shown a credential of the client's.
    pub(super) credential: bool,
    /// Whether progress has the client's own token.
    pub(super) clients_token: bool,
    pub(super) follows_tasks: bool,
    /// How long it may run altogether, and until when, in milliseconds since 1970; waiting for a person comes on top.
    pub(super) max_runtime: Option<Duration>,
    pub(super) deadline: Option<u64>,
    pub(super) input_timeout: Duration,
    pub(super) max_result: u64,
    /// The era of the way there.
    #[serde(default)]
    pub(super) stateless: bool,
    /// Whether no client has the session, as when it was opened for a stateless one: it ends with its last call.
    #[serde(default)]
    pub(super) clientless: bool,
    /// Headers that repeat arguments of the request.
    #[serde(default)]
    pub(super) argument_headers: Vec<(String, String)>,
    /// The request itself, where it may be sent again.
    pub(super) request: Option<String>,
}

impl Known {
    /// Opens what was sealed of a call at the upstream on `path`.
    pub(super) fn open(held_by: &crate::session::Seal, sealed: &Sealed, path: &str) -> Option<Self> {
        serde_json::from_slice(&held_by.open(sealed, path)?).ok()
    }

    /// How long `task` may still run: waiting for a person does not count, so that its time stood still when it asked.
    pub(super) fn left(&self, task: &Task, now: Timestamp) -> Option<Duration> {
        self.deadline.map(|deadline| Timestamp(deadline).since(Self::stands_at(task, now)))
    }

    /// `task` may run for that much longer.
    pub(super) fn set_left(&mut self, task: &Task, now: Timestamp, left: Option<Duration>) {
        self.deadline = left.map(|left| Self::stands_at(task, now).plus(left).0);
    }

    fn stands_at(task: &Task, now: Timestamp) -> Timestamp {
        if task.status.questions().is_empty() { now } else { task.updated }
    }
}

impl Held {
    /// What a restart may do with the call, as it stands now, at the upstream on `path`.
    pub(super) fn execution(&self, path: &str) -> Execution {
        if !self.worker.tasks.is_durable() {
            return Execution::LOCAL;
        }
        let way = |held: &Self| held.sealed(path, None).map(|sealed| Way { sealed });
        let execution = match (self.followed_task(), self.cursor(), &self.repeat) {
            (Some(task), ..) => way(self).map(|way| Execution::Delegated { task: task.into(), way }),
            (None, Some((cursor, wait)), _) => {
                way(self).map(|way| Execution::Resumable { cursor: cursor.into(), wait, way })
            }
            (None, None, Some(request)) => {
                self.sealed(path, Some(request)).map(|sealed| Execution::Local { repeat: Some(sealed) })
            }
            (None, None, None) => None,
        };
        execution.unwrap_or(Execution::LOCAL)
    }

    /// Whether the place where the call can be taken up is another than the record of `task` says.
    pub(super) fn has_moved(&self, task: &Task) -> bool {
        if !self.worker.tasks.is_durable() {
            return false;
        }
        match (self.followed_task(), self.cursor(), &task.execution) {
            (Some(task), _, Execution::Delegated { task: known, .. }) => *task != **known,
            (None, Some((cursor, _)), Execution::Resumable { cursor: known, .. }) => *cursor != **known,
            (Some(_), ..) | (None, Some(_), _) => true,
            (None, None, _) => false,
        }
    }

    /// Where its answer can be taken up: nowhere in the stateless era, which has streams for one request only.
    fn cursor(&self) -> Option<(&str, Option<Duration>)> {
        self.upcall.cursor().filter(|_| self.assignment.leg.era == Era::Handshake)
    }

    fn sealed(&self, path: &str, request: Option<&Bytes>) -> Option<Sealed> {
        let (assignment, tasks) = (&self.assignment, &self.worker.tasks);
        let leg = &assignment.leg;
        let known = Known {
            session: leg.session.as_ref().map(|session| session.id.to_string()),
            query: leg.query().map(str::to_owned),
            version: leg.header(header::PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).map(str::to_owned),
            call: assignment.ticket.call().upstream_id.raw().to_owned(),
            credential: leg.shows_credential(),
            clients_token: assignment.own_token.is_none(),
            follows_tasks: assignment.follows_tasks,
            max_runtime: assignment.max_runtime,
            deadline: self.runtime.left().map(|left| tasks.now().plus(left).0),
            input_timeout: assignment.input_timeout,
            max_result: assignment.max_result,
            stateless: leg.era == Era::Stateless,
            clientless: assignment.kept.is_some() || leg.session.as_ref().is_some_and(|session| session.is_ended()),
            argument_headers: request.map(|_| leg.argument_headers()).unwrap_or_default(),
            request: request.map(|body| String::from_utf8_lossy(body).into_owned()),
        };
        let text = serde_json::to_vec(&known).ok()?;
        let sealed = self.worker.seal.close(&text, path);
        if sealed.is_none() {
            warn!("no randomness: a restart could not go on with this call");
        }
        sealed
    }
}
