//! The one GET stream of a session: who listens to it on the client's side, and who needs it open on the other.
//!
//! Servers answer a second GET of a session with 409, and calls in the background need what is said on the first, so
//! the stream to the upstream is nobody's but the hub's. This is its register; who reads the stream is elsewhere.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::call::{Event, Log, Step};

/// How many steps may wait for a client that listens: more than are ever replayed. One that is slower than that is
/// cut off, and finds the rest when it comes back.
pub const ROOM: usize = 512;
/// How long a listener that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The register of one session's stream.
#[derive(Debug, Default)]
pub struct Hub {
    state: Mutex<State>,
    log: OnceLock<Arc<Log>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    stream: Stream,
    /// The newest last.
    listeners: Vec<(u64, mpsc::Sender<Step>)>,
    attachments: u64,
    moves: u64,
    background: usize,
    /// The upstream has no such stream.
    refused: bool,
}

/// The stream to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stream {
    #[default]
    Closed,
    /// Somebody asks for it.
    Opening,
    /// Somebody reads it, or is about to take it up again.
    Open,
}

/// What a client that wants to listen hears first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// What comes.
    Now,
    /// The same, after an event that tells an id to come back with.
    Primed,
    /// What it missed after the event with this number.
    After(u64),
}

/// What whoever wants the stream has to do.
#[derive(Debug)]
pub enum Turn {
    /// It listens; this is its number.
    Listens(u64),
    /// Somebody else is asking the upstream: wait and try again.
    Wait,
    /// Ask the upstream.
    Ask(Asking),
}

/// The right to ask the upstream for the stream; given back when dropped.
#[derive(Debug)]
pub struct Asking {
    hub: Arc<Hub>,
    succeeded: bool,
}

/// Keeps the stream open while a call runs in the background, or a subscriber waits for news.
#[derive(Debug)]
pub struct Need(Arc<Hub>);

impl Hub {
    /// What is said to clients goes through this log; the first one stays.
    pub fn log(&self, new: impl FnOnce() -> Arc<Log>) -> &Arc<Log> {
        self.log.get_or_init(new)
    }

    /// Whether this is the log of this stream.
    #[must_use]
    pub fn owns(&self, log: &Arc<Log>) -> bool {
        self.log.get().is_some_and(|own| Arc::ptr_eq(own, log))
    }

