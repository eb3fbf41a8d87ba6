//! What an engine that keeps tasks must do: little, so that engines stay free of rules.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::{Fingerprint, ReplicaId, SessionRecord, Task, TaskId, Timestamp};

/// A future of an object-safe trait.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps tasks and their results, and what sessions need to survive a restart.
///
/// Every method may be called at any time from any thread. None is cancel safe: a write whose future is dropped may
/// or may not have happened.
pub trait TaskStore: Send + Sync + 'static {
    /// Adds a task; durable when it returns. Its holder's lease lasts at least as long as it says.
    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The task, without its result.
    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>>;

    /// The text of its result, if it has one and it was not dropped.
    fn get_result(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Replaces the task if the stored version is `task.version - 1`, and stores `result` with it if given. Leaves the
    /// lease of a running task as it is stored, whatever `task` says.
    fn replace<'a>(&'a self, task: &'a Task, result: Option<Bytes>) -> BoxFuture<'a, Result<Replaced, StoreError>>;

    /// One page of a session's tasks, newest first.
    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>>;

    /// Drops results of tasks that are expired, and tasks and sessions that are forgotten. Of the others that are
    /// expired, those that would be forgotten first go too if there are more than the engine may remember.
    fn purge(&self, now: Timestamp) -> BoxFuture<'_, Result<Purged, StoreError>>;

    /// Lets the lease of all tasks of `holder` last until then; a time in the past gives them up. Changes no version.
    fn renew(&self, holder: ReplicaId, until: Timestamp) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Gives running tasks whose lease is over, or that have none, to a new holder: each to one only, in a new version,
    /// so that what the old holder still writes meets a conflict. Oldest first; never the new holder's own.
    fn claim<'a>(&'a self, query: &'a ClaimQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>>;

    /// Stores a session in the place of what was known of it.
    fn put_session<'a>(&'a self, id: Fingerprint, session: &'a SessionRecord) -> BoxFuture<'a, Result<(), StoreError>>;

    /// What is known of a session.
    fn get_session(&self, id: Fingerprint) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>>;

    /// A random secret that lives as long as the store.
    fn secret(&self) -> BoxFuture<'_, Result<[u8; 32], StoreError>>;

    /// Whether what it keeps outlives the process.
    fn is_durable(&self) -> bool {
        false
    }
    /// Writes something small and reads it: whether the engine works again.
    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Writes down what is under way and lets go of everything; whatever is asked later fails.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What became of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// It is stored.
    Done,
    /// Somebody else was first: read again.
    Conflict,
    /// There is no such task.
    Missing,
}

/// Which tasks to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// The upstream's path.
    pub upstream: String,
    /// The session that owns them.
    pub session: Fingerprint,
    /// The last task of the page before.
    pub after: Option<(Timestamp, TaskId)>,
    /// How many at most.
    pub limit: usize,
}

/// Which tasks to take over.
#[derive(Clone, Copy, Debug)]
pub struct ClaimQuery {
    /// Leases that end by now are over.
    pub now: Timestamp,
    /// Who takes them.
    pub holder: ReplicaId,
    /// How long that lease lasts.
    pub until: Timestamp,
    /// How many at most.
    pub limit: usize,
}

/// What a purge dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Results.
    pub results: usize,
    /// Whole records.
    pub records: usize,
    /// Sessions.
    pub sessions: usize,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Bytes of results that are kept.
    Retained,
}

/// Why an engine could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A bound is reached; nothing was stored.
    #[error("the store is full: {0:?}")]
    Full(Full),
    /// The engine does not work now.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// What the engine keeps is not what it wrote, and does not become so again by itself.
    #[error("the store is damaged: `taskgate store check` tells more")]
    Damaged,
}

/// An engine that several handles share.
impl<S: TaskStore + ?Sized> TaskStore for Arc<S> {
    fn is_durable(&self) -> bool {
        (**self).is_durable()
    }

    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).create(task)
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>> {
        (**self).get(id)
    }

    fn get_result(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        (**self).get_result(id)
    }

    fn replace<'a>(&'a self, task: &'a Task, result: Option<Bytes>) -> BoxFuture<'a, Result<Replaced, StoreError>> {
        (**self).replace(task, result)
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        (**self).list(query)
    }

    fn purge(&self, now: Timestamp) -> BoxFuture<'_, Result<Purged, StoreError>> {
        (**self).purge(now)
    }

    fn renew(&self, holder: ReplicaId, until: Timestamp) -> BoxFuture<'_, Result<(), StoreError>> {
        (**self).renew(holder, until)
    }

    fn claim<'a>(&'a self, query: &'a ClaimQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        (**self).claim(query)
    }

    fn put_session<'a>(&'a self, id: Fingerprint, session: &'a SessionRecord) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).put_session(id, session)
    }

    fn get_session(&self, id: Fingerprint) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        (**self).get_session(id)
    }

    fn secret(&self) -> BoxFuture<'_, Result<[u8; 32], StoreError>> {
        (**self).secret()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        (**self).probe()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        (**self).close()
    }
}
