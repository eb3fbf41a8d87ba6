//! A call whose client waits: the race between the answer and the threshold, decided in one place.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tracing::info;

use crate::call::{Answer, Body, Error, Outlet, Side, Standing, Waiting};
use crate::jsonrpc::Envelope;
use crate::mcp::Era;
use crate::policy::Plan;
use crate::session::Hub;
use crate::task::{Note, Task};
use crate::telemetry::metrics::Counted;
use crate::upstream::{Arrived, Kind, Limits, Outbound, headers};

use super::answer::{failed, from_upstream, learn_era, response, streamed, whole};
use super::follow::Followed;
use super::limits::Permit;
use super::parked::{Place, retried};
use super::rounds::Round;
use super::timer::Timer;
use super::upcall::{Came, Upcall};
use super::{Active, Assignment, INLINE, Reach, Worker};

/// A call in flight whose client waits.
pub(super) struct Held {
    pub(super) worker: Worker,
    pub(super) assignment: Assignment,
    pub(super) upcall: Upcall,
    pub(super) runtime: Timer,
    pub(super) note: Option<Note>,
    pub(super) steps: Outlet,
    /// What its client is too slow for: nothing more is read meanwhile, and deadlines count all the same.
    pub(super) waiting: Option<Waiting>,
    pub(super) threshold: Timer,
    pub(super) client_left: bool,
    /// Where it is found by a retry, once it has asked something that way.
    pub(super) place: Option<Place>,
    /// When its client's request ends with what was asked.
    pub(super) gathering: Timer,
    again: Option<Outbound>,
    /// The request, where another process may send it again.
    pub(super) repeat: Option<Bytes>,
    /// Questions that were relayed.
    pub(super) relayed: Vec<Envelope>,
    /// The task that the upstream made of it.
    pub(super) followed: Option<Followed>,
    /// What the upstream has asked by its answer, until it is asked again.
    pub(super) round: Option<Round>,
    /// Whether it was sent once more, with headers that the upstream missed.
    pub(super) listed_again: bool,
    /// What a shutdown waits for.
    pub(super) active: Option<Active>,
    /// Counts it as held, until it is deferred.
    pub(super) counted: Option<Counted>,
    /// When questions that are with the client are declined.
    pub(super) patience: Timer,
}

/// Why a call is cancelled that took its time.
pub(super) const TOO_LONG: &str = "the call ran too long";

/// How waiting ended.
pub(super) enum End {
    /// There is an answer; `side` failed if any.
    Answered(Box<Answer>, Side),
    /// A task was made of it.
    Deferred(Box<Task>, Permit),
    /// Its client withdrew it.
    Withdrawn,
    /// It had to be stopped here.
    Stopped(Error),
}

impl Held {
    pub(super) fn new(worker: Worker, mut assignment: Assignment, steps: Outlet) -> Box<Self> {
        let wait = assignment.deferral.as_ref().and_then(|deferral| match deferral.plan {
            Plan::Race { threshold } => Some(threshold),
            Plan::AtOnce { within } => Some(within),
            Plan::Hold | Plan::Refuse => None,
        });
        let received = assignment.received;
        let limits = limits(&assignment);
        let may_repeat = assignment.repeatable && assignment.ticket.call().is_call;
        let repeat = may_repeat.then(|| assignment.request.body.clone());
        let (upcall, again) = Upcall::begin(&worker, &mut assignment, limits);
        if assignment.leg.era == Era::Handshake {
            assignment.request.body = Bytes::new();
        }
        Box::new(Self {
            threshold: Timer::after(received, wait),
            runtime: Timer::after(received, assignment.max_runtime),
            active: Some(Active::new(&worker.active)),
            counted: assignment.ticket.call().is_call.then(|| worker.metrics.held()),
            patience: Timer::Never,
            worker,
            assignment,
            upcall,
            note: None,
            steps,
            waiting: None,
            client_left: false,
            place: None,
            gathering: Timer::Never,
            again,
            repeat,
            relayed: Vec::new(),
            followed: None,
            round: None,
            listed_again: false,
        })
    }

    /// A call that another process has sent, on its way through `upcall`, with that much time `left`; nobody waits for
    /// it here.
    pub(super) fn taken_over(
        worker: Worker,
        assignment: Assignment,
        upcall: Upcall,
        left: Option<Duration>,
    ) -> Box<Self> {
        Box::new(Self {
            threshold: Timer::Never,
            runtime: Timer::after(assignment.received, left),
            active: Some(Active::new(&worker.active)),
            counted: None,
            patience: Timer::Never,
            worker,
            assignment,
            upcall,
            note: None,
            steps: Outlet::nowhere(),
            waiting: None,
            client_left: true,
            place: None,
            gathering: Timer::Never,
            again: None,
            repeat: None,
            relayed: Vec::new(),
            followed: None,
            round: None,
            listed_again: false,
        })
    }

