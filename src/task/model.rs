//! The record of a deferred call.

use std::sync::Arc;
use std::time::Duration;

use super::clock::millis;
use super::{Execution, Lease, Owner, Status, TaskId, Timestamp};

/// How a task was announced; it may be read in any way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// As a task of the extension.
    Ext,
    /// As a task of 2025-11-25.
    Core,
    /// As a job.
    Job,
}

/// One deferred call.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Path of the upstream it was made on; through another it is unknown.
    pub upstream: Arc<str>,
    /// Name of the tool.
    pub tool: Arc<str>,
    /// How it was announced.
    pub made: Made,
    /// Who may see it.
    pub owner: Owner,
    /// When the client's request had come.
    pub created: Timestamp,
    /// When it last changed in a way that readers see.
    pub updated: Timestamp,
    /// How long it is kept, from the end of the work.
    pub retention: Duration,
    /// The longest interval told to pollers.
    pub poll_interval: Duration,
    /// How long its call was waited for before it was deferred.
    pub threshold: Duration,
    /// What has become of it.
    pub status: Status,
    /// What a restart may do with it while it runs.
    pub execution: Execution,
    /// Who runs it; `None` if it has ended, or nobody does.
    pub lease: Option<Lease>,
    /// Whether the outcome was read by its owner.
    pub fetched: bool,
    /// Counts replacements; fences writers that come back late.
    pub version: u64,
}

impl Task {
    /// When its outcome is dropped; never while it works.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.status.ended().map(|ended| ended.plus(self.retention))
    }

    /// Whether its outcome is gone.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|at| at <= now)
    }

    /// When even its id is forgotten.
    #[must_use]
    pub fn forgotten(&self) -> Option<Timestamp> {
        self.expires().map(|at| at.plus(self.retention))
    }

    /// The lifetime told to clients, in milliseconds from its creation: grows while it works.
    #[must_use]
    pub fn reported_ttl(&self, now: Timestamp) -> u64 {
        let ended = self.status.ended().unwrap_or(now);
        millis(ended.since(self.created).saturating_add(self.retention))
    }

    /// The interval told to pollers, in milliseconds: a fifth of its age, within bounds.
    #[must_use]
    pub fn reported_interval(&self, now: Timestamp) -> u64 {
        let longest = millis(self.poll_interval);
        (millis(now.since(self.created)) / 5).max(200).min(longest)
    }
}
