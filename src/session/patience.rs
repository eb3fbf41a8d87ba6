//! How long clients wait before they give up, learnt from those that did.
//!
//! Twice nearly the same time is a timeout, not a person. From then on such a client is answered well before it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::task::Fingerprint;

/// Shorter waits are people, or clients that went away.
const SHORTEST: Duration = Duration::from_secs(1);
/// What was learnt is forgotten after this long.
const REMEMBER: Duration = Duration::from_secs(3_600);
/// How many clients are remembered.
const MAX_KNOWN: usize = 10_000;

/// Who is alike in how long it waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Habit {
    /// Whoever brings the same credential.
    Credential(Fingerprint),
    /// The same program at the same address.
    Client(String, IpAddr),
}

/// What is known of clients' timeouts.
#[derive(Debug, Default)]
pub struct Patience {
    known: DashMap<Habit, Known>,
    learnt: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    last: Duration,
    at: Instant,
    limit: Option<(Duration, Instant)>,
}

impl Patience {
    /// A client gave up on a held call or a poll after `waited`.
    pub fn gave_up(&self, habit: Habit, waited: Duration) {
        if waited < SHORTEST {
            return;
        }
        let now = Instant::now();
        if self.known.len() >= MAX_KNOWN {
            self.known.retain(|_, known| now.duration_since(known.at) < REMEMBER);
        }
        if self.known.len() >= MAX_KNOWN {
            return;
        }
        let mut known = self.known.entry(habit).or_insert(Known { last: Duration::ZERO, at: now, limit: None });
        let (short, long) = (known.last.min(waited), known.last.max(waited));
        if short.mul_f64(1.1) >= long {
            known.limit = Some((short.mul_f64(0.7), now));
            self.learnt.fetch_add(1, Ordering::Relaxed);
        }
        known.last = waited;
        known.at = now;
    }

    /// Whether anything was learnt at all: asking costs nothing until then.
    #[must_use]
    pub fn has_learnt(&self) -> bool {
        self.learnt.load(Ordering::Relaxed) > 0
    }

    /// The longest such a client should be kept waiting.
    #[must_use]
    pub fn limit(&self, habit: &Habit) -> Option<Duration> {
        let (limit, at) = self.known.get(habit)?.limit?;
        (Instant::now().duration_since(at) < REMEMBER).then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn learns_from_two_alike() {
        let patience = Patience::default();
        let client = Habit::Client("sdk/1".into(), IpAddr::from([127, 0, 0, 1]));
        let seconds = Duration::from_secs_f64;
        for (waited, limit) in [(0.2, None), (0.2, None), (3.0, None), (5.0, None), (5.2, Some(3.5))] {
            patience.gave_up(client.clone(), seconds(waited));
            assert_eq!(patience.limit(&client), limit.map(seconds), "after {waited}");
        }
        assert!(patience.has_learnt());
        assert_eq!(patience.limit(&Habit::Credential(Fingerprint([0; 16]))), None);
        tokio::time::advance(REMEMBER).await;
        assert_eq!(patience.limit(&client), None);
    }
}
