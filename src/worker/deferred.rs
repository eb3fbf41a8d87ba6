//! A call whose client has a handle: it goes on alone, and its end is written down once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::call::Error;
use crate::jsonrpc::{Envelope, Kind as MessageKind};
use crate::mcp::{method, upward};
use crate::session::{Hub, Need};
use crate::store::ApplyError;
use crate::task::{Event, Execution, Failure, Note, Task};
use crate::telemetry::metrics::Counted;
use crate::upstream::{self, Arrived};

use super::answer::{from_upstream, response};
use super::asking::Asked;
use super::held::{Held, TOO_LONG};
use super::limits::Permit;
use super::port::Opened;
use super::timer::Timer;
use super::upcall::Came;

/// How often a change of words alone is pushed.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How often progress is written to a store that outlives the process.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// How often the place in the upstream's stream is written down: what came after it is only told again.
const MARK_EVERY: Duration = Duration::from_secs(5);

/// A call in flight that is a task.
pub(super) struct Deferred {
    pub(super) held: Box<Held>,
    pub(super) task: Task,
    pub(super) runtime: Timer,
    pub(super) port: Opened,
    pub(super) asked: Vec<Asked>,
    /// How often a client began or ceased to listen on the session's own stream, as far as this was noticed.
    pub(super) listeners: u64,
    /// When its status was pushed last.
    pub(super) announced: Instant,
    /// When it was last written down where its answer can be taken up.
    pub(super) marked: Option<Instant>,
    /// Progress that is not written down yet, and when it may be.
    note: Option<Note>,
    write_at: Timer,
    /// Keeps the session's own stream open.
    _need: Option<Need>,
    pub(super) permit: Permit,
    _counted: Counted,
    /// Whether its credential was brought after a restart: if the upstream refuses it, another may do.
    is_lent: bool,
    /// Whether the upstream has answered to it here.
    pub(super) was_heard: bool,
}

/// How the work ended.
enum End {
    /// The upstream answered with this result.
    Result(Bytes),
    /// There will be none.
    Failed(Failure),
    /// The task ended by other means: it was cancelled.
    Cancelled,
    /// It had to be stopped.
    Stopped(Error),
    /// Another process will go on with it.
    HandedOver,
    /// The upstream refuses the credential that was brought.
    Refused,
}

impl Deferred {
    /// Follows the call to its end, and writes that down.
    pub(super) fn run(held: Box<Held>, task: Task, permit: Permit) -> impl Future<Output = ()> + Send {
        let port = held.worker.ports.open(task.id);
        let deferred = Box::new(Self::new(held, task, (permit, port)));
        // From now on a cancellation is noticed, also one that comes before this begins to run.
        let ended = deferred.held.worker.tasks.ended(deferred.task.id);
        async move { drop(deferred.follow(ended).await) }
    }

    /// The same for a call that was taken over, with a credential that its owner brought if it `is_lent` one; comes
    /// back, with its place written down, if the upstream refuses that.
    pub(super) fn go_on(
        held: Box<Held>,
        task: Task,
        keeps: (Permit, Opened),
        is_lent: bool,
    ) -> impl Future<Output = Option<Box<Self>>> + Send {
        let mut deferred = Box::new(Self::new(held, task, keeps));
        deferred.is_lent = is_lent;
        let ended = deferred.held.worker.tasks.ended(deferred.task.id);
        deferred.follow(ended)
    }

    async fn follow(mut self: Box<Self>, ended: CancellationToken) -> Option<Box<Self>> {
        Box::pin(self.reopen()).await;
        Box::pin(self.take_over()).await;
        let end = self.wait(&ended).await;
        if let End::Refused = end {
            self.marked = None;
            Box::pin(self.mark()).await;
            return Some(self);
        }
        Box::pin(self.conclude(end)).await;
        None
    }

    fn new(mut held: Box<Held>, task: Task, (permit, port): (Permit, Opened)) -> Self {
        let counted = held.worker.metrics.running();
        held.counted = None;
        let need = held.worker.attend(&held.assignment.leg, held.assignment.max_result);
        let (runtime, asked, listeners) = (held.runtime, Vec::new(), held.hub().map_or(0, |hub| hub.moves()));
        let announced = Instant::now();
        Self {
            runtime,
            held,
            task,
            port,
            asked,
            listeners,
            announced,
            marked: None,
            note: None,
            write_at: Timer::At(announced),
            _need: need,
            permit,
            _counted: counted,
            is_lent: false,
            was_heard: false,
        }
    }

