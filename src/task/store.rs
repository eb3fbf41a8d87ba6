//! What an engine that keeps tasks must do: little, so that engines stay free of rules.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::{Fingerprint, Task, TaskId, Timestamp};

/// A future of an object-safe trait.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps tasks and their results.
///
/// Every method may be called at any time from any thread. None is cancel safe: a write whose future is dropped may
/// or may not have happened.
pub trait TaskStore: Send + Sync + 'static {
    /// Adds a task; durable when it returns.
    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The task, without its result.
    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>>;

    /// The text of its result, if it has one and it was not dropped.
    fn get_result(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Replaces the task if the stored version is `task.version - 1`, and stores `result` with it if given.
    fn replace<'a>(&'a self, task: &'a Task, result: Option<Bytes>) -> BoxFuture<'a, Result<Replaced, StoreError>>;

    /// One page of a session's tasks, newest first.
    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>>;

    /// Drops results of tasks that are expired, and tasks that are forgotten.
    fn purge(&self, now: Timestamp) -> BoxFuture<'_, Result<Purged, StoreError>>;
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

/// What a purge dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Results.
    pub results: usize,
    /// Whole records.
    pub records: usize,
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
}
