//! Where a driver and its followers meet.
//!
//! Nobody waits for anybody here: what a follower has no room for it misses, save the head and the outcome.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, StatusCode};
use tokio::sync::{Notify, mpsc};

use super::{Follower, lock};
use crate::call::Event;
use crate::jsonrpc::Id;
use crate::upstream::{Arrived, Error, Kind};

/// How many events may wait for a slow follower before it misses some.
const BACKLOG: usize = 1024;

/// How an exchange ended: with the answer, or without one.
pub(super) type Outcome = Result<Arrived, Error>;

/// The head of the upstream's answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) kind: Kind,
    pub(super) headers: HeaderMap,
}

/// What followers are told while the exchange runs.
#[derive(Clone, Debug)]
pub(super) enum News {
    Head(Arc<Head>),
    Event(Event),
    /// Progress, with the place of its token.
    Progress(Event, Range<usize>),
}

/// One exchange, as its driver and its followers see it.
#[derive(Debug, Default)]
pub(super) struct Hub {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    head: Option<Arc<Head>>,
    outcome: Option<Outcome>,
    /// In the order in which they came.
    followers: Vec<(usize, mpsc::Sender<News>)>,
    /// How many ever came.
    joined: usize,
    questions: Vec<Question>,
    /// Why the last one left.
    reason: String,
}

/// A question of the upstream's that has no answer yet.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) id: Id,
    pub(super) method: String,
    pub(super) event: Event,
    /// The follower that it is with.
    with: Option<usize>,
    /// All before this one were asked.
    next: usize,
}

impl Question {
    pub(super) fn new(id: &Id, method: &str, event: Event) -> Self {
        Self { id: id.clone(), method: method.to_owned(), event, with: None, next: 0 }
    }
}

impl Hub {
    /// One more follower; `None` if the exchange is over. `token` is what progress has as its token for this one.
    pub(super) fn join(self: &Arc<Self>, token: Option<String>) -> Option<Follower> {
        let mut state = lock(&self.state);
        if state.outcome.is_some() {
            return None;
        }
        let (news, receiver) = mpsc::channel(BACKLOG);
        if let Some(head) = &state.head {
            let _ = news.try_send(News::Head(head.clone()));
        }
        let number = state.joined;
        state.joined += 1;
        state.followers.push((number, news));
        Some(Follower::new(self.clone(), number, receiver, token))
    }

    /// The answer has begun.
    pub(super) fn open(&self, head: Head) {
        let head = Arc::new(head);
        lock(&self.state).head = Some(head.clone());
        self.tell(&News::Head(head));
    }

    /// The head of the answer, once it came.
    pub(super) fn head(&self) -> Option<Arc<Head>> {
        lock(&self.state).head.clone()
    }

    /// Tells all followers.
    pub(super) fn tell(&self, news: &News) {
        for (_, follower) in &lock(&self.state).followers {
            let _ = follower.try_send(news.clone());
        }
    }

    /// The upstream asks something: [`offer`](Self::offer) finds somebody to ask.
    pub(super) fn ask(&self, question: Question) {
        lock(&self.state).questions.push(question);
    }

    /// Offers each question that is with nobody to the oldest follower that was not asked yet. Forgets those that are
    /// answered, and returns those for which nobody is left.
    pub(super) fn offer(&self, is_open: impl Fn(&Id) -> bool) -> Vec<Question> {
        let State { followers, questions, .. } = &mut *lock(&self.state);
        questions.retain(|question| is_open(&question.id));
        for question in questions.iter_mut().filter(|question| question.with.is_none()) {
            let asked = followers.iter().find(|(number, follower)| {
                *number >= question.next && follower.try_send(News::Event(question.event.clone())).is_ok()
            });
            if let Some((number, _)) = asked {
                (question.with, question.next) = (Some(*number), number + 1);
            }
        }
        questions.extract_if(.., |question| question.with.is_none()).collect()
    }

    /// A follower has nobody to answer this question.
    pub(super) fn pass_on(&self, number: usize, question: &Id) {
        self.release(number, |open| open.id == *question);
    }

    /// A follower is no longer interested.
    pub(super) fn leave(&self, number: usize, reason: &str) {
        let mut state = lock(&self.state);
        let Some(at) = state.followers.iter().position(|(other, _)| *other == number) else { return };
        state.followers.remove(at);
        reason.clone_into(&mut state.reason);
        drop(state);
        self.release(number, |_| true);
    }

    fn release(&self, number: usize, is_meant: impl Fn(&Question) -> bool) {
        let mut state = lock(&self.state);
        let theirs = state.questions.iter_mut().filter(|open| open.with == Some(number) && is_meant(open));
        theirs.for_each(|open| open.with = None);
        drop(state);
        self.changed.notify_one();
    }

    /// Resolves when a follower has left, or has passed a question on. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// If all followers have left: why the last one did. From then on nobody can join.
    pub(super) fn deserted(&self) -> Option<String> {
        let mut state = lock(&self.state);
        if !state.followers.is_empty() || state.outcome.is_some() {
            return None;
        }
        state.outcome = Some(Err(cut_off()));
        Some(std::mem::take(&mut state.reason))
    }

    /// The exchange is over.
    pub(super) fn end(&self, outcome: Outcome) {
        let mut state = lock(&self.state);
        state.outcome.get_or_insert(outcome);
        // Each sees the end of its channel once it has read what came before.
        state.followers.clear();
    }

    /// How the exchange ended, once a follower was told that it has.
    pub(super) fn outcome(&self) -> Outcome {
        match &lock(&self.state).outcome {
            Some(Ok(Arrived::Body(body))) => Ok(Arrived::Body(body.clone())),
            Some(Ok(Arrived::Event(event))) => Ok(Arrived::Event(event.clone())),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(Arrived::Large)) | None => Err(cut_off()),
        }
    }
}