    /// Follows the call to its end.
    pub(super) async fn run(mut self: Box<Self>) {
        let end = self.wait().await;
        let called_off = self.is_parked() && matches!(end, End::Stopped(Error::MaxRuntime(_)));
        if called_off {
            Box::pin(self.cancel(TOO_LONG)).await;
        }
        self.wait_for_retry().await;
        let tally = self.assignment.tally.clone();
        match end {
            End::Answered(answer, side) => {
                tally.done(side);
                self.observe();
                self.finish(*answer).await;
            }
            End::Deferred(task, permit) => {
                tally.done(Side::None);
                self.hand_over(*task, permit).await;
            }
            End::Withdrawn => {
                tally.done(Side::Client);
                self.client_gave_up();
                let steps = self.fall_silent();
                tokio::join!(Box::pin(self.cancel("the client cancelled the request")), steps.done(silence()));
            }
            End::Stopped(error) => {
                tally.done(error.side());
                let answer = failed(&error, &self.assignment.ticket.call().client_id, self.standing());
                let steps = self.fall_silent();
                let called_off = async {
                    match error {
                        Error::MaxRuntime(_) if called_off => {}
                        Error::MaxRuntime(_) => Box::pin(self.cancel(TOO_LONG)).await,
                        Error::StoreUnavailable => Box::pin(self.cancel("no task could be made of the call")).await,
                        _ => {}
                    }
                };
                tokio::join!(called_off, steps.done(answer));
            }
        }
    }

    /// Nothing more is said to the client but by who takes this.
    pub(super) fn fall_silent(&mut self) -> Outlet {
        self.waiting = None;
        std::mem::replace(&mut self.steps, Outlet::nowhere())
    }

    /// The upstream has answered: how long it took.
    pub(super) fn observe(&self) {
        let upstream = &self.assignment.leg.upstream;
        upstream.timer.observe(self.assignment.received.elapsed());
    }

    async fn wait(&mut self) -> End {
        let call = self.assignment.ticket.call().clone();
        let work = self.worker.work.clone();
        let mut busy = false;
        loop {
            let alarm = self.alarm();
            // An upstream that always has something to say must not keep deadlines and cancellations waiting.
            if busy && call.is_cancelled() {
                return End::Withdrawn;
            }
            if busy && alarm.is_due() {
                busy = false;
                match self.ring().await {
                    Some(end) => return end,
                    None => continue,
                }
            }
            let step = tokio::select! {
                biased;
                () = placed(&mut self.waiting) => { self.waiting = None; None }
                came = self.upcall.next(), if self.waiting.is_none() => match came {
                    Ok(came) => {
                        busy = came.says_something();
                        self.came(came).await
                    }
                    Err(error) => self.broke(error),
                },
                () = call.touched() => {
                    if call.is_cancelled() { Some(End::Withdrawn) } else { Box::pin(self.mind_questions()).await; None }
                }
                () = alarm.reached() => self.ring().await,
                retry = retried(&mut self.place) => Box::pin(self.come_back(retry)).await,
                () = self.steps.closed(), if !self.client_left => self.lose_client(),
                () = work.severed() => Some(self.cut_off()),
            };
            if let Some(end) = step {
                return end;
            }
        }
    }

    /// The first deadline of all: one timer is cheaper than four.
    fn alarm(&self) -> Timer {
        let timers = [self.runtime, self.threshold, self.patience, self.gathering];
        let due = timers.iter().filter_map(Timer::due).chain(self.parked_until()).min();
        due.map_or(Timer::Never, Timer::At)
    }

    async fn ring(&mut self) -> Option<End> {
        if self.runtime.is_due() {
            Some(End::Stopped(Error::MaxRuntime(self.assignment.max_runtime.unwrap_or_default())))
        } else if self.threshold.is_due() {
            self.defer().await
        } else if self.gathering.is_due() {
            Box::pin(self.park()).await
        } else if self.parked_until().is_some_and(|until| until <= Instant::now()) {
            // Nobody can come back for it any more.
            Some(End::Withdrawn)
        } else {
            self.decline_questions();
            None
        }
    }

