//! How long to wait before something is opened again that ought to last.

use std::time::Duration;

/// The wait at first and at most.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);
/// How long one must have lasted for the wait to be short again: some are acknowledged and end at once.
const LASTING: Duration = Duration::from_secs(30);

/// The waits between attempts: longer each time, unless one lasted.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Pauses {
    /// The wait after one that lasted so long.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        let pause = if lasted < LASTING { self.next } else { SHORTEST };
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_lasted_makes_pauses_short_again() {
        let mut pauses = Pauses::default();
        let short: Vec<u128> = (0..10).map(|_| pauses.after(Duration::from_secs(1)).as_millis()).collect();
        assert_eq!(short, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        assert_eq!((pauses.after(LASTING), pauses.after(Duration::ZERO)), (SHORTEST, SHORTEST * 2));
    }
}
