//! The sessions of one upstream.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use tracing::debug;

use crate::mcp::Era;
use crate::task::{Fingerprint, SessionRecord};

use super::{Catalog, Fingerprints, Hello, Options, Repeated, Session, Subscribers};

/// How often idle sessions are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Catalogs of callers without a session that are remembered.
const MAX_CATALOGS: usize = 1_000;

/// All sessions of one upstream, by id.
#[derive(Debug)]
pub struct Sessions {
    path: Arc<str>,
    options: Options,
    fingerprints: Fingerprints,
    by_id: DashMap<Arc<str>, Arc<Session>>,
    /// Tools as callers without a session saw them, by credential.
    catalogs: DashMap<Option<Fingerprint>, Arc<Catalog>>,
    /// The tools as anybody saw them last: a guess for who has not asked.
    latest: Mutex<Option<Arc<Catalog>>>,
    start: Instant,
    subscribers: Arc<Subscribers>,
}

impl Sessions {
    /// No sessions yet, of the upstream at `path`.
    #[must_use]
    pub fn new(path: &str, options: Options, fingerprints: Fingerprints) -> Self {
        Self {
            path: path.into(),
            options,
            fingerprints,
            by_id: DashMap::new(),
            catalogs: DashMap::new(),
            latest: Mutex::new(None),
            start: Instant::now(),
            subscribers: Arc::default(),
        }
    }

