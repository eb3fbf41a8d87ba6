//! A batch (2025-03-26): its messages go their ways as if each had come alone, and their answers come back together.
//!
//! They are one JSON array if all are there before `keepalive`, so that a client of fast tools sees what it expects;
//! else an event stream on which each answer leaves as it comes, so that no slow message holds up another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::{Answer, Body, Error, Event, Outgoing, PassBody, Side, Standing, Step};
use crate::jsonrpc::{Envelope, ErrorObject, INVALID_REQUEST, Id, Kind, ReadError, Rope, error_response, split};
use crate::mcp::{Era, Params, Version, header, method};
use crate::session::Session;
use crate::worker::failed;

use super::caller::Caller;
use super::forward::response_of;
use super::{Framing, Gateway, Handling, Reply, Request, Route, plain, session_id};

/// How many messages a batch may have: each one is a request of its own upstream.
const MOST: usize = 100;
/// How many steps may wait for a slow client before its calls wait for it.
const STEPS: usize = 16;
const NO_BATCHES: &str = "batches are not part of this protocol version: send one message per request";

/// One message of a batch, on its way.
struct Child {
    /// Its place among the others.
    at: usize,
    /// The id to answer; only a request has one.
    id: Option<Id>,
    standing: Standing,
    handling: Handling,
}

/// What is heard of a message.
enum Heard {
    /// Its upstream opened an event stream.
    Open(Box<HeaderMap>),
    /// Something to relay ahead of its answer.
    Event(Box<Event>),
    /// A request was answered; the body is a message.
    Answered(usize, Answer),
    /// What is no request was delivered, or not.
    Passed(Answer),
    /// It will not be answered: its client cancelled it.
    Silent,
}

/// The answers of a batch until they leave.
struct Gathering {
    to: mpsc::Sender<Step>,
    /// When they become an event stream; `None` if never.
    stream_at: Option<Instant>,
    streams: bool,
    /// Whether the head of the stream has left.
    began: bool,
    opened: Option<Box<HeaderMap>>,
    /// Whether there is any request among the messages.
    asks: bool,
    answers: BTreeMap<usize, Answer>,
    passed: Vec<Answer>,
}

impl Gateway {
    /// Starts every message of a batch; if anything is wrong with one, none.
    pub(super) fn batch(&self, route: &Arc<Route>, request: &Request, text: &Bytes) -> Handling {
        let known = session_id(&request.headers).and_then(|id| route.upstream.sessions.find(id));
        let started = if speaks_batches(known.as_deref(), &request.headers) {
            let texts = split(text, MOST).map_err(|error| said(&error, String::new()));
            texts.and_then(|texts| self.start_all(route, known.as_ref(), request, &texts))
        } else {
            Err(ErrorObject::new(INVALID_REQUEST, NO_BATCHES))
        };
        match started {
            Ok(children) => self.gather(children, request).into(),
            Err(object) => {
                self.tally_of("batch", request.received).done(Side::Client);
                plain(Answer::message(StatusCode::BAD_REQUEST, error_response(None, &object))).into()
            }
        }
    }