/// The driver ended before the upstream did.
pub(super) fn cut_off() -> Error {
    Error::Broken("the call was cut off".into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt;

    use super::*;
    use crate::worker::upcall::Came;

    fn event(text: &'static str) -> Event {
        Event { data: Some(Bytes::from_static(text.as_bytes())), ..Event::default() }
    }

    fn head() -> Head {
        Head { status: StatusCode::OK, kind: Kind::Events, headers: HeaderMap::new() }
    }

    /// What a follower is told next: the data of an event, or a word.
    fn told(follower: &mut Follower) -> String {
        match follower.next().now_or_never() {
            None => "nothing".into(),
            Some(Ok(Came::Head)) => "head".into(),
            Some(Ok(Came::Part(Arrived::Event(event)))) => {
                String::from_utf8(event.data.unwrap_or_default().to_vec()).unwrap()
            }
            Some(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn who_comes_later_gets_the_head_and_what_comes_after() {
        let hub = Arc::new(Hub::default());
        let mut one = hub.join(None).unwrap();
        hub.open(head());
        hub.tell(&News::Event(event("first")));
        let mut two = hub.join(None).unwrap();
        hub.tell(&News::Event(event("second")));
        hub.end(Ok(Arrived::Event(event("answer"))));
        hub.end(Err(cut_off()));
        assert!(hub.join(None).is_none(), "it is over");
        for expected in ["head", "first", "second", "answer", "nothing"] {
            assert_eq!(told(&mut one), expected);
        }
        for expected in ["head", "second", "answer", "nothing"] {
            assert_eq!(told(&mut two), expected);
        }
    }

    #[test]
    fn progress_has_each_ones_own_token() {
        let hub = Arc::new(Hub::default());
        let (mut one, mut two, mut none) =
            (hub.join(Some("7".into())).unwrap(), hub.join(Some("\"b\"".into())).unwrap(), hub.join(None).unwrap());
        hub.tell(&News::Progress(event("{\"progressToken\":\"ours\"}"), 17..23));
        assert_eq!(told(&mut one), "{\"progressToken\":7}");
        assert_eq!(told(&mut two), "{\"progressToken\":\"b\"}");
        assert_eq!(told(&mut none), "nothing");
    }

    #[test]
    fn a_follower_that_does_not_read_misses_neither_head_nor_answer() {
        let hub = Arc::new(Hub::default());
        let (mut fast, mut slow) = (hub.join(None).unwrap(), hub.join(None).unwrap());
        for _ in 0..BACKLOG {
            hub.tell(&News::Event(event("early")));
            assert_eq!(told(&mut fast), "early");
        }
        hub.open(head());
        hub.ask(Question::new(&Id::from_string("q"), "roots/list", event("question")));
        assert!(hub.offer(|_| true).is_empty());
        assert_eq!((told(&mut fast), told(&mut fast)), ("head".into(), "question".into()));
        hub.end(Ok(Arrived::Body(Bytes::from_static(b"{}"))));
        let read: Vec<String> = (0..BACKLOG).map(|_| told(&mut slow)).collect();
        assert!(read.iter().all(|text| text == "early"));
        assert_eq!(told(&mut slow), "head");
        assert!(told(&mut slow).contains("Body"));
    }

    #[test]
    fn a_question_is_with_one_follower_at_a_time() {
        let hub = Arc::new(Hub::default());
        let id = Id::from_string("q");
        let (mut one, mut two, mut three) = (hub.join(None).unwrap(), hub.join(None).unwrap(), hub.join(None).unwrap());
        hub.ask(Question::new(&id, "elicitation/create", event("question")));
        for _ in 0..2 {
            assert!(hub.offer(|_| true).is_empty());
        }
        assert_eq!((told(&mut one), told(&mut two)), ("question".into(), "nothing".into()));
        two.pass_on(&id);
        assert!(hub.offer(|_| true).is_empty(), "it is not with that one");
        one.pass_on(&id);
        assert!(hub.offer(|_| true).is_empty());
        assert_eq!(
            (told(&mut one), told(&mut two), told(&mut three)),
            ("nothing".into(), "question".into(), "nothing".into())
        );
        two.leave("tired");
        assert!(hub.offer(|_| true).is_empty());
        assert_eq!(told(&mut three), "question");
        drop(three);
        let left: Vec<String> = hub.offer(|_| true).into_iter().map(|question| question.method).collect();
        assert_eq!(left, ["elicitation/create"], "nobody else is there, and the first has declined");
        assert!(hub.offer(|_| true).is_empty());
    }

    #[test]
    fn an_answered_question_is_not_asked_again() {
        let hub = Arc::new(Hub::default());
        let (one, mut two) = (hub.join(None).unwrap(), hub.join(None).unwrap());
        hub.ask(Question::new(&Id::from_string("q"), "roots/list", event("question")));
        assert!(hub.offer(|_| true).is_empty());
        drop(one);
        assert!(hub.offer(|_| false).is_empty());
        assert_eq!(told(&mut two), "nothing");
    }

    #[test]
    fn deserted_once_and_for_all() {
        let hub = Arc::new(Hub::default());
        let (one, two) = (hub.join(None).unwrap(), hub.join(None).unwrap());
        one.leave("first");
        assert_eq!(hub.deserted(), None);
        assert!(hub.changed().now_or_never().is_some());
        two.leave("last");
        assert_eq!(hub.deserted().as_deref(), Some("last"));
        assert!(hub.join(None).is_none());
        assert_eq!(hub.deserted(), None);
    }
}
