//! What is only read: on connections of its own, next to the one that writes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, named_params};
use tokio::sync::Semaphore;

use crate::mcp::{Abilities, ClientHello, Era, OwnTasks, ServerHello, Version};
use crate::task::{Fingerprint, ListQuery, SessionRecord, StoreError, Task, TaskId, Timestamp};

use super::faults::Faults;
use super::purge::Over;
use super::row::{self, TASK, number};
use super::trouble::unavailable;
use super::write::own_tasks_word;
use super::writer::closed;

/// How many read at once.
const READERS: usize = 4;
/// How long another program may hold the file before that is an error.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A few connections that read.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    faults: Faults,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, faults: Faults) -> Arc<Self> {
        Arc::new(Self { path, faults, permits: Arc::new(Semaphore::new(READERS)), idle: Mutex::default() })
    }

    /// Runs `query` on a thread that may wait for the disk.
    pub(super) async fn read<T, F>(self: &Arc<Self>, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let readers = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let answer = readers.with(query);
            drop(permit);
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(|error| unavailable(&error)),
            Err(_) => Err(closed()),
        }
    }

    fn with<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let idle = self.idle().pop();
        let connection = idle.map_or_else(|| open(&self.path), Ok)?;
        let answer = self.faults.strike_read().and_then(|()| query(&connection));
        // After an error, a new one is opened: the trouble may be over by then.
        if answer.is_ok() && !self.permits.is_closed() {
            self.idle().push(connection);
        }
        answer
    }

    /// Closes what is idle, and what is not as soon as it is; nothing is read from now on.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that only reads.
pub(super) fn open(path: &std::path::Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

pub(super) fn result(connection: &Connection, id: TaskId) -> rusqlite::Result<Option<Bytes>> {
    let body: Option<Vec<u8>> = connection
        .prepare_cached("SELECT body FROM task JOIN result ON result.n = task.n WHERE id = ?")?
        .query_row([id.bytes()], |row| row.get(0))
        .optional()?;
    Ok(body.map(Bytes::from))
}

pub(super) fn list(connection: &Connection, query: &ListQuery) -> rusqlite::Result<Vec<Task>> {
    let (before, id) = match query.after {
        Some((created, id)) => (number(created.0), *id.bytes()),
        None => (i64::MAX, [0xff; 16]),
    };
    connection
        .prepare_cached(&format!(
            "{TASK} WHERE listed = :session AND upstream = :upstream AND (created, task.id) < (:created, :id) \
             ORDER BY created DESC, task.id DESC LIMIT :limit"
        ))?
        .query_map(
            named_params! {
                ":session": query.session.0,
                ":upstream": query.upstream,
                ":created": before,
                ":id": id,
                ":limit": number(query.limit as u64),
            },
            row::read,
        )?
        .collect()
}

/// How many tasks that are expired but not forgotten, and how many sessions, there are beyond `most`.
pub(super) fn over(connection: &Connection, now: Timestamp, most: Over) -> rusqlite::Result<Over> {
    let count = |sql| connection.prepare_cached(sql)?.query_row([number(now.0)], |row| row.get::<_, u32>(0));
    let records = count("SELECT count(*) FROM task WHERE forgotten > ?1 AND expires <= ?1")? as usize;
    let sessions = count("SELECT count(*) FROM session WHERE expires > ?1")? as usize;
    Ok(Over { records: records.saturating_sub(most.records), sessions: sessions.saturating_sub(most.sessions) })
}

/// Free pages, and all pages.
pub(super) fn pages(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let free = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    Ok((free, connection.pragma_query_value(None, "page_count", |row| row.get(0))?))
}

pub(super) fn session(connection: &Connection, id: Fingerprint) -> rusqlite::Result<Option<SessionRecord>> {
    connection
        .prepare_cached(&format!("SELECT {SESSION} FROM session WHERE id = ?"))?
        .query_row([id.0], session_row)
        .optional()
}

/// The columns of a session, in the order of [`session_row`].
pub(super) const SESSION: &str =
    "client, declares_tasks, capabilities, version, own_tasks, minted, ended, expires, credential, stateless";

pub(super) fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRecord> {
    let own = [OwnTasks::None, OwnTasks::Core, OwnTasks::Extension];
    let word: String = row.get(4)?;
    Ok(SessionRecord {
        client: ClientHello {
            client: row.get(0)?,
            declares_tasks: row.get(1)?,
            abilities: Abilities::read(&row.get::<_, String>(2)?),
        },
        server: ServerHello {
            version: Version::negotiated(&row.get::<_, String>(3)?),
            own_tasks: own.into_iter().find(|own| own_tasks_word(*own) == word).unwrap_or_default(),
        },
        era: if row.get(9)? { Era::Stateless } else { Era::Handshake },
        minted: row.get(5)?,
        ended: row.get(6)?,
        expires: Timestamp(row.get::<_, i64>(7)?.unsigned_abs()),
        credential: row.get::<_, Option<[u8; 16]>>(8)?.map(Fingerprint),
    })
}

/// What was written by [`super::write::Db::probe`].
pub(super) fn probe(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT 1 FROM meta WHERE name = 'probe'", [], |_| Ok(()))
}
