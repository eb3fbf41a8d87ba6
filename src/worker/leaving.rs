//! A client that leaves before it has its answer: what its era makes of that.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use crate::call::Error;
use crate::task::Task;

use super::held::{End, Held};
use super::timer::Timer;

/// How long a request that is no call goes on without its client, and with one that may come back.
const ABANDONED: Duration = Duration::from_secs(60);
const AWAITED: Duration = Duration::from_secs(300);

impl Held {
    /// The client dropped its request: in the handshake era that is not a cancellation.
    pub(super) fn lose_client(&mut self) -> Option<End> {
        if self.assignment.listener.withdraws_by_leaving() {
            return Some(End::Withdrawn);
        }
        self.client_left = true;
        self.client_gave_up();
        if !self.assignment.ticket.call().is_call {
            // Hardly anybody will ever see this answer.
            self.active = None;
            let limit = if self.steps.is_resumable() { AWAITED } else { ABANDONED };
            self.runtime = Timer::after(Instant::now(), Some(limit));
        }
        if self.is_awaited() {
            self.leave_questions();
        } else {
            self.decline_questions();
        }
        None
    }

    /// The process ends: whoever waits is told so, and of what nobody waits for the upstream is.
    pub(super) fn cut_off(&self) -> End {
        if self.is_parked() {
            return End::Withdrawn;
        }
        End::Stopped(Error::OutcomeUnknown("the proxy shut down".into()))
    }

    /// A task is left to whoever starts next, in its session.
    pub(super) fn bequeath(&self, task: &Task) {
        if let Some(session) = &self.assignment.leg.session {
            session.hand_on();
        }
        info!(task = task.id.short(), "left to whoever goes on with it");
    }

    /// Whether questions wait for a client that may come back; those of a shared exchange go to who is there.
    pub(super) fn is_awaited(&self) -> bool {
        self.steps.is_resumable() && !self.upcall.is_shared()
    }

    pub(super) fn client_gave_up(&self) {
        if !self.assignment.ticket.call().is_call {
            return;
        }
        let waited = self.assignment.received.elapsed();
        self.worker.patience.gave_up(self.assignment.listener.habit.clone(), waited);
    }
}
