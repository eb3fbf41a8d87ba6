//! An upstream of the stateless era that asks by its answer (`InputRequiredResult`, 2026-07-28): each question gets an
//! id of ours, and when all are answered the same request is sent again with the answers, as the call's next exchange.
//!
//! Where the questions go is not decided here: on the stream of a client that waits, or into the record of a task. From
//! there on they are questions like any other, and every answer, a refusal too, ends in [`Held::answer_round`].

use std::time::Duration;

use bytes::Bytes;
use tracing::debug;

use crate::call::Event;
use crate::jsonrpc::{Envelope, Id, request};
use crate::mcp::rounds::{InputRequired, Question, retry};
use crate::mcp::{Era, method, upward};
use crate::task::QuestionKey;
use crate::upstream::{Error, Kind, Outbound};

use super::Reach;
use super::deferred::Deferred;
use super::held::{Held, limits};
use super::upcall::Upcall;

/// How long an upstream is left alone that asks for nothing but to be asked again, or what nobody is asked.
const PAUSE: Duration = Duration::from_millis(250);
/// How many rounds in a row may be without an answer of the client's.
const MAX_DECLINED: usize = 20;

/// What one answer asked; once everything is answered, only what the next round has to know of it.
#[derive(Debug)]
pub(super) struct Round {
    questions: Vec<Open>,
    request_state: Option<String>,
    progress: Progress,
    /// How many rounds with questions in a row, before this one, nobody but taskgate has answered.
    declined: usize,
}

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The client has answered nothing yet.
    Unheard,
    /// It has answered something.
    Heard,
    /// The request was sent again.
    Over,
}

#[derive(Debug)]
struct Open {
    id: Id,
    question: Question,
    /// The text of the result that answers it.
    answer: Option<String>,
}

impl Round {
    fn new(asked: InputRequired, declined: usize) -> Self {
        let open = |question| Open { id: Id::from_string(QuestionKey::random().as_str()), question, answer: None };
        let questions = asked.questions.into_iter().map(open).collect();
        Self { questions, request_state: asked.request_state, progress: Progress::Unheard, declined }
    }

    /// The questions as requests under ids of ours.
    fn requests(&self) -> Vec<Envelope> {
        let request = |open: &Open| {
            let params = open.question.params.as_deref().unwrap_or("{}");
            Envelope::read(request(&open.id, &open.question.method, params)).ok()
        };
        self.questions.iter().filter_map(request).collect()
    }

    fn is_answered(&self) -> bool {
        self.progress != Progress::Over && self.questions.iter().all(|open| open.answer.is_some())
    }

    /// Ends it; returns how many questions it had, and whether the client has answered any.
    fn end(&mut self) -> (usize, Progress) {
        let count = std::mem::take(&mut self.questions).len();
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        match progress {
            Progress::Heard => self.declined = 0,
            Progress::Unheard if count > 0 => self.declined += 1,
            Progress::Unheard | Progress::Over => {}
        }
        (count, progress)
    }

    /// The request again, with the answers; under another id, since it is another request.
    fn again(&self, first: &Outbound) -> Option<Outbound> {
        let message = Envelope::read(first.body.clone()).ok()?;
        let answers: Vec<(&str, &str)> =
            self.questions.iter().filter_map(|open| Some((&*open.question.key, open.answer.as_deref()?))).collect();
        let text = Envelope::read(retry(&message, &answers, self.request_state.as_deref())).ok()?;
        let id = Id::fresh();
        Some(Outbound { body: text.with_id(&id), ..first.clone() })
    }
}