    fn start_all(
        &self,
        route: &Arc<Route>,
        known: Option<&Arc<Session>>,
        request: &Request,
        texts: &[Bytes],
    ) -> Result<Vec<Child>, ErrorObject> {
        let messages = read_all(texts)?;
        check(&messages, known.is_some())?;
        let start = |(at, (message, params)): (usize, (Envelope, Params<'_>))| {
            let told = (&message, &params);
            let caller = Caller::new(&self.inner, route.clone(), known.cloned(), request, told).in_batch();
            let id = message.id().filter(|_| message.kind() == Kind::Request).cloned();
            Child { at, id, standing: caller.standing(), handling: self.answer(caller, message, &params) }
        };
        Ok(messages.into_iter().enumerate().map(start).collect())
    }

    /// Waits for all answers in a task of its own; when the client leaves, it leaves each message as it would leave
    /// a single one.
    fn gather(&self, children: Vec<Child>, request: &Request) -> Reply {
        let asks = children.iter().any(|child| child.id.is_some());
        let (to, steps) = mpsc::channel(STEPS);
        let options = &self.inner.options;
        let gathering = Gathering {
            to,
            stream_at: (asks && request.takes_events).then(|| request.received + options.keepalive),
            streams: false,
            began: false,
            opened: None,
            asks,
            answers: BTreeMap::new(),
            passed: Vec::new(),
        };
        drop(self.inner.worker.work.spawn(gathering.run(children, options.max_result)));
        let framing = if asks { Framing::Either } else { Framing::AsItComes };
        Reply { outgoing: Outgoing::Later(steps.into()), framing, method: "batch", dialect: "none" }
    }
}

impl Gathering {
    async fn run(mut self, children: Vec<Child>, max_result: u64) {
        let mut left = children.len();
        let (tell, mut heard) = mpsc::channel(1);
        let follow = |child| follow(child, tell.clone(), max_result);
        let mut under_way: FuturesUnordered<_> = children.into_iter().map(follow).collect();
        while left > 0 {
            tokio::select! {
                biased;
                () = self.to.closed() => return,
                said = heard.recv() => {
                    let Some(said) = said else { return };
                    left -= usize::from(matches!(said, Heard::Answered(..) | Heard::Passed(_) | Heard::Silent));
                    self.heard(said).await;
                }
                () = reached(self.stream_at), if !self.streams => self.stream().await,
                Some(()) = under_way.next() => {}
            }
        }
        self.finish().await;
    }

    async fn heard(&mut self, said: Heard) {
        match said {
            Heard::Answered(_, answer) if self.streams => self.say(answer).await,
            Heard::Answered(at, answer) => drop(self.answers.insert(at, answer)),
            Heard::Passed(answer) => self.passed.push(answer),
            Heard::Open(headers) if self.opened.is_none() => self.opened = Some(headers),
            // An empty one primes a stream that can be resumed: this one is made of several and cannot.
            Heard::Event(event) if self.stream_at.is_some() && event.data.as_ref().is_some_and(|d| !d.is_empty()) => {
                self.stream().await;
                self.relay(Event { id: None, retry: None, ..*event }).await;
            }
            Heard::Open(_) | Heard::Event(_) | Heard::Silent => {}
        }
    }

    /// From now on answers leave as they come.
    async fn stream(&mut self) {
        self.streams = true;
        while let Some((_, answer)) = self.answers.pop_first() {
            self.say(answer).await;
        }
    }

    async fn say(&mut self, answer: Answer) {
        if let Body::Message(text) = answer.body {
            self.relay(Event { event: Some("message".into()), data: Some(text), ..Event::default() }).await;
        }
    }

    async fn relay(&mut self, event: Event) {
        if !self.began {
            self.began = true;
            let _ = self.to.send(Step::Open(self.opened.take().unwrap_or_default())).await;
        }
        let _ = self.to.send(Step::event(event)).await;
    }

