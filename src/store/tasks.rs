//! The shared handle to all tasks: the only writer, and where whoever waits for a change is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::task::{
    Event, Fingerprint, ListQuery, Purged, Rejected, Replaced, ReplicaId, Status, StoreError, Task, TaskId, TaskStore,
    Timestamp,
};

use crate::telemetry::metrics::Metrics;

use super::health::Health;
use super::observe::Observers;
use super::{Clock, LEASE};

/// How often expired outcomes are dropped.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Shared handle to all tasks of one process.
#[derive(Clone)]
pub struct Tasks {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) engine: Box<dyn TaskStore>,
    pub(super) replica: ReplicaId,
    pub(super) lease: Duration,
    /// Whether others use the engine, too.
    pub(super) is_shared: bool,
    clock: Clock,
    metrics: Metrics,
    live: DashMap<TaskId, Live>,
    pub(super) observers: Observers,
    pub(super) health: Health,
}

/// What this process knows of a task beyond its record.
#[derive(Default)]
struct Live {
    ended: CancellationToken,
    reads: AtomicU32,
    /// When it need not be known any more, in milliseconds since 1970; 0 while the task runs.
    until_ms: AtomicU64,
}

/// In whose name an event is applied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writer {
    /// Whoever may.
    Anybody,
    /// Whoever runs the task.
    Holder(ReplicaId),
}

