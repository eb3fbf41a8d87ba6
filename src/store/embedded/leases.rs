//! Who holds a lease until when: in memory, since one process has the file.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::task::{ReplicaId, Task, Timestamp};

/// When the lease of each holder is over. They live as long as the process does: one process has the file, so that
/// whoever held a lease before it came is gone.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<ReplicaId, Timestamp>>);

impl Leases {
    fn table(&self) -> MutexGuard<'_, HashMap<ReplicaId, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, holder: ReplicaId, until: Timestamp) {
        self.table().insert(holder, until);
    }

    pub(super) fn extend(&self, holder: ReplicaId, until: Timestamp) {
        let mut table = self.table();
        let lease = table.entry(holder).or_insert(until);
        *lease = until.max(*lease);
    }

    pub(super) fn forget(&self, now: Timestamp) {
        self.table().retain(|_, until| *until > now);
    }

    pub(super) fn until(&self, holder: ReplicaId) -> Option<Timestamp> {
        self.table().get(&holder).copied()
    }

    /// A stored task with what is known of its lease now.
    pub(super) fn seen(&self, mut task: Task) -> Task {
        if let Some(lease) = &mut task.lease {
            lease.until = self.until(lease.holder).unwrap_or_default();
        }
        task
    }
}