    async fn finish(mut self) {
        // Whoever frames the answer may have begun a stream by now.
        if self.stream_at.is_some_and(|at| at <= Instant::now()) {
            self.stream().await;
        }
        let answer = match (self.streams, self.asks) {
            (true, _) => silence(),
            (false, true) => array(self.answers.into_values().collect()),
            (false, false) => delivered(self.passed),
        };
        let _ = self.to.send(Step::done(answer)).await;
    }
}

/// Follows one message to its end, which is told exactly once. Cancel safe as a whole: dropping it is leaving.
async fn follow(child: Child, tell: mpsc::Sender<Heard>, max_result: u64) {
    let reply = match child.handling {
        Handling::Ready(reply) => reply,
        Handling::Later(work) => work.await,
    };
    let answer = match reply.outgoing {
        Outgoing::Now(answer) => Some(answer),
        Outgoing::Later(mut steps) => loop {
            match steps.recv().await {
                None => break None,
                Some(Step::Done(answer, _)) => break Some(*answer),
                Some(Step::Open(headers)) => drop(tell.send(Heard::Open(headers)).await),
                // The batch has a stream of its own.
                Some(Step::Hold) => {}
                Some(Step::Event(event)) => drop(tell.send(Heard::Event(event)).await),
            }
        },
    };
    let heard = match (answer, child.id) {
        (None, _) => Heard::Silent,
        (Some(answer), None) => Heard::Passed(answer),
        (Some(answer), Some(id)) => match written(answer, (&id, child.standing), max_result).await {
            Some(answer) => Heard::Answered(child.at, answer),
            None => Heard::Silent,
        },
    };
    let _ = tell.send(heard).await;
}

/// The same answer as a message in one piece; `None` if it says nothing.
async fn written(mut answer: Answer, (id, standing): (&Id, Standing), max_result: u64) -> Option<Answer> {
    let text = match answer.body {
        Body::Empty | Body::Silence => return None,
        Body::Message(text) | Body::Foreign(_, text) => text,
        Body::Pass(body) => match collected(body, max_result).await {
            Ok(response) => response.with_id(id),
            Err(error) => return Some(failed(&error, id, standing)),
        },
    };
    answer.body = Body::Message(text);
    Some(answer)
}

/// A body that would pass as it comes; looked into, since one that is cut short would spoil the others' answers.
async fn collected(mut body: PassBody, max_result: u64) -> Result<Envelope, Error> {
    let limit = usize::try_from(max_result).unwrap_or(usize::MAX);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::OutcomeUnknown(format!("the connection broke ({error})")))?;
        let data = frame.into_data().unwrap_or_default();
        if whole.len() + data.len() > limit {
            return Err(Error::TooLarge { limit: max_result });
        }
        whole.extend_from_slice(&data);
    }
    response_of(&whole.freeze()).ok_or_else(|| Error::Protocol { text: "its body is cut short".into(), status: None })
}

/// All answers as one. Its status is the one that all have, if that says an error; the headers are the first one's.
fn array(answers: Vec<Answer>) -> Answer {
    let Some(first) = answers.first() else { return silence() };
    let (status, mut headers) = (first.status, first.headers.clone());
    let shared = !status.is_success() && answers.iter().all(|answer| answer.status == status);
    let mut text = Rope::from("[");
    for (at, answer) in answers.into_iter().enumerate() {
        let Body::Message(message) = answer.body else { continue };
        text = text.with(if at == 0 { "" } else { "," }).with(message);
    }
    let mut whole = Answer::rope(text.with("]"));
    for described in [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING] {
        headers.remove(described);
    }
    headers.extend(whole.headers);
    whole.headers = headers;
    whole.status = if shared { status } else { StatusCode::OK };
    whole
}

/// What is said where there was nothing to answer: 202, unless the same befell all.
fn delivered(mut passed: Vec<Answer>) -> Answer {
    let accepted = Answer::empty(StatusCode::ACCEPTED);
    let Some(status) = passed.first().map(|answer| answer.status) else { return accepted };
    if status.is_success() || passed.iter().any(|answer| answer.status != status) {
        return accepted;
    }
    passed.swap_remove(0)
}

fn silence() -> Answer {
    Answer { body: Body::Silence, ..Answer::empty(StatusCode::OK) }
}

async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether batches are part of the version that is spoken: the session's, else the header's.
fn speaks_batches(session: Option<&Session>, headers: &HeaderMap) -> bool {
    let stated = headers.get(header::PROTOCOL_VERSION).map(|value| value.to_str().unwrap_or("?"));
    let version = match (session.and_then(Session::hello), stated) {
        (Some(hello), _) => hello.server.version,
        (None, Some(stated)) => Version::handshake(stated).unwrap_or(Version::Later),
        (None, None) => Version::V2025_03_26,
    };
    version == Version::V2025_03_26
}

fn read_all(texts: &[Bytes]) -> Result<Vec<(Envelope, Params<'_>)>, ErrorObject> {
    let read = |(at, text)| match Envelope::read_with::<Params<'_>>(text) {
        Ok((message, params)) => Ok((message, params.unwrap_or_default())),
        Err(error) => Err(said(&error, format!("message {} of the batch is none: ", at + 1))),
    };
    texts.iter().enumerate().map(read).collect()
}

