//! One client connection: who it is, what is under way on it, and when it has to go.
//!
//! Requests touch only atomics here. The signals that end a connection wait in a future of their own, which a busy
//! connection does not poll: cancellation tokens and timers are behind locks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::{HeaderValue, Version};

use super::forwarded::Trusted;
use crate::shutdown::Work;

/// Idle connections are closed after four to five of these: longer than clients and balancers keep theirs, so that it
/// is they who close, and no request meets a socket that is going away.
const IDLE_STEP: Duration = Duration::from_secs(30);
const IDLE_STEPS: u32 = 4;

/// What requests need to know about their connection, and it about them.
#[derive(Debug)]
pub(super) struct Link {
    /// The other end.
    pub(super) peer: IpAddr,
    /// The same as a header value.
    pub(super) peer_text: HeaderValue,
    /// Whether its `X-Forwarded-*` are believed.
    pub(super) is_trusted: bool,
    begun: AtomicU32,
    in_flight: AtomicU32,
    multiplexed: AtomicBool,
    draining: AtomicBool,
}

impl Link {
    pub(super) fn new(peer: IpAddr, trusted: &Trusted) -> Self {
        let peer = peer.to_canonical();
        Self {
            peer,
            peer_text: HeaderValue::try_from(peer.to_string()).expect("an address is visible ASCII"),
            is_trusted: trusted.covers(peer),
            begun: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            multiplexed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }
    }

    /// Whether it speaks HTTP/2.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Ordering::Relaxed)
    }

    /// The process is draining, and this connection knows.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the process is draining, as far as this connection has heard.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// A request is under way on its connection until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Link>);

impl Busy {
    pub(super) fn begin(link: Arc<Link>, version: Version) -> Self {
        if version == Version::HTTP_2 {
            link.multiplexed.store(true, Ordering::Relaxed);
        }
        link.begun.fetch_add(1, Ordering::Relaxed);
        link.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(link)
    }

    pub(super) fn link(&self) -> &Link {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The client did not send a request head in time.
    Late,
    /// Nothing happened for long.
    Idle,
    /// Draining has begun.
    Drain,
    /// Everything ends now.
    Sever,
}

/// Waits for the next signal. Once [`Signal::Drain`] was given it is not given again.
pub(super) async fn signal(link: Arc<Link>, work: Work, header_timeout: Duration) -> Signal {
    tokio::select! {
        biased;
        () = work.severed() => Signal::Sever,
        () = work.draining(), if !link.is_draining() => {
            link.drain();
            Signal::Drain
        }
        signal = overdue(&link, header_timeout) => signal,
    }
}

async fn overdue(link: &Link, header_timeout: Duration) -> Signal {
    if link.begun.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(header_timeout).await;
        if link.begun.load(Ordering::Relaxed) == 0 {
            return Signal::Late;
        }
    }
    let (mut quiet, mut seen) = (0, link.begun.load(Ordering::Relaxed));
    while quiet < IDLE_STEPS {
        tokio::time::sleep(IDLE_STEP).await;
        let begun = link.begun.load(Ordering::Relaxed);
        let is_quiet = begun == seen && link.in_flight.load(Ordering::Relaxed) == 0;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        seen = begun;
    }
    Signal::Idle
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

    fn link() -> Arc<Link> {
        Arc::new(Link::new(IpAddr::from([127, 0, 0, 1]), &Trusted::new(&[])))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_late() {
        let started = Instant::now();
        assert_eq!(signal(link(), Work::new(), HEADER_TIMEOUT).await, Signal::Late);
        assert_eq!(started.elapsed(), HEADER_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_when_nothing_is_under_way() {
        let link = link();
        let busy = Busy::begin(link.clone(), Version::HTTP_11);
        let waiting = signal(link.clone(), Work::new(), HEADER_TIMEOUT);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_secs(3600), &mut waiting).await.is_err());
        drop(busy);
        assert_eq!(waiting.await, Signal::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_is_told_once_and_sever_at_any_time() {
        let (link, work) = (link(), Work::new());
        drop(Busy::begin(link.clone(), Version::HTTP_11));
        work.drain();
        assert_eq!(signal(link.clone(), work.clone(), HEADER_TIMEOUT).await, Signal::Drain);
        assert!(link.is_draining());
        let waiting = signal(link, work.clone(), HEADER_TIMEOUT);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut waiting).await.is_err());
        work.cut();
        assert_eq!(waiting.await, Signal::Sever);
    }
}
