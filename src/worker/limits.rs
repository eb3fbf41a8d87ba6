//! How many tasks may run at once, altogether and per owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;

use crate::task::{Identity, Owner};

use super::Options;

/// Counts running tasks.
#[derive(Debug)]
pub struct Limits {
    options: Options,
    running: AtomicUsize,
    by_owner: DashMap<Identity, usize>,
}

/// The right to run as a task; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    owner: Option<Identity>,
}

impl Limits {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, running: AtomicUsize::new(0), by_owner: DashMap::new() }
    }

    /// How many tasks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// A permit that counts for `owner` too, unless a limit is reached.
    #[must_use]
    pub fn permit(self: &Arc<Self>, owner: &Owner) -> Option<Permit> {
        let mut permit = self.permit_for_nobody()?;
        if let Some(owner) = owner.counted_for() {
            let mut count = self.by_owner.entry(owner).or_insert(0);
            if *count >= self.options.max_running_per_owner {
                return None;
            }
            *count += 1;
            permit.owner = Some(owner);
        }
        Some(permit)
    }

    /// A permit for what ran already: it counts for `owner`, too, whatever the limits say.
    pub(super) fn permit_for_taken_over(self: &Arc<Self>, owner: &Owner) -> Permit {
        self.running.fetch_add(1, Ordering::Relaxed);
        let owner = owner.counted_for();
        if let Some(owner) = owner {
            *self.by_owner.entry(owner).or_insert(0) += 1;
        }
        Permit { limits: self.clone(), owner }
    }

    /// A permit that counts for no owner: nobody chose to let this call go on.
    pub(super) fn permit_for_nobody(self: &Arc<Self>) -> Option<Permit> {
        let within = |running| (running < self.options.max_running).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        Some(Permit { limits: self.clone(), owner: None })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.running.fetch_sub(1, Ordering::Relaxed);
        if let Some(owner) = self.owner {
            if let Some(mut count) = self.limits.by_owner.get_mut(&owner) {
                *count -= 1;
            }
            self.limits.by_owner.remove_if(&owner, |_, count| *count == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Fingerprint, OwnerMode};

    #[test]
    fn permits_are_given_back() {
        let limits = Arc::new(Limits::new(Options { max_running: 3, max_running_per_owner: 2 }));
        let owner = |n| {
            let creator = Identity { credential: Some(Fingerprint([n; 16])), session: None };
            Owner::new(OwnerMode::Auto, creator).unwrap()
        };
        let one = limits.permit(&owner(1)).unwrap();
        let _two = limits.permit(&owner(1)).unwrap();
        assert!(limits.permit(&owner(1)).is_none(), "the owner's limit");
        assert_eq!(limits.running(), 2, "a refused permit counts for nothing");
        let three = limits.permit_for_nobody().unwrap();
        assert!(limits.permit(&owner(2)).is_none(), "the limit of all");
        drop((one, three));
        assert!(limits.permit(&owner(1)).is_some());
        assert_eq!(limits.running(), 1);
    }

    #[test]
    fn what_was_taken_over_counts_for_its_owner_beyond_every_limit() {
        let limits = Arc::new(Limits::new(Options { max_running: 2, max_running_per_owner: 1 }));
        let creator = Identity { credential: None, session: Some(Fingerprint([1; 16])) };
        let owner = Owner::new(OwnerMode::Auto, creator).unwrap();
        let taken: Vec<Permit> = (0..3).map(|_| limits.permit_for_taken_over(&owner)).collect();
        assert_eq!(limits.running(), 3);
        assert!(limits.permit(&owner).is_none());
        drop(taken);
        assert_eq!((limits.running(), limits.by_owner.len()), (0, 0));
        assert!(limits.permit(&owner).is_some());
        let nobodys = Owner::new(OwnerMode::Auto, Identity::default()).unwrap();
        let _taken = limits.permit_for_taken_over(&nobodys);
        assert_eq!((limits.running(), limits.by_owner.len()), (1, 0));
    }
}
