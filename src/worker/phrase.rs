//! What an upstream of the stateless era answers, for a client that waits in a session of the other era.

use std::sync::Arc;

use http::{Method, StatusCode};
use tracing::info;

use crate::call::{Answer, Body, Error};
use crate::jsonrpc::{Envelope, entries, error_response, result_response};
use crate::mcp::{code, header, method, upward};
use crate::policy::Plan;
use crate::upstream::{Leg, list_tools};

use super::answer::failed;
use super::held::{Held, limits};
use super::timer::Timer;
use super::upcall::{Upcall, opened};

impl Held {
    /// Whether answers have to be put in other words. What taskgate itself asks outside of a session is read as it is.
    pub(super) fn is_joined(&self) -> bool {
        let leg = &self.assignment.leg;
        leg.repeated().is_some() && leg.session.is_some()
    }

    /// An answer of the upstream's, in the client's words.
    pub(super) fn phrased(&self, mut answer: Answer) -> Answer {
        if !self.is_joined() {
            return answer;
        }
        answer.headers.remove(header::SESSION_ID);
        answer.status = status(answer.status);
        let Body::Message(text) = &answer.body else { return answer };
        let Ok(message) = Envelope::read(text.clone()) else { return answer };
        let id = &self.assignment.ticket.call().client_id;
        if let Some(error) = self.objection(&message) {
            return failed(&error, id, self.assignment.listener.standing);
        }
        if let Some(result) = message.result() {
            let result = upward::result(self.assignment.tally.method, &result);
            answer.body = Body::Message(result_response(id, std::str::from_utf8(&result).unwrap_or("{}")));
        } else if let Some(error) = message.error_object() {
            answer.body = Body::Message(error_response(Some(id), &upward::error(error)));
        }
        answer
    }

    /// Why an answer is none: nobody has told the upstream that it may make a task of a call.
    pub(super) fn objection(&self, message: &Envelope) -> Option<Error> {
        let result = message.result().filter(|_| self.is_joined())?;
        let is_task = entries(std::str::from_utf8(&result).ok()?).get("resultType") == Some(&r#""task""#);
        let text = "it made a task of a request that did not declare tasks".into();
        is_task.then_some(Error::Protocol { text, status: None })
    }

    /// Whether the call goes on after this answer: with a task of the upstream's, or sent once more.
    pub(super) fn goes_on(&mut self, message: &Envelope) -> bool {
        self.follow(message) || self.send_after_listing(message)
    }

    /// If the upstream misses headers that a tool wants, which proves that nothing was executed: lists its tools again
    /// and sends the call once more. Whether it does.
    fn send_after_listing(&mut self, message: &Envelope) -> bool {
        let is_call = self.assignment.tally.method == method::TOOLS_CALL && self.is_joined();
        let is_mismatch = is_call && message.error_object().is_some_and(|error| error.code == code::HEADER_MISMATCH);
        if !is_mismatch || std::mem::replace(&mut self.listed_again, true) {
            return false;
        }
        info!("sending a call once more, with the headers that its tool wants by now");
        self.upcall.leave("it is sent again");
        let (leg, limits) = (self.assignment.leg.clone(), limits(&self.assignment));
        let body = self.assignment.request.body.clone();
        self.upcall = Upcall::Opening(Box::pin(async move {
            list_again(&leg).await;
            let request = leg.request(Method::POST, body);
            opened(leg, request, limits).await
        }));
        let wait = self.assignment.deferral.as_ref().and_then(|deferral| match deferral.plan {
            Plan::Race { threshold } => Some(threshold),
            Plan::AtOnce { within } => Some(within),
            Plan::Hold | Plan::Refuse => None,
        });
        self.threshold = Timer::after(self.assignment.received, wait);
        true
    }
}

async fn list_again(leg: &Leg) {
    let Some(catalog) = list_tools(leg).await.map(Arc::new) else { return };
    leg.upstream.sessions.set_latest_catalog(catalog.clone());
    if let Some(session) = &leg.session {
        session.set_catalog(Some(catalog));
    }
}

/// In a session an error has status 200, since clients drop a session on many others; save what is about the caller.
fn status(status: StatusCode) -> StatusCode {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => status,
        status if status.is_client_error() => StatusCode::OK,
        status => status,
    }
}
