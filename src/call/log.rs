//! What went out on one event stream, so that a client which lost it can take it up again.
//!
//! MCP 2025-11-25, Streamable HTTP, "Resumability and Redelivery". Most answers never become a stream: until one does
//! a log has no id, keeps nothing and is known to nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Notify;

use super::streams::{EventId, Streams};
use super::{Answer, Body, Event};
use crate::task::Identity;

/// How long a client is asked to wait before it comes back, in milliseconds.
const RETRY: u64 = 1_000;
/// How many events, and how many bytes of them, are kept of one stream besides its answer.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// What an event takes up besides its data.
const OVERHEAD: usize = 128;

/// Whose stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which upstream's.
    pub upstream: usize,
    /// Who asked.
    pub identity: Identity,
}

/// Whether a client is told an id before there is anything to say: those of 2025-11-25 understand an event without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priming {
    /// It is.
    Sent,
    /// Only events that say something have ids.
    Omitted,
}

/// The log of one event stream.
#[derive(Debug)]
pub struct Log {
    streams: Streams,
    origin: Origin,
    priming: Priming,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
enum State {
    /// It is no stream yet.
    Idle,
    /// It is one.
    Open(Box<Record>),
    /// It was answered without ever becoming one.
    Closed,
}

#[derive(Debug)]
struct Record {
    id: u128,
    kept: VecDeque<(u64, Event)>,
    /// The size of what is kept, without the answer.
    bytes: usize,
    next: u64,
    finished: bool,
    /// Which follower may read; 0 is the response itself.
    turn: u64,
}

/// What becomes of the last step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It goes out on the response, with this id if it is the end of a stream.
    Goes(Option<Box<str>>),
    /// A follower has it.
    Taken,
}

impl Log {
    /// A log of what is no stream yet.
    #[must_use]
    pub fn new(streams: Streams, origin: Origin, priming: Priming) -> Arc<Self> {
        Arc::new(Self { streams, origin, priming, state: Mutex::new(State::Idle), changed: Notify::new() })
    }

    /// Whose stream it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The response has become an event stream; returns what is to be sent first, if anything. Decides together with
    /// the last step who was first: nothing is promised on a stream that was answered already.
    pub fn open(self: &Arc<Self>) -> Option<Event> {
        let mut state = self.lock();
        if !matches!(*state, State::Idle) {
            return None;
        }
        let Some(id) = self.streams.enter(self) else {
            *state = State::Closed;
            return None;
        };
        let record = Record { id, kept: VecDeque::new(), bytes: 0, next: 1, finished: false, turn: 0 };
        *state = State::Open(Box::new(record));
        (self.priming == Priming::Sent).then(|| primer(id, 0))
    }

