//! A deadline that can stand still.

use std::time::Duration;

use tokio::time::Instant;

/// A deadline, or none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// It will never be reached.
    Never,
    /// It runs.
    At(Instant),
    /// It stands still with this much to go.
    Paused(Duration),
}

impl Timer {
    pub(super) fn after(start: Instant, span: Option<Duration>) -> Self {
        span.and_then(|span| start.checked_add(span)).map_or(Self::Never, Self::At)
    }

    /// When the deadline is reached, if it runs.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::At(at) => Some(*at),
            Self::Never | Self::Paused(_) => None,
        }
    }

    /// How long is left, whether or not it runs.
    pub(super) fn left(&self) -> Option<Duration> {
        match self {
            Self::At(at) => Some(at.saturating_duration_since(Instant::now())),
            Self::Paused(left) => Some(*left),
            Self::Never => None,
        }
    }

    /// Whether the deadline is reached.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_some_and(|at| at <= Instant::now())
    }

    /// Resolves when the deadline is reached. Cancel safe.
    pub(super) async fn reached(&self) {
        match self.due() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn pause(&mut self) {
        if let Self::At(at) = self {
            *self = Self::Paused(at.saturating_duration_since(Instant::now()));
        }
    }

    pub(super) fn resume(&mut self) {
        if let Self::Paused(left) = self {
            *self = Self::after(Instant::now(), Some(*left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    #[tokio::test(start_paused = true)]
    async fn stands_still_while_paused() {
        let second = Duration::from_secs(1);
        let mut timer = Timer::after(Instant::now(), Some(second * 2));
        advance(second).await;
        timer.pause();
        assert!(timeout(second * 60, timer.reached()).await.is_err());
        timer.resume();
        assert!(timeout(second / 2, timer.reached()).await.is_err());
        assert!(timeout(second, timer.reached()).await.is_ok());
        assert!(matches!(Timer::after(Instant::now(), Some(Duration::MAX)), Timer::Never));
    }
}
