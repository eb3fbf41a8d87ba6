//! Watching tasks for whoever tells others of them: which have changed since it last looked, never how often.
//!
//! What waits is bounded by the number of tasks: however slow the one who looks is, each waits once, and is read as it
//! stands then.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use tokio::sync::Notify;

use crate::task::TaskId;

use super::Tasks;

/// Who watches which tasks.
#[derive(Debug, Default)]
pub(super) struct Observers(DashMap<TaskId, Vec<Arc<Changes>>>);

/// The tasks that one observer has yet to look at.
#[derive(Debug, Default)]
struct Changes {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    in_order: VecDeque<TaskId>,
    known: HashSet<TaskId>,
}

/// Watches some tasks while it lives. Changes that other processes make are seen within seconds, those of this one at
/// once.
#[derive(Debug)]
pub struct Observer {
    tasks: Tasks,
    changes: Arc<Changes>,
    watched: HashSet<TaskId>,
}

impl Tasks {
    /// Watches these tasks; each counts as changed once at the beginning, in this order.
    #[must_use]
    pub fn observe(&self, ids: impl IntoIterator<Item = TaskId>) -> Observer {
        let mut observer = Observer { tasks: self.clone(), changes: Arc::default(), watched: HashSet::new() };
        for id in ids {
            if observer.watched.insert(id) {
                self.inner.observers.0.entry(id).or_default().push(observer.changes.clone());
                observer.changes.put(id);
            }
        }
        observer
    }
}

impl Observers {
    /// A task has changed, or may have.
    pub(super) fn changed(&self, id: TaskId) {
        if let Some(observers) = self.0.get(&id) {
            observers.iter().for_each(|changes| changes.put(id));
        }
    }

    /// All tasks that somebody watches.
    pub(super) fn watched(&self) -> Vec<TaskId> {
        self.0.iter().map(|entry| *entry.key()).collect()
    }
}

impl Observer {
    /// A task that has changed since it was last returned. Cancel safe.
    pub async fn next(&self) -> TaskId {
        loop {
            let came = self.changes.came.notified();
            if let Some(id) = self.changes.take() {
                return id;
            }
            came.await;
        }
    }

    /// Whether any task is still watched.
    #[must_use]
    pub fn watches_any(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Ceases to watch a task: it does not change any more.
    pub fn dismiss(&mut self, id: TaskId) {
        if self.watched.remove(&id) {
            self.release(id);
        }
    }

    fn release(&self, id: TaskId) {
        let observers = &self.tasks.inner.observers.0;
        observers.remove_if_mut(&id, |_, observers| {
            observers.retain(|changes| !Arc::ptr_eq(changes, &self.changes));
            observers.is_empty()
        });
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watched.iter().for_each(|id| self.release(*id));
    }
}

impl Changes {
    fn put(&self, id: TaskId) {
        let mut waiting = self.lock();
        if waiting.known.insert(id) {
            waiting.in_order.push_back(id);
        }
        drop(waiting);
        self.came.notify_waiters();
    }

    fn take(&self) -> Option<TaskId> {
        let mut waiting = self.lock();
        let id = waiting.in_order.pop_front()?;
        waiting.known.remove(&id);
        Some(id)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::sample;
    use crate::store::{Clock, Memory, Options};
    use crate::task::Event;
    use crate::telemetry::metrics::Metrics;
    use futures_util::FutureExt;

    fn tasks() -> Tasks {
        Tasks::new(Memory::new(Options::default(), Clock::system()), Clock::system(), Metrics::new())
    }

    #[tokio::test]
    async fn each_task_waits_once_however_often_it_changes() {
        let tasks = tasks();
        let (one, two) = (sample(1, 1_000), sample(2, 1_000));
        for task in [&one, &two] {
            tasks.create(task).await.unwrap();
        }
        let mut observer = tasks.observe([two.id, one.id, two.id]);
        assert_eq!((observer.next().await, observer.next().await), (two.id, one.id));
        assert!(observer.next().now_or_never().is_none());
        for n in 0..100 {
            let note = crate::task::Note { progress: n.to_string(), ..Default::default() };
            tasks.apply(one.id, Event::Progress(note), None).await.unwrap();
        }
        assert_eq!(observer.next().await, one.id);
        assert!(observer.next().now_or_never().is_none());
        observer.dismiss(one.id);
        tasks.apply(one.id, Event::Cancelled, None).await.unwrap();
        assert!(observer.next().now_or_never().is_none());
        assert!(observer.watches_any());
        drop(observer);
        assert!(tasks.inner.observers.0.is_empty(), "nobody watches any more");
    }
}
