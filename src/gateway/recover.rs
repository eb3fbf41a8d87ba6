//! What outlives a process: tasks that it was running, and what was said in its sessions.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::oneshot;
use tracing::warn;

use crate::call::Standing;
use crate::jsonrpc::{Envelope, Kind};
use crate::session::Session;
use crate::task::StoreError;
use crate::upstream::Upstream;
use crate::worker::{failed, refused};

use super::tasks::unavailable;
use super::{Gateway, Handling, Reply, Request, Route, plain, session_id};

/// How many tasks are taken over at once.
const TAKEN: usize = 100;
/// How long a session is remembered after it was last heard of, on top of its idle time.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// How often it is written down again that a session lives.
const REFRESHED: Duration = Duration::from_secs(6 * 3600);

impl Gateway {
    /// Takes over what nobody runs any more: what was left by processes that are gone, then what others give up or
    /// leave. Says on `begun` when the first round is over: clients that come before would find tasks that nobody runs.
    /// For ever; cancel safe.
    pub async fn recover(&self, every: Duration, begun: oneshot::Sender<()>) {
        let worker = &self.inner.worker;
        let mut begun = Some(begun);
        loop {
            match worker.tasks.claim(TAKEN).await {
                Ok(taken) => {
                    let is_all = taken.len() < TAKEN;
                    for task in taken {
                        let upstream = self.route(&task.upstream).map(|route| route.upstream.clone());
                        worker.take_over(task, upstream).await;
                    }
                    if !is_all {
                        continue;
                    }
                }
                Err(error) => warn!(%error, "what another process left cannot be taken over yet"),
            }
            if let Some(begun) = begun.take() {
                self.end_what_was_deleted();
                let _ = begun.send(());
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Writes down every few hours which sessions live. For ever; cancel safe.
    pub async fn refresh_sessions(&self) {
        loop {
            tokio::time::sleep(REFRESHED).await;
            for route in &self.inner.routes {
                for session in route.upstream.sessions.all() {
                    self.store_session(&route.upstream, &session).await;
                }
            }
        }
    }

    /// Remembers past a restart what was said in a session, or that it ended.
    pub(super) fn remember(&self, upstream: &Arc<Upstream>, session: &Arc<Session>) {
        let worker = &self.inner.worker;
        if worker.tasks.is_durable() {
            let (gateway, upstream, session) = (self.clone(), upstream.clone(), session.clone());
            drop(worker.work.spawn(async move { gateway.store_session(&upstream, &session).await }));
        }
    }

    async fn store_session(&self, upstream: &Upstream, session: &Session) {
        let span = upstream.sessions.idle().saturating_add(REMEMBERED);
        self.inner.worker.remember(session, span).await;
    }

    /// The session that a request names, if it is not known here but may be in the store.
    pub(super) fn unknown_session(&self, route: &Route, request: &Request) -> Option<String> {
        let id = session_id(&request.headers).filter(|_| self.inner.worker.tasks.is_durable())?;
        let is_unknown = !Self::is_stateless(request) && route.upstream.sessions.find(id).is_none();
        is_unknown.then(|| id.to_owned())
    }

    /// Answers a request after a look for its session in the store.
    pub(super) fn after_restoring(&self, id: String, route: Arc<Route>, request: Request) -> Handling {
        self.later(|gateway| async move {
            if let Err(error) = gateway.inner.worker.session(&route.upstream, &id).await {
                return gateway.session_unread(&request, &error);
            }
            match gateway.dispatch(route, request) {
                Handling::Ready(reply) => reply,
                Handling::Later(reply) => reply.await,
            }
        })
    }

    /// Who began the session, what was said in it, and whether it has ended cannot be read: it is not taken for another.
    fn session_unread(&self, request: &Request, error: &StoreError) -> Reply {
        let error = unavailable(error);
        self.tally_of("other", request.received).done(error.side());
        let message = Envelope::read(request.body.clone()).ok();
        let id = message.as_ref().filter(|message| message.kind() == Kind::Request).and_then(Envelope::id);
        let answer = id.map(|id| failed(&error, id, Standing::Outside));
        plain(answer.unwrap_or_else(|| refused(StatusCode::SERVICE_UNAVAILABLE, &error)))
    }
}
