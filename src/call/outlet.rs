//! The two ends of an answer that comes in steps.
//!
//! The sending end writes down what goes out, and goes on writing when its client has left.

use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use futures_util::future::select;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::log::{Last, Log};
use super::{Answer, Body, Event, Step};

/// The sending end.
#[derive(Debug)]
pub struct Outlet {
    steps: mpsc::Sender<Step>,
    log: Option<Arc<Log>>,
}

/// The receiving end; dropping it tells the other that the client has left.
#[derive(Debug)]
pub struct Steps {
    steps: mpsc::Receiver<Step>,
    log: Option<Arc<Log>>,
}

/// An event that waits for a slow client; dropped, it is not sent, but written down all the same.
pub type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Both ends; `room` steps may wait for a slow client before the sender waits for it.
#[must_use]
pub fn outlet(room: usize, log: Option<Arc<Log>>) -> (Outlet, Steps) {
    let (sender, receiver) = mpsc::channel(room);
    (Outlet { steps: sender, log: log.clone() }, Steps { steps: receiver, log })
}

/// A channel that nobody reads, shared by all that have nobody to tell.
static NOBODY: LazyLock<mpsc::Sender<Step>> = LazyLock::new(|| mpsc::channel(1).0);

impl Outlet {
    /// An outlet that leads nowhere: its client has left for good.
    #[must_use]
    pub fn nowhere() -> Self {
        Self { steps: NOBODY.clone(), log: None }
    }

    /// An event stream was opened, with these end-to-end headers. Not cancel safe.
    pub async fn open(&self, headers: HeaderMap) {
        self.send(Step::open(headers)).await;
        if let Some(first) = self.first() {
            self.send(Step::event(first)).await;
        }
    }

    /// It may take long, and nothing is there to say: the stream begins now. Not cancel safe.
    pub async fn hold(&self) {
        self.send(Step::Hold).await;
    }

    /// An event to relay. Not cancel safe.
    pub async fn event(&self, event: Event) {
        if let Some(waiting) = self.try_event(event) {
            waiting.await;
        }
    }

    /// The same for who has other things to do while a slow client is waited for: returns what is to be waited for
    /// before anything else is sent.
    #[must_use]
    pub fn try_event(&self, event: Event) -> Option<Waiting> {
        let first = self.first();
        let mut left = first.into_iter().chain(self.recorded(event)).map(Step::event);
        let full = loop {
            match self.steps.try_send(left.next()?) {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return None,
                Err(TrySendError::Full(step)) => break step,
            }
        };
        let (steps, log) = (self.steps.clone(), self.log.clone());
        let left: Vec<Step> = left.collect();
        Some(Box::pin(async move {
            place(&steps, log.as_deref(), full).await;
            for step in left {
                place(&steps, log.as_deref(), step).await;
            }
        }))
    }

    /// The same without waiting for a slow client; `false`, and nothing is sent, if nobody can read it, now or when it
    /// comes back.
    #[must_use]
    pub fn offer(&self, event: Event) -> bool {
        let is_taken = self.is_taken();
        if is_taken || !self.is_read() {
            return self.is_resumable() && {
                let _ = self.recorded(event);
                true
            };
        }
        // One for the event, one for what the stream begins with.
        let Ok(mut room) = self.steps.try_reserve_many(2) else { return false };
        for event in self.first().into_iter().chain(self.recorded(event)) {
            if let Some(place) = room.next() {
                place.send(Step::event(event));
            }
        }
        true
    }

    /// Whether a client that came back has the stream now.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_taken())
    }

    /// Whether its client is there.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !self.steps.is_closed()
    }

    /// The answer; nothing comes after it. Not cancel safe.
    pub async fn done(&self, answer: Answer) {
        let step = match self.log.as_ref().map_or(Last::Goes(None), |log| log.finish(&answer)) {
            Last::Goes(id) => Step::Done(Box::new(answer), id),
            Last::Taken => Step::done(silence()),
        };
        self.send(step).await;
    }

    /// Resolves when the client has left. Cancel safe.
    pub async fn closed(&self) {
        self.steps.closed().await;
    }

    /// Whether a client that has left can come back for the rest.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_open())
    }

    /// The stream begins with something to come back with.
    fn first(&self) -> Option<Event> {
        self.log.as_ref().filter(|_| self.is_read()).and_then(Log::open)
    }

    fn recorded(&self, event: Event) -> Option<Event> {
        match &self.log {
            Some(log) => log.record(event),
            None => Some(event),
        }
    }

    async fn send(&self, step: Step) {
        if let Err(TrySendError::Full(step)) = self.steps.try_send(step) {
            place(&self.steps, self.log.as_deref(), step).await;
        }
    }
}

