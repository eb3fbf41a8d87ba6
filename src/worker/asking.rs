//! What a task's upstream asks while its client has a handle: kept open until somebody answers.
//!
//! Each question gets a name of ours and stands in the task's record; it is put to the client on one stream at a
//! time, the first answer wins, and nobody is waited for longer than the tool's terms say.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::call::Event as Relayed;
use crate::dialect::core;
use crate::jsonrpc::{Envelope, Id, notification, request};
use crate::mcp::{Era, method};
use crate::task::{Event, Made, Question, QuestionKey, TaskId};

use super::cancel::deliver;
use super::deferred::Deferred;
use super::port::{Carrier, Marking};
use super::questions::unanswered;

/// How soon a question is offered again to who was too slow for it.
const OFFERED_AGAIN: Duration = Duration::from_millis(50);

/// A question that nobody has answered yet.
#[derive(Debug)]
pub(super) struct Asked {
    question: Question,
    upstream_id: Id,
    until: Instant,
    offered: Offered,
}

/// Where a question is with the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offered {
    Nowhere,
    /// On the stream of this name that waits for the task.
    Carrier(u64),
    /// With this listener to the session's own stream.
    Session(u64),
}

impl Deferred {
    /// The upstream asks: a ping is answered, what cannot be put to the client is declined, the rest is kept open.
    pub(super) async fn asked(&mut self, message: &Envelope) {
        let Some(id) = message.id() else { return };
        if self.asked.iter().any(|asked| asked.upstream_id == *id) {
            // A stream that was taken up tells again what it told before.
            return;
        }
        if !self.held.assignment.listener.abilities.allow(message.method()) {
            return self.held.refuse(id, message.method());
        }
        let question = Question {
            key: QuestionKey::random(),
            method: message.method().into(),
            params: message.params().map(Into::into),
            upstream_id: id.raw().into(),
        };
        if !self.note_change(Event::Asked(question.clone())).await {
            return self.held.refuse(id, message.method());
        }
        self.keep_open(question, id.clone());
        self.offer();
        // After a restart it must not be told again, when it may have been answered: its place is written down now.
        self.marked = None;
    }

    fn keep_open(&mut self, question: Question, upstream_id: Id) {
        self.port.asked(&question.key);
        let until = Instant::now() + self.held.assignment.input_timeout;
        self.asked.push(Asked { question, upstream_id, until, offered: Offered::Nowhere });
        self.runtime.pause();
    }

    /// Questions that were open when another process ended can be answered here.
    pub(super) async fn reopen(&mut self) {
        for question in self.task.status.questions().to_vec() {
            if self.held.assignment.leg.era == Era::Stateless {
                // It asks anew, if it does: nothing waits for the answer to this one.
                self.note_change(Event::Answered(question.key.clone())).await;
                continue;
            }
            if let Some(id) = Id::from_raw(question.upstream_id.as_bytes()) {
                self.keep_open(question, id);
            }
        }
    }

    /// Questions that came while the client was away are asked anew, under names of ours.
    pub(super) async fn take_over(&mut self) {
        let call = self.held.assignment.ticket.call().clone();
        for message in std::mem::take(&mut self.held.relayed) {
            if let Some(id) = message.id().filter(|id| call.asks(id)) {
                call.withdraw(id);
                self.asked(&message).await;
            }
        }
    }

    /// Answers were handed in, or streams came or went.
    pub(super) async fn mind_port(&mut self) {
        let answers = self.port.take_answers();
        if !answers.is_empty() {
            self.refresh().await;
        }
        for (key, response) in answers {
            // The record has accepted it: nobody else can answer this question.
            let Some(asked) = self.take(&key) else { continue };
            if let Ok(response) = Envelope::read(response) {
                self.answer(&asked.upstream_id, response.with_id(&asked.upstream_id));
            }
        }
        self.offer();
    }

