//! What reads and writes told of the engine: whether it works.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::task::{StoreError, Timestamp};

/// How long a failed write speaks against the next one.
const TROUBLE: Duration = Duration::from_secs(1);

/// What is known of an engine by what came of using it.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// When the last write failed, in milliseconds since 1970; 0 if it did not.
    failed_ms: AtomicU64,
    /// Whether it failed because the engine does not work.
    writes_fail: AtomicBool,
    /// Whether a read failed since the engine was last probed.
    reads_fail: AtomicBool,
    /// Whether something was found damaged; that does not pass.
    is_damaged: AtomicBool,
}

impl Health {
    /// Something was written that had to reach the disk.
    pub(super) fn written(&self) {
        self.failed_ms.store(0, Ordering::Relaxed);
        self.writes_fail.store(false, Ordering::Relaxed);
    }

    /// Something could not be written at `now`.
    pub(super) fn write_failed(&self, error: &StoreError, now: Timestamp) {
        self.failed_ms.store(now.0, Ordering::Relaxed);
        match error {
            StoreError::Full(_) => {}
            StoreError::Unavailable(_) => self.writes_fail.store(true, Ordering::Relaxed),
            StoreError::Damaged => {
                self.writes_fail.store(true, Ordering::Relaxed);
                self.is_damaged.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Something could not be read.
    pub(super) fn read_failed(&self, error: &StoreError) {
        match error {
            StoreError::Full(_) => {}
            StoreError::Unavailable(_) => self.reads_fail.store(true, Ordering::Relaxed),
            StoreError::Damaged => self.is_damaged.store(true, Ordering::Relaxed),
        }
    }

    /// The engine was probed, and it works.
    pub(super) fn works(&self) {
        self.written();
        self.reads_fail.store(false, Ordering::Relaxed);
    }

    /// Whether the last write failed just now.
    pub(super) fn is_down(&self, now: Timestamp) -> bool {
        let failed = Timestamp(self.failed_ms.load(Ordering::Relaxed));
        failed.0 > 0 && now.since(failed) < TROUBLE
    }

    /// Whether it takes a probe to know that the engine works.
    pub(super) fn is_doubtful(&self) -> bool {
        self.writes_fail.load(Ordering::Relaxed) || self.reads_fail.load(Ordering::Relaxed)
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }
}
