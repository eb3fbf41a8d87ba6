//! What a task's upstream asks while its client has a handle: kept open until somebody answers.
//!
//! Each question gets a name of ours and stands in the task's record; it is put to the client on one stream at a
//! time, the first answer wins, and nobody is waited for longer than the tool's terms say.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::call::Event as Relayed;
use crate::dialect::core;
use crate::jsonrpc::{Envelope, Id, request};
use crate::task::{Event, Question, QuestionKey, TaskId};

use super::cancel::deliver;
use super::deferred::Deferred;
use super::port::{Carrier, Marking};
use super::questions::{refusal, unanswered};

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
}

impl Deferred {
    /// The upstream asks: a ping is answered, what cannot be put to the client is declined, the rest is kept open.
    pub(super) async fn asked(&mut self, message: &Envelope) {
        let Some(id) = message.id() else { return };
        if !self.held.assignment.listener.abilities.allow(message.method()) {
            return self.held.refuse(id, message.method());
        }
        let question = Question {
            key: QuestionKey::random(),
            method: message.method().into(),
            params: message.params().map(Into::into),
        };
        if !self.note_change(Event::Asked(question.clone())).await {
            return self.held.refuse(id, message.method());
        }
        self.port.asked(&question.key);
        let until = Instant::now() + self.held.assignment.input_timeout;
        self.asked.push(Asked { question, upstream_id: id.clone(), until, offered: Offered::Nowhere });
        self.runtime.pause();
        self.offer();
    }

    /// Questions that came while the client was away are asked anew, under names of ours.
    pub(super) async fn take_over(&mut self) {
        let call = self.held.assignment.ticket.call().clone();
        let open = call.withdraw_questions();
        for message in std::mem::take(&mut self.held.relayed) {
            if message.id().is_some_and(|id| open.iter().any(|(known, _)| known == id)) {
                self.asked(&message).await;
            }
        }
    }

    /// Answers were handed in, or streams came or went.
    pub(super) fn mind_port(&mut self) {
        for (key, response) in self.port.take_answers() {
            // The record has accepted it: nobody else can answer this question.
            let Some(asked) = self.take(&key) else { continue };
            if let Ok(response) = Envelope::read(response) {
                self.tell(&asked, response.with_id(&asked.upstream_id));
            }
        }
        self.offer();
    }

    /// When the first question that is open has waited long enough.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.asked.iter().map(|asked| asked.until).min()
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
                self.tell(&asked, unanswered(&asked.upstream_id, &asked.question.method));
            }
            if let Some(asked) = self.asked.iter_mut().find(|asked| asked.question.key == key) {
                asked.until = now + Duration::from_secs(1);
            }
        }
    }

    /// The task has ended: what is still open is declined, so that the upstream does not wait for nothing.
    pub(super) fn decline_open(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            self.port.settled(&asked.question.key);
            self.tell(&asked, refusal(&asked.upstream_id, &asked.question.method));
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

    fn tell(&self, asked: &Asked, response: Bytes) {
        let leg = &self.held.assignment.leg;
        drop(deliver(&self.held.worker.work, leg, response));
        if let Some(session) = &leg.session {
            // Who shares the exchange need not ask any more.
            session.calls.answered(&asked.upstream_id);
        }
    }

    /// Puts every open question that is with nobody to whoever can answer it.
    fn offer(&mut self) {
        let carriers = self.port.carriers();
        let id = self.task.id;
        for asked in &mut self.asked {
            let mut able: Vec<&(u64, Carrier)> =
                carriers.iter().filter(|(_, carrier)| carrier.abilities.allow(&asked.question.method)).collect();
            // A stream whose client may come back is better than none.
            able.sort_by_key(|(_, carrier)| !carrier.outlet.is_read());
            let best_is_read = able.first().is_some_and(|(_, carrier)| carrier.outlet.is_read());
            let is_there = |(name, carrier): &&(u64, Carrier)| {
                asked.offered == Offered::Carrier(*name) && (carrier.outlet.is_read() || !best_is_read)
            };
            if able.iter().copied().any(|known| is_there(&known)) {
                continue;
            }
            let taken = able.into_iter().find(|(_, carrier)| {
                let task = (carrier.marking == Marking::Related).then_some(id);
                carrier.outlet.offer(relayed(&asked.question, task))
            });
            asked.offered = taken.map_or(Offered::Nowhere, |(name, _)| Offered::Carrier(*name));
        }
    }
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
    Relayed { event: Some("message".into()), data: Some(text), ..Relayed::default() }
}
