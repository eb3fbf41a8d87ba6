//! Tasks that another process was running: each ends, is taken up, or is told to be lost, by how it came to its result.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::call::Error;
use crate::jsonrpc::Id;
use crate::mcp::Abilities;
use crate::session::{Habit, Session, Ticket};
use crate::store::ApplyError;
use crate::task::{Event, Execution, Failure, Reason, Sealed, Task};
use crate::upstream::{Leg, Upstream};

use super::deferred::Deferred;
use super::held::{Held, limits};
use super::upcall::Upcall;
use super::way::{Known, until};
use super::{Assignment, INLINE, Listener, Tally, Worker};

impl Worker {
    /// Goes on with a task that this process has taken over, as far as its kind allows; `upstream` is `None` if there
    /// is no such upstream any more. Returns at once.
    pub fn take_over(&self, task: Task, upstream: Option<Arc<Upstream>>) {
        let worker = self.clone();
        drop(self.work.spawn(async move {
            let Some(upstream) = upstream else {
                return worker.give_up(&task, "its server is not configured any more").await;
            };
            let sealed = match &task.execution {
                Execution::Resumable { way, .. } | Execution::Delegated { way, .. } => Some(way.sealed.clone()),
                Execution::Local { repeat } => repeat.clone(),
                Execution::Unstarted => None,
            };
            match sealed {
                Some(sealed) => worker.go_on(task, &sealed, upstream).await,
                None => worker.give_up(&task, "the proxy restarted while it ran").await,
            }
        }));
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

    async fn go_on(&self, task: Task, sealed: &Sealed, upstream: Arc<Upstream>) {
        let Some(known) = Known::open(&self.seal, sealed, &task.upstream) else {
            return self.give_up(&task, "the proxy restarted with another secret").await;
        };
        let session = known.session.as_deref().map(|id| upstream.sessions.find_or_adopt(id));
        let version = known.version.as_deref().and_then(|version| HeaderValue::from_str(version).ok());
        let leg = Leg::of_absent(upstream, session, version.as_ref(), known.query.as_deref());
        let _kept = leg.session.as_ref().map(Session::keep);
        if known.credential && !self.has_credential(&task, &leg, &known).await {
            return;
        }
        info!(task = task.id.short(), tool = &*task.tool, how = task.execution.word(), "going on with a task");
        let assignment = self.assignment(&known, leg);
        let limits = limits(&assignment);
        let upcall = match (&task.execution, &known.request) {
            (Execution::Resumable { cursor, wait, .. }, _) => Upcall::resumed(&assignment.leg, (cursor, *wait), limits),
            (Execution::Local { .. }, Some(request)) => {
                let request = assignment.leg.message(request.clone().into());
                Upcall::start(&assignment.leg, request, limits)
            }
            _ => Upcall::Over,
        };
        let mut held = Held::taken_over(self.clone(), assignment, upcall);
        if let Execution::Delegated { task: theirs, .. } = &task.execution {
            held.follow_known(theirs);
        }
        let permit = self.limits.permit_for_taken_over();
        Box::pin(Deferred::run(held, task, permit)).await;
    }

    /// Waits until the owner asks for the task with its credential, which is never stored; for as long as a person may
    /// take to answer. Whether the task can go on.
    async fn has_credential(&self, task: &Task, leg: &Leg, known: &Known) -> bool {
        let Some(session) = leg.session.as_ref().filter(|session| session.latest_credential().is_none()) else {
            return true;
        };
        let ended = self.tasks.ended(task.id);
        tokio::select! {
            brought = self.ports.wants_credential(task.id) => {
                if let Ok(credential) = brought {
                    session.accepted(Some(&credential), &http::HeaderMap::new());
                }
                true
            }
            () = tokio::time::sleep(known.input_timeout) => {
                let text = format!(
                    "outcome unknown: the proxy restarted, and its owner did not ask for it within {}",
                    humantime::format_duration(known.input_timeout)
                );
                self.fail(task, Failure::Lost { reason: Reason::InputTimeout, text }).await;
                false
            }
            () = ended.cancelled() => false,
            // It is as it was: the next start goes on with it.
            () = self.work.severed() => false,
        }
    }

    fn assignment(&self, known: &Known, leg: Leg) -> Assignment {
        let id = Id::from_raw(known.call.as_bytes()).unwrap_or_else(|| Id::from_string(&known.call));
        let ticket = match &leg.session {
            Some(session) => session.calls.enter(&id, true),
            None => Ticket::unregistered(&id, true),
        };
        ticket.call().defer();
        let hello = leg.session.as_ref().and_then(|session| session.hello());
        let received = Instant::now();
        Assignment {
            request: leg.message(bytes::Bytes::new()),
            ticket,
            received,
            max_runtime: known.deadline.map(|deadline| until(deadline, self.tasks.now())),
            input_timeout: known.input_timeout,
            inline: INLINE,
            max_result: known.max_result,
            head: None,
            repeatable: false,
            log: None,
            follows_tasks: known.follows_tasks,
            own_token: (!known.clients_token).then(String::new),
            listener: Listener {
                takes_events: false,
                abilities: hello.map_or(Abilities::ALL, |hello| hello.client.abilities),
                habit: Habit::Client(String::new(), IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                in_session: true,
            },
            deferral: None,
            alike: None,
            tally: Tally { metrics: self.metrics.clone(), method: "tools/call", dialect: "none", received },
            leg,
        }
    }
}
