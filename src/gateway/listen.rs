//! `GET`: the stream of a session, decoded only to keep back the progress that taskgate asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::call::{Answer, Body, Event, Outgoing, Side, Step};
use crate::jsonrpc::{Envelope, Kind};
use crate::mcp::{Params, method};
use crate::session::{Phase, Session};
use crate::shutdown::Work;
use crate::upstream::{EventStream, Leg, Opened, events, headers};

use super::forward::unreachable;
use super::{Framing, Gateway, Reply, Request, Route, not_allowed, plain, session_id};

impl Gateway {
    pub(super) fn listen(&self, route: &Arc<Route>, request: &Request) -> Reply {
        let upstream = route.upstream.clone();
        let session = session_id(&request.headers).map(|id| upstream.sessions.find(id));
        let session = match session {
            _ if Self::is_stateless(request) && !matches!(session, Some(Some(_))) => return get(not_allowed()),
            Some(Some(session)) if session.is_ended() => return get(super::gone()),
            Some(Some(session)) => Some(session),
            // A session that began elsewhere.
            Some(None) => session_id(&request.headers).map(|id| upstream.sessions.find_or_adopt(id)),
            None if upstream.gives_sessions() == Some(false) => None,
            None => return get(not_allowed()),
        };
        let leg = Leg::new(upstream, session, &request.headers, request.query.as_deref());
        let (steps, receiver) = mpsc::channel(16);
        let (work, limit) = (self.inner.worker.work.clone(), self.inner.options.max_result);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let tally = self.tally_of("GET", request.received);
        drop(self.inner.worker.work.spawn(async move {
            ride(&leg, &steps, &work, limit).await;
            tally.done(Side::None);
        }));
        Reply { outgoing: Outgoing::Later(receiver.into()), framing: Framing::Either, method: "GET", dialect: "none" }
    }
}

pub(super) fn get(answer: Answer) -> Reply {
    Reply { method: "GET", ..plain(answer) }
}

/// Opens the upstream's stream and relays it until one of the two leaves.
async fn ride(leg: &Leg, steps: &mpsc::Sender<Step>, work: &Work, limit: usize) {
    let _kept = leg.session.as_ref().map(Session::keep);
    let opened = tokio::select! {
        opened = events(&leg.upstream.client, leg.request(Method::GET, Bytes::new()), limit) => opened,
        () = steps.closed() => return,
        () = work.severed() => return,
    };
    let answer = match opened {
        Ok(response) => {
            let (mut head, body) = response.into_parts();
            if head.status.is_success() {
                leg.accepted(&head.headers);
            }
            headers::to_client(&mut head.headers);
            match body {
                Opened::Events(stream) if head.status.is_success() => {
                    return relay(leg, stream, steps, work, head.headers).await;
                }
                Opened::Events(_) => Answer { headers: head.headers, ..Answer::empty(head.status) },
                Opened::Plain(body) => {
                    Answer { status: head.status, headers: head.headers, body: Body::Pass(body.boxed_unsync()) }
                }
            }
        }
        Err(error) => unreachable(&error),
    };
    let _ = steps.send(Step::done(answer)).await;
}

async fn relay(leg: &Leg, mut stream: EventStream, steps: &mpsc::Sender<Step>, work: &Work, headers: HeaderMap) {
    let _ = steps.send(Step::open(headers)).await;
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = steps.closed() => return,
            () = work.severed() => return,
        };
        match event {
            Ok(Some(event)) if is_for_client(leg, &event) => drop(steps.send(Step::event(event)).await),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a session's stream ended"),
        }
    }
}

/// Progress of a call that was deferred, or that only taskgate asked for, goes to the call instead.
fn is_for_client(leg: &Leg, event: &Event) -> bool {
    let (Some(session), Some(data)) = (&leg.session, &event.data) else { return true };
    let Ok(message) = Envelope::read(data.clone()) else { return true };
    match (message.kind(), message.method()) {
        (Kind::Notification, method::PROGRESS) => {
            let Some(token) = Params::peek(message.params()).progress_token() else { return true };
            let ours = token.starts_with("\"taskgate-");
            session.calls.progressed(token, data) != Some(Phase::Deferred) && !ours
        }
        (Kind::Notification, method::TOOLS_LIST_CHANGED) => {
            session.set_catalog(None);
            true
        }
        _ => true,
    }
}
