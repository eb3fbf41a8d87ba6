//! Tasks that another process was running: each ends, is taken up, or is told to be lost, by how it came to its result.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::call::{Error, Standing};
use crate::jsonrpc::Id;
use crate::mcp::{Abilities, Era};
use crate::session::{Habit, Session, Ticket};
use crate::task::{Event, Execution, Failure, Reason, StoreError, Task};
use crate::upstream::{Leg, Upstream};

use super::deferred::Deferred;
use super::held::{Held, limits};
use super::limits::Permit;
use super::port::Opened;
use super::upcall::Upcall;
use super::way::Known;
use super::{Assignment, INLINE, Listener, Reach, Tally, Worker};

/// A task that was taken over, with all that others may touch of it in its place.
struct Taken {
    task: Task,
    known: Known,
    upstream: Arc<Upstream>,
    session: Option<Arc<Session>>,
    ticket: Ticket,
    /// It runs upstream, whether or not it can be gone on with at once.
    permit: Permit,
    port: Opened,
}

/// How long a task has waited for its owner's credential.
struct Wait {
    since: Instant,
    /// What was brought before, and refused by the upstream.
    refused: Option<HeaderValue>,
}

impl Worker {
    /// Goes on with a task that this process has taken over, as far as its kind allows; `upstream` is `None` if there
    /// is no such upstream any more. When it returns, the task has its place: its session is known, its id upstream is
    /// taken, its questions can be answered. The rest happens in the background.
    pub async fn take_over(&self, task: Task, upstream: Option<Arc<Upstream>>) {
        let taken = self.taken(task, upstream).await;
        let worker = self.clone();
        drop(self.work.spawn(async move {
            match taken {
                Ok(taken) => worker.go_on(taken).await,
                Err((task, why)) => worker.give_up(&task, why).await,
            }
        }));
    }

    async fn taken(&self, task: Task, upstream: Option<Arc<Upstream>>) -> Result<Taken, (Task, &'static str)> {
        let Some(upstream) = upstream else { return Err((task, "its server is not configured any more")) };
        let sealed = match &task.execution {
            Execution::Resumable { way, .. } | Execution::Delegated { way, .. } => Some(&way.sealed),
            Execution::Local { repeat } => repeat.as_ref(),
            Execution::Unstarted => None,
        };
        let Some(sealed) = sealed else { return Err((task, "the proxy restarted while it ran")) };
        let Some(known) = Known::open(&self.seal, sealed, &task.upstream) else {
            return Err((task, "the proxy restarted with another secret"));
        };
        let session = match &known.session {
            Some(id) => {
                let session = self.session_of(&upstream, id, known.clientless).await;
                session.began_with(task.owner.creator().credential);
                Some(session)
            }
            None => None,
        };
        let id = Id::from_raw(known.call.as_bytes()).unwrap_or_else(|| Id::from_string(&known.call));
        let ticket = match &session {
            Some(session) => session.calls.enter(&id, true),
            None => Ticket::unregistered(&id, true),
        };
        ticket.call().defer();
        let port = self.ports.open(task.id);
        task.status.questions().iter().for_each(|question| port.asked(&question.key));
        let permit = self.limits.permit_for_taken_over(&task.owner);
        Ok(Taken { task, known, upstream, session, ticket, permit, port })
    }

    /// The session of a task that was taken over. One that no client has is at its end, unless calls of other processes
    /// may be in it: the upstream hears of that when all that was taken over has ended, as of any that was deleted.
    async fn session_of(&self, upstream: &Upstream, id: &str, is_clientless: bool) -> Arc<Session> {
        let is_new = upstream.sessions.find(id).is_none();
        let known = self.session(upstream, id).await.inspect_err(|error| warn!(%error, "a session is lost"));
        let session = known.ok().flatten().unwrap_or_else(|| upstream.sessions.find_or_adopt(id));
        if is_clientless && is_new && self.tasks.is_alone() {
            session.end();
        }
        session
    }