/// Why an event was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not apply to the task as it is.
    #[error("the task does not change")]
    Rejected(Box<Task>),
    /// There is no such task.
    #[error("no such task")]
    Missing,
    /// Another process runs the task now.
    #[error("another process runs the task now")]
    Superseded,
    /// The engine failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tasks {
    /// Tasks kept by `engine`.
    #[must_use]
    pub fn new(engine: impl TaskStore, clock: Clock, metrics: Metrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                engine: Box::new(engine),
                replica: ReplicaId::random(),
                lease: LEASE,
                is_shared: false,
                clock,
                metrics,
                live: DashMap::new(),
                observers: Observers::default(),
                health: Health::default(),
            }),
        }
    }

    /// The same with leases that last this long without renewal. Call it before the handle is shared.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.lease = lease;
        }
        self
    }

    /// The same where others use the engine too, and go on with it when this process ends. Call it before the handle is
    /// shared.
    #[must_use]
    pub fn among_others(mut self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.is_shared = true;
        }
        self
    }

    /// The time of an instant, as records have it.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Timestamp {
        Timestamp::of(self.inner.clock.at(instant))
    }

    /// Now, as records have it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::of(self.inner.clock.now())
    }

    /// Adds a task. When it returns, every reader can see it.
    ///
    /// # Errors
    /// If the engine is full or does not work; then there is no such task.
    pub async fn create(&self, task: &Task) -> Result<(), StoreError> {
        self.written(self.inner.engine.create(task).await)?;
        self.runs(task.id);
        info!(task = task.id.short(), tool = &*task.tool, upstream = &*task.upstream, "task created");
        Ok(())
    }

    /// This process runs the task from now on.
    pub(super) fn runs(&self, id: TaskId) {
        self.inner.live.entry(id).or_default();
    }

    /// Whether the last write failed just now: the next one is likely to fail as well.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.inner.health.is_down(self.now())
    }

    /// Notes what came of a write that reaches the disk unless it fails.
    pub(super) fn written<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.tried(outcome).inspect(|_| self.inner.health.written())
    }

    /// Notes whether a write failed that may have had nothing to write: that it did not says nothing.
    pub(super) fn tried<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        outcome.inspect_err(|error| self.inner.health.write_failed(error, self.now()))
    }

    /// Notes whether a read failed.
    pub(super) fn read<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        outcome.inspect_err(|error| self.inner.health.read_failed(error))
    }

    /// The task, without its result.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn get(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let task = self.read(self.inner.engine.get(id).await)?;
        Ok(task.filter(|task| task.forgotten().is_none_or(|at| at > self.now())))
    }

    /// The text of a completed task's result.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn result(&self, id: TaskId) -> Result<Option<Bytes>, StoreError> {
        self.read(self.inner.engine.get_result(id).await)
    }

    /// One page of a session's tasks, newest first, and whether more follow; expired ones are not listed.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn list(&self, mut query: ListQuery) -> Result<(Vec<Task>, bool), StoreError> {
        let (now, limit) = (self.now(), query.limit);
        let mut page = Vec::new();
        query.limit += 1;
        loop {
            let found = self.read(self.inner.engine.list(&query).await)?;
            let is_last = found.len() < query.limit;
            query.after = found.last().map(|task| (task.created, task.id));
            page.extend(found.into_iter().filter(|task| !task.is_expired(now)));
            if is_last || page.len() > limit {
                let more = page.len() > limit;
                page.truncate(limit);
                return Ok((page, more));
            }
        }
    }

    /// Applies an event, storing `result` with it, and wakes whoever waits. Returns the task as it is now.
    ///
    /// # Errors
    /// If the event does not apply, the task is unknown, or the engine fails.
    pub async fn apply(&self, id: TaskId, event: Event, result: Option<Bytes>) -> Result<Task, ApplyError> {
        self.change(id, event, result, Writer::Anybody).await
    }

    pub(super) async fn change(
        &self,
        id: TaskId,
        event: Event,
        result: Option<Bytes>,
        writer: Writer,
    ) -> Result<Task, ApplyError> {
        loop {
            let task = self.read(self.inner.engine.get(id).await)?.ok_or(ApplyError::Missing)?;
            if let (Writer::Holder(replica), Some(lease)) = (writer, task.lease)
                && lease.holder != replica
            {
                return Err(ApplyError::Superseded);
            }
            let next = match task.apply(event.clone(), self.now()) {
                Ok(next) => next,
                Err(Rejected) => return Err(ApplyError::Rejected(Box::new(task))),
            };
            match self.tried(self.inner.engine.replace(&next, result.clone()).await)? {
                Replaced::Done => {
                    self.inner.health.written();
                    self.announce(&task, &next);
                    return Ok(next);
                }
                Replaced::Conflict => {}
                Replaced::Missing => return Err(ApplyError::Missing),
            }
        }
    }

    fn announce(&self, before: &Task, after: &Task) {
        if before.status != after.status {
            self.inner.observers.changed(after.id);
        }
        let ended = before.status.ended().is_none() && after.status.ended().is_some();
        if ended {
            let ran_ms = after.updated.since(after.created).as_millis();
            self.inner.metrics.finished(after.status.word());
            info!(task = after.id.short(), tool = &*after.tool, outcome = after.status.word(), ran_ms, "task ended");
            if let Some(live) = self.inner.live.get(&after.id) {
                live.end(after);
            }
        }
    }

    /// Resolves when the task has ended, or at `until`; returns the task as it is then. Cancel safe.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn wait(&self, id: TaskId, until: Option<Instant>) -> Result<Option<Task>, StoreError> {
        let ended = self.ended(id);
        let task = self.get(id).await?;
        if task.as_ref().is_none_or(|task| task.status.ended().is_some()) {
            return Ok(task);
        }
        match until {
            Some(until) => drop(timeout_at(until, ended.cancelled()).await),
            None => ended.cancelled().await,
        }
        self.get(id).await
    }

    /// Is cancelled when the task ends.
    #[must_use]
    pub fn ended(&self, id: TaskId) -> CancellationToken {
        self.inner.live.entry(id).or_default().ended.clone()
    }

    /// Counts a read of an unfinished task; returns how many there were before.
    #[must_use]
    pub fn count_read(&self, id: TaskId) -> u32 {
        self.inner.live.entry(id).or_default().reads.fetch_add(1, Ordering::Relaxed)
    }

    /// The running tasks that were made in a session, as far as this process runs them.
    pub async fn running_in(&self, session: Fingerprint) -> Vec<Task> {
        let running = self.running().await;
        running.into_iter().filter(|task| task.owner.session() == Some(session)).collect()
    }

    /// The running tasks, as far as this process runs them.
    pub async fn running(&self) -> Vec<Task> {
        let ids: Vec<TaskId> =
            self.inner.live.iter().filter(|live| !live.ended.is_cancelled()).map(|live| *live.key()).collect();
        let mut tasks = Vec::new();
        for id in ids {
            tasks.extend(self.get(id).await.ok().flatten().filter(|task| task.status.ended().is_none()));
        }
        tasks
    }

    /// The tasks that ended since `earliest` and whose outcome nobody has read.
    pub async fn unread(&self, earliest: Timestamp) -> Vec<Task> {
        let ids: Vec<TaskId> =
            self.inner.live.iter().filter(|live| live.ended.is_cancelled()).map(|live| *live.key()).collect();
        let mut tasks = Vec::new();
        for id in ids {
            let task = self.get(id).await.ok().flatten();
            tasks.extend(task.filter(|task| !task.fetched && task.status.ended() >= Some(earliest)));
        }
        self.still_wanted(&tasks).await
    }

    /// Those of `tasks` that still run, or whose outcome nobody has read.
    pub async fn still_wanted(&self, tasks: &[Task]) -> Vec<Task> {
        let mut wanted = Vec::new();
        for task in tasks {
            let task = self.get(task.id).await.ok().flatten();
            wanted.extend(task.filter(|task| !task.fetched && !matches!(task.status, Status::Cancelled { .. })));
        }
        wanted
    }

    /// Drops what is expired, every few seconds, for ever. Cancel safe.
    pub async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            match self.inner.engine.purge(self.now()).await {
                Ok(purged) if purged != Purged::default() => {
                    let Purged { results, records, sessions } = purged;
                    debug!(results, records, sessions, "what was expired is dropped");
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "expired tasks could not be dropped"),
            }
            let now = self.now();
            self.inner.live.retain(|_, live| {
                let until = live.until_ms.load(Ordering::Relaxed);
                until == 0 || until > now.0
            });
            if self.inner.is_shared {
                self.notice_ends().await;
            }
        }
    }

    /// Notices what others ended.
    async fn notice_ends(&self) {
        // What they changed otherwise only observers want to know, and those look themselves.
        self.inner.observers.watched().into_iter().for_each(|id| self.inner.observers.changed(id));
        let running: Vec<TaskId> =
            self.inner.live.iter().filter(|live| !live.ended.is_cancelled()).map(|live| *live.key()).collect();
        for id in running {
            match self.inner.engine.get(id).await {
                Ok(None) => drop(self.inner.live.remove(&id)),
                Ok(Some(task)) if task.status.ended().is_some() => {
                    if let Some(live) = self.inner.live.get(&id) {
                        live.end(&task);
                    }
                }
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}

impl Live {
    fn end(&self, task: &Task) {
        self.until_ms.store(task.forgotten().unwrap_or_default().0, Ordering::Relaxed);
        self.ended.cancel();
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("live", &self.inner.live.len()).finish_non_exhaustive()
    }
}
