//! The part of the handle that says who runs what: a process holds a lease on its running tasks, and takes over those
//! whose holder is gone.

use std::time::Duration;

use bytes::Bytes;
use tracing::{info, warn};

use crate::task::{ClaimQuery, Event, Fingerprint, Lease, SessionRecord, StoreError, Task, TaskId, Timestamp};
use crate::telemetry::Readiness;

use super::tasks::Writer;
use super::{ApplyError, Tasks};

/// How long a lease lasts without renewal, unless the options say otherwise.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often it is looked whether the engine works again.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Why a process is not ready.
const UNAVAILABLE: &str = "store unavailable";
const DAMAGED: &str = "store damaged";
/// How many bytes of the name of a session's client are kept.
const NAME: usize = 256;

impl Tasks {
    /// The lease of a task that this process runs from now on.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease { holder: self.inner.replica, until: self.now().plus(self.inner.lease) }
    }

    /// Applies an event as whoever runs the task, like [`Tasks::apply`], but only if that is still this process.
    ///
    /// # Errors
    /// As [`Tasks::apply`]; [`ApplyError::Superseded`] if somebody else runs the task now: then nothing is stored, and
    /// nothing that this process still knows of it counts.
    pub async fn report(&self, id: TaskId, event: Event, result: Option<Bytes>) -> Result<Task, ApplyError> {
        self.change(id, event, result, Writer::Holder(self.inner.replica)).await
    }

    /// Takes over running tasks whose holder is gone, at most `limit`; from now on this process runs them.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn claim(&self, limit: usize) -> Result<Vec<Task>, StoreError> {
        let (now, Lease { holder, until }) = (self.now(), self.lease());
        let query = ClaimQuery { now, holder, until, limit };
        let taken = self.tried(self.inner.engine.claim(&query).await)?;
        for task in &taken {
            self.runs(task.id);
            info!(task = task.id.short(), tool = &*task.tool, was = task.execution.word(), "task taken over");
        }
        Ok(taken)
    }

    /// Renews the lease on what this process runs, for ever. Cancel safe.
    pub async fn hold(&self) {
        let mut interval = tokio::time::interval(self.inner.lease / 3);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let Lease { holder, until } = self.lease();
            if let Err(error) = self.tried(self.inner.engine.renew(holder, until).await) {
                warn!(%error, "the lease on running tasks cannot be renewed");
            }
        }
    }

    /// Gives up what this process runs: somebody else may take it over at once.
    ///
    /// # Errors
    /// If the engine does not work; then the lease runs out by itself.
    pub async fn release(&self) -> Result<(), StoreError> {
        self.inner.engine.renew(self.inner.replica, Timestamp::default()).await
    }

    /// Remembers a session, also past a restart, until it expires; of a very long name of its client the beginning.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn put_session(&self, id: Fingerprint, session: &SessionRecord) -> Result<(), StoreError> {
        let mut session = session.clone();
        let name = &mut session.client.client;
        let kept = (0..=NAME).rfind(|at| name.is_char_boundary(*at)).unwrap_or_default();
        if name.len() > NAME {
            name.truncate(kept);
        }
        self.written(self.inner.engine.put_session(id, &session).await)
    }

    /// What is known of a session.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn session(&self, id: Fingerprint) -> Result<Option<SessionRecord>, StoreError> {
        let session = self.read(self.inner.engine.get_session(id).await)?;
        Ok(session.filter(|session| session.expires > self.now()))
    }

    /// Whether tasks outlive the process.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.inner.engine.is_durable()
    }

    /// Whether no other process uses the store.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        !self.inner.is_shared
    }

    /// A random secret that lives as long as the store: what is keyed with it can be told after a restart.
    ///
    /// # Errors
    /// If the engine does not work.
    pub async fn secret(&self) -> Result<[u8; 32], StoreError> {
        self.inner.engine.secret().await
    }

    /// Says in `readiness` whether tasks can be written and read, for ever; while they cannot, tries until they can.
    /// Cancel safe.
    pub async fn watch(&self, readiness: &Readiness) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.works().await {
                readiness.clear(UNAVAILABLE);
            } else {
                readiness.set(UNAVAILABLE);
            }
            if self.inner.health.is_damaged() {
                readiness.set(DAMAGED);
            }
        }
    }

    async fn works(&self) -> bool {
        let health = &self.inner.health;
        if !health.is_doubtful() {
            return true;
        }
        let probed = self.tried(self.inner.engine.probe().await);
        probed.inspect(|()| health.works()).is_ok()
    }

    /// Writes down what is under way and closes the store, unless others use it; whatever is asked later fails.
    pub async fn close(&self) {
        if self.is_alone() {
            self.inner.engine.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{Clock, Memory, Options, conformance};
    use crate::task::{Status, TaskStore};
    use crate::telemetry::metrics::Metrics;

    fn two() -> (Tasks, Tasks) {
        let clock = Clock::system();
        let engine: Arc<dyn TaskStore> = Arc::new(Memory::new(Options::default(), clock));
        let one = || Tasks::new(engine.clone(), clock, Metrics::new());
        (one(), one())
    }

    fn running(tasks: &Tasks) -> Task {
        Task { lease: Some(tasks.lease()), ..conformance::sample(1, tasks.now().0) }
    }

    fn done() -> Event {
        Event::Completed { bytes: 2, tool_error: None }
    }

    #[tokio::test(start_paused = true)]
    async fn b92_a_replica_that_comes_back_late_changes_nothing() {
        let (old, new) = two();
        let task = running(&old);
        old.create(&task).await.unwrap();
        assert!(new.claim(10).await.unwrap().is_empty(), "its holder lives");
        tokio::time::sleep(LEASE).await;
        let taken = new.claim(10).await.unwrap();
        assert_eq!(taken.iter().map(|task| task.id).collect::<Vec<_>>(), [task.id]);
        assert!(old.claim(10).await.unwrap().is_empty(), "taken once");

        let result = || Some(Bytes::from_static(b"{}"));
        for event in [done(), Event::Progress(crate::task::Note::default())] {
            let late = old.report(task.id, event, result()).await;
            assert!(matches!(late, Err(ApplyError::Superseded)), "{late:?}");
        }
        assert_eq!(old.get(task.id).await.unwrap().unwrap(), taken[0], "the task is as it was taken");
        assert_eq!(old.result(task.id).await.unwrap(), None);
        let ended = new.report(task.id, done(), result()).await.unwrap();
        assert!(matches!(ended.status, Status::Completed { .. }) && ended.lease.is_none());
        assert!(matches!(old.report(task.id, Event::Cancelled, None).await, Err(ApplyError::Rejected(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_may_cancels_on_any_replica() {
        let (one, other) = two();
        let task = running(&one);
        one.create(&task).await.unwrap();
        assert!(matches!(other.apply(task.id, Event::Cancelled, None).await.unwrap().status, Status::Cancelled { .. }));
        assert!(matches!(one.report(task.id, done(), None).await, Err(ApplyError::Rejected(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_is_not_lost() {
        let (one, other) = two();
        let task = running(&one);
        one.create(&task).await.unwrap();
        let holder = one.clone();
        let renewals = async move { holder.hold().await };
        tokio::select! {
            () = renewals => {}
            () = tokio::time::sleep(LEASE * 10) => {}
        }
        assert!(other.claim(10).await.unwrap().is_empty());
        one.release().await.unwrap();
        assert_eq!(other.claim(10).await.unwrap().len(), 1, "given up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_remembered_until_it_expires() {
        let (tasks, _) = two();
        let (id, session) = (Fingerprint([1; 16]), conformance::session(tasks.now().0 + 1_000));
        tasks.put_session(id, &session).await.unwrap();
        assert_eq!(tasks.session(id).await.unwrap(), Some(session));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(tasks.session(id).await.unwrap(), None);
    }
}