    /// Whether the response is a stream that can be taken up again.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(*self.lock(), State::Open(_))
    }

    /// Gives an event its id and keeps it. Returns it if it is to go out on the response, and not to a follower.
    pub fn record(&self, event: Event) -> Option<Event> {
        let mut state = self.lock();
        let State::Open(record) = &mut *state else { return Some(event) };
        if record.finished {
            // Nothing comes after the answer.
            return None;
        }
        let event = record.stamp(event);
        let size = size_of(&event);
        record.shed(&self.streams, |record| {
            record.kept.len() >= MAX_EVENTS || (record.bytes + size > MAX_BYTES && !record.kept.is_empty())
        });
        if size <= MAX_BYTES && record.make_room(&self.streams, size) {
            record.bytes += size;
            record.kept.push_back((record.next - 1, event.clone()));
        }
        let goes = record.turn == 0;
        drop(state);
        self.changed.notify_waiters();
        goes.then_some(event)
    }

    /// The last step; what it says is kept if it is a message and there is room.
    pub(super) fn finish(&self, answer: &Answer) -> Last {
        let mut state = self.lock();
        let State::Open(record) = &mut *state else {
            *state = State::Closed;
            return Last::Goes(None);
        };
        if record.finished {
            return Last::Taken;
        }
        record.finished = true;
        let mut id = None;
        let mut size = record.bytes;
        if !matches!(answer.body, Body::Empty | Body::Silence) {
            let event =
                record.stamp(Event { event: Some("message".into()), data: message(answer), ..Event::default() });
            id = event.id.as_deref().map(Into::into);
            let more = size_of(&event);
            if event.data.is_some() && self.streams.make_room(more) {
                size += more;
                record.kept.push_back((record.next - 1, event));
            }
        }
        let last = if record.turn == 0 { Last::Goes(id) } else { Last::Taken };
        self.streams.finished(record.id, size);
        drop(state);
        self.changed.notify_waiters();
        last
    }

    /// An event that tells the id of the last one, for a stream without an end: one that is taken up by many.
    #[must_use]
    pub fn latest(self: &Arc<Self>) -> Option<Event> {
        let _ = self.open();
        match &*self.lock() {
            State::Open(record) => Some(primer(record.id, record.next - 1)),
            State::Idle | State::Closed => None,
        }
    }

    /// What is kept of such a stream after the event with this number.
    #[must_use]
    pub fn after(&self, n: u64) -> Vec<Event> {
        match &*self.lock() {
            State::Open(record) => {
                record.kept.iter().filter(|(kept, _)| *kept > n).map(|(_, event)| event.clone()).collect()
            }
            State::Idle | State::Closed => Vec::new(),
        }
    }

    /// Such a stream has ended.
    pub fn end(&self) {
        self.finish(&Answer { body: Body::Silence, ..Answer::empty(StatusCode::OK) });
    }

    /// Takes the stream up after the event with this number; `None` if nothing is to come after it. Whoever followed
    /// it before, and the response itself, get nothing more.
    #[must_use]
    pub fn follow(self: &Arc<Self>, after: u64) -> Option<Follower> {
        let mut state = self.lock();
        let State::Open(record) = &mut *state else { return None };
        let is_over = record.finished && record.kept.back().is_none_or(|(n, _)| *n <= after);
        if is_over || after >= record.next {
            return None;
        }
        // What has ended is all there: any number may read it.
        record.turn += u64::from(!record.finished);
        let turn = record.turn;
        drop(state);
        self.changed.notify_waiters();
        Some(Follower { log: self.clone(), turn, after })
    }

    /// Whether a follower has taken the stream from the response.
    pub(super) fn is_taken(&self) -> bool {
        matches!(&*self.lock(), State::Open(record) if record.turn > 0)
    }

    /// Resolves when a follower has. Cancel safe.
    pub(super) async fn taken(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_taken() {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn stamp(&mut self, mut event: Event) -> Event {
        event.id = Some(EventId { stream: self.id, n: self.next }.to_string());
        self.next += 1;
        event
    }

    /// Forgets the oldest events while `too_much`.
    fn shed(&mut self, streams: &Streams, too_much: impl Fn(&Self) -> bool) {
        while too_much(self) {
            let Some((_, event)) = self.kept.pop_front() else { return };
            let size = size_of(&event);
            self.bytes -= size;
            streams.give_back(size);
        }
    }

    /// Room among all streams: finished ones go first, then the oldest events of this one.
    fn make_room(&mut self, streams: &Streams, size: usize) -> bool {
        while !streams.make_room(size) {
            if self.kept.is_empty() {
                return false;
            }
            let before = self.kept.len();
            self.shed(streams, |record| record.kept.len() >= before);
        }
        true
    }
}

/// Reads a stream that was taken up again.
#[derive(Debug)]
pub struct Follower {
    log: Arc<Log>,
    turn: u64,
    after: u64,
}

/// What a follower finds.
enum Found {
    Event(Event),
    Nothing,
    End,
}

impl Follower {
    /// The next event, the answer being the last; `None` at the end, or when somebody else has taken the stream.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        let log = self.log.clone();
        loop {
            let changed = log.changed.notified();
            match self.look() {
                Found::Event(event) => return Some(event),
                Found::Nothing => changed.await,
                Found::End => return None,
            }
        }
    }

    fn look(&mut self) -> Found {
        let state = self.log.lock();
        let State::Open(record) = &*state else { return Found::End };
        if record.turn != self.turn && !record.finished {
            return Found::End;
        }
        let from = record.kept.partition_point(|(n, _)| *n <= self.after);
        match record.kept.get(from) {
            Some((n, event)) => {
                self.after = *n;
                Found::Event(event.clone())
            }
            None if record.finished => Found::End,
            None => Found::Nothing,
        }
    }
}

/// An event that only tells an id.
fn primer(stream: u128, n: u64) -> Event {
    let id = Some(EventId { stream, n }.to_string());
    Event { id, data: Some(Bytes::new()), retry: Some(RETRY), ..Event::default() }
}

