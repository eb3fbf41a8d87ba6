//! `GET`: a client listens to its session, on the one stream that taskgate has of it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::call::{Answer, Body, Event, Log, Origin, Outgoing, Priming, Side, Step};
use crate::session::{ROOM, Session, Start};
use crate::shutdown::Work;
use crate::task::Identity;
use crate::upstream::{Leg, Opened, events, headers};
use crate::worker::{Listening, Stranger, Worker};

use super::caller::priming;
use super::forward::unreachable;
use super::{Framing, Gateway, Reply, Request, Route, access, forbidden, not_allowed, plain, session_id};

impl Gateway {
    pub(super) fn listen(&self, route: &Arc<Route>, request: &Request) -> Reply {
        let upstream = route.upstream.clone();
        let session = session_id(&request.headers).map(|id| upstream.sessions.find(id));
        let refused = |answer| {
            self.tally_of("GET", request.received).done(Side::Client);
            get(answer)
        };
        let session = match session {
            _ if Self::is_stateless(request) && !matches!(session, Some(Some(_))) => return refused(not_allowed()),
            Some(Some(session)) if session.is_ended() => return refused(super::gone()),
            Some(Some(session)) => Some(session),
            // A session that began elsewhere.
            Some(None) => session_id(&request.headers).map(|id| upstream.sessions.find_or_adopt(id)),
            None if upstream.gives_sessions() == Some(false) => None,
            None => return refused(not_allowed()),
        };
        let leg = Leg::new(upstream, session, &request.headers, request.query.as_deref());
        let start = match priming(&leg) {
            Priming::Sent => Start::Primed,
            Priming::Omitted => Start::Now,
        };
        self.serve(route, request, leg, start)
    }

    /// Serves one client that listens, from `start` on.
    pub(super) fn serve(&self, route: &Arc<Route>, request: &Request, leg: Leg, start: Start) -> Reply {
        let (steps, receiver) = mpsc::channel(ROOM);
        let worker = self.inner.worker.clone();
        let limit = usize::try_from(self.inner.options.max_result).unwrap_or(usize::MAX);
        let tally = self.tally_of("GET", request.received);
        if let Some(session) = &leg.session {
            session.hub().log(|| self.log_of(route, &leg));
        }
        let who = self.inner.identity(&leg);
        drop(self.inner.worker.work.spawn(async move {
            match leg.session.clone() {
                Some(session) => attend(&worker, &session, Listening { leg, steps, start, limit }, who).await,
                None => ride(&leg, &steps, &worker.work, limit).await,
            }
            tally.done(Side::None);
        }));
        Reply { outgoing: Outgoing::Later(receiver.into()), framing: Framing::Either, method: "GET", dialect: "none" }
    }

    fn log_of(&self, route: &Arc<Route>, leg: &Leg) -> Arc<Log> {
        let origin = Origin { upstream: self.place(route), identity: self.inner.identity(leg) };
        Log::new(self.inner.streams.clone(), origin, Priming::Omitted)
    }
}

pub(super) fn get(answer: Answer) -> Reply {
    Reply { method: "GET", ..plain(answer) }
}

/// Whoever brings a credential that is new to the session listens only if the upstream accepts it, and only who began
/// the session does where the upstream would accept it from anybody.
async fn attend(worker: &Worker, session: &Arc<Session>, listening: Listening, who: Identity) {
    let Listening { leg, steps, .. } = &listening;
    let mut may = leg.is_judged() || access::may_use_session(leg, who).await;
    while may {
        match worker.listen(session, &listening).await {
            Ok(()) => return,
            Err(Stranger) => may = access::may_use_session(leg, who).await,
        }
    }
    let _ = steps.send(Step::done(forbidden())).await;
}

/// Without a session there is nothing to share a stream by: each client has its own, until one of the two leaves.
async fn ride(leg: &Leg, steps: &mpsc::Sender<Step>, work: &Work, limit: usize) {
    let told = async {
        let request = leg.request(Method::GET, Bytes::new());
        let (mut head, body) = match events(&leg.upstream.client, request, limit).await {
            Ok(response) => response.into_parts(),
            Err(error) => return drop(steps.send(Step::done(unreachable(&error))).await),
        };
        headers::to_client(&mut head.headers);
        let mut stream = match body {
            Opened::Events(stream) if head.status.is_success() => stream,
            Opened::Events(_) => {
                let answer = Answer { headers: head.headers, ..Answer::empty(head.status) };
                return drop(steps.send(Step::done(answer)).await);
            }
            Opened::Plain(body) => {
                let body = Body::Pass(body.boxed_unsync());
                let answer = Answer { status: head.status, headers: head.headers, body };
                return drop(steps.send(Step::done(answer)).await);
            }
        };
        let _ = steps.send(Step::open(head.headers)).await;
        while let Ok(Some(event)) = stream.next().await {
            // Nobody could come back with the upstream's ids.
            let _ = steps.send(Step::event(Event { id: None, retry: None, ..event })).await;
        }
    };
    tokio::select! {
        () = told => {}
        () = steps.closed() => {}
        () = work.severed() => {}
    }
}
