//! The only place where a status changes. Total, exhaustive, without I/O.

use super::{Failure, Note, Status, Task, Timestamp};

/// Something that happened to a task.
#[derive(Clone, Debug)]
pub enum Event {
    /// The upstream told how far it is.
    Progress(Note),
    /// The upstream answered with a result of this many bytes.
    Completed {
        /// Length of the result's text.
        bytes: u64,
        /// Whether it says `isError: true`.
        is_error: bool,
    },
    /// There will be no result.
    Failed(Failure),
    /// Somebody who may cancelled it.
    Cancelled,
    /// Its outcome was read.
    Fetched,
    /// Its outcome makes room for others.
    Evicted,
}

/// The event comes too late or too early; the task stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task does not change")]
pub struct Rejected;

impl Task {
    /// The task after `event`.
    ///
    /// # Errors
    /// [`Rejected`] if the event does not apply: a final state never changes, and what is not final was not read.
    pub fn apply(&self, event: Event, now: Timestamp) -> Result<Self, Rejected> {
        let mut next = self.clone();
        match (&self.status, event) {
            (Status::Working { .. }, Event::Progress(note)) => {
                next.status = Status::Working { note: Some(note) };
                next.updated = now;
            }
            (Status::Working { .. }, Event::Completed { bytes, is_error }) => {
                next.end(Status::Completed { ended: now, bytes, is_error }, now);
            }
            (Status::Working { .. }, Event::Failed(failure)) => next.end(Status::Failed { ended: now, failure }, now),
            (Status::Working { .. }, Event::Cancelled) => next.end(Status::Cancelled { ended: now }, now),
            (Status::Completed { .. } | Status::Failed { .. } | Status::Cancelled { .. }, Event::Fetched)
                if !self.fetched =>
            {
                next.fetched = true;
            }
            (
                Status::Completed { ended, .. } | Status::Failed { ended, .. } | Status::Cancelled { ended },
                Event::Evicted,
            ) if !self.is_expired(now) => next.retention = now.since(*ended),
            (Status::Working { .. }, Event::Fetched | Event::Evicted)
            | (
                Status::Completed { .. } | Status::Failed { .. } | Status::Cancelled { .. },
                Event::Progress(_)
                | Event::Completed { .. }
                | Event::Failed(_)
                | Event::Cancelled
                | Event::Fetched
                | Event::Evicted,
            ) => return Err(Rejected),
        }
        next.version += 1;
        Ok(next)
    }

    fn end(&mut self, status: Status, now: Timestamp) {
        self.status = status;
        self.updated = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Identity, Made, Owner, OwnerMode, Reason, TaskId};
    use proptest::prelude::*;
    use std::time::Duration;

    fn task() -> Task {
        Task {
            id: TaskId::random(),
            upstream: "/mcp".into(),
            tool: "slow".into(),
            made: Made::Job,
            owner: Owner::new(OwnerMode::Auto, Identity::default()).unwrap(),
            created: Timestamp(1_000),
            updated: Timestamp(1_000),
            retention: Duration::from_secs(3),
            poll_interval: Duration::from_secs(2),
            threshold: Duration::from_secs(1),
            status: Status::Working { note: None },
            fetched: false,
            version: 0,
        }
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Progress(Note { progress: "1".into(), ..Note::default() })),
            any::<bool>().prop_map(|is_error| Event::Completed { bytes: 2, is_error }),
            Just(Event::Failed(Failure::Lost { reason: Reason::OutcomeUnknown, text: String::new() })),
            Just(Event::Cancelled),
            Just(Event::Fetched),
            Just(Event::Evicted),
        ]
    }

    proptest! {
        #[test]
        fn a_final_state_never_changes(events in prop::collection::vec((event(), 0_u64..2_000), 0..20)) {
            let (mut task, mut now) = (task(), Timestamp(1_000));
            for (event, wait) in events {
                now = now.plus(Duration::from_millis(wait));
                let before = task.clone();
                if let Ok(after) = before.apply(event, now) {
                        prop_assert_eq!(after.version, before.version + 1);
                        prop_assert!(after.updated >= before.updated);
                        if before.status.ended().is_some() {
                            prop_assert_eq!(&after.status, &before.status);
                            prop_assert!(after.expires() <= before.expires());
                        }
                        prop_assert!(after.fetched >= before.fetched);
                    task = after;
                }
                prop_assert_eq!(task.expires().is_some(), task.status.ended().is_some());
            }
        }
    }

    #[test]
    fn b55_retention_counts_from_the_end() {
        let task = task();
        let late = Timestamp(1_000_000);
        assert_eq!(task.expires(), None);
        assert_eq!(task.reported_ttl(late), 999_000 + 3_000);
        let done = task.apply(Event::Completed { bytes: 1, is_error: false }, late).unwrap();
        assert!(!done.is_expired(Timestamp(1_002_999)));
        assert!(done.is_expired(Timestamp(1_003_000)));
        assert_eq!(done.forgotten(), Some(Timestamp(1_006_000)));
        assert_eq!(done.reported_ttl(Timestamp(1_002_000)), 999_000 + 3_000);
    }

    #[test]
    fn intervals_grow_with_age() {
        let task = task();
        for (age, interval) in [(0, 200), (1_000, 200), (5_000, 1_000), (60_000, 2_000)] {
            assert_eq!(task.reported_interval(Timestamp(1_000 + age)), interval);
        }
    }

    #[test]
    fn evicted_means_expired_now() {
        let done = task().apply(Event::Cancelled, Timestamp(2_000)).unwrap();
        let evicted = done.apply(Event::Evicted, Timestamp(2_500)).unwrap();
        assert!(evicted.is_expired(Timestamp(2_500)));
        assert_eq!(evicted.status, done.status);
    }
}