    async fn came(&mut self, came: Came) -> Option<End> {
        match came {
            Came::Head => self.head().await,
            Came::Part(Arrived::Event(event)) => self.event(event).await,
            Came::Part(Arrived::Large) => {
                let call = self.assignment.ticket.call();
                let rewritten = self.assignment.follows_tasks
                    || self.is_joined()
                    || matches!(self.assignment.listener.reach, Reach::Retry(_))
                    || call.client_id != call.upstream_id;
                // Nobody could stream it: it is collected for who comes back, or has come.
                let is_kept = (self.client_left && self.steps.is_resumable()) || self.steps.is_taken();
                let passes =
                    !is_kept && self.upcall.status().is_success() && self.upcall.kind() == Kind::Json && !rewritten;
                passes.then(|| self.stream_through())
            }
            Came::Part(Arrived::Body(body)) => {
                let (status, kind) = (self.upcall.status(), self.upcall.kind());
                let is_looked_into = self.assignment.follows_tasks || self.asks_on_stream();
                if is_looked_into
                    && let Ok(message) = response(status, kind, &body)
                    && (self.goes_on(&message) || self.ask_on_stream(&message).await)
                {
                    return None;
                }
                learn_era(&self.assignment.leg, status, (kind, &body));
                let mut headers = self.upcall.take_headers();
                headers::to_client(&mut headers);
                let id = &self.assignment.ticket.call().client_id;
                let (answer, side) = whole(status, headers, (kind, body), id, self.standing());
                Some(End::Answered(Box::new(self.phrased(answer)), side))
            }
        }
    }

    async fn head(&mut self) -> Option<End> {
        self.again = None;
        if let Some(head) = self.assignment.head.take() {
            let _ = head.send(self.upcall.headers());
        }
        if !self.upcall.status().is_success() {
            // Whatever the upstream says instead of accepting it is the answer.
            self.threshold = Timer::Never;
            return None;
        }
        self.upcall.with_headers(|headers| self.assignment.leg.accepted(headers));
        let at_once = self.assignment.deferral.as_ref().is_some_and(|d| matches!(d.plan, Plan::AtOnce { .. }));
        if at_once {
            self.threshold = Timer::At(Instant::now());
        }
        // Its client wants a task whatever comes: it is made before anything else is read.
        if self.is_core() {
            return self.defer().await;
        }
        if self.upcall.kind() == Kind::Events && !self.client_left {
            let mut headers = self.upcall.headers();
            headers::to_client(&mut headers);
            self.steps.open(headers).await;
        }
        None
    }

    fn stream_through(&mut self) -> End {
        let mut headers = self.upcall.headers();
        headers::to_client(&mut headers);
        let status = self.upcall.status();
        let body = self.upcall.take().map(|exchange| exchange.into_body().boxed_unsync());
        match body {
            Some(body) => End::Answered(Box::new(streamed(status, headers, body)), Side::None),
            None => End::Stopped(Error::OutcomeUnknown("the answer was lost".into())),
        }
    }

    /// The session's own stream.
    pub(super) fn hub(&self) -> Option<&Arc<Hub>> {
        self.assignment.leg.session.as_ref().map(|session| session.hub())
    }

    fn broke(&mut self, error: crate::upstream::Error) -> Option<End> {
        if self.follow_on(&error) {
            return None;
        }
        match self.again.take() {
            Some(request) if error.may_have_run() => {
                info!(%error, "sending a repeatable call once more");
                self.upcall = Upcall::start(&self.assignment.leg, request, limits(&self.assignment));
                None
            }
            _ => {
                let error = from_upstream(error);
                let answer = failed(&error, &self.assignment.ticket.call().client_id, self.standing());
                Some(End::Answered(Box::new(answer), error.side()))
            }
        }
    }

    async fn finish(&mut self, answer: Answer) {
        self.steps.done(answer).await;
        if self.upcall.kind() == Kind::Events
            && let Some(exchange) = self.upcall.take()
        {
            Box::pin(exchange.drain()).await;
        }
    }

    fn standing(&self) -> Standing {
        self.assignment.listener.standing
    }
}

pub(super) fn limits(assignment: &Assignment) -> Limits {
    let max = usize::try_from(assignment.max_result).unwrap_or(usize::MAX);
    // What is passed on needs no limit; what is kept is measured again when it is stored.
    let inline = assignment.inline.min(max.max(INLINE));
    Limits { inline, max: max.max(inline) }
}

/// Resolves when a slow client has taken what waits for it. Cancel safe.
async fn placed(waiting: &mut Option<Waiting>) {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}

fn silence() -> Answer {
    Answer { body: Body::Silence, ..Answer::empty(StatusCode::OK) }
}