/// What may not be together in a batch, or not in any.
fn check(messages: &[(Envelope, Params<'_>)], in_known_session: bool) -> Result<(), ErrorObject> {
    let wrong = |text: String| Err(ErrorObject::new(INVALID_REQUEST, text));
    let mut places = HashMap::new();
    for (place, (message, params)) in (1..).zip(messages) {
        if message.method() == method::INITIALIZE {
            return wrong(format!("message {place} of the batch is initialize, which has to come alone"));
        }
        let meta = params.meta();
        let era = Era::of(None, meta.protocol_version.as_deref(), message.method());
        if era == Era::Stateless && !in_known_session {
            return wrong(NO_BATCHES.into());
        }
        let Some(id) = message.id().filter(|_| message.kind() == Kind::Request) else { continue };
        if let Some(other) = places.insert(id.key(), place) {
            return wrong(format!("messages {other} and {place} of the batch have the same id"));
        }
    }
    Ok(())
}

fn said(error: &ReadError, before: String) -> ErrorObject {
    let text = match error {
        ReadError::Shape(text) => text.clone(),
        ReadError::Syntax(_) => error.to_string(),
    };
    ErrorObject::new(error.code(), before + &text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KEEPALIVE: Duration = Duration::from_secs(15);

    fn id(raw: &str) -> Id {
        Id::from_raw(raw.as_bytes()).unwrap()
    }

    fn answer(status: u16, text: &'static str) -> Answer {
        Answer::message(StatusCode::from_u16(status).unwrap(), text)
    }

    /// A message whose steps a test sends.
    fn child(at: usize) -> (mpsc::Sender<Step>, Child) {
        let (to, steps) = mpsc::channel(4);
        let reply =
            Reply { outgoing: Outgoing::Later(steps.into()), framing: Framing::Either, method: "x", dialect: "none" };
        (to, Child { at, id: Some(id("1")), standing: Standing::Session, handling: reply.into() })
    }

    fn gathered(children: Vec<Child>, stream_at: Option<Instant>) -> mpsc::Receiver<Step> {
        let (to, steps) = mpsc::channel(STEPS);
        let (answers, passed) = (BTreeMap::new(), Vec::new());
        let all = Gathering { to, stream_at, streams: false, began: false, opened: None, asks: true, answers, passed };
        drop(crate::shutdown::Work::new().spawn(all.run(children, 100)));
        steps
    }

    /// What a step says, in one line.
    fn line(step: Option<Step>) -> String {
        match step {
            None => "end".into(),
            Some(Step::Open(headers)) => format!("open {}", headers.len()),
            Some(Step::Hold) => "hold".into(),
            Some(Step::Event(event)) => format!("event {:?} {:?}", event.id, event.data.unwrap()),
            Some(Step::Done(answer, _)) => match answer.body {
                Body::Message(text) => format!("{} {}", answer.status.as_u16(), String::from_utf8_lossy(&text)),
                other => format!("{} {other:?}", answer.status.as_u16()),
            },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_array_is_in_the_order_of_the_messages() {
        let ((one, first), (two, second)) = (child(0), child(1));
        let mut steps = gathered(vec![first, second], Some(Instant::now() + KEEPALIVE));
        two.send(Step::done(answer(200, "2"))).await.unwrap();
        tokio::time::sleep(KEEPALIVE - Duration::from_millis(1)).await;
        one.send(Step::done(answer(404, "1"))).await.unwrap();
        assert_eq!(line(steps.recv().await), "200 [1,2]");
        assert_eq!(line(steps.recv().await), "end");
    }

    #[tokio::test(start_paused = true)]
    async fn at_keepalive_answers_begin_to_leave_one_by_one() {
        let ((one, first), (two, second), (three, third)) = (child(0), child(1), child(2));
        let began = Instant::now();
        let mut steps = gathered(vec![first, second, third], Some(began + KEEPALIVE));
        two.send(Step::done(answer(200, "2"))).await.unwrap();
        assert_eq!(line(steps.recv().await), "open 0");
        assert_eq!(began.elapsed(), KEEPALIVE);
        assert_eq!(line(steps.recv().await), "event None b\"2\"");
        one.send(Step::done(answer(401, "1"))).await.unwrap();
        assert_eq!(line(steps.recv().await), "event None b\"1\"");
        drop(three);
        assert_eq!(line(steps.recv().await), "200 Silence");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_begins_the_stream_where_events_are_read() {
        let event = |data: &'static str| Event {
            id: Some("e".into()),
            data: Some(Bytes::from_static(data.as_bytes())),
            ..Event::default()
        };
        for stream_at in [Some(Instant::now() + KEEPALIVE), None] {
            let ((one, first), (two, second)) = (child(0), child(1));
            let mut steps = gathered(vec![first, second], stream_at);
            two.send(Step::done(answer(200, "2"))).await.unwrap();
            let headers = [("x-answer".parse().unwrap(), "yes".parse().unwrap())].into_iter().collect();
            for step in [Step::open(headers), Step::event(event("")), Step::event(event("p"))] {
                one.send(step).await.unwrap();
            }
            one.send(Step::done(answer(200, "1"))).await.unwrap();
            let expected = match stream_at {
                Some(_) => vec!["open 1", "event None b\"2\"", "event None b\"p\"", "event None b\"1\"", "200 Silence"],
                None => vec!["200 [1,2]"],
            };
            for expected in expected {
                assert_eq!(line(steps.recv().await), expected);
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_leaves_every_message() {
        let ((one, first), (two, second)) = (child(0), child(1));
        drop(gathered(vec![first, second], None));
        one.closed().await;
        two.closed().await;
    }

    #[tokio::test]
    async fn a_body_is_collected_up_to_the_limit_and_has_to_be_an_answer() {
        let long = format!("{{\"id\":7,\"result\":\"{}\"}}", "x".repeat(200));
        for (body, expected) in [
            ("{\"id\":7,\"result\":{}}", "{\"id\":1,\"result\":{}}"),
            ("{\"id\":1,\"resu", "upstream_protocol"),
            (long.as_str(), "too_large"),
        ] {
            let body = http_body_util::Full::new(Bytes::copy_from_slice(body.as_bytes()));
            let body = Body::Pass(PassBody::new(body.map_err(|never| match never {})));
            let passing = Answer { body, ..Answer::empty(StatusCode::OK) };
            let written = written(passing, (&id("1"), Standing::Session), 100).await.unwrap();
            let Body::Message(text) = written.body else { panic!("no message: {written:?}") };
            assert!(String::from_utf8_lossy(&text).contains(expected), "{text:?}");
        }
    }

    #[test]
    fn a_status_is_the_whole_answers_only_if_all_share_it() {
        for (statuses, expected) in [([401, 401], 401), ([401, 404], 200), ([200, 404], 200), ([202, 202], 200)] {
            let mut answers: Vec<_> = statuses.into_iter().map(|status| answer(status, "{}")).collect();
            answers[0].headers.insert(CONTENT_LENGTH, 2.into());
            let whole = array(answers);
            assert_eq!((whole.status.as_u16(), whole.headers.len()), (expected, 0), "{statuses:?}");
        }
        let large = array(vec![Answer::message(StatusCode::OK, "x".repeat(100_000)), answer(200, "{}")]);
        assert_eq!(large.headers[CONTENT_TYPE], "application/json");
        assert!(matches!(array(Vec::new()).body, Body::Silence));
        for (statuses, expected) in [(vec![202, 202], 202), (vec![404, 202], 202), (vec![404, 404], 404), (vec![], 202)]
        {
            let passed = statuses.iter().map(|status| answer(*status, "{}")).collect();
            assert_eq!(delivered(passed).status.as_u16(), expected, "{statuses:?}");
        }
    }
}