    /// Who else listens to what is said in them.
    #[must_use]
    pub fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    /// The session with this id, if it is known; counts as a sign of life.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Arc<Session>> {
        let session = self.by_id.get(id)?.clone();
        self.touch(&session);
        Some(session)
    }

    /// The session with this id, which began elsewhere if it is not known here.
    #[must_use]
    pub fn find_or_adopt(&self, id: &str) -> Arc<Session> {
        self.find(id).unwrap_or_else(|| self.adopt(self.new_session(id, false)))
    }

    /// A session that `initialize` opened.
    #[must_use]
    pub fn open(&self, id: &str, hello: Hello) -> Arc<Session> {
        self.insert(self.greeted(id, hello, false))
    }

    /// A session with `id`, which is ours, for an upstream that gives none.
    #[must_use]
    pub fn mint(&self, id: &str, hello: Hello) -> Arc<Session> {
        self.insert(self.greeted(id, hello, true))
    }

    /// A session that began elsewhere, as it was written down; whoever knows it already has the same.
    #[must_use]
    pub fn restore(&self, id: &str, record: SessionRecord) -> Arc<Session> {
        let repeated = (record.era == Era::Stateless).then(|| Arc::new(Repeated::recalled(&record.client)));
        let hello = Hello { client: record.client, server: record.server, repeated };
        let session = self.greeted(id, hello, record.minted);
        session.began_with(record.credential);
        if record.ended {
            session.end();
        }
        self.adopt(session)
    }

    /// The keyed hash of a session's id.
    #[must_use]
    pub fn fingerprint(&self, id: &str) -> Fingerprint {
        self.fingerprints.session(&self.path, id)
    }

    /// How long a session may be silent.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.options.idle
    }

    /// All that are known.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.by_id.iter().map(|session| session.clone()).collect()
    }

    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The tools as callers without a session but with this credential saw them.
    #[must_use]
    pub fn catalog_of(&self, credential: Option<Fingerprint>) -> Option<Arc<Catalog>> {
        self.catalogs.get(&credential).map(|catalog| catalog.clone())
    }

    /// The tools as anybody saw them last.
    #[must_use]
    pub fn latest_catalog(&self) -> Option<Arc<Catalog>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Somebody saw these tools.
    pub fn set_latest_catalog(&self, catalog: Arc<Catalog>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(catalog);
    }

    /// Remembers the tools that callers without a session see.
    pub fn set_catalog_of(&self, credential: Option<Fingerprint>, catalog: Arc<Catalog>) {
        if self.catalogs.len() >= MAX_CATALOGS {
            self.catalogs.clear();
        }
        self.catalogs.insert(credential, catalog);
    }

    /// Forgets idle sessions, every few seconds, for ever. Cancel safe.
    pub async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY.min(self.options.idle)).await;
            let before = self.by_id.len();
            let now = self.now_ms();
            let idle = u64::try_from(self.options.idle.as_millis()).unwrap_or(u64::MAX);
            self.by_id.retain(|_, session| session.is_in_use() || last_seen(session).saturating_add(idle) > now);
            if self.by_id.len() < before {
                debug!(path = &*self.path, forgotten = before - self.by_id.len(), "idle sessions forgotten");
                self.by_id.shrink_to_fit();
            }
        }
    }

    /// Forgets a session that is over.
    pub fn forget(&self, session: &Arc<Session>) {
        self.by_id.remove_if(&session.id, |_, known| Arc::ptr_eq(known, session));
    }

    fn new_session(&self, id: &str, minted: bool) -> Session {
        let session = Session::new(id.into(), self.fingerprint(id), minted);
        self.touch(&session);
        session
    }

    fn greeted(&self, id: &str, hello: Hello, minted: bool) -> Session {
        let session = self.new_session(id, minted);
        session.set_hello(hello);
        session
    }

    /// It is new, whatever was known under its id.
    fn insert(&self, session: Session) -> Arc<Session> {
        self.room_for_one();
        let session = Arc::new(session);
        self.by_id.insert(session.id.clone(), session.clone());
        session
    }

    /// It may have come to be known meanwhile: then that one counts.
    fn adopt(&self, session: Session) -> Arc<Session> {
        self.room_for_one();
        let known = self.by_id.entry(session.id.clone()).or_insert_with(|| Arc::new(session)).clone();
        self.touch(&known);
        known
    }

    fn room_for_one(&self) {
        if self.by_id.len() >= self.options.max_sessions {
            self.make_room();
        }
    }

    /// Forgets the longest idle hundredth, so that room is made in batches; what is in use stays.
    fn make_room(&self) {
        let mut idle: Vec<(u64, Arc<str>)> = self
            .by_id
            .iter()
            .filter(|session| !session.is_in_use())
            .map(|session| (last_seen(&session), session.id.clone()))
            .collect();
        idle.sort_unstable();
        for (_, id) in idle.iter().take(self.options.max_sessions / 100 + 1) {
            self.by_id.remove(id);
        }
    }

    fn touch(&self, session: &Session) {
        session.last_seen_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn last_seen(session: &Session) -> u64 {
    session.last_seen_ms.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Id;
    use crate::mcp::{ClientHello, OwnTasks, ServerHello, Version};
    use crate::task::Timestamp;

    fn sessions(max_sessions: usize) -> Sessions {
        let options = Options { max_sessions, idle: Duration::from_secs(60) };
        Sessions::new("/mcp", options, Fingerprints::random())
    }

    #[test]
    fn two_restores_give_one_session_that_knows_all_from_the_start() {
        let sessions = sessions(10);
        let record = |ended| SessionRecord {
            client: ClientHello::default(),
            server: ServerHello { version: Version::V2025_11_25, own_tasks: OwnTasks::None },
            era: Era::Handshake,
            minted: true,
            credential: Some(Fingerprint([1; 16])),
            ended,
            expires: Timestamp(0),
        };
        // Both looked before either knew it.
        let (one, two) = (sessions.restore("s", record(false)), sessions.restore("s", record(false)));
        assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&one, &sessions.find("s").unwrap()));
        assert!(one.minted && one.hello().is_some() && !one.is_ended());
        assert!(one.began_with(Some(Fingerprint([1; 16]))) && !one.began_with(None));
        assert!(sessions.restore("ended", record(true)).is_ended());
        assert_eq!(sessions.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn b97_the_longest_idle_go_first_but_never_one_with_running_work() {
        let sessions = sessions(10);
        let busy = sessions.find_or_adopt("busy");
        let _ticket = busy.calls.enter(&Id::from_string("1"), true);
        for n in 0..50 {
            tokio::time::advance(Duration::from_millis(5)).await;
            let _ = sessions.find_or_adopt(&format!("s{n}"));
        }
        assert!(sessions.len() <= 10);
        assert!(sessions.find("busy").is_some() && sessions.find("s49").is_some() && sessions.find("s1").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn b98_idle_sessions_are_forgotten_busy_ones_are_not() {
        let sessions = sessions(100_000);
        for n in 0..10_000 {
            let _ = sessions.find_or_adopt(&format!("s{n}"));
        }
        let busy = sessions.find_or_adopt("busy");
        let ticket = busy.calls.enter(&Id::from_string("1"), true);
        let streaming = sessions.find_or_adopt("streaming").keep();
        let _ = tokio::time::timeout(Duration::from_secs(200), sessions.sweep()).await;
        assert_eq!(sessions.len(), 2);
        drop((ticket, streaming));
        let _ = tokio::time::timeout(Duration::from_secs(200), sessions.sweep()).await;
        assert!(sessions.is_empty());
    }
}
