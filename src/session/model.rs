//! One client session, which is one upstream session.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use http::{HeaderMap, HeaderValue, header};
use tokio::sync::Notify;

use crate::mcp::{ClientHello, ServerHello};
use crate::task::Fingerprint;

use super::cookies::Cookies;
use super::{Calls, Catalog, Credentials, Hub, Repeated};

/// What the two sides said in `initialize`.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The client.
    pub client: ClientHello,
    /// The upstream.
    pub server: ServerHello,
    /// What each request repeats, for an upstream that only speaks the stateless era.
    pub repeated: Option<Arc<Repeated>>,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The id, as in `Mcp-Session-Id`.
    pub id: Arc<str>,
    /// The keyed hash of the id.
    pub fingerprint: Fingerprint,
    /// Whether the id is taskgate's own, unknown to the upstream.
    pub minted: bool,
    /// Its requests in flight.
    pub calls: Arc<Calls>,
    hub: Arc<Hub>,
    hello: OnceLock<Hello>,
    starter: OnceLock<Option<Fingerprint>>,
    credentials: Mutex<Credentials>,
    credential_came: Notify,
    turns: AtomicU64,
    cookies: Mutex<Cookies>,
    has_cookies: AtomicBool,
    catalog: Mutex<Option<Arc<Catalog>>>,
    ended: AtomicBool,
    handed_on: AtomicBool,
    streams: AtomicUsize,
    pub(super) last_seen_ms: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(super) fn new(id: Arc<str>, fingerprint: Fingerprint, minted: bool) -> Self {
        Self {
            id,
            fingerprint,
            minted,
            calls: Arc::default(),
            hub: Arc::default(),
            hello: OnceLock::new(),
            starter: OnceLock::new(),
            credentials: Mutex::default(),
            credential_came: Notify::new(),
            turns: AtomicU64::new(0),
            cookies: Mutex::default(),
            has_cookies: AtomicBool::new(false),
            catalog: Mutex::default(),
            ended: AtomicBool::new(false),
            handed_on: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            last_seen_ms: AtomicU64::new(0),
        }
    }

    /// Its GET stream.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// What `initialize` said; `None` for a session that began elsewhere.
    #[must_use]
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.get()
    }

    /// What each of its requests repeats; `None` if its upstream has sessions.
    #[must_use]
    pub fn repeated(&self) -> Option<&Arc<Repeated>> {
        self.hello().and_then(|hello| hello.repeated.as_ref())
    }

    pub(super) fn set_hello(&self, hello: Hello) {
        let _ = self.hello.set(hello);
    }

    /// Whether it began with this credential (`None`: without one). Of a session that began elsewhere, and was not
    /// written down, nobody knows: who comes first counts as who began it.
    pub fn began_with(&self, credential: Option<Fingerprint>) -> bool {
        *self.starter.get_or_init(|| credential) == credential
    }

    /// The credential that it began with, as far as is known.
    #[must_use]
    pub fn starter(&self) -> Option<Fingerprint> {
        self.starter.get().copied().flatten()
    }

    /// The turn of a request that comes now: of two, the later one brings the newer credential.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// The upstream accepted this credential, brought in this turn, on this session.
    pub fn accepted(&self, credential: Option<&HeaderValue>, turn: u64) {
        lock(&self.credentials).accept(credential, turn);
        if credential.is_some() {
            self.credential_came.notify_waiters();
        }
    }

    /// The upstream answered: its cookies are the latest.
    pub fn keep_cookies(&self, answer: &HeaderMap) {
        if answer.contains_key(header::SET_COOKIE) {
            let mut cookies = lock(&self.cookies);
            answer.get_all(header::SET_COOKIE).iter().for_each(|header| cookies.set(header));
            self.has_cookies.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the upstream accepted this credential on this session before.
    #[must_use]
    pub fn knows(&self, credential: Option<&HeaderValue>) -> bool {
        lock(&self.credentials).knows(credential)
    }

    /// The latest credential that was brought and that the upstream accepted.
    #[must_use]
    pub fn latest_credential(&self) -> Option<HeaderValue> {
        lock(&self.credentials).latest()
    }

    /// Resolves with the latest credential that the upstream accepted, now or before; if that is the one that it
    /// `refused` since, with the next that it accepts, be it the same. Cancel safe.
    pub async fn next_credential(&self, refused: Option<&HeaderValue>) -> HeaderValue {
        let mut refused = refused;
        loop {
            let came = self.credential_came.notified();
            if let Some(latest) = self.latest_credential().filter(|latest| Some(latest) != refused) {
                return latest;
            }
            came.await;
            refused = None;
        }
    }

    /// The upstream's cookies of this session.
    #[must_use]
    pub fn cookie(&self) -> Option<HeaderValue> {
        if self.has_cookies.load(Ordering::Relaxed) { lock(&self.cookies).header() } else { None }
    }

    /// The upstream's tools, as this session saw them.
    #[must_use]
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        lock(&self.catalog).clone()
    }

    /// Remembers the upstream's tools, or forgets them.
    pub fn set_catalog(&self, catalog: Option<Arc<Catalog>>) {
        *lock(&self.catalog) = catalog;
    }

    /// Something of it is left to the next process: this one must not end it.
    pub fn hand_on(&self) {
        self.handed_on.store(true, Ordering::Release);
    }

    /// Whether something of it is left to the next process.
    #[must_use]
    pub fn is_handed_on(&self) -> bool {
        self.handed_on.load(Ordering::Acquire)
    }

    /// Its client deleted it: from now on the id is dead, and nobody listens.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.hub.hang_up();
    }

    /// Resolves when its client has deleted it. Cancel safe.
    pub async fn ended(&self) {
        loop {
            let changed = self.hub.changed();
            if self.is_ended() {
                return;
            }
            changed.await;
        }
    }

    /// Whether its client deleted it.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Keeps the session from being forgotten as idle while the guard lives.
    #[must_use]
    pub fn keep(self: &Arc<Self>) -> Kept {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Kept(self.clone())
    }

    /// Whether something of it is under way.
    pub(super) fn is_in_use(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0 || self.calls.is_busy()
    }
}

/// Keeps a session from being forgotten.
#[derive(Debug)]
pub struct Kept(Arc<Session>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
