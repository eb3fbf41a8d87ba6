//! The requests of one session that are in flight, by the id they have upstream.
//!
//! Servers key requests by the text of their id; clients do use one twice. So a request keeps its id unless that
//! text is taken, and answers find their way by the exchange they come on, never by an id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::jsonrpc::Id;

/// All requests of one session that are in flight.
#[derive(Debug, Default)]
pub struct Calls {
    places: Mutex<Places>,
    changed: Notify,
    fresh: AtomicU64,
    order: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    by_upstream_id: HashMap<String, Arc<InFlight>>,
    /// Those that have no id of their own upstream, since they share another's.
    sharing: Vec<Arc<InFlight>>,
}

impl Places {
    fn all(&self) -> impl Iterator<Item = &Arc<InFlight>> {
        self.by_upstream_id.values().chain(&self.sharing)
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its client waits.
    Held,
    /// Its client has a handle.
    Deferred,
}

/// One request in flight, as others may touch it.
#[derive(Debug)]
pub struct InFlight {
    /// The id its client gave it.
    pub client_id: Id,
    /// The id it has upstream, or had until [`Ticket::share`] handed it over.
    pub upstream_id: Id,
    /// Whether it is a tool call: those outlive a session.
    pub is_call: bool,
    /// Its place in the order they came.
    place: u64,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    cancelled: bool,
    /// Progress token it has upstream, as JSON text.
    token: Option<String>,
    /// The questions that are with the client, and their methods.
    questions: Vec<(Id, String)>,
    /// Progress that arrived on another stream.
    progress: Vec<bytes::Bytes>,
    /// Questions that did.
    handed: Vec<bytes::Bytes>,
    /// The questions whose answers are taken here.
    here: Vec<Id>,
    /// Those answers, each a response.
    answers: Vec<(Id, bytes::Bytes)>,
}

/// What a client's `notifications/cancelled` names.
#[derive(Debug)]
pub enum Named {
    /// One held request.
    One(Arc<InFlight>),
    /// Nothing held, or more than one.
    Unclear,
}

/// Keeps a request registered; gives its place back when dropped.
#[derive(Debug)]
pub struct Ticket {
    call: Arc<InFlight>,
    calls: Option<Arc<Calls>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InFlight {
    fn new(client_id: Id, upstream_id: Id, (is_call, place): (bool, u64)) -> Self {
        let state = State {
            phase: Phase::Held,
            cancelled: false,
            token: None,
            questions: Vec::new(),
            progress: Vec::new(),
            handed: Vec::new(),
            here: Vec::new(),
            answers: Vec::new(),
        };
        Self { client_id, upstream_id, is_call, place, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Resolves when somebody has done something to the request. Cancel safe.
    pub async fn touched(&self) {
        self.wake.notified().await;
    }

    /// Its client withdraws it.
    pub fn cancel(&self) {
        lock(&self.state).cancelled = true;
        self.wake.notify_one();
    }

    /// Whether its client withdrew it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    /// Its client has a handle now.
    pub fn defer(&self) {
        lock(&self.state).phase = Phase::Deferred;
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// The progress token it has upstream, as JSON text.
    pub fn set_token(&self, token: String) {
        lock(&self.state).token = Some(token);
    }

    /// The same, if it has one.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        lock(&self.state).token.clone()
    }

    /// A question of its went to the client, on whichever stream.
    pub fn ask(&self, question: &Id, method: &str) {
        lock(&self.state).questions.push((question.clone(), method.to_owned()));
        self.wake.notify_one();
    }

    /// The answer to this question of its is taken by [`Calls::hand_in`]: the upstream does not wait for it under
    /// that id.
    pub fn expect_here(&self, question: &Id) {
        lock(&self.state).here.push(question.clone());
    }

    /// The answers that were handed in since the last call.
    pub fn take_answers(&self) -> Vec<(Id, bytes::Bytes)> {
        std::mem::take(&mut lock(&self.state).answers)
    }

    /// Whether a question is with the client.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        !lock(&self.state).questions.is_empty()
    }

    /// Whether this question is with the client.
    #[must_use]
    pub fn asks(&self, question: &Id) -> bool {
        lock(&self.state).questions.iter().any(|(open, _)| open == question)
    }

    /// Takes back one question.
    pub fn withdraw(&self, question: &Id) {
        lock(&self.state).questions.retain(|(open, _)| open != question);
    }

    /// Takes back all questions; returns their ids and methods.
    pub fn withdraw_questions(&self) -> Vec<(Id, String)> {
        std::mem::take(&mut lock(&self.state).questions)
    }

    /// A question of its that arrived on the session's own stream, where nobody listens.
    pub fn put_question(&self, message: bytes::Bytes) {
        lock(&self.state).handed.push(message);
        self.wake.notify_one();
    }

    /// Such questions since the last call.
    pub fn take_questions(&self) -> Vec<bytes::Bytes> {
        std::mem::take(&mut lock(&self.state).handed)
    }

    /// Progress of its that arrived elsewhere since the last call.
    pub fn take_progress(&self) -> Vec<bytes::Bytes> {
        std::mem::take(&mut lock(&self.state).progress)
    }
}

impl Calls {
    /// Registers a request and decides which id it has upstream.
    #[must_use]
    pub fn enter(self: &Arc<Self>, client_id: &Id, is_call: bool) -> Ticket {
        let by_id = &mut lock(&self.places).by_upstream_id;
        let mut upstream_id = client_id.clone();
        while by_id.contains_key(&*upstream_id.key()) {
            let n = self.fresh.fetch_add(1, Ordering::Relaxed);
            upstream_id = Id::from_string(&format!("{}~{n}", client_id.key()));
        }
        let key = upstream_id.key().into_owned();
        let place = self.order.fetch_add(1, Ordering::Relaxed);
        let call = Arc::new(InFlight::new(client_id.clone(), upstream_id, (is_call, place)));
        by_id.insert(key, call.clone());
        Ticket { call, calls: Some(self.clone()) }
    }

    /// The one held request with this id.
    #[must_use]
    pub fn named(&self, client_id: &Id) -> Named {
        let places = lock(&self.places);
        let mut held = places.all().filter(|call| call.client_id == *client_id && call.phase() == Phase::Held);
        match (held.next(), held.next()) {
            (Some(one), None) => Named::One(one.clone()),
            _ => Named::Unclear,
        }
    }

    /// The call that a question on the session's own stream belongs to, since it names none: the only one, else the
    /// oldest that asks nothing yet.
    #[must_use]
    pub fn asker(&self) -> Option<Arc<InFlight>> {
        let asks = |call: &InFlight| {
            let state = lock(&call.state);
            !state.questions.is_empty() || !state.handed.is_empty()
        };
        let by_id = &lock(&self.places).by_upstream_id;
        by_id.values().filter(|call| call.is_call).min_by_key(|call| (asks(call), call.place)).cloned()
    }

    /// Whether a tool call runs in the background.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        lock(&self.places).all().any(|call| call.is_call && call.phase() == Phase::Deferred)
    }

    /// Whether a tool call is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        lock(&self.places).all().any(|call| call.is_call)
    }