    /// When the first question that is open has waited long enough, or may be offered again to a stream that was full.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        let is_refused = self.asked.iter().any(|asked| asked.offered == Offered::Nowhere) && self.port.is_awaited();
        let again = is_refused.then(|| Instant::now() + OFFERED_AGAIN);
        self.asked.iter().map(|asked| asked.until).chain(again).min()
    }

    /// Declines what has waited long enough.
    pub(super) async fn expire_questions(&mut self) {
        let now = Instant::now();
        let late: Vec<QuestionKey> =
            self.asked.iter().filter(|asked| asked.until <= now).map(|asked| asked.question.key.clone()).collect();
        for key in late {
            // Rejected: an answer was first, and is on its way here.
            if self.note_change(Event::Answered(key.clone())).await
                && let Some(asked) = self.take(&key)
            {
                self.held.decline(&asked.upstream_id, unanswered(&asked.upstream_id, &asked.question.method));
            }
            if let Some(asked) = self.asked.iter_mut().find(|asked| asked.question.key == key) {
                asked.until = now + Duration::from_secs(1);
            }
        }
        if self.asked.iter().any(|asked| asked.offered == Offered::Nowhere) {
            self.offer();
        }
    }

    /// The task has ended: what is still open is declined, so that the upstream does not wait for nothing.
    pub(super) fn decline_open(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            self.port.settled(&asked.question.key);
            self.held.refuse(&asked.upstream_id, &asked.question.method);
        }
    }

    fn take(&mut self, key: &QuestionKey) -> Option<Asked> {
        let at = self.asked.iter().position(|asked| asked.question.key == *key)?;
        self.port.settled(key);
        let asked = self.asked.remove(at);
        if self.asked.is_empty() {
            self.runtime.resume();
        }
        Some(asked)
    }

    fn answer(&mut self, id: &Id, response: Bytes) {
        if self.held.answer_round(id, &response) {
            return;
        }
        let leg = &self.held.assignment.leg;
        if let Some(session) = &leg.session {
            // Whoever shares the call is not asked any more.
            session.calls.answered(id);
        }
        drop(deliver(&self.held.worker.work, leg, response));
    }

    /// Puts every open question that is with nobody to whoever can answer it: who waits for the task first, then who
    /// listens to the session.
    pub(super) fn offer(&mut self) {
        let carriers = self.port.carriers();
        let (id, hub) = (self.task.id, self.held.hub().cloned());
        let listens = hub.as_ref().is_some_and(|hub| hub.is_listening());
        let is_core = self.task.made == Made::Core;
        for asked in &mut self.asked {
            let mut able: Vec<&(u64, Carrier)> =
                carriers.iter().filter(|(_, carrier)| carrier.abilities.allow(&asked.question.method)).collect();
            // A stream whose client may come back is better than none.
            able.sort_by_key(|(_, carrier)| !carrier.outlet.is_read());
            let best_is_read = able.first().is_some_and(|(_, carrier)| carrier.outlet.is_read());
            let is_there = match asked.offered {
                Offered::Nowhere => false,
                Offered::Carrier(name) => {
                    let is_best = !best_is_read && !listens;
                    able.iter().any(|(known, carrier)| *known == name && (carrier.outlet.is_read() || is_best))
                }
                Offered::Session(listener) => hub.as_ref().is_some_and(|hub| hub.serves(listener)),
            };
            if is_there {
                continue;
            }
            // A stream that nobody reads now is the last resort.
            let read = able.into_iter().filter(|(_, carrier)| carrier.outlet.is_read() || !listens);
            let taken = read.into_iter().find(|(_, carrier)| {
                let task = (carrier.marking == Marking::Related).then_some(id);
                carrier.outlet.offer(relayed(&asked.question, task))
            });
            asked.offered = match taken {
                Some((name, _)) => Offered::Carrier(*name),
                None => {
                    let event = relayed(&asked.question, is_core.then_some(id));
                    let listener = hub.as_ref().and_then(|hub| hub.push_once(&event));
                    listener.map_or(Offered::Nowhere, Offered::Session)
                }
            };
        }
        self.tell_carriers();
    }

    /// A stream that carries an open question does not end before it has to.
    fn tell_carriers(&self) {
        let carried = self.asked.iter().filter_map(|asked| match asked.offered {
            Offered::Carrier(name) => Some(name),
            Offered::Session(_) | Offered::Nowhere => None,
        });
        self.port.set_asking(carried.collect());
    }

    /// Progress under the client's own token goes to who waits for the task, else to who listens to the session; a
    /// client that was given a job considers its call answered, and hears none.
    pub(super) fn pass_progress(&self, message: &Envelope) {
        if self.held.assignment.own_token.is_some() || self.task.made == Made::Job {
            return;
        }
        let Some(params) = message.params() else { return };
        let params = match self.task.made {
            Made::Core => core::related(&Bytes::copy_from_slice(params.as_bytes()), self.task.id).join(),
            Made::Ext | Made::Job => Bytes::copy_from_slice(params.as_bytes()),
        };
        let event = message_event(notification(method::PROGRESS, std::str::from_utf8(&params).unwrap_or("{}")));
        let carriers = self.port.carriers();
        let waits = |(_, carrier): &&(u64, Carrier)| carrier.marking == Marking::Related && carrier.outlet.is_read();
        match carriers.iter().find(waits) {
            Some((_, carrier)) => drop(carrier.outlet.offer(event)),
            None => drop(self.held.hub().map(|hub| hub.push(event))),
        }
    }

    /// Tells who listens to the session how the task stands, if it is one of 2025-11-25.
    pub(super) fn announce_status(&mut self) {
        self.announced = Instant::now();
        if let (Made::Core, Some(hub)) = (self.task.made, self.held.hub()) {
            hub.push(message_event(core::status_changed(&self.task, self.held.worker.tasks.now())));
        }
    }
}

fn message_event(text: Bytes) -> Relayed {
    Relayed { event: Some("message".into()), data: Some(text), ..Relayed::default() }
}

/// A question as a request to the client.
fn relayed(question: &Question, task: Option<TaskId>) -> Relayed {
    let id = Id::from_string(question.key.as_str());
    let params = Bytes::copy_from_slice(question.params.as_deref().unwrap_or("{}").as_bytes());
    let params = match task {
        Some(task) => core::related(&params, task).join(),
        None => params,
    };
    let text = request(&id, &question.method, std::str::from_utf8(&params).unwrap_or("{}"));
    message_event(text)
}
