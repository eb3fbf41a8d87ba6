//! Which eras an upstream speaks, and what that makes of a stateless request: learnt when a request comes whose treatment
//! depends on it, by one `server/discover` in that caller's name.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::timeout;
use tracing::{debug, info};

use crate::call::{Answer, Body, Outgoing, PassBody, Side, Standing};
use crate::jsonrpc::{Edit, Envelope, Id, Kind as MessageKind, splice};
use crate::mcp::{OwnTasks, Params, STATELESS, header, method, well_formed, with_extension};
use crate::task::OwnerMode;
use crate::upstream::{Arrived, Bridge, Error, Exchange, Kind, Leg, Limits, Outbound, Speaks, Way, headers};
use crate::worker::{failed, from_upstream};

use super::caller::Caller;
use super::hello::{message_in, result_in};
use super::{Framing, Gateway, Reply, Request, Route, word};

/// How long an upstream may take to say what it speaks.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const MAX_ANSWER: usize = 4 << 20;

/// What becomes of a request that taskgate does not answer by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// Its upstream speaks its era.
    Native,
    /// It is translated.
    Bridged,
    /// The upstream's own answer passes, whatever it is.
    Sealed,
}

/// What becomes of a request, if enough is known of its upstream to say.
pub(super) fn ground(route: &Route, request: &Request, (message, params): (&Envelope, &Params<'_>)) -> Option<Ground> {
    let wanted = wants_bridge(route, params);
    match route.upstream.facts.stateless_on(way_of(route, request)) {
        Speaks::Yes => Some(Ground::Native),
        Speaks::No => Some(otherwise(wanted)),
        Speaks::Unknown => {
            let acts = matches!(message.method(), method::DISCOVER | method::TOOLS_LIST | method::TOOLS_CALL);
            (!wanted && !acts).then_some(Ground::Sealed)
        }
    }
}

/// The way by which a request reaches its upstream.
pub(super) fn way_of(route: &Route, request: &Request) -> Way {
    let upstream = &route.upstream;
    upstream.facts.way(request.headers.get(&upstream.options.credential_header), request.query.as_deref())
}

/// Whether a request is translated if its upstream does not speak its era.
pub(super) fn wants_bridge(route: &Route, params: &Params<'_>) -> bool {
    match route.upstream.options.bridging.bridge {
        Bridge::Always => true,
        Bridge::Auto => params.meta().declares_tasks,
        Bridge::Off => false,
    }
}

fn otherwise(wants_bridge: bool) -> Ground {
    if wants_bridge { Ground::Bridged } else { Ground::Sealed }
}

/// An upstream's complete answer.
struct Heard {
    status: StatusCode,
    headers: HeaderMap,
    kind: Kind,
    /// Its body, or the response among its events.
    body: Bytes,
}

impl Heard {
    fn message(&self) -> Option<Envelope> {
        Envelope::read(self.body.clone()).ok().filter(|message| message.kind() == MessageKind::Response)
    }

    /// The answer as it came; what was an event is a body of its own.
    fn answer(mut self) -> Answer {
        headers::to_client(&mut self.headers);
        self.headers.remove(header::SESSION_ID);
        let body = Body::Pass(PassBody::new(Full::new(self.body).map_err(|never| match never {})));
        if self.kind == Kind::Events {
            self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Answer { status: self.status, headers: self.headers, body }
    }
}

impl Gateway {
    /// Asks the upstream what it speaks, unless somebody else has learnt it meanwhile. What cannot be told is not
    /// remembered, and the caller gets the upstream's own answer.
    pub(super) async fn learnt(&self, route: &Route, request: &Request, params: &Params<'_>) -> Ground {
        let facts = &route.upstream.facts;
        let way = way_of(route, request);
        if let Some(_turn) = facts.turn_to_ask(way).await
            && facts.stateless_on(way) == Speaks::Unknown
        {
            let leg = asking(route, request);
            match timeout(PATIENCE, heard(&leg, probe(leg.clone()))).await {
                Ok(Ok(heard)) => {
                    let shown = facts.heard_discover(way, heard.status, heard.message().as_ref());
                    let upstream = &*route.upstream.options.name;
                    info!(upstream, status = heard.status.as_u16(), speaks = ?shown, "asked whether it speaks {STATELESS}");
                }
                Ok(Err(error)) => {
                    facts.told_nothing(way);
                    debug!(%error, "an upstream cannot be asked what it speaks");
                }
                Err(_) => {
                    facts.told_nothing(way);
                    // Too slow to say so: what is to be translated in any case is.
                    if route.upstream.options.bridging.bridge == Bridge::Always {
                        return Ground::Bridged;
                    }
                }
            }
        }
        match facts.stateless_on(way) {
            Speaks::Yes => Ground::Native,
            Speaks::No => otherwise(wants_bridge(route, params)),
            Speaks::Unknown => Ground::Sealed,
        }
    }

    /// `server/discover` where the upstream's own answer passes: learnt from all the same.
    pub(super) async fn relayed_discover(&self, route: &Arc<Route>, request: &Request, message: &Envelope) -> Reply {
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        let tally = self.tally_of(word(message), request.received);
        let outbound = leg.request(Method::POST, message.text().clone());
        let (answer, side) = match heard(&leg, outbound).await {
            Ok(heard) => {
                // Of a request that may be at fault itself only a good answer tells something.
                if heard.status.is_success() && heard.message().is_some_and(|message| message.result().is_some()) {
                    let way = way_of(route, request);
                    route.upstream.facts.heard_discover(way, heard.status, heard.message().as_ref());
                }
                (heard.answer(), Side::None)
            }
            Err(error) => {
                let error = from_upstream(error);
                let id = message.id().cloned().unwrap_or_else(|| Id::from_string(""));
                (failed(&error, &id, Standing::Stateless), error.side())
            }
        };
        tally.done(side);
        Reply { outgoing: answer.into(), framing: Framing::AsItComes, method: word(message), dialect: "none" }
    }

    /// `server/discover` of an upstream that answers it: with the tasks extension, unless it has one of its own.
    pub(super) fn discover(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        let mut assignment = self.assignment(&caller, message.text().clone(), id);
        assignment.inline = usize::MAX;
        assignment.log = None;
        let steps = self.inner.worker.start(assignment);
        let gateway = self.clone();
        let (method, dialect) = (caller.method, caller.dialect.word());
        let steps = self.edited(steps, |_| {}, move |answer| async move { gateway.discovered(&caller, answer) });
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::Either, method, dialect }
    }

    fn discovered(&self, caller: &Caller, mut answer: Answer) -> Answer {
        let facts = &caller.leg.upstream.facts;
        if let Some(message) = message_in(&answer)
            && answer.status.is_success()
            && message.result().is_some()
        {
            let way = facts.way(caller.leg.credential(), caller.leg.query());
            facts.heard_discover(way, answer.status, Some(&message));
        }
        // Nobody could own a task.
        if facts.own_tasks() != OwnTasks::None || self.inner.options.owner == OwnerMode::Principal {
            return answer;
        }
        if let Some((message, result)) = result_in(&answer)
            && let Some(at) = message.result_at()
        {
            let edit = Edit::new(at, String::from_utf8_lossy(&with_extension(&result)));
            answer.body = Body::Message(splice(message.text(), vec![edit]));
        }
        answer
    }
}

/// The way of the question: all that it has of the caller is what it is let in with.
fn asking(route: &Route, request: &Request) -> Leg {
    let upstream = route.upstream.clone();
    let credential = request.headers.get(&upstream.options.credential_header).cloned();
    let version = HeaderValue::from_static(STATELESS);
    Leg::of_absent(upstream, None, (Some(&version), credential.as_ref()), request.query.as_deref())
}

/// The question itself, well-formed whatever the caller's request is.
fn probe(leg: Leg) -> Outbound {
    let id = Id::fresh();
    let mut request = leg.stateless(Some(&well_formed(None))).own_request(&id, method::DISCOVER, "{}");
    let mut headers = HeaderMap::clone(&request.headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers = Arc::new(headers);
    request
}

/// Sends a request and reads its answer to the end, or to the response among its events.
async fn heard(leg: &Leg, request: Outbound) -> Result<Heard, Error> {
    let limits = Limits { inline: MAX_ANSWER, max: MAX_ANSWER };
    let mut exchange = Exchange::open(&leg.upstream.client, request, limits, None).await?;
    let body = loop {
        match exchange.next().await? {
            Arrived::Body(body) => break body,
            Arrived::Large => {}
            Arrived::Event(event) => {
                let data = event.data.unwrap_or_default();
                if Envelope::read(data.clone()).is_ok_and(|message| message.kind() == MessageKind::Response) {
                    break data;
                }
            }
        }
    };
    Ok(Heard { status: exchange.status(), kind: exchange.kind(), headers: exchange.into_headers(), body })
}
