//! The engine that keeps everything in memory: as fast as can be, and gone with the process.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::task::{
    BoxFuture, ClaimQuery, Event, Fingerprint, Full, Lease, ListQuery, Purged, Replaced, ReplicaId, SessionRecord,
    StoreError, Task, TaskId, TaskStore, Timestamp,
};

use super::{Clock, Options};

/// Tasks in a map.
#[derive(Debug)]
pub struct Memory {
    options: Options,
    clock: Clock,
    records: DashMap<TaskId, Record>,
    retained: AtomicU64,
    /// Tasks whose outcome was read, in that order: the first to make room.
    fetched: Mutex<VecDeque<TaskId>>,
    /// When the lease of each holder is over.
    leases: DashMap<ReplicaId, Timestamp>,
    sessions: DashMap<Fingerprint, SessionRecord>,
    secret: [u8; 32],
}

#[derive(Debug)]
struct Record {
    task: Task,
    result: Option<Bytes>,
}

impl Memory {
    /// An empty store.
    ///
    /// # Panics
    /// If the system has no randomness to give.
    #[must_use]
    pub fn new(options: Options, clock: Clock) -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system gives randomness");
        Self {
            options,
            clock,
            records: DashMap::new(),
            retained: AtomicU64::new(0),
            fetched: Mutex::new(VecDeque::new()),
            leases: DashMap::new(),
            sessions: DashMap::new(),
            secret,
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
                if let Some(Lease { holder, until }) = task.lease {
                    self.extend(holder, until);
                }
                place.insert(Record { task: task.clone(), result: None });
                Ok(())
            }
        }
    }

    fn extend(&self, holder: ReplicaId, until: Timestamp) {
        let mut lease = self.leases.entry(holder).or_insert(until);
        *lease = until.max(*lease);
    }

    /// When the lease of a running task is over.
    fn leased_until(&self, task: &Task) -> Option<Timestamp> {
        self.leases.get(&task.lease?.holder).map(|until| *until)
    }

    /// A stored task with what is known of its lease now.
    fn seen(&self, task: &Task) -> Task {
        let until = self.leased_until(task);
        let lease = task.lease.map(|lease| Lease { until: until.unwrap_or_default(), ..lease });
        Task { lease, ..task.clone() }
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
        let lease = if task.status.ended().is_some() { None } else { record.task.lease };
        record.task = Task { lease, ..task.clone() };
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
            .map(|record| self.seen(&record.task))
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
            let is_remembered = until > now;
            if is_remembered {
                remembered.push((until, *id));
            } else {
                purged.records += 1;
            }
            is_remembered
        });
        remembered.sort_unstable();
        let over = remembered.len().saturating_sub(self.options.max_remembered);
        for (_, id) in &remembered[..over] {
            self.records.remove(id);
        }
        purged.records += over;
        self.fetched.lock().expect("no holder panics").retain(|id| self.records.contains_key(id));
        self.sessions.retain(|_, session| {
            let is_remembered = session.expires > now;
            purged.sessions += usize::from(!is_remembered);
            is_remembered
        });
        // What nobody claimed has no holder either way.
        self.leases.retain(|_, until| *until > now);
        purged
    }

    fn take_over(&self, query: &ClaimQuery) -> Vec<Task> {
        let is_free = |task: &Task| {
            task.status.ended().is_none()
                && task.lease.is_none_or(|lease| lease.holder != query.holder)
                && self.leased_until(task).is_none_or(|until| until <= query.now)
        };
        let mut free: Vec<(Timestamp, TaskId)> = self
            .records
            .iter()
            .filter(|record| is_free(&record.task))
            .map(|record| (record.task.created, record.task.id))
            .collect();
        free.sort_unstable();
        self.extend(query.holder, query.until);
        let mut taken = Vec::new();
        for (_, id) in free {
            let Some(mut record) = self.records.get_mut(&id).filter(|record| is_free(&record.task)) else { continue };
            if taken.len() == query.limit {
                break;
            }
            record.task.lease = Some(Lease { holder: query.holder, until: query.until });
            record.task.version += 1;
            taken.push(self.seen(&record.task));
        }
        taken
    }
}

impl TaskStore for Memory {
    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.add(task) })
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>> {
        Box::pin(async move { Ok(self.records.get(&id).map(|record| self.seen(&record.task))) })
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

    fn renew(&self, holder: ReplicaId, until: Timestamp) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.leases.insert(holder, until);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, query: &'a ClaimQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        Box::pin(async move { Ok(self.take_over(query)) })
    }

    fn put_session<'a>(&'a self, id: Fingerprint, session: &'a SessionRecord) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.sessions.insert(id, session.clone());
            Ok(())
        })
    }

    fn get_session(&self, id: Fingerprint) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        Box::pin(async move { Ok(self.sessions.get(&id).map(|session| session.clone())) })
    }

    fn secret(&self) -> BoxFuture<'_, Result<[u8; 32], StoreError>> {
        Box::pin(async move { Ok(self.secret) })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
