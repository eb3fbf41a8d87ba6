//! The upstream's own stream of a subscription: what is not ours goes on to it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;
use tracing::debug;

use crate::call::{Answer, Body};
use crate::jsonrpc::{Envelope, INVALID_PARAMS, INVALID_REQUEST, Id, Kind, METHOD_NOT_FOUND};
use crate::mcp::subscription::{self, Filter};
use crate::mcp::{Era, method};
use crate::upstream::{self, EventStream, Leg, Opened, events, headers};

use super::super::bridge::Told;
use super::super::forward::unreachable;

/// How long an upstream may take from the head of its stream to its acknowledgement.
const ACKNOWLEDGED: Duration = Duration::from_secs(5);
/// The largest answer that is no stream.
const LARGEST: usize = 1 << 20;

/// What comes of asking for more than tasks of ours.
pub(super) enum Answered {
    /// Nothing: there is nothing to ask for, or the upstream knows no subscriptions.
    Nothing,
    /// It is told in a session, and this much is honoured.
    Session(Box<Told>, Filter),
    /// The upstream tells it on a stream of its own, which began with this acknowledgement.
    Stream(Option<Envelope>, Box<Relayed>),
    /// The upstream says this instead.
    Refused(Answer),
}

/// The upstream's stream.
pub(super) struct Relayed {
    stream: EventStream,
    /// What came in place of an acknowledgement.
    first: Option<Envelope>,
}

/// Asks the upstream in the caller's name; one event may have `limit` bytes.
pub(super) async fn open(leg: &Leg, (body, era): (Bytes, Era), limit: u64) -> Answered {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut head, body) = match events(&leg.upstream.client, leg.request(Method::POST, body), limit).await {
        Ok(response) => response.into_parts(),
        Err(error) => return Answered::Refused(unreachable(&error)),
    };
    if head.status.is_success() {
        leg.accepted(&head.headers);
    }
    headers::to_client(&mut head.headers);
    match body {
        Opened::Events(stream) if head.status.is_success() => begun(stream, era).await,
        Opened::Events(_) => Answered::Refused(Answer { headers: head.headers, ..Answer::empty(head.status) }),
        Opened::Plain(body) => plain((head.status, head.headers), body, era).await,
    }
}

async fn begun(stream: EventStream, era: Era) -> Answered {
    let mut relayed = Relayed { stream, first: None };
    let first = match timeout(ACKNOWLEDGED, relayed.read()).await {
        Ok(Some(message)) => message,
        Ok(None) => return Answered::Nothing,
        Err(_) => return Answered::Stream(None, Box::new(relayed)),
    };
    match first.kind() {
        Kind::Notification if first.method() == method::ACKNOWLEDGED => {
            Answered::Stream(Some(first), Box::new(relayed))
        }
        Kind::Response => said(StatusCode::OK, first.text().clone(), era),
        Kind::Notification | Kind::Request => {
            relayed.first = Some(first);
            Answered::Stream(None, Box::new(relayed))
        }
    }
}

async fn plain((status, headers): (StatusCode, HeaderMap), body: upstream::Body, era: Era) -> Answered {
    match Limited::new(body, LARGEST).collect().await {
        Ok(body) => match said(status, body.to_bytes(), era) {
            Answered::Refused(answer) => Answered::Refused(Answer { headers, ..answer }),
            other => other,
        },
        Err(_) => Answered::Refused(Answer::empty(StatusCode::BAD_GATEWAY)),
    }
}

/// One message, or a text that is none, in place of a stream.
fn said(status: StatusCode, text: Bytes, era: Era) -> Answered {
    let message = Envelope::read(text.clone()).ok();
    let code = message.as_ref().and_then(Envelope::error_object).map(|error| error.code);
    match (code, era) {
        (Some(METHOD_NOT_FOUND), _) => Answered::Nothing,
        // Several servers of that era say so of methods that they do not know.
        (Some(INVALID_PARAMS | INVALID_REQUEST), Era::Handshake) => Answered::Nothing,
        // It has ended as soon as it began.
        (None, _) if message.is_some_and(|message| message.result().is_some()) => Answered::Nothing,
        _ => Answered::Refused(Answer { body: Body::Message(text), ..Answer::empty(status) }),
    }
}

impl Relayed {
    /// What comes next, as a message of the subscription `id`; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self, id: &Id) -> Option<Bytes> {
        loop {
            let message = match self.first.take() {
                Some(first) => first,
                None => self.read().await?,
            };
            match message.kind() {
                // There was one already, of ours.
                Kind::Notification if message.method() == method::ACKNOWLEDGED => {}
                Kind::Notification => return Some(subscription::tagged(&message, id)),
                Kind::Response => return None,
                Kind::Request => debug!("a question has no place on a subscription: dropped"),
            }
        }
    }

    async fn read(&mut self) -> Option<Envelope> {
        loop {
            match self.stream.next().await {
                Ok(Some(event)) => {
                    let message = event.data.and_then(|data| Envelope::read(data).ok());
                    if message.is_some() {
                        return message;
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    debug!(%error, "an upstream's subscription broke off");
                    return None;
                }
            }
        }
    }
}