/// Waits for a slow client, but not for a connection that hangs while another has taken the stream from it.
async fn place(steps: &mpsc::Sender<Step>, log: Option<&Log>, step: Step) {
    match log {
        Some(log) => drop(select(pin!(steps.send(step)), pin!(log.taken())).await),
        None => drop(steps.send(step).await),
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.end();
        }
    }
}

impl Steps {
    /// The next step; `None` at a silent end. Cancel safe.
    pub async fn recv(&mut self) -> Option<Step> {
        self.steps.recv().await
    }

    /// The same for who polls.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        self.steps.poll_recv(cx)
    }

    /// The response becomes an event stream before there is anything to say; returns what is to be sent first.
    #[must_use]
    pub fn upgrade(&self) -> Option<Event> {
        self.log.as_ref().and_then(Log::open)
    }
}

impl From<mpsc::Receiver<Step>> for Steps {
    fn from(steps: mpsc::Receiver<Step>) -> Self {
        Self { steps, log: None }
    }
}

fn silence() -> Answer {
    Answer { body: Body::Silence, ..Answer::empty(StatusCode::OK) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::time::timeout;

    use super::*;
    use crate::call::{Origin, Priming, Streams};
    use crate::task::Identity;

    fn ends(room: usize) -> (Outlet, Steps, Arc<Log>) {
        let origin = Origin { upstream: 0, identity: Identity::default() };
        let log = Log::new(Streams::default(), origin, Priming::Sent);
        let (sender, receiver) = outlet(room, Some(log.clone()));
        (sender, receiver, log)
    }

    fn says(text: &'static str) -> Event {
        Event { data: Some(Bytes::from_static(text.as_bytes())), ..Event::default() }
    }

    fn answer() -> Answer {
        Answer::message(StatusCode::OK, "{}")
    }

    #[tokio::test]
    async fn the_answer_and_the_upgrade_agree_who_was_first() {
        let (sender, mut receiver, log) = ends(4);
        sender.done(answer()).await;
        assert_eq!(receiver.upgrade(), None, "the answer is on its way: there is nothing to come back for");
        assert!(matches!(receiver.recv().await, Some(Step::Done(_, None))));
        assert!(!log.is_open());

        let (sender, mut receiver, _) = ends(4);
        assert!(receiver.upgrade().is_some());
        sender.done(answer()).await;
        assert!(matches!(receiver.recv().await, Some(Step::Done(_, Some(id))) if id.ends_with("-1")));
    }

    #[tokio::test]
    async fn a_stream_begins_with_an_id_once() {
        let (sender, mut receiver, _) = ends(8);
        sender.open(HeaderMap::new()).await;
        sender.event(says("a")).await;
        assert!(matches!(receiver.recv().await, Some(Step::Open(_))));
        let mut ids = Vec::new();
        for _ in 0..2 {
            let Some(Step::Event(event)) = receiver.recv().await else { panic!("an event") };
            ids.push(event.id.unwrap().rsplit('-').next().unwrap().to_owned());
        }
        assert_eq!(ids, ["0", "1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_left_misses_nothing() {
        let (sender, receiver, log) = ends(8);
        sender.open(HeaderMap::new()).await;
        drop(receiver);
        for _ in 0..20 {
            sender.event(says("a")).await;
        }
        assert!(sender.is_resumable());
        drop(sender);
        let mut follower = log.follow(0).unwrap();
        for _ in 0..20 {
            assert!(follower.next().await.is_some());
        }
        assert_eq!(timeout(Duration::from_secs(1), follower.next()).await, Ok(None), "dropping the sender is an end");

        let (sender, receiver, log) = ends(8);
        drop(receiver);
        sender.event(says("a")).await;
        assert!(!log.is_open(), "who never heard an id cannot come back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_hangs_holds_up_nobody_who_came_back() {
        let (sender, receiver, log) = ends(1);
        let first = receiver.upgrade().unwrap();
        assert!(first.id.unwrap().ends_with("-0"));
        sender.event(says("a")).await;
        let blocked = sender.event(says("b"));
        let comes_back = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            log.follow(0).unwrap()
        };
        let ((), mut follower) = tokio::join!(blocked, comes_back);
        sender.event(says("c")).await;
        for text in ["a", "b", "c"] {
            assert_eq!(follower.next().await.unwrap().data.unwrap(), text);
        }
    }
}
