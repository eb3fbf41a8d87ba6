//! What taskgate does not act on: it passes, sealed.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::{Answer, Body, Error, Outgoing, Side, Standing, Step};
use crate::jsonrpc::{Envelope, Id, Kind};
use crate::mcp::{Era, header, method};
use crate::session::{Named, Ticket};
use crate::upstream::{self, Leg, Outbound, headers};
use crate::worker::{Assignment, INLINE, failed, from_upstream, refused};
use crate::{jsonrpc, mcp::Params};

use super::caller::Caller;
use super::{Framing, Gateway, Reply, Request, Route, access, forbidden};

/// Requests that change nothing: sent once more if the connection broke.
const READS: [&str; 7] = [
    method::PING,
    method::TOOLS_LIST,
    method::RESOURCES_LIST,
    method::RESOURCE_TEMPLATES_LIST,
    method::RESOURCES_READ,
    method::PROMPTS_LIST,
    method::PROMPTS_GET,
];

impl Gateway {
    /// A request with an id: its answer is made sure of, and otherwise left alone.
    pub(super) fn forward(&self, caller: &Caller, message: &Envelope, id: &Id) -> Reply {
        let assignment = self.assignment(caller, message.text().clone(), id);
        caller.reply(Outgoing::Later(self.inner.worker.start(assignment)))
    }

    /// How a request travels that is not deferred and not limited; `text` may be an edited one.
    pub(super) fn assignment(&self, caller: &Caller, text: Bytes, id: &Id) -> Assignment {
        let is_call = caller.method == method::TOOLS_CALL;
        let ticket = match caller.session() {
            Some(session) => session.calls.enter(id, is_call),
            None => Ticket::unregistered(id, is_call),
        };
        let upstream_id = &ticket.call().upstream_id;
        let text = if upstream_id == id { text } else { readdressed(text, upstream_id) };
        Assignment {
            request: caller.leg.request(Method::POST, text),
            leg: caller.leg.clone(),
            ticket,
            received: caller.received,
            max_runtime: None,
            input_timeout: self.inner.options.input_timeout,
            inline: INLINE,
            max_result: self.inner.options.max_result,
            head: None,
            repeatable: READS.contains(&caller.method),
            follows_tasks: false,
            log: self.log(caller),
            own_token: None,
            listener: caller.listener(),
            deferral: None,
            alike: None,
            kept: caller.kept.clone(),
            tally: self.tally(caller),
        }
    }

    /// `notifications/cancelled`: what it names decides where it goes.
    pub(super) async fn withdrawn(&self, caller: Caller, message: &Envelope) -> Reply {
        let params = Params::peek(message.params());
        let Some(session) = caller.session().filter(|session| session.hello().is_some()).cloned() else {
            return self.pass_on(caller, message).await;
        };
        if !access::may_use_session(&caller.leg, caller.identity).await {
            self.tally(&caller).done(Side::Client);
            return caller.reply(forbidden());
        }
        let named = params.request_id().and_then(|raw| Id::from_raw(raw.as_bytes()));
        match named.map(|id| session.calls.named(&id)) {
            // The call itself tells the upstream, with the id it has there.
            Some(Named::One(call)) => call.cancel(),
            Some(Named::Unclear) | None => tracing::debug!("a cancellation names no single held request: dropped"),
        }
        self.tally(&caller).done(Side::None);
        caller.reply(Answer::empty(StatusCode::ACCEPTED))
    }

    /// Notifications, and answers to the upstream's questions: any 2xx is a 202.
    pub(super) async fn pass_on(&self, caller: Caller, message: &Envelope) -> Reply {
        if message.kind() == Kind::Response {
            if let Some(answer) = self.handed_in(&caller, message).await {
                return caller.reply(answer);
            }
            match self.answered(&caller, message).await {
                Ok(true) => {
                    self.tally(&caller).done(Side::None);
                    return caller.reply(Answer::empty(StatusCode::ACCEPTED));
                }
                Ok(false) => {}
                Err(error) => {
                    self.tally(&caller).done(error.side());
                    let is_bad = matches!(error, Error::InvalidRequest(_));
                    let status = if is_bad { StatusCode::BAD_REQUEST } else { StatusCode::SERVICE_UNAVAILABLE };
                    return caller.reply(refused(status, &error));
                }
            }
        }
        if caller.leg.era == Era::Stateless {
            // It asks nothing that would be answered by a message.
            self.tally(&caller).done(Side::None);
            return caller.reply(Answer::empty(StatusCode::ACCEPTED));
        }
        let (client, request) =
            (caller.leg.upstream.client.clone(), caller.leg.request(Method::POST, message.text().clone()));
        // A task of its own: delivered even if the client leaves now.
        let sent = self.inner.worker.work.spawn(async move {
            match client.send(request.clone()).await {
                // The connection went just then. Hearing it twice does less harm than not at all.
                Err(error) if error.may_have_run() => client.send(request).await,
                sent => sent,
            }
        });
        let sent = sent.await;
        let (answer, side) = match sent {
            Ok(Ok(answer)) if answer.status().is_success() => {
                caller.leg.accepted(answer.headers());
                if let (Kind::Response, Some(session), Some(id)) = (message.kind(), caller.session(), message.id()) {
                    session.calls.answered(id);
                }
                (Answer::empty(StatusCode::ACCEPTED), Side::None)
            }
            Ok(Ok(answer)) => (passed(answer), Side::Upstream),
            Ok(Err(error)) => (unreachable(&error), Side::Upstream),
            Err(_) => (Answer::empty(StatusCode::BAD_GATEWAY), Side::Gateway),
        };
        self.tally(&caller).done(side);
        caller.reply(answer)
    }