    async fn conclude(&mut self, end: End) {
        if let End::Result(_) | End::Failed(Failure::Upstream(_)) = end {
            self.held.observe();
        }
        match end {
            End::Result(result) => self.complete(result).await,
            End::Failed(failure) => self.settle(Event::Failed(failure), None).await,
            End::Cancelled => {
                self.refresh().await;
                self.call_off("the task was cancelled").await;
            }
            End::HandedOver | End::Refused => self.held.bequeath(&self.task),
            End::Stopped(error) => {
                let too_long = matches!(error, Error::MaxRuntime(_));
                self.settle(Event::Failed(error.into_failure()), None).await;
                if too_long {
                    self.call_off(TOO_LONG).await;
                }
            }
        }
    }

    /// Tells the upstream that nobody wants the outcome any more, and answers what it still asks.
    async fn call_off(&mut self, reason: &str) {
        self.held.cancel(reason).await;
        self.decline_open();
    }

    async fn wait(&mut self, ended: &CancellationToken) -> End {
        let call = self.held.assignment.ticket.call().clone();
        let work = self.held.worker.work.clone();
        let hub = self.held.hub().cloned();
        let mut busy = false;
        loop {
            let alarm = self.alarm();
            // As while it was held: a talkative upstream must not outrun its deadline.
            if busy && self.runtime.is_due() {
                return self.too_long();
            }
            let end = tokio::select! {
                biased;
                () = ended.cancelled() => Some(End::Cancelled),
                came = self.held.upcall.next() => match came {
                    Ok(came) => {
                        busy = came.says_something();
                        let end = self.came(came).await;
                        if end.is_none() {
                            Box::pin(self.mark()).await;
                        }
                        end
                    }
                    // It is over because we are.
                    Err(_) if work.is_severed() => Some(self.cut_off()),
                    Err(error) if self.held.follow_on(&error) => None,
                    Err(upstream::Error::Refused) if self.is_lent => Some(End::Refused),
                    Err(error) => Some(End::Failed(lost(error))),
                },
                () = call.touched() => { Box::pin(self.elsewhere()).await; None }
                () = self.port.touched() => { Box::pin(self.mind_port()).await; None }
                listeners = moved(hub.as_ref(), self.listeners) => {
                    self.listeners = listeners;
                    self.offer();
                    None
                }
                () = self.held.patience.reached() => { self.held.decline_questions(); None }
                () = alarm.reached() => self.ring().await,
                () = work.severed() => Some(self.cut_off()),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// The process ends: whoever starts next goes on with what can be gone on with.
    fn cut_off(&self) -> End {
        let goes_on = self.held.worker.tasks.is_durable() && self.task.execution != Execution::LOCAL;
        if goes_on {
            End::HandedOver
        } else {
            End::Stopped(Error::OutcomeUnknown("the proxy shut down while it ran".into()))
        }
    }

    /// Writes down where the answer can be taken up, the first time at once.
    async fn mark(&mut self) {
        if self.marked.is_some_and(|marked| marked.elapsed() < MARK_EVERY) || !self.held.has_moved(&self.task) {
            return;
        }
        self.marked = Some(Instant::now());
        self.held.runtime = self.runtime;
        let execution = self.held.execution(&self.task.upstream);
        let _ = self.note_change(Event::Executes(execution)).await;
    }

    /// The first deadline: of the work, of a question, or of what is not written down yet.
    fn alarm(&self) -> Timer {
        let unwritten = self.note.as_ref().and(self.write_at.due());
        let due = [self.runtime.due(), self.patience_ends(), unwritten].into_iter().flatten().min();
        due.map_or(Timer::Never, Timer::At)
    }

    async fn ring(&mut self) -> Option<End> {
        if self.runtime.is_due() {
            return Some(self.too_long());
        }
        if self.note.is_some() && self.write_at.is_due() {
            Box::pin(self.write_note()).await;
        }
        Box::pin(self.expire_questions()).await;
        None
    }

    fn too_long(&self) -> End {
        End::Stopped(Error::MaxRuntime(self.held.assignment.max_runtime.unwrap_or_default()))
    }

    async fn came(&mut self, came: Came) -> Option<End> {
        let is_refused = matches!(self.held.upcall.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_refused && self.is_lent {
            return Some(End::Refused);
        }
        if self.is_lent && !self.was_heard && self.held.upcall.status().is_success() {
            self.held.assignment.leg.accepted(&HeaderMap::new());
        }
        self.was_heard = true;
        match came {
            Came::Head => {
                if self.held.upcall.status().is_success() {
                    self.held.upcall.with_headers(|headers| self.held.assignment.leg.accepted(headers));
                }
                None
            }
            Came::Part(Arrived::Large) => None,
            Came::Part(Arrived::Body(body)) => {
                let upcall = &self.held.upcall;
                match response(upcall.status(), upcall.kind(), &body) {
                    Ok(message) => self.answered(&message).await,
                    Err(error) => Some(End::Failed(error.into_failure())),
                }
            }
            Came::Part(Arrived::Event(event)) => {
                let message = event.data.and_then(|data| Envelope::read(data).ok())?;
                match message.kind() {
                    MessageKind::Response => self.answered(&message).await,
                    MessageKind::Request => {
                        Box::pin(self.asked(&message)).await;
                        None
                    }
                    MessageKind::Notification => {
                        Box::pin(self.notice(&message)).await;
                        None
                    }
                }
            }
        }
    }

    /// The upstream's answer: the end, unless it is a task of its own, or asks.
    async fn answered(&mut self, message: &Envelope) -> Option<End> {
        if self.held.goes_on(message) || Box::pin(self.ask_in_record(message)).await {
            return None;
        }
        if let Some(error) = self.held.objection(message) {
            return Some(End::Failed(error.into_failure()));
        }
        Some(match outcome(message) {
            // Nobody who reads it later knows more than its text.
            End::Failed(Failure::Upstream(error)) if self.held.is_joined() => {
                End::Failed(Failure::Upstream(upward::error(error)))
            }
            end => end,
        })
    }

    async fn notice(&mut self, message: &Envelope) {
        self.held.assignment.leg.told(message);
        if message.method() != method::PROGRESS {
            return;
        }
        self.pass_progress(message);
        self.note = Note::read(message.params()).or(self.note.take());
        if self.write_at.is_due() || !self.held.worker.tasks.is_durable() {
            self.write_note().await;
        }
    }

    /// Writes the latest progress down; the next not before a moment has passed, since each is a write to a disk.
    async fn write_note(&mut self) {
        self.write_at = Timer::At(Instant::now() + WRITE_EVERY);
        if let Some(note) = self.note.take() {
            let _ = self.note_change(Event::Progress(note)).await;
        }
    }

    /// Somebody else has changed the record.
    pub(super) async fn refresh(&mut self) {
        if let Ok(Some(task)) = self.held.worker.tasks.get(self.task.id).await {
            self.task = task;
            self.announce_status();
        }
    }

    /// Writes down what happened on the way; `false` if the task does not change by it, or cannot be written.
    pub(super) async fn note_change(&mut self, event: Event) -> bool {
        let is_ours_alone = matches!(event, Event::Executes(_));
        match self.held.worker.tasks.report(self.task.id, event, None).await {
            Ok(task) => {
                // Words alone change often: nobody needs to see each of them.
                let only_words = std::mem::discriminant(&task.status) == std::mem::discriminant(&self.task.status);
                self.task = task;
                if !is_ours_alone && (!only_words || self.announced.elapsed() >= STATUS_EVERY) {
                    self.announce_status();
                }
                true
            }
            Err(ApplyError::Rejected(_) | ApplyError::Missing | ApplyError::Superseded) => false,
            Err(ApplyError::Store(error)) => {
                warn!(task = self.task.id.short(), %error, "what happened cannot be stored");
                false
            }
        }
    }

    /// Something came on the session's own stream.
    async fn elsewhere(&mut self) {
        for message in self.held.assignment.ticket.call().take_progress() {
            if let Ok(message) = Envelope::read(message) {
                self.notice(&message).await;
            }
        }
        for question in self.held.assignment.ticket.call().take_questions() {
            if let Ok(message) = Envelope::read(question) {
                self.asked(&message).await;
            }
        }
    }
}

/// Resolves when somebody begins or ceases to listen on the session's own stream.
async fn moved(hub: Option<&Arc<Hub>>, seen: u64) -> u64 {
    match hub {
        Some(hub) => hub.moved(seen).await,
        None => std::future::pending().await,
    }
}

fn lost(error: upstream::Error) -> Failure {
    from_upstream(error).into_failure()
}

fn outcome(message: &Envelope) -> End {
    if let Some(result) = message.result() {
        return End::Result(result);
    }
    End::Failed(match message.error_object() {
        Some(error) => Failure::Upstream(error),
        None => Error::Protocol { text: "its error is no JSON-RPC error".into(), status: None }.into_failure(),
    })
}
