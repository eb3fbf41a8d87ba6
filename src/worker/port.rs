//! The way between a task that runs and those who can answer its questions.
//!
//! Whoever waits for a task on an event stream registers that stream here, and answers are handed in here, whichever
//! request brings them; the task itself decides which question goes where.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dashmap::DashMap;
use http::HeaderValue;
use tokio::sync::{Notify, oneshot};

use crate::call::Outlet;
use crate::mcp::Abilities;
use crate::task::{QuestionKey, TaskId};

/// The ports of all tasks that run in this process.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    by_task: Arc<DashMap<TaskId, Arc<Port>>>,
    by_key: Arc<DashMap<QuestionKey, TaskId>>,
    /// Tasks that cannot go on before their owner brings its credential again.
    waiting: Arc<DashMap<TaskId, oneshot::Sender<HeaderValue>>>,
}

/// A stream to a client that waits for a task.
#[derive(Clone, Debug)]
pub struct Carrier {
    /// Where events go.
    pub outlet: Arc<Outlet>,
    /// What its client can be asked.
    pub abilities: Abilities,
    /// How messages are marked on it.
    pub marking: Marking,
}

/// Whether messages on a stream say which task they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// They do (`tasks/result`, 2025-11-25).
    Related,
    /// They do not: the client knows nothing of tasks.
    Plain,
}

/// One task's port.
#[derive(Debug, Default)]
pub(super) struct Port {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    carriers: Vec<(u64, Carrier)>,
    answers: Vec<(QuestionKey, Bytes)>,
    named: u64,
    /// The streams that carry an open question.
    asking: Vec<u64>,
}

/// Keeps a port open while its task runs.
#[derive(Debug)]
pub(super) struct Opened {
    ports: Ports,
    task: TaskId,
    port: Arc<Port>,
}

/// Keeps a stream registered while it lives.
#[derive(Debug)]
pub struct Carried {
    port: Arc<Port>,
    name: u64,
}

impl Ports {
    /// Opens the port of a task that begins to run.
    pub(super) fn open(&self, task: TaskId) -> Opened {
        let port = self.by_task.entry(task).or_default().clone();
        Opened { ports: self.clone(), task, port }
    }

    /// Registers a stream that waits for a task; `None` if the task does not run here.
    #[must_use]
    pub fn carry(&self, task: TaskId, carrier: Carrier) -> Option<Carried> {
        let port = self.by_task.get(&task)?.clone();
        let name = {
            let mut state = port.lock();
            state.named += 1;
            let name = state.named;
            state.carriers.push((name, carrier));
            name
        };
        port.wake.notify_one();
        Some(Carried { port, name })
    }

    /// A task cannot go on without its owner's credential: resolves when that is brought. Cancel safe.
    pub(super) fn wants_credential(&self, task: TaskId) -> oneshot::Receiver<HeaderValue> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(task, sender);
        receiver
    }

    /// Whether a task cannot go on without its owner's credential.
    #[must_use]
    pub fn lacks_credential(&self, task: TaskId) -> bool {
        !self.waiting.is_empty() && self.waiting.contains_key(&task)
    }

    /// The credential that such a task can go on with.
    pub fn bring(&self, task: TaskId, credential: &HeaderValue) {
        if let Some((_, waiting)) = self.waiting.remove(&task) {
            let _ = waiting.send(credential.clone());
        }
    }

    /// The task that asked, while the question is open.
    #[must_use]
    pub fn asker(&self, key: &QuestionKey) -> Option<TaskId> {
        self.by_key.get(key).map(|task| *task)
    }

    /// Whether the task runs in this process, so that answers reach it.
    #[must_use]
    pub fn is_open(&self, task: TaskId) -> bool {
        self.by_task.contains_key(&task)
    }

    /// Hands in the answer to a question, a JSON-RPC response whatever its id.
    pub fn answer(&self, task: TaskId, key: QuestionKey, response: Bytes) {
        let Some(port) = self.by_task.get(&task).map(|port| port.clone()) else { return };
        port.lock().answers.push((key, response));
        port.wake.notify_one();
    }
}

impl Port {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    /// Resolves when answers or streams came or went. Cancel safe.
    pub(super) async fn touched(&self) {
        self.port.wake.notified().await;
    }

    /// The answers that were handed in since the last call.
    pub(super) fn take_answers(&self) -> Vec<(QuestionKey, Bytes)> {
        std::mem::take(&mut self.port.lock().answers)
    }

    /// The streams that wait now, oldest first, by their names here.
    pub(super) fn carriers(&self) -> Vec<(u64, Carrier)> {
        self.port.lock().carriers.clone()
    }

    /// Whether any stream waits now.
    pub(super) fn is_awaited(&self) -> bool {
        !self.port.lock().carriers.is_empty()
    }

    /// These streams carry an open question.
    pub(super) fn set_asking(&self, carriers: Vec<u64>) {
        self.port.lock().asking = carriers;
    }

    /// A question can be answered from now on.
    pub(super) fn asked(&self, key: &QuestionKey) {
        self.ports.by_key.insert(key.clone(), self.task);
    }

    /// A question cannot be answered any more.
    pub(super) fn settled(&self, key: &QuestionKey) {
        self.ports.by_key.remove(key);
    }
}

impl Carried {
    /// Whether a question is open on the stream.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.port.lock().asking.contains(&self.name)
    }

    /// The client has left, and may come back.
    pub fn left(&self) {
        self.port.wake.notify_one();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // An upstream may end its call without waiting for every answer.
        self.ports.by_key.retain(|_, task| *task != self.task);
        self.ports.by_task.remove(&self.task);
        self.ports.waiting.remove(&self.task);
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.port.lock().carriers.retain(|(name, _)| *name != self.name);
        self.port.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_and_streams_reach_the_task() {
        let (ports, task) = (Ports::default(), TaskId::random());
        let carrier = || Carrier {
            outlet: Arc::new(crate::call::outlet(1, None).0),
            abilities: Abilities::ALL,
            marking: Marking::Plain,
        };
        assert!(ports.carry(task, carrier()).is_none(), "it does not run");
        let opened = ports.open(task);
        let carried = ports.carry(task, carrier()).unwrap();
        opened.touched().await;
        assert_eq!(opened.carriers().len(), 1);
        drop(carried);
        opened.touched().await;
        assert!(opened.carriers().is_empty());
        let key = QuestionKey::random();
        opened.asked(&key);
        assert_eq!(ports.asker(&key), Some(task));
        ports.answer(task, key.clone(), Bytes::from_static(b"{}"));
        opened.touched().await;
        assert_eq!(opened.take_answers(), [(key.clone(), Bytes::from_static(b"{}"))]);
        opened.settled(&key);
        assert_eq!(ports.asker(&key), None);
        let unanswered = QuestionKey::random();
        opened.asked(&unanswered);
        drop(opened);
        assert_eq!(ports.asker(&unanswered), None);
        assert!(ports.by_task.is_empty() && ports.by_key.is_empty());
    }
}
