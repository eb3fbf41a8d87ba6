//! Tasks that another process was running: each ends, is taken up, or is told to be lost, by how it came to its result.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::call::{Error, Standing};
use crate::jsonrpc::Id;
use crate::mcp::{Abilities, Era};
use crate::session::{Habit, Hello, Repeated, Session, Ticket};
use crate::store::ApplyError;
use crate::task::{Event, Execution, Failure, Reason, Task};
use crate::upstream::{Leg, Upstream};

use super::deferred::Deferred;
use super::held::{Held, limits};
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
    _port: Opened,
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
                let known = self.session(&upstream, id).await;
                Some(known.unwrap_or_else(|| upstream.sessions.find_or_adopt(id)))
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
        Ok(Taken { task, known, upstream, session, ticket, _port: port })
    }

    /// The session with this id, as it is known here, else as it was written down.
    pub async fn session(&self, upstream: &Upstream, id: &str) -> Option<Arc<Session>> {
        let sessions = &upstream.sessions;
        if let Some(session) = sessions.find(id) {
            return Some(session);
        }
        match self.tasks.session(sessions.fingerprint(id)).await {
            Ok(Some(record)) => {
                let is_repeated = record.era == Era::Stateless;
                let repeated = is_repeated.then(|| Arc::new(Repeated::recalled(&record.client)));
                let hello = Hello { client: record.client, server: record.server, repeated };
                let session = sessions.restore(id, (hello, record.minted, record.ended));
                upstream.answered_hello((is_repeated || !record.minted).then_some(id));
                info!(path = &*upstream.options.path, "a session goes on that began before");
                Some(session)
            }
            Ok(None) => None,
            Err(error) => {
                warn!(%error, "a session cannot be looked up: it is taken for a new one");
                None
            }
        }
    }

    /// Nobody will ever know.
    async fn give_up(&self, task: &Task, why: &str) {
        self.fail(task, Error::OutcomeUnknown(why.into()).into_failure()).await;
    }

    async fn fail(&self, task: &Task, failure: Failure) {
        match self.tasks.report(task.id, Event::Failed(failure), None).await {
            Ok(_) | Err(ApplyError::Rejected(_) | ApplyError::Missing | ApplyError::Superseded) => {}
            Err(ApplyError::Store(error)) => warn!(task = task.id.short(), %error, "its end cannot be stored"),
        }
    }

    async fn go_on(&self, taken: Taken) {
        let Taken { task, known, upstream, session, ticket, _port } = taken;
        let _kept = session.as_ref().map(Session::keep);
        let credential = if known.credential {
            match self.credential(&task, session.as_ref(), &known).await {
                Some(credential) => credential,
                None => return,
            }
        } else {
            None
        };
        let version = known.version.as_deref().and_then(|version| HeaderValue::from_str(version).ok());
        let shown = (version.as_ref(), credential.as_ref());
        let leg = Leg::of_absent(upstream, session, shown, known.query.as_deref());
        let leg = if known.stateless { leg.stateless(None) } else { leg };
        info!(task = task.id.short(), tool = &*task.tool, how = task.execution.word(), "going on with a task");
        let left = known.left(&task, self.tasks.now());
        let mut assignment = self.assignment(&known, leg, ticket);
        let limits = limits(&assignment);
        let upcall = match (&task.execution, known.request) {
            (Execution::Resumable { cursor, wait, .. }, _) => Upcall::resumed(&assignment.leg, (cursor, *wait), limits),
            (Execution::Local { .. }, Some(request)) => {
                assignment.request = assignment.leg.again(request.into(), &known.argument_headers);
                Upcall::start(&assignment.leg, assignment.request.clone(), limits)
            }
            _ => Upcall::Over,
        };
        let mut held = Held::taken_over(self.clone(), assignment, upcall, left);
        if let Execution::Delegated { task: theirs, .. } = &task.execution {
            held.follow_known(theirs);
        }
        let permit = self.limits.permit_for_taken_over();
        Box::pin(Deferred::run(held, task, permit)).await;
    }

    /// The credential of the owner, which is never stored: waits until it asks for the task, or for anything else in
    /// its session, but no longer than a person may take to answer. `None` if the task cannot go on.
    async fn credential(
        &self,
        task: &Task,
        session: Option<&Arc<Session>>,
        known: &Known,
    ) -> Option<Option<HeaderValue>> {
        let ended = self.tasks.ended(task.id);
        let came = async {
            match session {
                Some(session) => session.credential_came().await,
                None => std::future::pending().await,
            }
        };
        let too_long = async {
            match known.left(task, self.tasks.now()) {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = came => Some(None),
            // Whoever cancels has been asked for it, too.
            Ok(credential) = self.ports.wants_credential(task.id) => {
                if let Some(session) = session {
                    session.accepted(Some(&credential), &http::HeaderMap::new());
                }
                Some(Some(credential))
            }
            () = ended.cancelled() => None,
            // It is as it was: the next start goes on with it.
            () = self.work.severed() => None,
            // It ends as any that runs too long.
            () = too_long => Some(None),
            () = tokio::time::sleep(known.input_timeout) => {
                let text = format!(
                    "outcome unknown: the proxy restarted, and its owner did not ask for it within {}",
                    humantime::format_duration(known.input_timeout)
                );
                self.fail(task, Failure::Lost { reason: Reason::InputTimeout, text }).await;
                None
            }
        }
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
            tally: Tally { metrics: self.metrics.clone(), method: "tools/call", dialect: "none", received },
            leg,
        }
    }
}
