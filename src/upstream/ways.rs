//! What an upstream told one caller, and nobody else, of the eras that it speaks: it may be true of that caller only.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use http::HeaderValue;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::time::Instant;

/// How long a refusal is believed that does not say what it is for.
const BELIEVED: Duration = Duration::from_secs(60);
/// How long a doubt that proved wrong is not raised again.
const ASSURED: Duration = Duration::from_secs(10);
/// How many ways are remembered.
const MAX_WAYS: usize = 1024;

/// The way by which a caller reaches an upstream: its credential and its query, as a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way(u64);

/// What each way was told.
#[derive(Debug, Default)]
pub(super) struct Ways {
    key: RandomState,
    known: DashMap<Way, Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Held by who asks.
    turn: Arc<Turn<()>>,
    /// How often it was asked in vain.
    vain: usize,
    /// When it refused without saying why.
    refused: Option<Instant>,
    /// Whether something else than what it is known to speak would explain an answer.
    in_doubt: bool,
    /// When such a doubt proved wrong.
    assured: Option<Instant>,
}

/// What is believed of an upstream on one way, beside what is known of it for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    /// Nothing else.
    AsKnown,
    /// It refused.
    Refused,
    /// It has to be asked.
    InDoubt,
}

impl Ways {
    pub(super) fn of(&self, credential: Option<&HeaderValue>, query: Option<&str>) -> Way {
        Way(self.key.hash_one((credential.map(HeaderValue::as_bytes), query)))
    }

    pub(super) fn belief(&self, way: Way) -> Belief {
        match self.known.get(&way) {
            Some(told) if told.in_doubt => Belief::InDoubt,
            Some(told) if told.refused.is_some_and(|at| at.elapsed() < BELIEVED) => Belief::Refused,
            Some(_) | None => Belief::AsKnown,
        }
    }

    /// Lets one at a time ask on each way; `None` if it was asked in vain while this one waited. Cancel safe: who
    /// leaves gives its turn to the next.
    pub(super) async fn turn(&self, way: Way) -> Option<OwnedMutexGuard<()>> {
        let Some((turn, before)) = self.edit(way, |told| (told.turn.clone(), told.vain)) else {
            // There is no room to wait in.
            return Some(Arc::new(Turn::new(())).lock_owned().await);
        };
        let turn = turn.lock_owned().await;
        self.known.get(&way).is_none_or(|told| told.vain == before).then_some(turn)
    }

    /// It was asked in vain: what was believed is believed for longer.
    pub(super) fn told_nothing(&self, way: Way) {
        self.edit(way, |told| {
            told.vain += 1;
            told.in_doubt = false;
            told.refused = told.refused.map(|_| Instant::now());
        });
    }

    /// It refused without saying why.
    pub(super) fn refused(&self, way: Way) {
        self.edit(way, |told| (told.refused, told.in_doubt) = (Some(Instant::now()), false));
    }

    /// An answer is in doubt; not again at once if that was for nothing, as requests that are at fault draw such answers
    /// too.
    pub(super) fn doubt(&self, way: Way) {
        self.edit(way, |told| told.in_doubt |= told.assured.is_none_or(|at| at.elapsed() >= ASSURED));
    }

    /// It said clearly what it speaks.
    pub(super) fn settled(&self, way: Way) {
        if let Some(mut told) = self.known.get_mut(&way) {
            if told.in_doubt {
                told.assured = Some(Instant::now());
            }
            (told.refused, told.in_doubt) = (None, false);
        }
    }

    /// It has changed: what was refused may not be any more.
    pub(super) fn forget_refusals(&self) {
        self.known.iter_mut().for_each(|mut told| told.refused = None);
    }

    /// Changes what a way was told; `None` if there are too many others that are asking.
    fn edit<T>(&self, way: Way, change: impl FnOnce(&mut Told) -> T) -> Option<T> {
        if self.known.len() >= MAX_WAYS && !self.known.contains_key(&way) {
            self.known.retain(|_, told| Arc::strong_count(&told.turn) > 1);
            if self.known.len() >= MAX_WAYS {
                return None;
            }
        }
        Some(change(&mut self.known.entry(way).or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(ways: &Ways, n: usize) -> Way {
        ways.of(Some(&HeaderValue::from(n)), None)
    }

    #[test]
    fn ways_differ_by_credential_and_query() {
        let ways = Ways::default();
        let (a, b) = (HeaderValue::from_static("a"), HeaderValue::from_static("b"));
        let all = [(None, None), (Some(&a), None), (Some(&b), None), (None, Some("a")), (Some(&a), Some("a"))];
        for (i, one) in all.iter().enumerate() {
            for (k, other) in all.iter().enumerate() {
                assert_eq!(ways.of(one.0, one.1) == ways.of(other.0, other.1), i == k);
            }
        }
    }

    #[tokio::test]
    async fn only_who_asks_is_remembered_beyond_the_limit() {
        let ways = Ways::default();
        let held = ways.turn(way(&ways, 0)).await.unwrap();
        for n in 1..MAX_WAYS + 10 {
            ways.refused(way(&ways, n));
        }
        assert!(ways.known.len() < MAX_WAYS);
        assert_eq!(ways.belief(way(&ways, MAX_WAYS + 9)), Belief::Refused, "the latest");
        let mut waits = Box::pin(ways.turn(way(&ways, 0)));
        assert!(futures_util::poll!(&mut waits).is_pending(), "who asks is not forgotten");
        drop(held);
        assert!(waits.await.is_some());
    }

    #[tokio::test]
    async fn who_finds_no_room_asks_at_once() {
        let ways = Ways::default();
        let mut held = Vec::new();
        for n in 0..MAX_WAYS {
            held.push(ways.turn(way(&ways, n)).await);
        }
        let (one, other) = (ways.turn(way(&ways, MAX_WAYS)).await, ways.turn(way(&ways, MAX_WAYS)).await);
        assert!(one.is_some() && other.is_some());
        assert_eq!(ways.known.len(), MAX_WAYS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_believed_for_a_while_and_longer_where_nothing_else_is_told() {
        let ways = Ways::default();
        let way = way(&ways, 1);
        ways.refused(way);
        tokio::time::advance(BELIEVED).await;
        assert_eq!(ways.belief(way), Belief::AsKnown);
        ways.told_nothing(way);
        assert_eq!(ways.belief(way), Belief::Refused);
        ways.forget_refusals();
        assert_eq!(ways.belief(way), Belief::AsKnown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubt_that_proved_wrong_is_not_raised_again_at_once() {
        let ways = Ways::default();
        let way = way(&ways, 1);
        ways.settled(way);
        ways.doubt(way);
        assert_eq!(ways.belief(way), Belief::InDoubt);
        ways.settled(way);
        ways.doubt(way);
        assert_eq!(ways.belief(way), Belief::AsKnown);
        tokio::time::advance(ASSURED).await;
        ways.doubt(way);
        assert_eq!(ways.belief(way), Belief::InDoubt);
    }
}
