//! `DELETE`: a session ends; work that somebody can still read goes on.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use tracing::debug;

use crate::call::{Answer, Side};
use crate::session::Session;
use crate::task::{Event, Task};
use crate::upstream::Leg;

use super::forward::{passed, unreachable};
use super::options::SessionEnd;
use super::{Gateway, Reply, Request, Route, access, forbidden, gone, not_allowed, plain, session_id};

impl Gateway {
    pub(super) async fn end(&self, route: Arc<Route>, request: Request) -> Reply {
        let upstream = route.upstream.clone();
        let tally = self.tally_of("DELETE", request.received);
        let session = session_id(&request.headers).and_then(|id| upstream.sessions.find(id));
        let answer = match session {
            None if Self::is_stateless(&request) => not_allowed(),
            None => {
                let received = request.received;
                let leg = Leg::new(upstream, None, &request.headers, request.query.as_deref());
                return self.through(leg, (Method::DELETE, Bytes::new()), ("DELETE", received));
            }
            Some(session) if session.is_ended() => gone(),
            Some(session) => {
                let leg = Leg::new(upstream, Some(session.clone()), &request.headers, request.query.as_deref());
                self.end_session(leg, session).await
            }
        };
        tally.done(if answer.status.is_client_error() { Side::Client } else { Side::None });
        Reply { method: "DELETE", ..plain(answer) }
    }

    async fn end_session(&self, leg: Leg, session: Arc<Session>) -> Answer {
        let is_busy = session.calls.is_busy();
        // The upstream would say whether it may, if it saw who asks, and were asked before the end.
        let says_so = leg.is_judged() && !session.minted && !is_busy;
        if !says_so && !access::may_use_session(&leg, self.inner.identity(&leg)).await {
            return forbidden();
        }
        if is_busy {
            session.end();
            self.remember(&leg.upstream, &session);
            self.end_tasks(&session).await;
            let status = if session.repeated().is_some() { StatusCode::NO_CONTENT } else { StatusCode::OK };
            self.delete_when_idle(leg, session);
            return Answer::empty(status);
        }
        if session.minted {
            session.end();
            self.remember(&leg.upstream, &session);
            return Answer::empty(StatusCode::NO_CONTENT);
        }
        let client = leg.upstream.client.clone();
        let request = leg.request(Method::DELETE, Bytes::new());
        let sent = self.inner.worker.work.spawn(async move { client.send(request).await }).await;
        match sent {
            Ok(Ok(answer)) => {
                if answer.status().is_success() {
                    session.end();
                    self.remember(&leg.upstream, &session);
                    self.end_tasks(&session).await;
                }
                passed(answer)
            }
            Ok(Err(error)) => unreachable(&error),
            Err(_) => Answer::empty(StatusCode::BAD_GATEWAY),
        }
    }

    /// Sessions that were deleted before a restart while their calls ran, and those that no client has: the upstream
    /// still has to hear of their end.
    pub(super) fn end_what_was_deleted(&self) {
        for route in &self.inner.routes {
            let sessions = route.upstream.sessions.all();
            for session in sessions.into_iter().filter(|session| session.is_ended()) {
                let leg = Leg::of_absent(route.upstream.clone(), Some(session.clone()), (None, None), None);
                self.delete_when_idle(leg, session);
            }
        }
    }

    /// The upstream would abort its calls: it hears of the end when they have ended.
    fn delete_when_idle(&self, leg: Leg, session: Arc<Session>) {
        let work = self.inner.worker.work.clone();
        drop(self.inner.worker.work.spawn(async move {
            tokio::select! {
                // What is cut off has not ended: the next start goes on with it.
                biased;
                () = work.severed() => return,
                () = session.calls.idle() => {}
            }
            if session.minted {
                return;
            }
            let mut request = leg.message(Bytes::new());
            request.method = Method::DELETE;
            if let Err(error) = leg.upstream.client.send(request).await {
                debug!(%error, "the end of a session did not reach the upstream");
            }
        }));
    }

    /// What becomes of the session's running tasks.
    async fn end_tasks(&self, session: &Session) {
        let tasks = &self.inner.worker.tasks;
        let ends = |task: &Task| match self.inner.options.on_session_end {
            SessionEnd::Keep => false,
            SessionEnd::Cancel => true,
            SessionEnd::Auto => !task.owner.outlives_session(),
        };
        for task in tasks.running_in(session.fingerprint).await {
            if ends(&task) {
                let _ = tasks.apply(task.id, Event::Cancelled, None).await;
            }
        }
    }
}
