//! What is done within a transaction.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use tracing::warn;

use crate::mcp::{Era, OwnTasks};
use crate::task::{
    ClaimQuery, Event, Fingerprint, Full, Lease, Replaced, ReplicaId, SessionRecord, StoreError, Task, TaskId,
    Timestamp,
};

use super::leases::Leases;
use super::row::{self, TASK, number};
use super::trouble::is_odd;

/// The connection that writes, and what it need not look up.
pub(super) struct Db {
    pub(super) connection: Connection,
    pub(super) leases: Arc<Leases>,
    pub(super) max_retained: u64,
    pub(super) counts: Counts,
    /// How many free pages were given back so far.
    pub(super) moved: u64,
    /// Rows that cannot be read and were warned of.
    pub(super) odd: HashSet<i64>,
}

/// Follows the transaction: put back when that is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Bytes of results that are kept.
    pub(super) retained: u64,
    /// The last place in the order in which outcomes were read.
    fetched: i64,
}

impl Counts {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row(
            "SELECT coalesce(sum(kept), 0), coalesce(max(fetched), 0) FROM task WHERE kept IS NOT NULL",
            [],
            |row| Ok(Self { retained: row.get::<_, i64>(0)?.unsigned_abs(), fetched: row.get(1)? }),
        )
    }
}

/// What is known of a task before it is replaced.
pub(super) struct Before {
    pub(super) n: i64,
    pub(super) version: i64,
    pub(super) fetched: i64,
    pub(super) kept: Option<i64>,
}

