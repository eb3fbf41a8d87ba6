//! The only place where a status changes. Total, exhaustive, without I/O.

use std::sync::Arc;

use super::{Execution, Failure, Note, Question, QuestionKey, Status, Task, Timestamp};

/// Something that happened to a task.
#[derive(Clone, Debug)]
pub enum Event {
    /// The upstream told how far it is.
    Progress(Note),
    /// The upstream asks something.
    Asked(Question),
    /// A question was answered, or is not to be answered any more.
    Answered(QuestionKey),
    /// The upstream answered with a result of this many bytes.
    Completed {
        /// Length of the result's text.
        bytes: u64,
        /// If it says `isError: true`: the beginning of its text.
        tool_error: Option<Arc<str>>,
    },
    /// There will be no result.
    Failed(Failure),
    /// Somebody who may cancelled it.
    Cancelled,
    /// Its outcome was read.
    Fetched,
    /// Its outcome makes room for others.
    Evicted,
    /// A restart may do something else with it from now on. Readers see nothing of it.
    Executes(Execution),
}

/// The event comes too late or too early; the task stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task does not change")]
pub struct Rejected;

impl Task {
    /// The task after `event`.
    ///
    /// # Errors
    /// [`Rejected`] if the event does not apply: a final state never changes, what is not final was not read, and
    /// only an open question is answered, once.
    pub fn apply(&self, event: Event, now: Timestamp) -> Result<Self, Rejected> {
        let mut next = match &self.status {
            Status::Working { note } => self.at_work(note.as_ref(), &[], event, now)?,
            Status::InputRequired { note, questions } => self.at_work(note.as_ref(), questions, event, now)?,
            Status::Completed { ended, .. } | Status::Failed { ended, .. } | Status::Cancelled { ended } => {
                self.when_ended(*ended, &event, now)?
            }
        };
        next.version += 1;
        Ok(next)
    }

    fn at_work(
        &self,
        note: Option<&Note>,
        questions: &[Question],
        event: Event,
        now: Timestamp,
    ) -> Result<Self, Rejected> {
        let (mut note, mut questions) = (note.cloned(), questions.to_vec());
        let status = match event {
            Event::Progress(said) => {
                note = Some(said);
                at_work(note, questions)
            }
            Event::Asked(question) => {
                questions.push(question);
                at_work(note, questions)
            }
            Event::Answered(key) => {
                let at = questions.iter().position(|question| question.key == key).ok_or(Rejected)?;
                questions.remove(at);
                at_work(note, questions)
            }
            Event::Completed { bytes, tool_error } => Status::Completed { ended: now, bytes, tool_error },
            Event::Failed(failure) => Status::Failed { ended: now, failure },
            Event::Cancelled => Status::Cancelled { ended: now },
            Event::Executes(execution) => return Ok(Self { execution, ..self.clone() }),
            Event::Fetched | Event::Evicted => return Err(Rejected),
        };
        let mut next = Self { status, updated: now, ..self.clone() };
        if next.status.ended().is_some() {
            next.execution = Execution::LOCAL;
            next.lease = None;
        }
        Ok(next)
    }

    fn when_ended(&self, ended: Timestamp, event: &Event, now: Timestamp) -> Result<Self, Rejected> {
        match event {
            Event::Fetched if !self.fetched => Ok(Self { fetched: true, ..self.clone() }),
            Event::Evicted if !self.is_expired(now) => Ok(Self { retention: now.since(ended), ..self.clone() }),
            Event::Progress(_)
            | Event::Asked(_)
            | Event::Answered(_)
            | Event::Completed { .. }
            | Event::Failed(_)
            | Event::Cancelled
            | Event::Executes(_)
            | Event::Fetched
            | Event::Evicted => Err(Rejected),
        }
    }
}

fn at_work(note: Option<Note>, questions: Vec<Question>) -> Status {
    if questions.is_empty() { Status::Working { note } } else { Status::InputRequired { note, questions } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Identity, Lease, Made, Owner, OwnerMode, Reason, ReplicaId, Sealed, TaskId};
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
            execution: Execution::Unstarted,
            lease: Some(Lease { holder: ReplicaId::random(), until: Timestamp(9_000) }),
            fetched: false,
            version: 0,
        }
    }

    fn question() -> Question {
        Question { key: QuestionKey::random(), method: "roots/list".into(), params: None, upstream_id: "0".into() }
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Progress(Note { progress: "1".into(), ..Note::default() })),
            any::<bool>().prop_map(|failed| Event::Completed { bytes: 2, tool_error: failed.then(|| "no".into()) }),
            Just(Event::Asked(question())),
            Just(Event::Answered(QuestionKey::random())),
            Just(Event::Failed(Failure::Lost { reason: Reason::OutcomeUnknown, text: String::new() })),
            Just(Event::Cancelled),
            Just(Event::Fetched),
            Just(Event::Evicted),
            Just(Event::Executes(Execution::LOCAL)),
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
                        prop_assert_eq!(after.lease.is_some(), after.status.ended().is_none());
                    task = after;
                }
                prop_assert_eq!(task.expires().is_some(), task.status.ended().is_some());
                let asks = matches!(task.status, Status::InputRequired { .. });
                prop_assert_eq!(asks, !task.status.questions().is_empty());
            }
        }
    }

    #[test]
    fn b55_retention_counts_from_the_end() {
        let task = task();
        let late = Timestamp(1_000_000);
        assert_eq!(task.expires(), None);
        assert_eq!(task.reported_ttl(late), 999_000 + 3_000);
        let done = task.apply(Event::Completed { bytes: 1, tool_error: None }, late).unwrap();
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

    #[test]
    fn what_a_restart_needs_is_gone_at_the_end() {
        let now = Timestamp(2_000);
        let repeat = Execution::Local { repeat: Some(Sealed("{}".into())) };
        let sent = task().apply(Event::Executes(repeat.clone()), now).unwrap();
        assert_eq!((&sent.execution, sent.updated), (&repeat, task().updated), "readers see no change");
        let done = sent.apply(Event::Cancelled, now).unwrap();
        assert_eq!((done.execution, done.lease), (Execution::LOCAL, None));
    }

    #[test]
    fn b49_each_question_is_answered_once() {
        let now = Timestamp(2_000);
        let (one, two) = (question(), question());
        let asked = task().apply(Event::Asked(one.clone()), now).unwrap();
        let asked = asked.apply(Event::Asked(two.clone()), now).unwrap();
        assert_eq!(asked.status.questions(), [one.clone(), two.clone()]);
        let half = asked.apply(Event::Answered(one.key.clone()), now).unwrap();
        assert_eq!(half.status.questions(), std::slice::from_ref(&two));
        assert_eq!(half.apply(Event::Answered(one.key), now), Err(Rejected), "the first answer wins");
        assert_eq!(half.apply(Event::Answered(two.key), now).unwrap().status, Status::Working { note: None });
        assert!(half.apply(Event::Cancelled, now).unwrap().status.questions().is_empty());
    }
}
