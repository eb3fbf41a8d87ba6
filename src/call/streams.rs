//! All event streams that can be taken up again, within bounds.
//!
//! One place counts what they keep, so that clients which never come back cost a fixed amount of memory.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::log::Log;

/// How long a stream that has ended can be taken up.
const KEPT: Duration = Duration::from_secs(300);
/// How much is kept of all streams together, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// What a stream takes up besides its events.
const COST: usize = 512;
/// How many streams are known.
const MAX_STREAMS: usize = 65_536;

/// Shared handle to all streams.
#[derive(Clone, Debug, Default)]
pub struct Streams(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<u128, Arc<Log>>,
    /// In the order they ended, with what they keep.
    finished: VecDeque<(Instant, u128, usize)>,
    bytes: usize,
}

/// The id of an event, as a client sees it: no upstream's has this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The stream; random.
    pub stream: u128,
    /// The event's place on it.
    pub n: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tg{:032x}-{}", self.stream, self.n)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (stream, n) = text.strip_prefix("tg").and_then(|rest| rest.split_once('-')).ok_or(())?;
        let is_hex = stream.len() == 32 && stream.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_number = !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit());
        if !is_hex || !is_number {
            return Err(());
        }
        Ok(Self { stream: u128::from_str_radix(stream, 16).map_err(drop)?, n: n.parse().map_err(drop)? })
    }
}

impl Streams {
    /// The stream with this id, while it can be taken up.
    #[must_use]
    pub fn find(&self, stream: u128) -> Option<Arc<Log>> {
        let mut known = self.lock();
        known.forget_old();
        known.by_id.get(&stream).cloned()
    }

    /// Forgets streams that ended long ago.
    pub fn forget_old(&self) {
        self.lock().forget_old();
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much they keep, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// A new stream under a random id; `None` if too many go on.
    pub(super) fn enter(&self, log: &Arc<Log>) -> Option<u128> {
        let id = uuid::Uuid::new_v4().as_u128();
        let mut known = self.lock();
        known.forget_old();
        while known.by_id.len() >= MAX_STREAMS {
            known.forget_oldest()?;
        }
        if !known.make_room(COST) {
            return None;
        }
        known.by_id.insert(id, log.clone());
        Some(id)
    }

    /// Takes room for this many bytes; the longest finished streams go for it. Whether there was enough.
    pub(super) fn make_room(&self, bytes: usize) -> bool {
        self.lock().make_room(bytes)
    }

    /// Gives room back.
    pub(super) fn give_back(&self, bytes: usize) {
        self.lock().bytes -= bytes;
    }

    /// A stream has ended, and keeps this many bytes of events.
    pub(super) fn finished(&self, stream: u128, bytes: usize) {
        let mut known = self.lock();
        known.forget_old();
        known.finished.push_back((Instant::now(), stream, bytes + COST));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget_old(&mut self) {
        while self.finished.front().is_some_and(|(ended, ..)| ended.elapsed() >= KEPT) {
            self.forget_oldest();
        }
    }

    fn make_room(&mut self, bytes: usize) -> bool {
        if bytes > MAX_BYTES {
            return false;
        }
        while self.bytes + bytes > MAX_BYTES {
            if self.forget_oldest().is_none() {
                return false;
            }
        }
        self.bytes += bytes;
        true
    }

    fn forget_oldest(&mut self) -> Option<()> {
        let (_, id, bytes) = self.finished.pop_front()?;
        self.by_id.remove(&id);
        self.bytes -= bytes;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::call::{Answer, Event, Origin, Priming};
    use crate::task::Identity;

    fn log(streams: &Streams) -> Arc<Log> {
        let log = Log::new(streams.clone(), Origin { upstream: 0, identity: Identity::default() }, Priming::Omitted);
        let _ = log.open();
        log
    }

    fn answer(size: usize) -> Answer {
        Answer::message(StatusCode::OK, vec![b'x'; size])
    }

    #[test]
    fn ids_have_a_form_of_their_own() {
        let id = EventId { stream: 7, n: 12 };
        assert_eq!(id.to_string(), "tg00000000000000000000000000000007-12");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in
            ["", "e1", "tg7-1", "tg0000000000000000000000000000000g-1", "1-2", "tg+0000000000000000000000000000007-1"]
        {
            assert_eq!(text.parse::<EventId>(), Err(()), "{text}");
        }
        for n in ["", "+1", "99999999999999999999"] {
            assert_eq!(format!("tg00000000000000000000000000000007-{n}").parse::<EventId>(), Err(()), "{n}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn finished_streams_are_kept_for_a_while() {
        let streams = Streams::default();
        let (one, _two) = (log(&streams), log(&streams));
        let _ = one.finish(&answer(10));
        tokio::time::advance(KEPT / 2).await;
        streams.forget_old();
        assert_eq!(streams.len(), 2);
        tokio::time::advance(KEPT).await;
        streams.forget_old();
        assert_eq!((streams.len(), streams.bytes()), (1, COST), "one that goes on stays");
    }

    #[tokio::test(start_paused = true)]
    async fn all_together_are_bounded() {
        let streams = Streams::default();
        let logs: Vec<_> = (0..100).map(|_| log(&streams)).collect();
        for log in &logs {
            let _ = log.finish(&answer(1 << 20));
        }
        assert!(streams.bytes() <= MAX_BYTES && streams.len() > 50, "{} {}", streams.bytes(), streams.len());
        assert!(logs[99].follow(0).is_some());
        let (huge, known) = (log(&streams), streams.len());
        let _ = huge.finish(&answer(MAX_BYTES + 1));
        assert!(huge.follow(0).is_none(), "an answer that never fits is not kept");
        assert_eq!(streams.len(), known, "and costs nobody else's");

        let active: Vec<_> = (0..100).map(|_| log(&streams)).collect();
        for log in &active {
            for _ in 0..9 {
                let data = Some(Bytes::from(vec![b'x'; 100 << 10]));
                assert!(log.record(Event { data, ..Event::default() }).is_some(), "it goes out in any case");
            }
        }
        assert!(streams.bytes() <= MAX_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn their_number_is_bounded() {
        let streams = Streams::default();
        let _ = log(&streams).finish(&answer(1));
        let logs: Vec<_> = (0..MAX_STREAMS + 5).map(|_| log(&streams)).collect();
        assert_eq!(streams.len(), MAX_STREAMS);
        assert!(logs[0].is_open() && !logs[MAX_STREAMS + 4].is_open());
    }
}
