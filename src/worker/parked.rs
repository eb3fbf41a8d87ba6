//! A call whose upstream asks something while a client waits that cannot be asked on the way: its request ends with the
//! questions (`InputRequiredResult`, 2026-07-28), the call goes on, and a retry with the answers comes back to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::call::{Answer, Error, Outlet};
use crate::jsonrpc::{Id, result_response};
use crate::mcp::rounds;
use crate::policy::Plan;
use crate::shutdown::Work;
use crate::task::QuestionKey;
use crate::upstream::{Kind, headers};

use super::answer::failed;
use super::assignment::Reach;
use super::cancel::deliver;
use super::held::{End, Held};
use super::state::{Purpose, State};
use super::timer::Timer;
use super::{Active, Deferral, Listener, Tally, Worker};

/// How long more questions are waited for after one: they go out together.
const GATHERED: Duration = Duration::from_millis(25);
/// How many calls may wait for a retry.
const MOST: usize = 10_000;
/// How many retries of one call may wait to be read.
const RETRIES: usize = 4;

/// The calls of this process that wait for a retry.
#[derive(Clone, Debug, Default)]
pub struct Parked {
    by_exchange: Arc<DashMap<Uuid, mpsc::Sender<Retry>>>,
}

/// A request that comes back to a call with answers.
#[derive(Debug)]
pub struct Retry {
    /// Its id.
    pub id: Id,
    /// Which of the call's questions it answers, as the state it brings says.
    pub round: u32,
    /// The answers by key, each the text of an object.
    pub answers: Vec<(QuestionKey, Bytes)>,
    /// When the last byte of it had come.
    pub received: Instant,
    /// Who waits now.
    pub listener: Listener,
    /// How the call may be deferred from now on.
    pub deferral: Option<Deferral>,
    /// For the counters.
    pub tally: Tally,
    /// Where the answer goes.
    pub steps: Outlet,
}

impl Parked {
    /// Brings a retry to its call.
    ///
    /// # Errors
    /// If there is no such call here, or too many retries wait for it already.
    pub fn bring(&self, exchange: Uuid, retry: Retry) -> Result<(), Error> {
        let lost = || Error::OutcomeUnknown("the call that asked is not known here any more".into());
        let waiting = self.by_exchange.get(&exchange).map(|waiting| waiting.clone()).ok_or_else(lost)?;
        waiting.try_send(retry).map_err(|error| match error {
            TrySendError::Full(_) => answered_already(),
            TrySendError::Closed(_) => lost(),
        })
    }
}

fn answered_already() -> Error {
    Error::InvalidParams("this requestState was answered already".into())
}

impl Retry {
    /// Another was first.
    async fn refuse(self) {
        let error = answered_already();
        self.tally.done(error.side());
        self.steps.done(failed(&error, &self.id, self.listener.standing)).await;
    }
}

/// The place of a call that has asked at least once.
#[derive(Debug)]
pub(super) struct Place {
    parked: Parked,
    exchange: Uuid,
    round: u32,
    keys: Vec<(QuestionKey, Id)>,
    /// Until when its client can come back.
    until: Instant,
    retries: mpsc::Receiver<Retry>,
    work: Work,
}

impl Place {
    /// `None` if too many calls wait.
    fn new(worker: &Worker) -> Option<Self> {
        let parked = worker.parked.clone();
        if parked.by_exchange.len() >= MOST {
            return None;
        }
        let (sender, retries) = mpsc::channel(RETRIES);
        let exchange = Uuid::new_v4();
        parked.by_exchange.insert(exchange, sender);
        let (until, work) = (Instant::now(), worker.work.clone());
        Some(Self { parked, exchange, round: 0, keys: Vec::new(), until, retries, work })
    }

    fn key(&mut self, question: &Id) -> QuestionKey {
        if let Some((key, _)) = self.keys.iter().find(|(_, id)| id == question) {
            return key.clone();
        }
        let key = QuestionKey::random();
        self.keys.push((key.clone(), question.clone()));
        key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.parked.by_exchange.remove(&self.exchange);
        self.retries.close();
        while let Ok(late) = self.retries.try_recv() {
            drop(self.work.spawn(late.refuse()));
        }
    }
}

