//! The engine in one file: SQLite, so that tasks survive their process and need no server.
//!
//! One thread writes and syncs what waits together (`writer`); a few connections read beside it (`read`). Leases
//! are kept in memory: one process has the file, so whoever held one before it came is gone.

mod faults;
mod leases;
mod offline;
mod open;
mod purge;
mod read;
mod row;
mod schema;
mod trouble;
mod write;
mod writer;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::task::{
    BoxFuture, ClaimQuery, Fingerprint, ListQuery, Purged, Replaced, ReplicaId, SessionRecord, StoreError, Task,
    TaskId, TaskStore, Timestamp,
};

use super::{Clock, Options};

#[doc(hidden)]
pub use faults::{Fault, Faults};
pub use offline::{Report, check, export, prune};
pub use trouble::OpenError;

use leases::Leases;
use purge::Over;
use read::Readers;
use write::{Counts, Db};
use writer::Writer;

/// So many free pages stay in the file: the next tasks take them.
const SPARE_PAGES: i64 = 256;

/// Tasks in a file.
#[derive(Debug)]
pub struct Embedded {
    clock: Clock,
    writer: Writer,
    readers: Arc<Readers>,
    leases: Arc<Leases>,
    most: Over,
}

impl Embedded {
    /// Opens the file at `path`, or makes it; brings an older one up to this version.
    ///
    /// # Errors
    /// If it cannot be used; the message says what to do.
    pub async fn open(path: PathBuf, options: Options, clock: Clock) -> Result<Self, OpenError> {
        let named = path.clone();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&path, &options, clock)).await;
        opened.unwrap_or_else(|error| Err(OpenError::Unusable { path: named, why: error.to_string() }))
    }

    fn open_now(path: &Path, options: &Options, clock: Clock) -> Result<Self, OpenError> {
        let path = open::place(path)?;
        let lock = open::lock(&path)?;
        let connection = open::writer(&path)?;
        let counts = Counts::read(&connection).map_err(|error| OpenError::sql(&path, &error))?;
        let leases: Arc<Leases> = Arc::default();
        let (faults, max_retained) = (options.faults.clone(), options.max_retained);
        let db = Db { connection, leases: leases.clone(), max_retained, counts, moved: 0, odd: HashSet::new() };
        let writer = Writer::start(db, faults.clone(), lock).map_err(|error| OpenError::io(&path, &error))?;
        let most = Over { records: options.max_remembered, sessions: options.max_sessions };
        Ok(Self { clock, writer, readers: Readers::new(path, faults), leases, most })
    }

    async fn sweep(&self, now: Timestamp) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        let most = self.most;
        let mut over = self.readers.read(move |db| read::over(db, now, most)).await?;
        loop {
            let (step, left) = self.writer.write(0, move |db| db.purge(now, over)).await?;
            if step == Purged::default() {
                break;
            }
            over = left;
            purged.results += step.results;
            purged.records += step.records;
            purged.sessions += step.sessions;
        }
        self.leases.forget(now);
        Ok(purged)
    }

    /// Gives pages that nothing uses back to the disk, if there are many.
    async fn shrink(&self) -> Result<(), StoreError> {
        let (free, all) = self.readers.read(read::pages).await?;
        if free <= (2 * SPARE_PAGES).max(all / 8) {
            return Ok(());
        }
        self.give_back(free - SPARE_PAGES).await
    }

    async fn give_back(&self, mut pages: i64) -> Result<(), StoreError> {
        while pages > 0 {
            let given = self.writer.write(0, move |db| db.shrink(pages)).await?;
            if given == 0 {
                break;
            }
            pages -= given;
        }
        self.writer.checkpoint().await;
        Ok(())
    }
}

impl TaskStore for Embedded {
    fn is_durable(&self) -> bool {
        true
    }

    fn create<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let (task, now) = (task.clone(), Timestamp::of(self.clock.now()));
            self.writer.write(0, move |db| db.create(&task, now)).await?
        })
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Task>, StoreError>> {
        Box::pin(async move {
            let task = self.readers.read(move |db| write::get(db, id)).await?;
            Ok(task.map(|task| self.leases.seen(task)))
        })
    }

    fn get_result(&self, id: TaskId) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(self.readers.read(move |db| read::result(db, id)))
    }

    fn replace<'a>(&'a self, task: &'a Task, result: Option<Bytes>) -> BoxFuture<'a, Result<Replaced, StoreError>> {
        let (task, bytes) = (task.clone(), result.as_ref().map_or(0, Bytes::len));
        Box::pin(self.writer.write(bytes, move |db| db.replace(&task, result.as_ref())))
    }

    fn list<'a>(&'a self, query: &'a ListQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        Box::pin(async move {
            let query = query.clone();
            let tasks = self.readers.read(move |db| read::list(db, &query)).await?;
            Ok(tasks.into_iter().map(|task| self.leases.seen(task)).collect())
        })
    }

    fn purge(&self, now: Timestamp) -> BoxFuture<'_, Result<Purged, StoreError>> {
        Box::pin(async move {
            let purged = self.sweep(now).await?;
            self.shrink().await?;
            Ok(purged)
        })
    }

    fn renew(&self, holder: ReplicaId, until: Timestamp) -> BoxFuture<'_, Result<(), StoreError>> {
        self.leases.set(holder, until);
        Box::pin(std::future::ready(Ok(())))
    }

    fn claim<'a>(&'a self, query: &'a ClaimQuery) -> BoxFuture<'a, Result<Vec<Task>, StoreError>> {
        let query = *query;
        Box::pin(self.writer.write(0, move |db| db.claim(&query)))
    }

    fn put_session<'a>(&'a self, id: Fingerprint, session: &'a SessionRecord) -> BoxFuture<'a, Result<(), StoreError>> {
        let session = session.clone();
        Box::pin(self.writer.write(0, move |db| db.put_session(id, &session)))
    }

    fn get_session(&self, id: Fingerprint) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        Box::pin(self.readers.read(move |db| read::session(db, id)))
    }

    fn secret(&self) -> BoxFuture<'_, Result<[u8; 32], StoreError>> {
        Box::pin(async move {
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh)
                .map_err(|_| StoreError::Unavailable("the system gives no randomness".into()))?;
            self.writer.write(0, move |db| db.secret(fresh)).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.writer.write(0, |db| db.probe()).await?;
            self.readers.read(read::probe).await
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.readers.close();
            self.writer.close().await;
        })
    }
}
