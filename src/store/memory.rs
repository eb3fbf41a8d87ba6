//! The engine that keeps everything in memory: as fast as can be, and gone with the process.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::task::{
    BoxFuture, Event, Full, ListQuery, Purged, Replaced, StoreError, Task, TaskId, TaskStore, Timestamp,
};

use super::{Clock, Options};

/// How many expired ids are remembered at most.
const MAX_REMEMBERED: usize = 100_000;

/// Tasks in a map.
#[derive(Debug)]
pub struct Memory {
    options: Options,
    clock: Clock,
    records: DashMap<TaskId, Record>,
    retained: AtomicU64,
    /// Tasks whose outcome was read, in that order: the first to make room.
    fetched: Mutex<VecDeque<TaskId>>,
}

#[derive(Debug)]
struct Record {
    task: Task,
    result: Option<Bytes>,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new(options: Options, clock: Clock) -> Self {
        Self {
            options,
            clock,
            records: DashMap::new(),
            retained: AtomicU64::new(0),
            fetched: Mutex::new(VecDeque::new()),
        }
    }

    /// Bytes of results that are kept now.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.retained.load(Ordering::Relaxed)
    }

    fn add(&self, task: &Task) -> Result<(), StoreError> {
        while self.retained() >= self.options.max_retained {
            let oldest = self.fetched.lock().expect("no holder panics").pop_front();
            let Some(id) = oldest else { return Err(StoreError::Full(Full::Retained)) };
            self.evict(id);
        }
        match self.records.entry(task.id) {
            Entry::Occupied(_) => Err(StoreError::Unavailable("a task with this id exists".into())),
            Entry::Vacant(place) => {
                place.insert(Record { task: task.clone(), result: None });
                Ok(())
            }
        }
    }

    fn evict(&self, id: TaskId) {
        let Some(mut record) = self.records.get_mut(&id) else { return };
        if let Ok(task) = record.task.apply(Event::Evicted, Timestamp::of(self.clock.now())) {
            record.task = task;
        }
        self.forget_result(&mut record);
    }

    fn forget_result(&self, record: &mut Record) -> bool {
        let Some(result) = record.result.take() else { return false };
        self.retained.fetch_sub(result.len() as u64, Ordering::Relaxed);
        true
    }

    fn swap(&self, task: &Task, result: Option<Bytes>) -> Replaced {
        let Some(mut record) = self.records.get_mut(&task.id) else { return Replaced::Missing };
        if record.task.version + 1 != task.version {
            return Replaced::Conflict;
        }
        if task.fetched && !record.task.fetched {
            self.fetched.lock().expect("no holder panics").push_back(task.id);
        }
        record.task = task.clone();
        if let Some(result) = result {
            self.forget_result(&mut record);
            self.retained.fetch_add(result.len() as u64, Ordering::Relaxed);
            record.result = Some(result);
        }
        Replaced::Done
    }

    fn page(&self, query: &ListQuery) -> Vec<Task> {
        let key = |task: &Task| Reverse((task.created, task.id));
        let mut tasks: Vec<Task> = self
            .records
            .iter()
            .map(|record| record.task.clone())
            .filter(|task| task.owner.listed_in() == Some(query.session) && *task.upstream == *query.upstream)
            .filter(|task| query.after.is_none_or(|after| key(task) > Reverse(after)))
            .collect();
        tasks.sort_by_key(key);
        tasks.truncate(query.limit);
        tasks
    }

    fn sweep(&self, now: Timestamp) -> Purged {
        let mut purged = Purged::default();
        let mut remembered = Vec::new();
        self.records.retain(|id, record| {
            if !record.task.is_expired(now) {
                return true;
            }
            purged.results += usize::from(self.forget_result(record));
            let until = record.task.forgotten().unwrap_or(now);
            remembered.push((until, *id));
            until > now
        });
        remembered.sort_unstable();
        let over = remembered.len().saturating_sub(MAX_REMEMBERED);
        purged.records = remembered.iter().filter(|(until, _)| *until <= now).count().max(over);
        for (_, id) in &remembered[..over] {
            self.records.remove(id);
        }
        self.fetched.lock().expect("no holder panics").retain(|id| self.records.contains_key(id));
        purged
    }
}

impl TaskStore for Memory {
    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.add(task) })
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>> {
        Box::pin(async move { Ok(self.records.get(&id).map(|record| record.task.clone())) })
    }

    fn get_result(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move { Ok(self.records.get(&id).and_then(|record| record.result.clone())) })
    }

    fn replace<'a>(&'a self, task: &'a Task, result: Option<Bytes>) -> BoxFuture<'a, Result<Replaced, StoreError>> {
        Box::pin(async move { Ok(self.swap(task, result)) })
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        Box::pin(async move { Ok(self.page(query)) })
    }

    fn purge(&self, now: Timestamp) -> BoxFuture<'_, Result<Purged, StoreError>> {
        Box::pin(async move { Ok(self.sweep(now)) })
    }
}
