//! `DELETE`: a session ends; work that somebody can still read goes on.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use tracing::debug;

use crate::call::Answer;
use crate::session::Session;
use crate::task::{Event, Task};
use crate::upstream::Leg;

use super::forward::{passed, unreachable};
use super::options::SessionEnd;
use super::{Gateway, Reply, Request, Route, gone, not_allowed, plain, session_id};

impl Gateway {
    pub(super) async fn end(&self, route: Arc<Route>, request: Request) -> Reply {
        let upstream = route.upstream.clone();
        let session = session_id(&request.headers).and_then(|id| upstream.sessions.find(id));
        if Self::is_stateless(&request) && session.is_none() {
            return delete(not_allowed());
        }
        let leg = Leg::new(upstream, session.clone(), request.headers, request.query.as_deref());
        let Some(session) = session else {
            return Reply { method: "DELETE", ..self.through(leg, Method::DELETE, Bytes::new()) };
        };
        if session.is_ended() {
            return delete(gone());
        }
        if session.calls.is_busy() {
            session.end();
            self.end_tasks(&session).await;
            self.delete_when_idle(leg, session);
            return delete(Answer::empty(StatusCode::OK));
        }
        if session.minted {
            session.end();
            return delete(Answer::empty(StatusCode::NO_CONTENT));
        }
        let client = leg.upstream.client.clone();
        let request = leg.request(Method::DELETE, Bytes::new());
        let sent = self.inner.worker.work.spawn(async move { client.send(request).await }).await;
        delete(match sent {
            Ok(Ok(answer)) => {
                if answer.status().is_success() {
                    session.end();
                    self.end_tasks(&session).await;
                }
                passed(answer)
            }
            Ok(Err(error)) => unreachable(&error),
            Err(_) => Answer::empty(StatusCode::BAD_GATEWAY),
        })
    }

    /// The upstream would abort its calls: it hears of the end when they have ended.
    fn delete_when_idle(&self, leg: Leg, session: Arc<Session>) {
        let work = self.inner.worker.work.clone();
        drop(self.inner.worker.work.spawn(async move {
            tokio::select! {
                () = session.calls.idle() => {}
                () = work.severed() => return,
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

fn delete(answer: Answer) -> Reply {
    Reply { method: "DELETE", ..plain(answer) }
}
