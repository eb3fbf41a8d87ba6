//! Everything a call needs to live on its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::call::{Log, Standing};
use crate::dialect::{Dialect, JobNames};
use crate::mcp::Abilities;
use crate::policy::Plan;
use crate::session::{Habit, Ticket};
use crate::task::Owner;
use crate::telemetry::metrics::{Metrics, Side};
use crate::upstream::{Leg, Outbound};

use super::{Alike, Permit, Purpose};

/// One request with an id, on its way to its upstream.
#[derive(Debug)]
pub struct Assignment {
    /// The way there.
    pub leg: Leg,
    /// What is sent.
    pub request: Outbound,
    /// Its place among the session's requests.
    pub ticket: Ticket,
    /// When the last byte of the client's request had come.
    pub received: Instant,
    /// How long it may take; `None` for ever.
    pub max_runtime: Option<Duration>,
    /// How long a question on the way may wait for an answer.
    pub input_timeout: Duration,
    /// Larger JSON bodies than this many bytes pass without being looked into.
    pub inline: usize,
    /// Largest answer that is buffered, in bytes.
    pub max_result: u64,
    /// Told the headers of the answer, as the upstream sent them.
    pub head: Option<oneshot::Sender<HeaderMap>>,
    /// Whether it may be sent once more after its connection broke.
    pub repeatable: bool,
    /// Whether a task that the upstream makes of the call is followed here instead of being handed on.
    pub follows_tasks: bool,
    /// Where what goes out is kept for a client that loses its stream.
    pub log: Option<Arc<Log>>,
    /// Progress token that taskgate added, as JSON text.
    pub own_token: Option<String>,
    /// Who listens.
    pub listener: Listener,
    /// How it may be deferred; `None` if never.
    pub deferral: Option<Deferral>,
    /// What it has in common with calls whose exchange it may share; `None` if it shares with none.
    pub alike: Option<Alike>,
    /// What the call needs until it has ended, such as its share of a session.
    pub kept: Option<Kept>,
    /// For the counters.
    pub tally: Tally,
}

/// Something that is let go when a call has ended.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// What is known of the client that waits.
#[derive(Debug)]
pub struct Listener {
    /// How it can be asked something before it has its answer.
    pub reach: Reach,
    /// What it can be asked.
    pub abilities: Abilities,
    /// Whom it is like in how long it waits.
    pub habit: Habit,
    /// How it stood when it asked.
    pub standing: Standing,
}

/// How a client that waits can be asked something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On the stream of its answer.
    Stream,
    /// By an answer that asks; a retry of the request, which is this one, brings what the client says.
    Retry(Purpose),
    /// Not at all.
    Nowhere,
}

impl Listener {
    /// Whether it withdraws its request by leaving (2026-07-28); else the call goes on without it.
    #[must_use]
    pub fn withdraws_by_leaving(&self) -> bool {
        self.standing == Standing::Stateless
    }
}

/// How and as what a call is deferred.
#[derive(Debug)]
pub struct Deferral {
    /// When.
    pub plan: Plan,
    /// The shape of the handle.
    pub dialect: Dialect,
    /// What the job tools are called for this client.
    pub names: Arc<JobNames>,
    /// Whose the task will be.
    pub owner: Owner,
    /// The right to run as a task, where it has to be sure of one before it is sent.
    pub permit: Option<Permit>,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// How long its call is waited for, and each first read of the job.
    pub threshold: Duration,
    /// How long the outcome is kept.
    pub retention: Duration,
    /// The longest interval told to pollers.
    pub poll_interval: Duration,
}

/// Counts one request once, when its answer is known.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Where it is counted; nowhere if it is a request of taskgate's own.
    pub metrics: Option<Metrics>,
    /// Its method.
    pub method: &'static str,
    /// The dialect it is answered in.
    pub dialect: &'static str,
    /// When it had come.
    pub received: Instant,
}

impl Tally {
    /// It was answered; `side` failed if any.
    pub fn done(&self, side: Side) {
        if let Some(metrics) = &self.metrics {
            metrics.request(self.method, self.dialect, side, self.received.elapsed());
        }
    }
}
