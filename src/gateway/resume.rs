//! `GET` with `Last-Event-ID`: a client takes up a stream of ours that it lost.
//!
//! MCP 2025-11-25, Streamable HTTP, "Resumability and Redelivery". Such a request never reaches the upstream, whose
//! streams taskgate resumes alone.

use std::sync::Arc;

use http::HeaderMap;

use crate::call::{EventId, Follower, Log, Origin, Outgoing, Side, outlet};
use crate::mcp::{Era, header};
use crate::session::Start;
use crate::upstream::Leg;

use super::caller::{Caller, priming};
use super::listen::get;
use super::{Framing, Gateway, Handling, Reply, Request, Route, access, not_allowed, session_id};

impl Gateway {
    pub(super) fn get(&self, route: Arc<Route>, mut request: Request) -> Handling {
        let stated = request.headers.remove(header::LAST_EVENT_ID);
        let is_live = session_id(&request.headers).is_some_and(|id| route.upstream.sessions.find(id).is_some());
        let id = stated.and_then(|id| id.to_str().ok()?.parse::<EventId>().ok());
        match id {
            Some(id) if !Self::is_stateless(&request) || is_live => {
                self.later(move |gateway| async move { gateway.resume(route, &request, id).await })
            }
            _ => self.listen(&route, &request).into(),
        }
    }

    /// Where the answer to a request is kept for a client that loses its stream; nowhere for one that reads none.
    pub(super) fn log(&self, caller: &Caller) -> Option<Arc<Log>> {
        let origin = Origin { upstream: self.place(&caller.route), identity: caller.identity };
        // Nothing is resumed in the stateless era.
        let may_resume = caller.era == Era::Handshake && caller.may_stream();
        may_resume.then(|| Log::new(self.inner.streams.clone(), origin, priming(&caller.leg)))
    }

    /// What came after the event that the client saw last, and then what comes. A stream of somebody else's is as
    /// unknown as one that is over.
    async fn resume(&self, route: Arc<Route>, request: &Request, id: EventId) -> Reply {
        let tally = self.tally_of("GET", request.received);
        let session = session_id(&request.headers).map(|id| route.upstream.sessions.find_or_adopt(id));
        let leg = Leg::new(route.upstream.clone(), session, &request.headers, request.query.as_deref());
        let log = match self.inner.streams.find(id.stream) {
            Some(log) if self.may_follow(&route, &leg, log.origin()).await => Some(log),
            _ => None,
        };
        if let (Some(log), Some(session)) = (&log, &leg.session)
            && session.hub().owns(log)
        {
            return self.serve(&route, request, leg, Start::After(id.n));
        }
        let Some(follower) = log.and_then(|log| log.follow(id.n)) else {
            tally.done(Side::Client);
            return get(not_allowed());
        };
        let (work, (steps, receiver)) = (self.inner.worker.work.clone(), outlet(1, None));
        drop(self.inner.worker.work.spawn(async move {
            steps.open(HeaderMap::new()).await;
            let told = async {
                let mut follower: Follower = follower;
                while let Some(event) = follower.next().await {
                    steps.event(event).await;
                }
            };
            tokio::select! {
                () = told => {}
                () = steps.closed() => {}
                () = work.severed() => {}
            }
            tally.done(Side::None);
        }));
        Reply { outgoing: Outgoing::Later(receiver), framing: Framing::AsItComes, method: "GET", dialect: "none" }
    }

    /// A stream belongs to the session it was opened in; without one, to who opened it.
    async fn may_follow(&self, route: &Arc<Route>, leg: &Leg, origin: Origin) -> bool {
        let who = self.inner.identity(leg);
        if origin.upstream != self.place(route) || origin.identity.session != who.session {
            return false;
        }
        match &leg.session {
            Some(session) => !session.is_ended() && access::may_use_session(leg, who).await,
            None => origin.identity == who,
        }
    }

    pub(super) fn place(&self, route: &Arc<Route>) -> usize {
        self.inner.routes.iter().position(|known| Arc::ptr_eq(known, route)).unwrap_or(usize::MAX)
    }
}