    /// Whether somebody listens.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.lock().listeners.iter().any(|(_, steps)| !steps.is_closed())
    }

    /// Sends a message to the newest listener; `false` if there is none. It is replayed to a client that comes back.
    pub fn push(&self, event: Event) -> bool {
        let mut state = self.lock();
        state.drop_closed();
        if state.listeners.is_empty() {
            return false;
        }
        let event = self.recorded(event);
        self.send(&mut state, &event).is_some()
    }

    /// The same, but this time only: it is not replayed. Returns which listener has it.
    pub fn push_once(&self, event: &Event) -> Option<u64> {
        let mut state = self.lock();
        state.drop_closed();
        self.send(&mut state, event)
    }

    /// The same for what the upstream said: kept also while a client that listened before is away. A slow listener is
    /// waited for, up to a limit: a server that says much at once is not to cost it its stream.
    pub async fn relay(&self, event: Event) {
        let (event, newest) = {
            let mut state = self.lock();
            state.drop_closed();
            (self.recorded(event), state.listeners.last().cloned())
        };
        let Some((listener, steps)) = newest else { return };
        if !matches!(timeout(PATIENCE, steps.send(Step::event(event))).await, Ok(Ok(()))) {
            self.detach(listener);
        }
    }

    /// How often somebody began or ceased to listen; see [`Hub::moved`].
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.lock().moves
    }

    /// Resolves with the new count when somebody has begun or ceased to listen since it was `seen`. Cancel safe.
    pub async fn moved(&self, seen: u64) -> u64 {
        loop {
            let changed = self.changed.notified();
            let now = self.moves();
            if now > seen {
                return now;
            }
            changed.await;
        }
    }

    /// Resolves at the next change of any kind. Cancel safe once created.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }

    /// Listens if the stream is open, else says what to do.
    pub fn listen(self: &Arc<Self>, steps: &mpsc::Sender<Step>, start: Start) -> Turn {
        let mut state = self.lock();
        match state.stream {
            Stream::Open => Turn::Listens(self.attach(&mut state, steps, (HeaderMap::new(), start))),
            Stream::Opening => Turn::Wait,
            Stream::Closed => Turn::Ask(self.asking(&mut state)),
        }
    }

    /// The right to ask for the stream, for a client that may not join what others have asked for; `None` if they have.
    #[must_use]
    pub fn claim(self: &Arc<Self>) -> Option<Asking> {
        let mut state = self.lock();
        (state.stream == Stream::Closed).then(|| self.asking(&mut state))
    }

    /// A call runs in the background. With the right to ask for the stream, if nobody has it and there is one.
    pub fn need(self: &Arc<Self>) -> (Need, Option<Asking>) {
        let mut state = self.lock();
        state.background += 1;
        let asks = state.stream == Stream::Closed && !state.refused;
        (Need(self.clone()), asks.then(|| self.asking(&mut state)))
    }

    /// Whether a listener is still served.
    #[must_use]
    pub fn serves(&self, listener: u64) -> bool {
        self.lock().listeners.iter().any(|(n, _)| *n == listener)
    }

    /// A listener has left.
    pub fn detach(&self, listener: u64) {
        let mut state = self.lock();
        state.keep(|n, _| n != listener);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends the streams of all listeners.
    pub fn hang_up(&self) {
        self.lock().keep(|_, _| false);
        self.changed.notify_waiters();
    }

    /// The upstream has no such stream.
    pub fn refused(&self) {
        self.lock().refused = true;
    }

    /// Resolves when the upstream has answered whoever asks for the stream. Cancel safe.
    pub async fn answered(&self) {
        loop {
            let changed = self.changed.notified();
            if self.lock().stream != Stream::Opening {
                return;
            }
            changed.await;
        }
    }

    /// Resolves when there could be a stream and there is none, nor does anybody ask for it. Cancel safe.
    pub async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.lock();
                if state.stream == Stream::Closed && !state.refused {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Resolves when nobody needs the stream any more. Cancel safe.
    pub async fn unneeded(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.lock().is_needed() {
                return;
            }
            changed.await;
        }
    }

    /// Closes the stream if nobody needs it; whether that was so.
    pub fn close_if_unneeded(&self) -> bool {
        let mut state = self.lock();
        if state.is_needed() {
            return false;
        }
        state.stream = Stream::Closed;
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// The stream has ended for good, and with it those of all listeners.
    pub fn close(&self) {
        let mut state = self.lock();
        state.stream = Stream::Closed;
        state.keep(|_, _| false);
        drop(state);
        self.changed.notify_waiters();
    }

    fn asking(self: &Arc<Self>, state: &mut State) -> Asking {
        state.stream = Stream::Opening;
        Asking { hub: self.clone(), succeeded: false }
    }

    fn attach(&self, state: &mut State, steps: &mpsc::Sender<Step>, (headers, start): (HeaderMap, Start)) -> u64 {
        let log = self.log.get();
        let first = match start {
            Start::Now => {
                // Its messages have ids all the same.
                let _ = log.and_then(Log::latest);
                Vec::new()
            }
            Start::Primed => log.and_then(Log::latest).into_iter().collect(),
            Start::After(n) => log.map(|log| log.after(n)).unwrap_or_default(),
        };
        let _ = steps.try_send(Step::open(headers));
        for event in first {
            let _ = steps.try_send(Step::event(event));
        }
        state.attachments += 1;
        state.moves += 1;
        let listener = state.attachments;
        state.listeners.push((listener, steps.clone()));
        self.changed.notify_waiters();
        listener
    }

    /// To the newest listener that takes it; one that is far behind is cut off.
    fn send(&self, state: &mut State, event: &Event) -> Option<u64> {
        while let Some((listener, steps)) = state.listeners.last() {
            let listener = *listener;
            if steps.try_send(Step::event(event.clone())).is_ok() {
                return Some(listener);
            }
            state.keep(|n, _| n != listener);
            self.changed.notify_waiters();
        }
        None
    }

    fn recorded(&self, event: Event) -> Event {
        match self.log.get() {
            Some(log) => log.record(event).unwrap_or_default(),
            None => event,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(log) = self.log.get() {
            log.end();
        }
    }
}

impl State {
    fn is_needed(&self) -> bool {
        self.background > 0 || self.listeners.iter().any(|(_, steps)| !steps.is_closed())
    }

    fn drop_closed(&mut self) {
        self.keep(|_, steps| !steps.is_closed());
    }

    /// Drops all other listeners; that somebody went is a move.
    fn keep(&mut self, is_kept: impl Fn(u64, &mpsc::Sender<Step>) -> bool) {
        let before = self.listeners.len();
        self.listeners.retain(|(n, steps)| is_kept(*n, steps));
        self.moves += u64::from(self.listeners.len() < before);
    }
}

impl Asking {
    /// The upstream has opened the stream: from now on it is read.
    pub fn opened(mut self) {
        self.succeed();
    }

    /// The same, with the client that asked for it as a listener; `headers` are the upstream's. Returns its number.
    #[must_use]
    pub fn opened_for(mut self, steps: &mpsc::Sender<Step>, (headers, start): (HeaderMap, Start)) -> u64 {
        let hub = self.hub.clone();
        let listener = hub.attach(&mut hub.lock(), steps, (headers, start));
        self.succeed();
        listener
    }

    fn succeed(&mut self) {
        self.succeeded = true;
        let mut state = self.hub.lock();
        state.stream = Stream::Open;
        state.refused = false;
        drop(state);
        self.hub.changed.notify_waiters();
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.succeeded {
            self.hub.lock().stream = Stream::Closed;
            self.hub.changed.notify_waiters();
        }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        self.0.lock().background -= 1;
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn says(text: &'static str) -> Event {
        Event { data: Some(Bytes::from_static(text.as_bytes())), ..Event::default() }
    }

    fn listener(hub: &Arc<Hub>) -> mpsc::Receiver<Step> {
        let (steps, receiver) = mpsc::channel(ROOM);
        match hub.listen(&steps, Start::Now) {
            Turn::Ask(asking) => drop(asking.opened_for(&steps, (HeaderMap::new(), Start::Now))),
            Turn::Listens(_) => {}
            Turn::Wait => panic!("nobody asks"),
        }
        receiver
    }

    fn heard(receiver: &mut mpsc::Receiver<Step>) -> Vec<Bytes> {
        let mut heard = Vec::new();
        while let Ok(step) = receiver.try_recv() {
            if let Step::Event(event) = step {
                heard.extend(event.data);
            }
        }
        heard
    }

    #[tokio::test]
    async fn whoever_asked_on_it_is_told_when_a_stream_closes() {
        for ends in [Hub::close, Hub::hang_up] {
            let hub = Arc::new(Hub::default());
            let _listening = listener(&hub);
            let seen = hub.moves();
            ends(&hub);
            let moved = tokio::time::timeout(std::time::Duration::from_secs(5), hub.moved(seen)).await;
            assert_eq!(moved, Ok(seen + 1));
            ends(&hub);
            assert_eq!(hub.moves(), seen + 1, "nobody was left to go");
        }
    }

    #[tokio::test]
    async fn each_message_goes_to_the_newest_that_is_there() {
        let hub = Arc::new(Hub::default());
        assert!(!hub.push(says("nobody")) && !hub.is_listening());
        let mut old = listener(&hub);
        let mut new = listener(&hub);
        assert_eq!(hub.moved(0).await, 2);
        assert!(hub.push(says("1")));
        assert_eq!((heard(&mut old).len(), heard(&mut new).len()), (0, 1));
        drop(new);
        assert!(hub.push_once(&says("2")).is_some());
        assert_eq!(heard(&mut old), [Bytes::from_static(b"2")]);
        hub.hang_up();
        assert!(!hub.push(says("3")) && old.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_listener_that_reads_nothing_is_cut_off() {
        let hub = Arc::new(Hub::default());
        let mut slow = listener(&hub);
        let sent = (0..2 * ROOM).take_while(|_| hub.push(says("x"))).count();
        assert_eq!(sent, ROOM - 1, "and the head");
        assert_eq!(heard(&mut slow).len(), sent);
        assert!(slow.is_closed() || slow.try_recv().is_err());
    }

    #[tokio::test]
    async fn one_asks_and_the_others_wait() {
        let hub = Arc::new(Hub::default());
        let (steps, _receiver) = mpsc::channel(ROOM);
        let (need, asking) = hub.need();
        assert!(matches!(hub.listen(&steps, Start::Now), Turn::Wait));
        drop(asking.unwrap());
        let Turn::Ask(asking) = hub.listen(&steps, Start::Now) else { panic!("it failed, so another asks") };
        asking.opened();
        assert!(hub.need().1.is_none());
        assert!(!hub.close_if_unneeded());
        drop(need);
        hub.unneeded().await;
        assert!(hub.close_if_unneeded());
        hub.refused();
        assert!(hub.need().1.is_none(), "an upstream without such a stream is not asked again");
    }
}