/// What an answer says on a stream, if that is at hand.
fn message(answer: &Answer) -> Option<Bytes> {
    match &answer.body {
        Body::Message(message) | Body::Foreign(_, message) => Some(message.clone()),
        Body::Empty | Body::Silence | Body::Pass(_) => None,
    }
}

fn size_of(event: &Event) -> usize {
    event.data.as_ref().map_or(0, Bytes::len) + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(streams: &Streams, priming: Priming) -> Arc<Log> {
        Log::new(streams.clone(), Origin { upstream: 0, identity: Identity::default() }, priming)
    }

    fn says(text: &str) -> Event {
        Event { data: Some(Bytes::copy_from_slice(text.as_bytes())), ..Event::default() }
    }

    fn answer(text: &str) -> Answer {
        Answer::message(StatusCode::OK, text.to_owned())
    }

    fn number(event: &Event) -> u64 {
        event.id.as_deref().unwrap().parse::<EventId>().unwrap().n
    }

    async fn rest(mut follower: Follower) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        while let Some(event) = follower.next().await {
            seen.push((number(&event), String::from_utf8(event.data.unwrap().to_vec()).unwrap()));
        }
        seen
    }

    #[tokio::test]
    async fn what_never_was_a_stream_leaves_no_trace() {
        let streams = Streams::default();
        let plain = log(&streams, Priming::Sent);
        assert_eq!(plain.finish(&answer("{}")), Last::Goes(None));
        assert_eq!(plain.open(), None, "the answer was first");
        assert!(!plain.is_open() && plain.follow(0).is_none());
        assert_eq!(streams.len(), 0);
    }

    #[tokio::test]
    async fn replays_what_came_after_an_id_and_then_what_comes() {
        let streams = Streams::default();
        let log = log(&streams, Priming::Sent);
        let first = log.open().unwrap();
        assert_eq!((number(&first), first.data.as_deref(), first.retry), (0, Some(&b""[..]), Some(RETRY)));
        assert_eq!(log.open(), None);
        for text in ["a", "b"] {
            assert!(log.record(says(text)).is_some());
        }
        let id: EventId = first.id.unwrap().parse().unwrap();
        let found = streams.find(id.stream).unwrap();
        let mut old = found.follow(0).unwrap();
        assert_eq!(number(&old.next().await.unwrap()), 1);
        let follower = found.follow(1).unwrap();
        assert_eq!(old.next().await, None, "the newest wins");
        assert_eq!(log.record(says("c")), None, "the response gets nothing more");
        assert_eq!(log.finish(&answer("end")), Last::Taken);
        let expected = [(2, "b".to_owned()), (3, "c".to_owned()), (4, "end".to_owned())];
        assert_eq!(rest(follower).await, expected);
        assert_eq!(rest(log.follow(0).unwrap()).await.len(), 4, "it can be read again");
        assert!(log.follow(4).is_none() && log.follow(5).is_none(), "nothing comes after the answer");
    }

    #[tokio::test]
    async fn the_window_is_bounded_and_the_answer_is_always_in_it() {
        let streams = Streams::default();
        let log = log(&streams, Priming::Omitted);
        assert_eq!(log.open(), None);
        for n in 0..1_000 {
            let _ = log.record(says(&n.to_string()));
        }
        let _ = log.record(says(&"x".repeat(MAX_BYTES / 2)));
        assert!(streams.bytes() < MAX_BYTES);
        let _ = log.finish(&answer(&"y".repeat(2 * MAX_BYTES)));
        let seen = rest(log.follow(1).unwrap()).await;
        assert_eq!(seen.len(), MAX_EVENTS + 1);
        assert_eq!(seen[0].1, "745");
        assert_eq!(seen.last().unwrap().0, 1_002);
        let bytes = streams.bytes();
        assert_eq!(log.record(says("late")), None, "nothing comes after the answer");
        assert_eq!(streams.bytes(), bytes);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_kept_has_an_id_all_the_same() {
        let log = log(&Streams::default(), Priming::Omitted);
        let _ = log.open();
        let body = Body::Pass(super::super::PassBody::new(http_body_util::BodyExt::map_err(
            http_body_util::Empty::new(),
            |never| match never {},
        )));
        let Last::Goes(Some(id)) = log.finish(&Answer { body, ..Answer::empty(StatusCode::OK) }) else {
            panic!("an id")
        };
        assert!(id.ends_with("-1"));
        assert!(log.follow(0).is_none());
    }
}