    /// The answer to a question that was put to the client in the name of an upstream that cannot ask by itself.
    async fn handed_in(&self, caller: &Caller, message: &Envelope) -> Option<Answer> {
        let (session, id) = (caller.session()?, message.id()?);
        if !session.calls.expects(id) {
            return None;
        }
        if !access::may_use_session(&caller.leg, caller.identity).await {
            self.tally(caller).done(Side::Client);
            return Some(forbidden());
        }
        session.calls.hand_in(id, message.text());
        self.tally(caller).done(Side::None);
        Some(Answer::empty(StatusCode::ACCEPTED))
    }

    /// A request of the stateless era: passed as it is, and withdrawn with its client.
    pub(super) fn sealed(&self, route: &Arc<Route>, request: &Request, message: &Envelope) -> Reply {
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        let outbound = leg.request(Method::POST, message.text().clone());
        self.passing(leg, outbound, (super::word(message), request.received), message.id().cloned())
    }

    /// Sends a request whose answer passes as it comes; the exchange ends with the client.
    pub(super) fn through(
        &self,
        leg: Leg,
        (method, body): (Method, Bytes),
        (word, received): (&'static str, Instant),
    ) -> Reply {
        let outbound = leg.request(method, body);
        self.passing(leg, outbound, (word, received), None)
    }

    /// The same for a request with an id, which an answer of ours has too.
    fn passing(
        &self,
        leg: Leg,
        outbound: Outbound,
        (word, received): (&'static str, Instant),
        id: Option<Id>,
    ) -> Reply {
        let answer = async move { leg.upstream.client.send(outbound).await.map(passed) };
        self.relayed(answer, (word, received), id)
    }

    /// An answer that is worked out in a task of its own, until the client leaves.
    pub(super) fn relayed(
        &self,
        answer: impl Future<Output = Result<Answer, upstream::Error>> + Send + 'static,
        (word, received): (&'static str, Instant),
        id: Option<Id>,
    ) -> Reply {
        let (steps, receiver) = mpsc::channel(1);
        let work = self.inner.worker.work.clone();
        let tally = self.tally_of(word, received);
        drop(self.inner.worker.work.spawn(async move {
            let answer = tokio::select! {
                answer = answer => answer,
                () = steps.closed() => return tally.done(Side::Client),
                () = work.severed() => return tally.done(Side::Gateway),
            };
            tally.done(if answer.is_ok() { Side::None } else { Side::Upstream });
            let answer = match (answer, id) {
                (Ok(mut answer), id) => {
                    if id.is_some() && word != method::INITIALIZE {
                        answer.headers.remove(header::SESSION_ID);
                    }
                    answer
                }
                (Err(error), Some(id)) => failed(&from_upstream(error), &id, Standing::Stateless),
                (Err(error), None) => unreachable(&error),
            };
            let _ = steps.send(Step::done(answer)).await;
        }));
        Reply { outgoing: Outgoing::Later(receiver.into()), framing: Framing::AsItComes, method: word, dialect: "none" }
    }

    /// Whether a request belongs to the stateless era by its headers alone.
    pub(super) fn is_stateless(request: &Request) -> bool {
        let version = request.headers.get(header::PROTOCOL_VERSION).map(http::HeaderValue::as_bytes);
        Era::of(version, None, "") == Era::Stateless
    }
}

/// The same message under another id.
fn readdressed(text: Bytes, id: &Id) -> Bytes {
    Envelope::read(text.clone()).map_or(text, |message| message.with_id(id))
}

/// An upstream's answer as it came.
pub(super) fn passed(answer: http::Response<upstream::Body>) -> Answer {
    let (mut head, body) = answer.into_parts();
    headers::to_client(&mut head.headers);
    Answer { status: head.status, headers: head.headers, body: Body::Pass(body.boxed_unsync()) }
}

/// What is answered where the upstream gave no answer and no id is known.
pub(super) fn unreachable(error: &upstream::Error) -> Answer {
    refused(StatusCode::BAD_GATEWAY, &from_upstream(error.clone()))
}

/// The response to `id`, whatever the upstream called it.
pub(super) fn response_of(message: &Bytes) -> Option<jsonrpc::Envelope> {
    Envelope::read(message.clone()).ok().filter(|message| message.kind() == Kind::Response)
}
