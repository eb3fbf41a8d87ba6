//! Owns an exchange that several calls share, and tells them what comes.

use bytes::Bytes;
use tracing::info;

use super::Entry;
use super::hub::{Head, Hub, News, Outcome, Question};
use crate::call::Event;
use crate::jsonrpc::{Envelope, Id, Kind, offset_in};
use crate::mcp::{Params, method};
use crate::session::Ticket;
use crate::shutdown::Work;
use crate::upstream::{Arrived, Error, Leg, Limits, Outbound};
use crate::worker::cancel::{cancel_upstream, deliver};
use crate::worker::upcall::{Came, Upcall};
use crate::worker::{Assignment, Worker, questions};

/// Follows the exchange to its end, or until nobody wants it any more.
pub(super) struct Driver {
    work: Work,
    leg: Leg,
    /// Its place among the session's requests, with the id that it has upstream.
    ticket: Ticket,
    upcall: Upcall,
    again: Option<Outbound>,
    limits: Limits,
    entry: Entry,
}

impl Driver {
    /// Begins with the request of the first who wants its answer.
    pub(super) fn new(worker: &Worker, first: &Assignment, ticket: Ticket, entry: Entry, limits: Limits) -> Self {
        let leg = first.leg.clone();
        let upcall = Upcall::start(&leg, first.request.clone(), limits);
        let again = first.repeatable.then(|| first.request.clone());
        Self { work: worker.work.clone(), leg, ticket, upcall, again, limits, entry }
    }

    pub(super) async fn run(mut self) {
        let (work, call, hub) = (self.work.clone(), self.ticket.call().clone(), self.entry.hub.clone());
        loop {
            let outcome = tokio::select! {
                biased;
                () = work.severed() => Some(Err(Error::Broken("the proxy shut down".into()))),
                () = hub.changed() => {
                    if let Some(reason) = hub.deserted() {
                        return self.cancel(&reason).await;
                    }
                    self.offer();
                    None
                }
                () = call.touched() => {
                    self.elsewhere();
                    None
                }
                came = self.upcall.next() => self.came(came),
            };
            if let Some(outcome) = outcome {
                return self.end(outcome).await;
            }
            // Followers read what they were told before more is read for them.
            tokio::task::yield_now().await;
        }
    }

    /// Nobody wants it any more.
    async fn cancel(self, reason: &str) {
        self.entry.end(Err(Error::Cut));
        cancel_upstream(&self.work, &self.leg, self.ticket.call(), reason).await;
    }

    async fn end(mut self, outcome: Outcome) {
        self.entry.end(outcome);
        if let Some(exchange) = self.upcall.take() {
            Box::pin(exchange.drain()).await;
        }
    }

    fn came(&mut self, came: Result<Came, Error>) -> Option<Outcome> {
        match came {
            Ok(Came::Head) => {
                self.again = None;
                let (status, kind) = (self.upcall.status(), self.upcall.kind());
                self.hub().open(Head { status, kind, headers: self.upcall.headers() });
                None
            }
            // It cannot stream through to several.
            Ok(Came::Part(Arrived::Large)) => None,
            Ok(Came::Part(Arrived::Event(event))) => self.event(event),
            Ok(Came::Part(Arrived::Body(body))) => Some(Ok(Arrived::Body(body))),
            Err(error) => match self.again.take() {
                Some(request) if error.may_have_run() => {
                    info!(%error, "sending a repeatable call once more");
                    self.upcall = Upcall::start(&self.leg, request, self.limits);
                    None
                }
                _ => Some(Err(error)),
            },
        }
    }

    /// Ids of events stay here: followers cannot resume a stream that is not theirs.
    fn event(&mut self, event: Event) -> Option<Outcome> {
        let event = Event { id: None, retry: None, ..event };
        let message = Envelope::read(event.data.clone()?).ok()?;
        match (message.kind(), message.method()) {
            (Kind::Response, _) => return Some(Ok(Arrived::Event(event))),
            (Kind::Request, method) => self.question(message.id()?, method, event),
            (Kind::Notification, method::PROGRESS) => self.progress(event, &message),
            (Kind::Notification, _) => self.hub().tell(&News::Event(event)),
        }
        None
    }

    /// Every follower sees it with a token of its own; what is no progress of this call stays as it is.
    fn progress(&self, event: Event, message: &Envelope) {
        let token = Params::peek(message.params()).progress_token();
        let text = std::str::from_utf8(message.text()).unwrap_or_default();
        let news = match token {
            Some(token) if self.ticket.call().token().as_deref().is_some_and(|own| is_same(own, token)) => {
                News::Progress(event, offset_in(text, token))
            }
            _ => News::Event(event),
        };
        self.hub().tell(&news);
    }

    /// Something about this call came on the session's own stream, or a question was answered.
    fn elsewhere(&self) {
        for data in self.ticket.call().take_progress() {
            if let Ok(message) = Envelope::read(data.clone()) {
                self.progress(message_event(data), &message);
            }
        }
        for data in self.ticket.call().take_questions() {
            let message = Envelope::read(data.clone()).ok();
            if let Some((id, message)) = message.as_ref().and_then(|message| Some((message.id()?, message))) {
                self.question(id, message.method(), message_event(data));
            }
        }
        self.offer();
    }

    fn question(&self, id: &Id, method: &str, event: Event) {
        if method == method::PING {
            return self.refuse(id, method);
        }
        self.ticket.call().ask(id, method);
        self.hub().ask(Question::new(id, method, event));
        self.offer();
    }

    /// Sees to it that each open question is with exactly one follower.
    fn offer(&self) {
        let call = self.ticket.call();
        for question in self.hub().offer(|id| call.asks(id)) {
            call.withdraw(&question.id);
            self.refuse(&question.id, &question.method);
        }
    }

    fn refuse(&self, id: &Id, method: &str) {
        drop(deliver(&self.work, &self.leg, questions::refusal(id, method)));
    }

    fn hub(&self) -> &Hub {
        &self.entry.hub
    }
}

/// Whether two progress tokens, as JSON text, are the same: servers may escape a string in their own way.
fn is_same(one: &str, other: &str) -> bool {
    let parsed = |token: &str| serde_json::from_str::<String>(token).ok();
    one == other || parsed(one).is_some_and(|one| parsed(other) == Some(one))
}

fn message_event(data: Bytes) -> Event {
    Event { data: Some(data), ..Event::default() }
}
