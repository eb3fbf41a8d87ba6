//! What a held call's upstream says before its answer: relayed, kept back, or answered here.

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use crate::call::{Answer, Body, Event, Side};
use crate::jsonrpc::{Envelope, Id, Kind as MessageKind};
use crate::mcp::{Params, method};
use crate::task::Note;
use crate::upstream::headers;

use super::held::{End, Held};
use super::timer::Timer;
use super::{Reach, cancel, questions};

impl Held {
    pub(super) async fn event(&mut self, event: Event) -> Option<End> {
        let message = event.data.as_ref().and_then(|data| Envelope::read(data.clone()).ok());
        if let Some(message) = &message {
            self.assignment.leg.told(message);
        }
        match message {
            Some(message) if message.kind() == MessageKind::Response => {
                if self.goes_on(&message) || self.ask_on_stream(&message).await {
                    return None;
                }
                return Some(self.answered(&message));
            }
            Some(message) if message.kind() == MessageKind::Request => {
                self.question(event, &message).await;
                return None;
            }
            Some(message) if self.is_ours(&message) => return None,
            Some(message) if message.method() == method::TOOLS_LIST_CHANGED => {
                if let Some(session) = &self.assignment.leg.session {
                    session.set_catalog(None);
                }
            }
            Some(_) => {}
            None => return None,
        }
        self.relay(event).await;
        None
    }

    fn answered(&mut self, message: &Envelope) -> End {
        let mut headers = self.upcall.headers();
        headers::to_client(&mut headers);
        let body = Body::Message(message.with_id(&self.assignment.ticket.call().client_id));
        let answer = Answer { status: StatusCode::OK, headers, body };
        End::Answered(Box::new(self.phrased(answer)), Side::None)
    }

    /// Whether a notification is progress that only taskgate asked for.
    fn is_ours(&mut self, message: &Envelope) -> bool {
        if message.method() != method::PROGRESS {
            return false;
        }
        self.note = Note::read(message.params()).or(self.note.take());
        let own = self.assignment.own_token.as_deref();
        own.is_some() && Params::peek(message.params()).progress_token() == own
    }

    /// Before the handle questions are the client's to answer, and the clocks stand still meanwhile.
    async fn question(&mut self, event: Event, message: &Envelope) {
        let Some(id) = message.id() else { return };
        let reach = &self.assignment.listener.reach;
        if matches!(reach, Reach::Retry(_)) {
            return self.ask_by_answer(message);
        }
        // Who comes back for the rest of the stream finds a question there; a ping is answered at once.
        let is_awaited = self.is_awaited() && message.method() != method::PING;
        if *reach == Reach::Nowhere || (self.client_left && !is_awaited) {
            self.refuse(id, message.method());
            return;
        }
        if message.method() != method::PING {
            self.keep_open(id, message);
        }
        self.relay(event).await;
    }

    /// The client can only be asked by ending its request; what it cannot be asked at all is declined.
    fn ask_by_answer(&mut self, message: &Envelope) {
        let Some(id) = message.id() else { return };
        if !self.assignment.listener.abilities.allow(message.method()) {
            return self.refuse(id, message.method());
        }
        self.keep_open(id, message);
        self.gather();
    }

    pub(super) fn keep_open(&mut self, id: &Id, message: &Envelope) {
        let call = self.assignment.ticket.call();
        call.ask(id, message.method());
        self.relayed.retain(|earlier| earlier.id().is_some_and(|id| call.asks(id)));
        self.relayed.push(message.clone());
        self.patience = Timer::Never;
        self.stand_still();
    }

    /// A question is with the client: nothing runs out meanwhile but its patience.
    fn stand_still(&mut self) {
        if !self.client_left {
            self.threshold.pause();
            self.runtime.pause();
        }
        if matches!(self.patience, Timer::Never) {
            self.patience = Timer::after(Instant::now(), Some(self.assignment.input_timeout));
        }
    }

    /// Nobody will answer: the upstream is told so.
    pub(super) fn refuse(&mut self, id: &Id, method: &str) {
        self.decline(id, questions::refusal(id, method));
    }

    /// Answers a question in place of the client, unless others share it and may be asked.
    pub(super) fn decline(&mut self, id: &Id, answer: Bytes) {
        if !self.decline_round(id, &answer) && !self.upcall.passes_on(id) {
            drop(cancel::deliver(&self.worker.work, &self.assignment.leg, answer));
        }
    }

    /// The upstream's stream is taken up by taskgate alone: its ids mean nothing to a client.
    pub(super) async fn relay(&mut self, event: Event) {
        if let Some(waiting) = self.waiting.take() {
            waiting.await;
        }
        self.waiting = self.steps.try_event(Event { id: None, retry: None, ..event });
    }

    /// Somebody has done something: the client answered, or the session's own stream brought something of the call's.
    pub(super) async fn mind_questions(&mut self) {
        for message in self.assignment.ticket.call().take_progress() {
            if let Ok(message) = Envelope::read(message) {
                self.note = Note::read(message.params()).or(self.note.take());
            }
        }
        for text in self.assignment.ticket.call().take_questions() {
            if let Ok(message) = Envelope::read(text.clone()) {
                self.question(Event { data: Some(text), ..Event::default() }, &message).await;
            }
        }
        for (id, response) in self.assignment.ticket.call().take_answers() {
            self.answer_round(&id, &response);
        }
        if self.assignment.ticket.call().is_asking() {
            self.stand_still();
        } else {
            self.go_on();
        }
    }

    /// Nobody answers: the upstream is told so, and the clocks go on.
    pub(super) fn decline_questions(&mut self) {
        for (id, method) in self.assignment.ticket.call().withdraw_questions() {
            self.decline(&id, questions::unanswered(&id, &method));
        }
        self.go_on();
    }

    /// The client has left and may come back: its questions stay open, but nothing waits for them.
    pub(super) fn leave_questions(&mut self) {
        self.threshold.resume();
        self.runtime.resume();
    }

    pub(super) fn go_on(&mut self) {
        self.leave_questions();
        self.patience = Timer::Never;
    }
}
