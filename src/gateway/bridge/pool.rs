//! The upstream sessions that taskgate has for stateless clients: bounded per owner, and never shared between owners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::task::Fingerprint;

use super::open::Opened;

/// How many sessions there may be for stateless clients in all: credentials that nobody checks can be made up.
const MOST: usize = 2_000;

/// All sessions of this kind, by owner.
#[derive(Debug)]
pub(in crate::gateway) struct Pools {
    by_owner: DashMap<Owner, Arc<Pool>>,
    room: Arc<Semaphore>,
}

impl Default for Pools {
    fn default() -> Self {
        Self { by_owner: DashMap::new(), room: Arc::new(Semaphore::new(MOST)) }
    }
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
    /// How many only hear what is said in it: they keep it from being closed as idle, and take no place from others.
    listeners: usize,
    last: Instant,
}

/// What a session is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request.
    Request,
    /// Hearing what is said in it.
    Listening,
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
    purpose: Purpose,
}

/// The right to open a session; dropped without one, the next in line gets it.
#[derive(Debug)]
pub(super) struct Turn {
    pool: Arc<Pool>,
    kind: Kind,
    purpose: Purpose,
}

impl Pools {
    /// The places of all such sessions, whoever's they are.
    pub(super) fn room(&self) -> Arc<Semaphore> {
        self.room.clone()
    }

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
    /// all are in use. Who listens takes one of another kind before it waits. Cancel safe.
    pub(super) async fn get(self: &Arc<Self>, kind: &Kind, purpose: Purpose) -> Got {
        loop {
            let changed = self.changed.notified();
            if let Some(got) = self.try_get(kind, purpose) {
                return got;
            }
            changed.await;
        }
    }

    fn try_get(self: &Arc<Self>, kind: &Kind, purpose: Purpose) -> Option<Got> {
        let mut slots = self.lock();
        match slots.get_mut(kind) {
            Some(Slot::Open(opened, used)) => return Some(Got::Share(self.share(kind, (opened, used), purpose))),
            Some(Slot::Opening) => return None,
            None => {}
        }
        let is_full = slots.len() >= self.max;
        if is_full && purpose == Purpose::Listening {
            let kind = last_used(&slots)?;
            let Some(Slot::Open(opened, used)) = slots.get_mut(&kind) else { return None };
            return Some(Got::Share(self.share(&kind, (opened, used), purpose)));
        }
        let idle = if is_full { Some(longest_idle(&slots)?) } else { None };
        let closed = idle.and_then(|idle| slots.remove(&idle)).and_then(Slot::into_opened);
        slots.insert(kind.clone(), Slot::Opening);
        Some(Got::Turn(Turn { pool: self.clone(), kind: kind.clone(), purpose }, closed))
    }

    fn share(self: &Arc<Self>, kind: &Kind, (opened, used): (&Arc<Opened>, &mut Use), purpose: Purpose) -> Share {
        used.enter(purpose);
        Share { pool: self.clone(), kind: kind.clone(), opened: opened.clone(), purpose }
    }

    fn take_idle(&self, idle: Duration) -> Vec<Arc<Opened>> {
        let mut slots = self.lock();
        let is_idle = |slot: &Slot| match slot {
            Slot::Open(_, used) => used.requests + used.listeners == 0 && used.last.elapsed() >= idle,
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

/// The session that is missed least: of those that no request uses one that nobody listens to, if there is one.
fn longest_idle(slots: &HashMap<Kind, Slot>) -> Option<Kind> {
    let idle = slots.iter().filter_map(|(kind, slot)| match slot {
        Slot::Open(_, used) if used.requests == 0 => Some(((used.listeners > 0, used.last), kind)),
        Slot::Open(..) | Slot::Opening => None,
    });
    idle.min_by_key(|(missed, _)| *missed).map(|(_, kind)| kind.clone())
}

/// The session that was used last.
fn last_used(slots: &HashMap<Kind, Slot>) -> Option<Kind> {
    let open = slots.iter().filter_map(|(kind, slot)| match slot {
        Slot::Open(_, used) => Some((used.last, kind)),
        Slot::Opening => None,
    });
    open.max_by_key(|(last, _)| *last).map(|(_, kind)| kind.clone())
}

impl Use {
    fn enter(&mut self, purpose: Purpose) {
        *self.count(purpose) += 1;
    }

    fn leave(&mut self, purpose: Purpose) {
        *self.count(purpose) -= 1;
        self.last = Instant::now();
    }

    fn count(&mut self, purpose: Purpose) -> &mut usize {
        match purpose {
            Purpose::Request => &mut self.requests,
            Purpose::Listening => &mut self.listeners,
        }
    }
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
        let mut used = Use { requests: 0, listeners: 0, last: Instant::now() };
        used.enter(self.purpose);
        self.pool.lock().insert(self.kind.clone(), Slot::Open(opened.clone(), used));
        let (pool, kind, opened) = (self.pool.clone(), self.kind.clone(), opened.clone());
        Share { pool, kind, opened, purpose: self.purpose }
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
            used.leave(self.purpose);
        }
        drop(slots);
        self.pool.changed.notify_waiters();
    }
}
