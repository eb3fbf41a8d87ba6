//! From what the handler says to an HTTP response: JSON or SSE, and when.
//!
//! Nothing is sent before there is something to say, so that status and headers of the upstream reach the client;
//! only a wait of `keepalive` makes a client that accepts SSE an event stream, against proxies that cut silence.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use super::Upgrade;
use super::accept::Accept;
use super::body::ReplyBody;
use super::refusal::JSON;
use super::sse::{self, Events};
use crate::call::{Answer, Body, Outgoing, Step, Steps};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What a client and a request allow.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) accept: Accept,
    /// `POST`: its answer may be framed either way. What answers `GET` and `DELETE` is passed as it is.
    pub(super) is_post: bool,
    pub(super) upgrade: Upgrade,
    pub(super) keepalive: Duration,
    /// When the request was complete: waits count from here.
    pub(super) received: Instant,
}

impl Terms {
    fn upgrade_at(&self) -> Option<Instant> {
        (self.accept.sse && self.upgrade == Upgrade::Allowed).then(|| self.received + self.keepalive)
    }

    /// Whether events are relayed. What answers a `GET` has no other form, so a client need not have named it.
    fn streams(&self) -> bool {
        self.accept.sse || !self.is_post
    }

    /// Whether an answer with this status has to be framed as an event; errors keep their status and JSON instead.
    fn frames(&self, status: StatusCode) -> bool {
        self.is_post && self.accept.sse && !self.accept.json && status.is_success()
    }
}

/// Waits until the head of the response is known. Dropping the future, or the body, drops the receiver.
pub(super) async fn reply(outgoing: Outgoing, terms: &Terms) -> Response<ReplyBody> {
    match outgoing {
        Outgoing::Now(answer) => whole(answer, terms),
        Outgoing::Later(steps) => later(steps, terms).await,
    }
}

async fn later(mut steps: Steps, terms: &Terms) -> Response<ReplyBody> {
    let mut opened = HeaderMap::new();
    let upgrade_at = terms.upgrade_at();
    loop {
        let step = match upgrade_at {
            None => steps.recv().await,
            Some(at) => match tokio::time::timeout_at(at, steps.recv()).await {
                Ok(step) => step,
                Err(_) => Some(Step::Hold),
            },
        };
        match step {
            None => return whole(merged(opened, silence()), terms),
            Some(Step::Done(answer, _)) => return whole(merged(opened, *answer), terms),
            Some(Step::Open(headers)) if terms.streams() => {
                return stream(*headers, Events::new(steps, None, terms.keepalive));
            }
            Some(Step::Hold) if terms.streams() => {
                let first = sse::sign_of_life(steps.upgrade());
                return stream(opened, Events::new(steps, Some(first), terms.keepalive));
            }
            Some(Step::Event(event)) if terms.streams() => {
                return stream(opened, Events::new(steps, sse::event(&event), terms.keepalive));
            }
            // A client that reads only JSON waits for the answer.
            Some(Step::Open(headers)) => opened = *headers,
            Some(Step::Hold | Step::Event(_)) => {}
        }
    }
}

fn silence() -> Answer {
    Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: Body::Silence }
}

/// Headers of the upstream's stream belong to the answer that ends it, where that has none of its own.
fn merged(opened: HeaderMap, mut answer: Answer) -> Answer {
    if !opened.is_empty() {
        let own = std::mem::replace(&mut answer.headers, opened);
        answer.headers.extend(own);
    }
    answer
}

/// A response whose answer is there at once.
fn whole(answer: Answer, terms: &Terms) -> Response<ReplyBody> {
    let Answer { status, headers, body } = answer;
    match body {
        Body::Empty => response(status, made_here(headers), ReplyBody::empty()),
        Body::Message(message) if terms.frames(status) => {
            response(status, event_stream(headers), ReplyBody::full(sse::message(&message)))
        }
        Body::Message(message) => {
            let mut headers = made_here(headers);
            headers.insert(CONTENT_TYPE, JSON);
            response(status, headers, ReplyBody::full(message))
        }
        Body::Pass(body) if terms.frames(status) && is_type(&headers, "application/json") => {
            response(status, event_stream(headers), ReplyBody::events(Events::passing(body, terms.keepalive)))
        }
        Body::Pass(body) if is_type(&headers, "text/event-stream") => {
            response(status, unbuffered(headers), ReplyBody::pass(body))
        }
        Body::Pass(body) | Body::Foreign(body, _) => response(status, headers, ReplyBody::pass(body)),
        Body::Silence if terms.accept.sse => response(StatusCode::OK, event_stream(headers), ReplyBody::empty()),
        Body::Silence => response(StatusCode::ACCEPTED, made_here(headers), ReplyBody::empty()),
    }
}

fn stream(headers: HeaderMap, events: Events) -> Response<ReplyBody> {
    response(StatusCode::OK, event_stream(headers), ReplyBody::events(events))
}

fn response(status: StatusCode, headers: HeaderMap, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Drops what described a body that is not the one being sent.
fn made_here(mut headers: HeaderMap) -> HeaderMap {
    if !headers.is_empty() {
        for name in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING] {
            headers.remove(name);
        }
    }
    headers
}

fn event_stream(headers: HeaderMap) -> HeaderMap {
    let mut headers = made_here(headers);
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    unbuffered(headers)
}

fn unbuffered(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    headers
}

pub(super) fn is_type(headers: &HeaderMap, expected: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(expected))
}