/// Resolves when a retry comes. Cancel safe.
pub(super) async fn retried(place: &mut Option<Place>) -> Retry {
    match place {
        Some(place) => match place.retries.recv().await {
            Some(retry) => retry,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Held {
    /// What its client's retries have to be for, if it can only be asked by ending its request.
    fn purpose(&self) -> Option<Purpose> {
        match &self.assignment.listener.reach {
            Reach::Retry(purpose) => Some(purpose.clone()),
            Reach::Stream | Reach::Nowhere => None,
        }
    }

    /// Whether the call waits for a retry, and nobody for it.
    pub(super) fn is_parked(&self) -> bool {
        self.place.is_some() && self.client_left
    }

    /// A question came: its client's request ends with it, after a moment in which others may come.
    pub(super) fn gather(&mut self) {
        if !self.client_left && matches!(self.gathering, Timer::Never) {
            self.gathering = Timer::after(Instant::now(), Some(GATHERED));
        }
    }

    /// Until when the client of a call that nobody waits for can come back.
    pub(super) fn parked_until(&self) -> Option<Instant> {
        self.place.as_ref().filter(|_| self.client_left).map(|place| place.until)
    }

    /// Ends its client's request with all open questions. Never a task because of a question: only a retry sets the
    /// clock anew.
    pub(super) async fn park(&mut self) -> Option<End> {
        self.gathering = Timer::Never;
        if !self.steps.is_read() {
            return self.lose_client();
        }
        // The upstream may have given up asking meanwhile.
        if !self.assignment.ticket.call().is_asking() {
            self.go_on();
            return None;
        }
        let Some(answer) = self.questions() else {
            self.decline_questions();
            return None;
        };
        self.threshold = Timer::Never;
        self.runtime.pause();
        self.client_left = true;
        // Nothing waits for it: a process that goes down need not, either.
        self.active = None;
        self.assignment.tally.done(crate::call::Side::None);
        self.fall_silent().done(answer).await;
        None
    }

    /// The answer that asks; `None` if the state cannot be sealed, or the client cannot be asked like this.
    fn questions(&mut self) -> Option<Answer> {
        let purpose = self.purpose()?;
        if self.place.is_none() {
            self.place = Place::new(&self.worker);
        }
        let place = self.place.as_mut()?;
        let span = State::span(self.assignment.input_timeout);
        place.round += 1;
        place.until = Instant::now() + span;
        let expires = self.worker.tasks.now().plus(span);
        let state = State { exchange: place.exchange, round: place.round, purpose, expires };
        let state = state.seal(&self.worker.seal)?;
        let call = self.assignment.ticket.call().clone();
        let open = self.relayed.iter().filter(|message| message.id().is_some_and(|id| call.asks(id)));
        let questions: Vec<_> = open
            .filter_map(|message| {
                let params = rounds::question(message.method(), message.params());
                Some((place.key(message.id()?), message.method(), params))
            })
            .collect();
        let questions = questions.iter().map(|(key, method, params)| (key.as_str(), *method, params.as_deref()));
        let result = rounds::input_required(questions, Some(&state), None);
        Some(Answer::message(http::StatusCode::OK, result_response(&call.client_id, &result)))
    }

    /// A retry came back: its answers go upstream, and its client waits for the call as the one before did.
    pub(super) async fn come_back(&mut self, retry: Retry) -> Option<End> {
        if !self.is_parked() || !self.is_current(&retry) {
            retry.refuse().await;
            return None;
        }
        self.hand_on(retry.answers);
        self.client_left = false;
        self.active = Some(Active::new(&self.worker.active));
        self.steps = retry.steps;
        self.assignment.listener = retry.listener;
        self.assignment.deferral = retry.deferral;
        self.assignment.tally = retry.tally;
        self.assignment.received = retry.received;
        if self.assignment.ticket.call().is_asking() {
            return self.park().await;
        }
        self.go_on();
        self.restart_clock(retry.received);
        if self.upcall.kind() == Kind::Events {
            let mut headers = self.upcall.headers();
            headers::to_client(&mut headers);
            self.steps.open(headers).await;
        }
        None
    }

    fn is_current(&self, retry: &Retry) -> bool {
        self.place.as_ref().is_some_and(|place| place.round == retry.round)
    }

    /// Answers to questions that are open go upstream; all others are ignored.
    fn hand_on(&mut self, answers: Vec<(QuestionKey, Bytes)>) {
        let Some(place) = &self.place else { return };
        let call = self.assignment.ticket.call().clone();
        for (key, answer) in answers {
            let Some((_, id)) = place.keys.iter().find(|(known, _)| *known == key) else { continue };
            if call.asks(id) {
                call.withdraw(id);
                let text = result_response(id, std::str::from_utf8(&answer).unwrap_or("{}"));
                drop(deliver(&self.worker.work, &self.assignment.leg, text));
            }
        }
    }

    fn restart_clock(&mut self, received: Instant) {
        self.threshold = match self.assignment.deferral.as_ref().map(|deferral| deferral.plan) {
            Some(Plan::Race { threshold }) => Timer::after(received, Some(threshold)),
            // The upstream has accepted it long ago.
            Some(Plan::AtOnce { .. }) => Timer::At(Instant::now()),
            Some(Plan::Hold | Plan::Refuse) | None => Timer::Never,
        };
    }

    /// If the call has ended while nobody waits: its end is kept as long as its client can come back for it.
    pub(super) async fn wait_for_retry(&mut self) {
        let Some(until) = self.parked_until() else { return };
        let work = self.worker.work.clone();
        loop {
            let retry = tokio::select! {
                retry = timeout_at(until, retried(&mut self.place)) => retry,
                () = work.severed() => return,
            };
            let Ok(retry) = retry else { return };
            if !self.is_current(&retry) {
                retry.refuse().await;
                continue;
            }
            self.steps = retry.steps;
            self.assignment.tally = retry.tally;
            self.client_left = false;
            return;
        }
    }
}