    /// Resolves when no tool call is under way.
    pub async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_busy() {
                return;
            }
            changed.await;
        }
    }

    /// The client answered a question: whose it was goes on, and whoever shares its exchange knows. `false` if nobody
    /// asked it.
    pub fn answered(&self, question: &Id) -> bool {
        let key = question.key();
        let mut was_asked = false;
        for call in lock(&self.places).all() {
            let mut state = lock(&call.state);
            if let Some(at) = state.questions.iter().position(|(open, _)| open.key() == key) {
                state.questions.swap_remove(at);
                call.wake.notify_one();
                was_asked = true;
            }
        }
        was_asked
    }

    /// Whether the answer to this question is taken here.
    #[must_use]
    pub fn expects(&self, question: &Id) -> bool {
        lock(&self.places).all().any(|call| lock(&call.state).here.contains(question))
    }

    /// The client answered a question whose answer is taken here; `false` if it is none of those.
    pub fn hand_in(&self, question: &Id, response: &bytes::Bytes) -> bool {
        for call in lock(&self.places).all() {
            let mut state = lock(&call.state);
            let Some(at) = state.here.iter().position(|open| open == question) else { continue };
            state.here.swap_remove(at);
            // One that was declined meanwhile is answered by nobody else.
            if let Some(at) = state.questions.iter().position(|(open, _)| open == question) {
                state.questions.swap_remove(at);
                state.answers.push((question.clone(), response.clone()));
                call.wake.notify_one();
            }
            return true;
        }
        false
    }

    /// The phase of the call whose progress has this token, as JSON text; hands the message to it.
    pub fn progressed(&self, token: &str, message: &bytes::Bytes) -> Option<Phase> {
        let by_id = &lock(&self.places).by_upstream_id;
        by_id.values().find_map(|call| {
            let mut state = lock(&call.state);
            if state.token.as_deref() != Some(token) {
                return None;
            }
            state.progress.push(message.clone());
            call.wake.notify_one();
            Some(state.phase)
        })
    }

    fn leave(&self, call: &Arc<InFlight>) {
        let places = &mut *lock(&self.places);
        let key = call.upstream_id.key();
        if places.by_upstream_id.get(&*key).is_some_and(|found| Arc::ptr_eq(found, call)) {
            places.by_upstream_id.remove(&*key);
        }
        places.sharing.retain(|sharing| !Arc::ptr_eq(sharing, call));
        self.changed.notify_waiters();
    }
}

impl Ticket {
    /// A request of no session: it keeps its id, and nobody can name it.
    #[must_use]
    pub fn unregistered(client_id: &Id, is_call: bool) -> Self {
        Self { call: Arc::new(InFlight::new(client_id.clone(), client_id.clone(), (is_call, 0))), calls: None }
    }