/// What a response to a question is in `inputResponses`, which has room for results only; `None` if nothing is.
fn answer_to(question: &str, response: &Envelope) -> Option<String> {
    if let Some(result) = response.result() {
        return String::from_utf8(result.to_vec()).ok();
    }
    match question {
        method::ELICITATION_CREATE => Some(r#"{"action":"decline"}"#.into()),
        method::ROOTS_LIST => Some(r#"{"roots":[]}"#.into()),
        _ => None,
    }
}

impl Held {
    /// What the upstream's answer asks, if it asks.
    fn asked_by(&self, message: &Envelope) -> Option<InputRequired> {
        if self.assignment.leg.era != Era::Stateless {
            return None;
        }
        InputRequired::read(std::str::from_utf8(&message.result()?).ok()?)
    }

    /// Whether a client waits that reads questions as requests: one of the stateless era reads the answer as it is.
    pub(super) fn asks_on_stream(&self) -> bool {
        self.assignment.leg.era == Era::Stateless && !self.assignment.listener.withdraws_by_leaving()
    }

    /// If the answer asks, and the client that waits can only be asked by requests: puts the questions to it. Whether
    /// it did.
    pub(super) async fn ask_on_stream(&mut self, message: &Envelope) -> bool {
        let Some(asked) = Some(message).filter(|_| self.asks_on_stream()).and_then(|message| self.asked_by(message))
        else {
            return false;
        };
        for message in self.open_round(asked) {
            let Some(id) = message.id() else { continue };
            if self.can_be_asked(message.method()) {
                self.keep_open(id, &message);
                self.assignment.ticket.call().expect_here(id);
                let data = Some(message.text().clone());
                self.relay(Event { event: Some("message".into()), data, ..Event::default() }).await;
            } else {
                self.refuse(id, message.method());
            }
        }
        self.send_again();
        true
    }

    fn can_be_asked(&self, question: &str) -> bool {
        let listener = &self.assignment.listener;
        let is_there = !self.client_left || self.is_awaited();
        listener.reach == Reach::Stream && is_there && listener.abilities.allow(question)
    }

    /// The exchange has ended with questions: returns them as requests under ids of ours.
    fn open_round(&mut self, mut asked: InputRequired) -> Vec<Envelope> {
        if self.is_joined() {
            for Question { method, params, .. } in &mut asked.questions {
                let name = uuid::Uuid::new_v4().to_string();
                *params = params.take().map(|params| upward::question(method, &params, &name));
            }
        }
        let round = Round::new(asked, self.round.as_ref().map_or(0, |before| before.declined));
        let requests = round.requests();
        self.round = Some(round);
        if self.upcall.kind() == Kind::Events
            && let Some(exchange) = self.upcall.take()
        {
            drop(self.worker.work.spawn(exchange.drain()));
        }
        self.upcall = Upcall::Over;
        requests
    }

    /// Takes the client's answer to a question of this round, a JSON-RPC response; `false` if it is none of this
    /// round's. With the last one, the request is sent again.
    pub(super) fn answer_round(&mut self, id: &Id, response: &Bytes) -> bool {
        if let Some(round) = self.round.as_mut().filter(|round| round.questions.iter().any(|open| open.id == *id)) {
            round.progress = Progress::Heard;
        }
        self.decline_round(id, response)
    }

    /// The same with an answer that taskgate gives in the client's place.
    pub(super) fn decline_round(&mut self, id: &Id, response: &Bytes) -> bool {
        let Some(open) = self.round.iter_mut().flat_map(|round| &mut round.questions).find(|open| open.id == *id)
        else {
            // Nothing else can be answered in this era.
            return self.assignment.leg.era == Era::Stateless;
        };
        let answer = Envelope::read(response.clone()).ok().and_then(|text| answer_to(&open.question.method, &text));
        if answer.is_none() {
            self.upcall = Upcall::failed(Error::Unanswered(open.question.method.clone()));
            self.round = None;
            return true;
        }
        open.answer = answer;
        self.send_again();
        true
    }

    /// Sends the request again once everything that was asked is answered.
    fn send_again(&mut self) {
        let Some(round) = self.round.as_mut().filter(|round| round.is_answered()) else { return };
        let (leg, limits) = (&self.assignment.leg, limits(&self.assignment));
        let Some(mut request) = round.again(&self.assignment.request) else { return };
        let (questions, progress) = round.end();
        if round.declined > MAX_DECLINED {
            let text = format!("it asked {MAX_DECLINED} times in a row what nobody can be asked");
            self.upcall = Upcall::failed(Error::Protocol(text));
            return;
        }
        if self.is_joined() {
            // Its headers are ours: by now others may be wanted. The credential is the one that the session began with.
            request = leg.message(request.body);
        }
        debug!(questions, "sending a request again with the answers");
        self.upcall = match progress {
            Progress::Heard => Upcall::start(leg, request, limits),
            // As fast as it answers, it would be asked for ever.
            Progress::Unheard | Progress::Over => Upcall::start_after(PAUSE, leg, request, limits),
        };
    }
}

impl Deferred {
    /// If the answer asks: the questions stand in the task's record from now on. Whether it did.
    pub(super) async fn ask_in_record(&mut self, message: &Envelope) -> bool {
        let Some(asked) = self.held.asked_by(message) else { return false };
        for message in self.held.open_round(asked) {
            self.asked(&message).await;
        }
        self.held.send_again();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn envelope(text: &str) -> Envelope {
        Envelope::read(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_round_ends_in_the_request_with_every_answer() {
        let asked = r#"{"resultType":"input_required","requestState":"s\"1","inputRequests":{
            "a":{"method":"elicitation/create","params":{"message":"?"}},"b":{"method":"roots/list"}}}"#;
        let mut round = Round::new(InputRequired::read(asked).unwrap(), 0);
        let requests = round.requests();
        assert_eq!(requests.iter().map(Envelope::method).collect::<Vec<_>>(), ["elicitation/create", "roots/list"]);
        assert_ne!(requests[0].id(), requests[1].id());
        assert!(!round.is_answered());
        round.questions[0].answer = Some(r#"{"action":"accept"}"#.into());
        round.questions[1].answer = Some(r#"{"roots":[]}"#.into());
        assert!(round.is_answered());
        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}"#);
        let first = Outbound::from(http::Request::post("http://h/").header("mcp-name", "t").body(body).unwrap());
        let again = round.again(&first).unwrap();
        assert_eq!(again.headers, first.headers);
        let text: Value = serde_json::from_slice(&again.body).unwrap();
        assert_ne!(text["id"], 7);
        let responses = json!({"a": {"action": "accept"}, "b": {"roots": []}});
        assert_eq!(text["params"], json!({"name": "t", "inputResponses": responses, "requestState": "s\"1"}));
    }

    #[test]
    fn only_results_can_be_sent_back() {
        let error = envelope(r#"{"id":1,"error":{"code":-1,"message":"no"}}"#);
        assert_eq!(answer_to("elicitation/create", &error).as_deref(), Some(r#"{"action":"decline"}"#));
        assert_eq!(answer_to("roots/list", &error).as_deref(), Some(r#"{"roots":[]}"#));
        assert_eq!(answer_to("sampling/createMessage", &error), None);
        let result = envelope(r#"{"id":1,"result":{"n":1.0}}"#);
        assert_eq!(answer_to("sampling/createMessage", &result).as_deref(), Some(r#"{"n":1.0}"#));
    }
}