impl Db {
    pub(super) fn create(&mut self, task: &Task, now: Timestamp) -> rusqlite::Result<Result<(), StoreError>> {
        while self.counts.retained >= self.max_retained {
            if !self.evict(now)? {
                return Ok(Err(StoreError::Full(Full::Retained)));
            }
        }
        let fetched = if task.fetched { self.next_fetched() } else { 0 };
        let n = match self.insert(task, fetched) {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
                return Ok(Err(StoreError::Unavailable("a task with this id exists".into())));
            }
            inserted => inserted?,
        };
        if let (_, _, Some(sealed)) = row::execution_columns(&task.execution) {
            self.seal(n, Some(&sealed.0))?;
        }
        if let Some(Lease { holder, until }) = task.lease {
            self.leases.extend(holder, until);
        }
        Ok(Ok(()))
    }

    fn insert(&self, task: &Task, fetched: i64) -> rusqlite::Result<i64> {
        let (status, detail) = row::status_columns(&task.status);
        let (cursor, wait, _) = row::execution_columns(&task.execution);
        let (owner, creator) = (&task.owner, task.owner.creator());
        self.connection
            .prepare_cached(
                "INSERT INTO task (id, version, upstream, tool, made, owner, credential, session, open_by_id, listed, \
                 created, updated, retention, poll_interval, threshold, status, detail, ended, expires, forgotten, \
                 execution, cursor, wait, holder, fetched) VALUES (:id, :version, :upstream, :tool, :made, :owner, \
                 :credential, :session, :open_by_id, :listed, :created, :updated, :retention, :poll_interval, \
                 :threshold, :status, :detail, :ended, :expires, :forgotten, :execution, :cursor, :wait, :holder, \
                 :fetched)",
            )?
            .insert(named_params! {
                ":id": task.id.bytes(),
                ":version": number(task.version),
                ":upstream": &*task.upstream,
                ":tool": &*task.tool,
                ":made": row::made_word(task.made),
                ":owner": row::owner_word(owner.mode()),
                ":credential": creator.credential.map(|print| print.0),
                ":session": creator.session.map(|print| print.0),
                ":open_by_id": owner.is_open_by_id(),
                ":listed": owner.listed_in().map(|print| print.0),
                ":created": number(task.created.0),
                ":updated": number(task.updated.0),
                ":retention": row::span(task.retention),
                ":poll_interval": row::span(task.poll_interval),
                ":threshold": row::span(task.threshold),
                ":status": status,
                ":detail": detail,
                ":ended": task.status.ended().map(|at| number(at.0)),
                ":expires": task.expires().map(|at| number(at.0)),
                ":forgotten": task.forgotten().map(|at| number(at.0)),
                ":execution": task.execution.word(),
                ":cursor": cursor,
                ":wait": wait,
                ":holder": task.lease.map(|lease| lease.holder.0.to_be_bytes()),
                ":fetched": fetched,
            })
    }

    pub(super) fn replace(&mut self, task: &Task, result: Option<&Bytes>) -> rusqlite::Result<Replaced> {
        let Some(before) = self.before(task.id)? else { return Ok(Replaced::Missing) };
        if before.version.checked_add(1) != Some(number(task.version)) {
            return Ok(Replaced::Conflict);
        }
        self.update(task, &before)?;
        if let Some(result) = result {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO result (n, body) VALUES (?, ?)")?
                .execute(params![before.n, &**result])?;
            self.set_kept(&before, Some(number(result.len() as u64)))?;
        }
        Ok(Replaced::Done)
    }

    fn before(&self, id: TaskId) -> rusqlite::Result<Option<Before>> {
        self.connection
            .prepare_cached("SELECT n, version, fetched, kept FROM task WHERE id = ?")?
            .query_row([id.bytes()], before)
            .optional()
    }

    /// Writes what events change of a task; the rest stands from its creation on.
    fn update(&mut self, task: &Task, before: &Before) -> rusqlite::Result<()> {
        let fetched = match (task.fetched, before.fetched) {
            (false, _) => 0,
            (true, 0) => self.next_fetched(),
            (true, place) => place,
        };
        let (status, detail) = row::status_columns(&task.status);
        let (cursor, wait, sealed) = row::execution_columns(&task.execution);
        let ended = task.status.ended();
        self.connection
            .prepare_cached(
                "UPDATE task SET version = :version, updated = :updated, retention = :retention, status = :status, \
                 detail = :detail, ended = :ended, expires = :expires, forgotten = :forgotten, \
                 execution = :execution, cursor = :cursor, wait = :wait, fetched = :fetched, \
                 holder = CASE WHEN :ended IS NULL THEN holder END \
                 WHERE n = :n",
            )?
            .execute(named_params! {
                ":n": before.n,
                ":version": number(task.version),
                ":updated": number(task.updated.0),
                ":retention": row::span(task.retention),
                ":status": status,
                ":detail": detail,
                ":ended": ended.map(|at| number(at.0)),
                ":expires": task.expires().map(|at| number(at.0)),
                ":forgotten": task.forgotten().map(|at| number(at.0)),
                ":execution": task.execution.word(),
                ":cursor": cursor,
                ":wait": wait,
                ":fetched": fetched,
            })?;
        self.seal(before.n, sealed.map(|sealed| &sealed.0))
    }

    /// Keeps the sealed bytes of a task as they are to be; most writes change nothing of them.
    fn seal(&self, n: i64, sealed: Option<&Bytes>) -> rusqlite::Result<()> {
        let Some(sealed) = sealed else {
            return self.connection.prepare_cached("DELETE FROM sealed WHERE n = ?")?.execute([n]).map(drop);
        };
        let mut known = self.connection.prepare_cached("SELECT body FROM sealed WHERE n = ?")?;
        let is_known = known.query_row([n], |row| Ok(row.get_ref(0)?.as_blob()? == &**sealed)).optional()?;
        if is_known != Some(true) {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO sealed (n, body) VALUES (?, ?)")?
                .execute(params![n, &**sealed])?;
        }
        Ok(())
    }

    fn set_kept(&mut self, before: &Before, kept: Option<i64>) -> rusqlite::Result<()> {
        self.connection.prepare_cached("UPDATE task SET kept = ? WHERE n = ?")?.execute(params![kept, before.n])?;
        let (old, new) = (before.kept.unwrap_or(0).unsigned_abs(), kept.unwrap_or(0).unsigned_abs());
        self.counts.retained = (self.counts.retained + new).saturating_sub(old);
        Ok(())
    }

    fn next_fetched(&mut self) -> i64 {
        self.counts.fetched += 1;
        self.counts.fetched
    }

    /// Makes room with the outcome that was read first. Whether there was one.
    fn evict(&mut self, now: Timestamp) -> rusqlite::Result<bool> {
        let oldest = "SELECT n, version, fetched, kept FROM task WHERE kept IS NOT NULL AND fetched > 0 \
                      ORDER BY fetched LIMIT 1";
        let Some(before) = self.connection.prepare_cached(oldest)?.query_row([], before).optional()? else {
            return Ok(false);
        };
        match at(&self.connection, before.n) {
            Ok(task) => {
                if let Ok(next) = task.apply(Event::Evicted, now) {
                    self.update(&next, &before)?;
                }
            }
            // Whatever it says, its result makes room.
            Err(error) if is_odd(&error) => self.warn_of(before.n),
            Err(error) => return Err(error),
        }
        self.drop_result(&before)?;
        Ok(true)
    }

    pub(super) fn drop_result(&mut self, before: &Before) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM result WHERE n = ?")?.execute([before.n])?;
        self.set_kept(before, None)
    }

    /// Says once that a row cannot be read.
    fn warn_of(&mut self, n: i64) {
        if self.odd.insert(n) {
            warn!(number = n, "a task in the store cannot be read and is passed over: `taskgate store check` names it");
        }
    }

    /// How much was changed so far: by as much as nothing, if a transaction has nothing to write.
    pub(super) fn changes(&self) -> u64 {
        self.connection.total_changes() + self.moved
    }

    pub(super) fn claim(&mut self, query: &ClaimQuery) -> rusqlite::Result<Vec<Task>> {
        let (mut free, mut odd) = (Vec::new(), Vec::new());
        {
            let mut statement = self
                .connection
                .prepare_cached("SELECT n, holder FROM task WHERE ended IS NULL ORDER BY created, id")?;
            let mut rows = statement.query([])?;
            while free.len() < query.limit
                && let Some(row) = rows.next()?
            {
                let holder = row.get_ref(1)?.as_blob_or_null().ok().flatten().and_then(|bytes| bytes.try_into().ok());
                let holder = holder.map(|bytes| ReplicaId(u128::from_be_bytes(bytes)));
                let is_free = holder.is_none_or(|holder| {
                    holder != query.holder && self.leases.until(holder).is_none_or(|until| until <= query.now)
                });
                let n = row.get(0)?;
                match is_free.then(|| at(&self.connection, n)) {
                    Some(Ok(task)) => free.push((n, task)),
                    Some(Err(error)) if is_odd(&error) => odd.push(n),
                    Some(Err(error)) => return Err(error),
                    None => {}
                }
            }
        }
        odd.into_iter().for_each(|n| self.warn_of(n));
        for (n, task) in &mut free {
            self.connection
                .prepare_cached("UPDATE task SET holder = ?, version = version + 1 WHERE n = ?")?
                .execute(params![query.holder.0.to_be_bytes(), *n])?;
            task.lease = Some(Lease { holder: query.holder, until: query.until });
            task.version += 1;
        }
        self.leases.extend(query.holder, query.until);
        Ok(free.into_iter().map(|(_, task)| self.leases.seen(task)).collect())
    }

    pub(super) fn put_session(&self, id: Fingerprint, session: &SessionRecord) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![
                id.0,
                session.client.client,
                session.client.declares_tasks,
                session.client.abilities.capabilities(),
                session.server.version.text(),
                own_tasks_word(session.server.own_tasks),
                session.minted,
                session.ended,
                number(session.expires.0),
                session.credential.map(|credential| credential.0),
                session.era == Era::Stateless,
            ])
            .map(drop)
    }

    /// The secret under this name, `fresh` if there is none yet.
    pub(super) fn secret(&self, fresh: [u8; 32]) -> rusqlite::Result<[u8; 32]> {
        self.connection.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", [fresh])?;
        self.connection.query_row("SELECT value FROM meta WHERE name = 'secret'", [], |row| row.get(0))
    }

    /// Writes something, so that it is known whether that works.
    pub(super) fn probe(&self) -> rusqlite::Result<()> {
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES ('probe', zeroblob(1))", []).map(drop)
    }
}

pub(super) fn own_tasks_word(own: OwnTasks) -> &'static str {
    match own {
        OwnTasks::None => "none",
        OwnTasks::Core => "core",
        OwnTasks::Extension => "extension",
    }
}

fn before(row: &Row<'_>) -> rusqlite::Result<Before> {
    Ok(Before { n: row.get(0)?, version: row.get(1)?, fetched: row.get(2)?, kept: row.get(3)? })
}

/// A task as it is stored, without its lease's end.
pub(super) fn get(connection: &Connection, id: TaskId) -> rusqlite::Result<Option<Task>> {
    let mut task = connection.prepare_cached(&format!("{TASK} WHERE task.id = ?"))?;
    task.query_row([id.bytes()], row::read).optional()
}

/// The same by its number, which there is.
pub(super) fn at(connection: &Connection, n: i64) -> rusqlite::Result<Task> {
    connection.prepare_cached(&format!("{TASK} WHERE task.n = ?"))?.query_row([n], row::read)
}
