//! Which tasks of a subscription there is something to tell of, and when.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep_until};

use crate::store::{Observer, Tasks};
use crate::task::{Question, Status, Task, TaskId};

/// How often a client is told of a task whose progress alone has changed.
const WORDS_EVERY: Duration = Duration::from_secs(1);

/// The tasks of one subscription.
pub(super) struct Follow {
    tasks: Tasks,
    observer: Observer,
    /// What the client was told last of each task that still runs, and when.
    told: HashMap<TaskId, (Status, Instant)>,
    /// Tasks of which nothing more is to be told.
    over: HashSet<TaskId>,
    /// Tasks that are looked at again at some time.
    later: HashMap<TaskId, Instant>,
}

impl Follow {
    /// These tasks; each is to be told of once at the beginning.
    pub(super) fn new(tasks: &Tasks, ids: impl Iterator<Item = TaskId>) -> Self {
        Self {
            tasks: tasks.clone(),
            observer: tasks.observe(ids),
            told: HashMap::new(),
            over: HashSet::new(),
            later: HashMap::new(),
        }
    }

    /// A task to look at. Cancel safe.
    pub(super) async fn next(&self) -> TaskId {
        let soonest = self.later.iter().min_by_key(|(_, at)| **at);
        let Some((id, at)) = soonest else { return self.observer.next().await };
        tokio::select! {
            changed = self.observer.next() => changed,
            () = sleep_until(*at) => *id,
        }
    }

    /// The task as it stands, if the client is to hear of it now.
    pub(super) async fn look(&mut self, id: TaskId) -> Option<Task> {
        self.later.remove(&id);
        // It may have been seen to change once more while its end was told.
        if self.over.contains(&id) {
            return None;
        }
        let task = match self.tasks.get(id).await {
            Ok(Some(task)) if !task.is_expired(self.tasks.now()) => task,
            Ok(_) => {
                self.dismiss(id);
                return None;
            }
            Err(_) => {
                self.later(id);
                return None;
            }
        };
        match self.told.get(&id) {
            Some((known, _)) if *known == task.status => None,
            Some((known, at)) if differ_in_words(known, &task.status) && at.elapsed() < WORDS_EVERY => {
                self.later.insert(id, *at + WORDS_EVERY);
                None
            }
            Some(_) | None => Some(task),
        }
    }

    /// The client has heard how the task stands.
    pub(super) fn told(&mut self, task: &Task) {
        if task.status.ended().is_some() {
            self.dismiss(task.id);
        } else {
            self.told.insert(task.id, (task.status.clone(), Instant::now()));
        }
    }

    /// The task cannot be read now.
    pub(super) fn later(&mut self, id: TaskId) {
        self.later.insert(id, Instant::now() + WORDS_EVERY);
    }

    /// What there is to look at now, or would be later; each once.
    pub(super) fn unsaid(&mut self) -> Vec<TaskId> {
        let now = std::iter::from_fn(|| self.observer.next().now_or_never());
        let mut all: Vec<TaskId> = now.collect();
        all.extend(self.later.drain().map(|(id, _)| id));
        all
    }

    /// Whether any task may still change.
    pub(super) fn goes_on(&self) -> bool {
        self.observer.watches_any()
    }

    fn dismiss(&mut self, id: TaskId) {
        self.observer.dismiss(id);
        self.told.remove(&id);
        self.over.insert(id);
    }
}

/// Whether two states of a task differ in what it says of its progress only.
fn differ_in_words(one: &Status, other: &Status) -> bool {
    let questions = |status: &Status| match status {
        Status::Working { .. } => Some(Vec::<Question>::new()),
        Status::InputRequired { questions, .. } => Some(questions.clone()),
        Status::Completed { .. } | Status::Failed { .. } | Status::Cancelled { .. } => None,
    };
    questions(one).is_some() && questions(one) == questions(other)
}