    /// The session with this id, as it is known here, else as it was written down.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn session(&self, upstream: &Upstream, id: &str) -> Result<Option<Arc<Session>>, StoreError> {
        let sessions = &upstream.sessions;
        if let Some(session) = sessions.find(id) {
            return Ok(Some(session));
        }
        let Some(record) = self.tasks.session(sessions.fingerprint(id)).await? else { return Ok(None) };
        upstream.answered_hello((record.era == Era::Stateless || !record.minted).then_some(id));
        let session = sessions.restore(id, record);
        info!(path = &*upstream.options.path, "a session goes on that began before");
        Ok(Some(session))
    }

    /// Nobody will ever know.
    async fn give_up(&self, task: &Task, why: &str) {
        self.fail(task, Error::OutcomeUnknown(why.into()).into_failure()).await;
    }

    async fn fail(&self, task: &Task, failure: Failure) {
        drop(self.settle(task.id, Event::Failed(failure), None).await);
    }

    async fn go_on(&self, mut taken: Taken) {
        let _kept = taken.session.as_ref().map(Session::keep);
        let mut wait = Wait { since: Instant::now(), refused: None };
        loop {
            let mut credential = None;
            if taken.known.credential {
                credential = self.credential(&taken, &wait).await;
                if credential.is_none() {
                    return;
                }
            }
            let Some((left, was_heard)) = self.go_on_with(taken, credential.as_ref()).await else { return };
            info!(task = left.task.id.short(), "the upstream refuses the credential: waiting for the owner's next");
            let since = if was_heard { Instant::now() } else { wait.since };
            (taken, wait) = (left, Wait { since, refused: credential });
        }
    }

    /// Goes on with `credential`. Comes back if the upstream refuses it; says then whether it had accepted it before.
    async fn go_on_with(&self, taken: Taken, credential: Option<&HeaderValue>) -> Option<(Taken, bool)> {
        let Taken { task, mut known, upstream, session, ticket, permit, port } = taken;
        let version = known.version.as_deref().and_then(|version| HeaderValue::from_str(version).ok());
        let shown = (version.as_ref(), credential);
        let leg = Leg::of_absent(upstream.clone(), session.clone(), shown, known.query.as_deref());
        let leg = if known.stateless { leg.stateless(None) } else { leg };
        info!(task = task.id.short(), tool = &*task.tool, how = task.execution.word(), "going on with a task");
        let left = known.left(&task, self.tasks.now());
        let mut assignment = self.assignment(&known, leg, ticket);
        let limits = limits(&assignment);
        let upcall = match (&task.execution, &known.request) {
            (Execution::Resumable { cursor, wait, .. }, _) => Upcall::resumed(&assignment.leg, (cursor, *wait), limits),
            (Execution::Local { .. }, Some(request)) => {
                assignment.request = assignment.leg.again(request.clone().into(), &known.argument_headers);
                Upcall::repeated(&assignment.leg, assignment.request.clone(), limits)
            }
            _ => Upcall::Over,
        };
        let mut held = Held::taken_over(self.clone(), assignment, upcall, left);
        if let Execution::Delegated { task: theirs, .. } = &task.execution {
            held.follow_known(theirs);
        }
        let deferred = Box::pin(Deferred::go_on(held, task, (permit, port), known.credential)).await?;
        let Deferred { held, task, port, permit, runtime, was_heard, .. } = *deferred;
        let Held { assignment, .. } = *held;
        known.set_left(&task, self.tasks.now(), runtime.left());
        Some((Taken { task, known, upstream, session, ticket: assignment.ticket, permit, port }, was_heard))
    }

    /// The credential of the owner, which is never stored: waits until it asks for the task, or for anything else in
    /// its session, but no longer than a person may take to answer. `None` if the task cannot go on.
    async fn credential(&self, taken: &Taken, wait: &Wait) -> Option<HeaderValue> {
        let Taken { task, known, session, .. } = taken;
        let ended = self.tasks.ended(task.id);
        let accepted = async {
            match session {
                Some(session) => session.next_credential(wait.refused.as_ref()).await,
                None => std::future::pending().await,
            }
        };
        let too_long = async {
            match known.left(task, self.tasks.now()) {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let failure = tokio::select! {
            biased;
            credential = accepted => return Some(credential),
            // Whoever cancels has been asked for it, too.
            Ok(credential) = self.ports.wants_credential(task.id) => return Some(credential),
            () = ended.cancelled() => return None,
            // It is as it was: the next start goes on with it.
            () = self.work.severed() => return None,
            () = too_long => Error::MaxRuntime(known.max_runtime.unwrap_or_default()).into_failure(),
            () = tokio::time::sleep_until(wait.since + known.input_timeout) => {
                unclaimed(known.input_timeout, wait.refused.is_some())
            }
        };
        self.fail(task, failure).await;
        None
    }

    fn assignment(&self, known: &Known, leg: Leg, ticket: Ticket) -> Assignment {
        let hello = leg.session.as_ref().and_then(|session| session.hello());
        let received = Instant::now();
        Assignment {
            request: leg.message(bytes::Bytes::new()),
            ticket,
            received,
            max_runtime: known.max_runtime,
            input_timeout: known.input_timeout,
            inline: INLINE,
            max_result: known.max_result,
            head: None,
            repeatable: false,
            log: None,
            follows_tasks: known.follows_tasks,
            own_token: (!known.clients_token).then(String::new),
            listener: Listener {
                reach: Reach::Nowhere,
                abilities: hello.map_or(Abilities::ALL, |hello| hello.client.abilities),
                habit: Habit::Client(String::new(), IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                standing: Standing::Session,
            },
            deferral: None,
            alike: None,
            kept: None,
            tally: Tally { metrics: Some(self.metrics.clone()), method: "tools/call", dialect: "none", received },
            leg,
        }
    }
}

/// Nobody brought a credential that the upstream takes.
fn unclaimed(within: Duration, is_refused: bool) -> Failure {
    let within = humantime::format_duration(within);
    let text = if is_refused {
        format!("outcome unknown: the proxy restarted, and the upstream refused its owner's credential for {within}")
    } else {
        format!("outcome unknown: the proxy restarted, and its owner did not ask for it within {within}")
    };
    Failure::Lost { reason: Reason::InputTimeout, text }
}