    /// Hands its id upstream, and the progress token that goes with it, over to another ticket: that of an exchange
    /// which several requests share, and which no client can name. From now on its own request is only known by the id
    /// that its client gave it.
    #[must_use]
    pub fn share(&self) -> Self {
        let InFlight { client_id, upstream_id, is_call, .. } = &*self.call;
        let exchange = Arc::new(InFlight::new(client_id.clone(), upstream_id.clone(), (*is_call, self.call.place)));
        exchange.defer();
        lock(&exchange.state).token = self.call.token();
        if let Some(calls) = &self.calls {
            let places = &mut *lock(&calls.places);
            places.by_upstream_id.insert(upstream_id.key().into_owned(), exchange.clone());
            places.sharing.push(self.call.clone());
        }
        Self { call: exchange, calls: self.calls.clone() }
    }

    /// The request.
    #[must_use]
    pub fn call(&self) -> &Arc<InFlight> {
        &self.call
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(calls) = &self.calls {
            calls.leave(&self.call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn id(raw: &'static str) -> Id {
        Id::from_raw(raw.as_bytes()).unwrap()
    }

    #[test]
    fn an_id_is_fresh_only_while_its_text_is_taken() {
        let calls = Arc::new(Calls::default());
        let one = calls.enter(&id("1"), true);
        assert_eq!(one.call().upstream_id, id("1"));
        let two = calls.enter(&id("\"1\""), true);
        assert_ne!(two.call().upstream_id.key(), "1");
        drop(one);
        assert_eq!(calls.enter(&id("1"), true).call().upstream_id, id("1"));
        drop(two);
        assert!(!calls.is_busy());
    }

    #[test]
    fn only_one_held_request_can_be_named() {
        let calls = Arc::new(Calls::default());
        let one = calls.enter(&id("1"), true);
        assert!(matches!(calls.named(&id("1")), Named::One(_)));
        assert!(matches!(calls.named(&id("\"1\"")), Named::Unclear));
        let two = calls.enter(&id("1"), true);
        assert!(matches!(calls.named(&id("1")), Named::Unclear));
        one.call().defer();
        assert!(matches!(calls.named(&id("1")), Named::One(found) if Arc::ptr_eq(&found, two.call())));
    }

    #[test]
    fn a_question_that_names_no_call_is_the_oldest_ones_that_asks_nothing() {
        let calls = Arc::new(Calls::default());
        let _other = calls.enter(&id("0"), false);
        assert!(calls.asker().is_none());
        let (one, two) = (calls.enter(&id("1"), true), calls.enter(&id("2"), true));
        let is = |ticket: &Ticket| calls.asker().is_some_and(|call| Arc::ptr_eq(&call, ticket.call()));
        assert!(is(&one));
        one.call().put_question(Bytes::from_static(b"q"));
        assert!(is(&two));
        two.call().ask(&id("9"), "roots/list");
        assert!(is(&one), "all ask: the oldest");
        assert_eq!(one.call().take_questions(), [Bytes::from_static(b"q")]);
        assert!(!calls.is_deferred());
        two.call().defer();
        assert!(calls.is_deferred());
    }

    #[tokio::test]
    async fn requests_that_share_are_named_by_their_clients_alone() {
        let calls = Arc::new(Calls::default());
        let (one, two) = (calls.enter(&id("1"), true), calls.enter(&id("2"), true));
        one.call().set_token("\"t\"".into());
        let exchange = one.share();
        drop(two.share());
        assert_eq!(
            (&exchange.call().upstream_id, calls.enter(&id("2"), true).call().upstream_id.raw()),
            (&id("1"), "2")
        );
        assert_ne!(calls.enter(&id("1"), true).call().upstream_id, id("1"), "the exchange has it");
        for ticket in [&one, &two] {
            let found = calls.named(&ticket.call().client_id);
            assert!(matches!(found, Named::One(found) if Arc::ptr_eq(&found, ticket.call())));
        }
        exchange.call().ask(&id("0"), "roots/list");
        two.call().ask(&id("0"), "roots/list");
        assert!(calls.answered(&id("0")) && !exchange.call().asks(&id("0")) && !two.call().is_asking());
        assert_eq!(calls.progressed("\"t\"", &Bytes::from_static(b"p")), Some(Phase::Deferred));
        assert_eq!((exchange.call().take_progress().len(), one.call().take_progress().len()), (1, 0));
        drop(one);
        assert!(matches!(calls.named(&id("1")), Named::Unclear));
        assert_ne!(calls.enter(&id("1"), true).call().upstream_id, id("1"), "the exchange goes on");
        drop((exchange, two));
        assert!(!calls.is_busy());
    }

    #[tokio::test]
    async fn answers_and_progress_reach_the_call() {
        let calls = Arc::new(Calls::default());
        let ticket = calls.enter(&id("1"), true);
        ticket.call().ask(&id("0"), "roots/list");
        ticket.call().set_token("\"t\"".into());
        assert!(ticket.call().is_asking());
        assert!(!calls.answered(&id("7")));
        assert!(calls.answered(&id("\"0\"")), "clients may change an id's type");
        ticket.call().touched().await;
        assert!(!ticket.call().is_asking());
        assert_eq!(calls.progressed("\"x\"", &Bytes::new()), None);
        assert_eq!(calls.progressed("\"t\"", &Bytes::from_static(b"p")), Some(Phase::Held));
        assert_eq!(ticket.call().take_progress(), [Bytes::from_static(b"p")]);
    }
}
