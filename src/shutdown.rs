//! Two-step drain: stop taking work, wait with a limit, then cut what is left.
//!
//! [`Work`] is the only place that spawns: everything that outlives its request is counted here, so that a
//! shutdown knows what it waits for.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// Shared handle to all background work of one process.
#[derive(Clone, Debug, Default)]
pub struct Work {
    tracker: TaskTracker,
    draining: CancellationToken,
    cut: CancellationToken,
}

impl Work {
    /// A process with no work yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `future` to its end, whoever waits for it: dropping the handle does not stop it.
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(future))
    }

    /// First step: no new work is taken from now on.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Whether [`Work::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Resolves when draining begins. Cancel safe.
    pub fn draining(&self) -> WaitForCancellationFuture<'_> {
        self.draining.cancelled()
    }

    /// Second step: whatever listens to [`Work::severed`] ends now.
    pub fn cut(&self) {
        self.draining.cancel();
        self.cut.cancel();
    }

    /// Resolves when the work is cut off. Cancel safe.
    pub fn severed(&self) -> WaitForCancellationFuture<'_> {
        self.cut.cancelled()
    }

    /// Whether [`Work::cut`] was called.
    #[must_use]
    pub fn is_severed(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// How many pieces of work are under way.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until nothing runs any more, at most `limit`. Returns whether it got there.
    pub async fn finished(&self, limit: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_for_work_but_not_longer_than_the_limit() {
        let work = Work::new();
        let running = work.clone();
        drop(work.spawn(async move { running.severed().await }));
        assert!(!work.finished(Duration::from_secs(1)).await);
        work.cut();
        assert!(work.is_draining());
        assert!(work.finished(Duration::from_secs(1)).await);
        assert_eq!(work.running(), 0);
    }
}
