//! The upstream sessions that taskgate has for stateless clients: bounded per owner, and never shared between owners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::task::Fingerprint;

use super::open::Opened;

/// All sessions of this kind, by owner.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Pools {
    by_owner: DashMap<Owner, Arc<Pool>>,
}

/// Who has sessions of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    /// The path of the upstream.
    pub(super) path: String,
    /// The caller's credential; none where callers without one share a session.
    pub(super) credential: Option<Fingerprint>,
}

/// Which of an owner's sessions: servers ask only what the client declared when its session was opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// Digest of the declared capabilities.
    pub(super) capabilities: [u8; 32],
    /// The query of the request.
    pub(super) query: Option<String>,
}

/// The sessions of one owner.
#[derive(Debug)]
pub(super) struct Pool {
    max: usize,
    slots: Mutex<HashMap<Kind, Slot>>,
    changed: Notify,
}

#[derive(Debug)]
enum Slot {
    /// Somebody opens it.
    Opening,
    /// It stands.
    Open(Arc<Opened>, Use),
}

#[derive(Debug)]
struct Use {
    requests: usize,
    last: Instant,
}

/// What a request gets.
#[derive(Debug)]
pub(super) enum Got {
    /// A share of a session that stands.
    Share(Share),
    /// The right to open one, after closing this one if it is there.
    Turn(Turn, Option<Arc<Opened>>),
}

/// A request's share of a session.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    kind: Kind,
    opened: Arc<Opened>,
}

/// The right to open a session; dropped without one, the next in line gets it.
#[derive(Debug)]
pub(super) struct Turn {
    pool: Arc<Pool>,
    kind: Kind,
}

impl Pools {
    /// The sessions of `owner`, who may have `max` of them.
    pub(super) fn of(&self, owner: Owner, max: usize) -> Arc<Pool> {
        let new = || Arc::new(Pool { max: max.max(1), slots: Mutex::default(), changed: Notify::new() });
        self.by_owner.entry(owner).or_insert_with(new).clone()
    }

    /// Takes out the sessions that no request has used for `idle`; they are to be closed.
    pub(super) fn take_idle(&self, idle: Duration) -> Vec<Arc<Opened>> {
        let pools: Vec<Arc<Pool>> = self.by_owner.iter().map(|pool| pool.clone()).collect();
        let taken = pools.iter().flat_map(|pool| pool.take_idle(idle)).collect();
        drop(pools);
        self.by_owner.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.lock().is_empty());
        taken
    }
}

impl Pool {
    /// A share of the session of this kind, or the right to open one; waits while the owner has as many as it may, and
    /// all are in use. Cancel safe.
    pub(super) async fn get(self: &Arc<Self>, kind: &Kind) -> Got {
        loop {
            let changed = self.changed.notified();
            if let Some(got) = self.try_get(kind) {
                return got;
            }
            changed.await;
        }
    }

    fn try_get(self: &Arc<Self>, kind: &Kind) -> Option<Got> {
        let mut slots = self.lock();
        match slots.get_mut(kind) {
            Some(Slot::Open(opened, used)) => {
                used.requests += 1;
                let (pool, kind, opened) = (self.clone(), kind.clone(), opened.clone());
                return Some(Got::Share(Share { pool, kind, opened }));
            }
            Some(Slot::Opening) => return None,
            None => {}
        }
        let idle = if slots.len() < self.max { None } else { Some(longest_idle(&slots)?) };
        let closed = idle.and_then(|idle| slots.remove(&idle)).and_then(Slot::into_opened);
        slots.insert(kind.clone(), Slot::Opening);
        Some(Got::Turn(Turn { pool: self.clone(), kind: kind.clone() }, closed))
    }

    fn take_idle(&self, idle: Duration) -> Vec<Arc<Opened>> {
        let mut slots = self.lock();
        let is_idle = |slot: &Slot| match slot {
            Slot::Open(_, used) => used.requests == 0 && used.last.elapsed() >= idle,
            Slot::Opening => false,
        };
        let late: Vec<Kind> = slots.iter().filter(|(_, slot)| is_idle(slot)).map(|(kind, _)| kind.clone()).collect();
        let taken = late.iter().filter_map(|kind| slots.remove(kind)).filter_map(Slot::into_opened).collect();
        drop(slots);
        self.changed.notify_waiters();
        taken
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn longest_idle(slots: &HashMap<Kind, Slot>) -> Option<Kind> {
    let idle = slots.iter().filter_map(|(kind, slot)| match slot {
        Slot::Open(_, used) if used.requests == 0 => Some((used.last, kind)),
        Slot::Open(..) | Slot::Opening => None,
    });
    idle.min_by_key(|(last, _)| *last).map(|(_, kind)| kind.clone())
}

impl Slot {
    fn into_opened(self) -> Option<Arc<Opened>> {
        match self {
            Self::Open(opened, _) => Some(opened),
            Self::Opening => None,
        }
    }
}

impl Turn {
    /// It is open.
    pub(super) fn opened(self, opened: &Arc<Opened>) -> Share {
        let used = Use { requests: 1, last: Instant::now() };
        self.pool.lock().insert(self.kind.clone(), Slot::Open(opened.clone(), used));
        let (pool, kind, opened) = (self.pool.clone(), self.kind.clone(), opened.clone());
        Share { pool, kind, opened }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut slots = self.pool.lock();
        if matches!(slots.get(&self.kind), Some(Slot::Opening)) {
            slots.remove(&self.kind);
        }
        drop(slots);
        self.pool.changed.notify_waiters();
    }
}

impl Share {
    pub(super) fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// The upstream does not know the session any more: nobody else gets it.
    pub(super) fn forget(&self) {
        let mut slots = self.pool.lock();
        if matches!(slots.get(&self.kind), Some(Slot::Open(opened, _)) if Arc::ptr_eq(opened, &self.opened)) {
            slots.remove(&self.kind);
        }
        drop(slots);
        self.pool.changed.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut slots = self.pool.lock();
        if let Some(Slot::Open(opened, used)) = slots.get_mut(&self.kind)
            && Arc::ptr_eq(opened, &self.opened)
        {
            used.requests -= 1;
            used.last = Instant::now();
        }
        drop(slots);
        self.pool.changed.notify_waiters();
    }
}
