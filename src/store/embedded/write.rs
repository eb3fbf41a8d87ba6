//! What is done within a transaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, named_params, params};

use crate::mcp::OwnTasks;
use crate::task::{
    ClaimQuery, Event, Fingerprint, Full, Lease, Purged, Replaced, ReplicaId, SessionRecord, StoreError, Task, TaskId,
    Timestamp,
};

use super::row::{self, number};

/// How many expired ids are remembered at most.
const MAX_REMEMBERED: i64 = 100_000;
/// How many records one step of a purge takes, and how many bytes: others write in between.
const STEP: usize = 500;
const STEP_BYTES: i64 = 16 << 20;
/// How many pages one step gives back.
const STEP_PAGES: i64 = 500;

/// When the lease of each holder is over. They live as long as the process does: one process has the file, so that
/// whoever held a lease before it came is gone.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<ReplicaId, Timestamp>>);

impl Leases {
    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<ReplicaId, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, holder: ReplicaId, until: Timestamp) {
        self.table().insert(holder, until);
    }

    pub(super) fn extend(&self, holder: ReplicaId, until: Timestamp) {
        let mut table = self.table();
        let lease = table.entry(holder).or_insert(until);
        *lease = until.max(*lease);
    }

    pub(super) fn forget(&self, now: Timestamp) {
        self.table().retain(|_, until| *until > now);
    }

    fn until(&self, holder: ReplicaId) -> Option<Timestamp> {
        self.table().get(&holder).copied()
    }

    /// A stored task with what is known of its lease now.
    pub(super) fn seen(&self, mut task: Task) -> Task {
        if let Some(lease) = &mut task.lease {
            lease.until = self.until(lease.holder).unwrap_or_default();
        }
        task
    }
}

/// The connection that writes, and what it need not look up.
pub(super) struct Db {
    pub(super) connection: Connection,
    pub(super) leases: Arc<Leases>,
    pub(super) max_retained: u64,
    pub(super) counts: Counts,
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
struct Before {
    n: i64,
    version: i64,
    fetched: i64,
    kept: Option<i64>,
    holder: Option<[u8; 16]>,
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
            .prepare_cached("SELECT n, version, fetched, kept, holder FROM task WHERE id = ?")?
            .query_row([id.bytes()], |row| {
                Ok(Before {
                    n: row.get(0)?,
                    version: row.get(1)?,
                    fetched: row.get(2)?,
                    kept: row.get(3)?,
                    holder: row.get(4)?,
                })
            })
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
                 execution = :execution, cursor = :cursor, wait = :wait, holder = :holder, fetched = :fetched \
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
                ":holder": if ended.is_some() { None } else { before.holder },
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
        let oldest = "SELECT id FROM task WHERE kept IS NOT NULL AND fetched > 0 ORDER BY fetched LIMIT 1";
        let id: Option<[u8; 16]> =
            self.connection.prepare_cached(oldest)?.query_row([], |row| row.get(0)).optional()?;
        let Some(id) = id.map(TaskId::from_bytes) else { return Ok(false) };
        let Some(before) = self.before(id)? else { return Ok(false) };
        let task = get(&self.connection, id)?;
        if let Some(Ok(next)) = task.map(|task| task.apply(Event::Evicted, now)) {
            self.update(&next, &before)?;
        }
        self.drop_result(&before)?;
        Ok(true)
    }

    fn drop_result(&mut self, before: &Before) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM result WHERE n = ?")?.execute([before.n])?;
        self.set_kept(before, None)
    }

    /// One step of a purge; nothing dropped means that nothing is left to drop.
    pub(super) fn purge(&mut self, now: Timestamp, remembered: i64) -> rusqlite::Result<Purged> {
        let results = self.purge_results(now)?;
        let over = (remembered - MAX_REMEMBERED).clamp(0, 1_000_000);
        let records = self.purge_records(now, usize::try_from(over).unwrap_or(0))?;
        self.connection
            .prepare_cached("DELETE FROM session WHERE id IN (SELECT id FROM session WHERE expires <= ? LIMIT ?)")?
            .execute(params![number(now.0), number(STEP as u64)])?;
        Ok(Purged { results, records })
    }

    fn purge_results(&mut self, now: Timestamp) -> rusqlite::Result<usize> {
        let mut expired = Vec::new();
        let mut bytes = 0;
        {
            let mut statement = self.connection.prepare_cached(
                "SELECT n, version, fetched, kept, holder FROM task WHERE kept IS NOT NULL AND expires <= ? LIMIT ?",
            )?;
            let mut rows = statement.query(params![number(now.0), number(STEP as u64)])?;
            while let Some(row) = rows.next()? {
                let kept: i64 = row.get(3)?;
                bytes += kept;
                expired.push(Before {
                    n: row.get(0)?,
                    version: row.get(1)?,
                    fetched: row.get(2)?,
                    kept: Some(kept),
                    holder: row.get(4)?,
                });
                if bytes >= STEP_BYTES {
                    break;
                }
            }
        }
        for before in &expired {
            self.drop_result(before)?;
        }
        Ok(expired.len())
    }

    /// Drops forgotten records, and the `over` oldest of the expired ones.
    fn purge_records(&mut self, now: Timestamp, over: usize) -> rusqlite::Result<usize> {
        let doomed: Vec<i64> = self
            .connection
            .prepare_cached(
                "SELECT n FROM task WHERE forgotten <= :now AND kept IS NULL ORDER BY forgotten LIMIT :step",
            )?
            .query_map(named_params! {":now": number(now.0), ":step": number(STEP as u64)}, |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let early: Vec<i64> = self
            .connection
            .prepare_cached(
                "SELECT n FROM task WHERE forgotten > :now AND expires <= :now AND kept IS NULL \
                 ORDER BY forgotten LIMIT :over",
            )?
            .query_map(named_params! {":now": number(now.0), ":over": number(over.min(STEP) as u64)}, |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for n in doomed.iter().chain(&early) {
            self.connection.prepare_cached("DELETE FROM task WHERE n = ?")?.execute([n])?;
        }
        Ok(doomed.len() + early.len())
    }

    /// Gives some free pages back. How many are left.
    pub(super) fn shrink(&self) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
        let mut rows = statement.query([])?;
        // Each step gives one page back.
        while rows.next()?.is_some() {}
        self.connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
    }

    pub(super) fn claim(&mut self, query: &ClaimQuery) -> rusqlite::Result<Vec<Task>> {
        let mut free = Vec::new();
        {
            let mut statement = self
                .connection
                .prepare_cached("SELECT n, id, holder FROM task WHERE ended IS NULL ORDER BY created, id")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()?
                && free.len() < query.limit
            {
                let holder = row.get::<_, Option<[u8; 16]>>(2)?.map(|holder| ReplicaId(u128::from_be_bytes(holder)));
                let is_free = holder.is_none_or(|holder| {
                    holder != query.holder && self.leases.until(holder).is_none_or(|until| until <= query.now)
                });
                if is_free {
                    free.push((row.get::<_, i64>(0)?, TaskId::from_bytes(row.get(1)?)));
                }
            }
        }
        let mut taken = Vec::new();
        for (n, id) in free {
            self.connection
                .prepare_cached("UPDATE task SET holder = ?, version = version + 1 WHERE n = ?")?
                .execute(params![query.holder.0.to_be_bytes(), n])?;
            taken.extend(get(&self.connection, id)?);
        }
        self.leases.extend(query.holder, query.until);
        Ok(taken.into_iter().map(|task| self.leases.seen(task)).collect())
    }

    pub(super) fn put_session(&self, id: Fingerprint, session: &SessionRecord) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?
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

/// A task as it is stored, without its lease's end.
pub(super) fn get(connection: &Connection, id: TaskId) -> rusqlite::Result<Option<Task>> {
    connection
        .prepare_cached(&format!(
            "SELECT {} FROM task LEFT JOIN sealed ON sealed.n = task.n WHERE task.id = ?",
            row::COLUMNS
        ))?
        .query_row([id.bytes()], row::read)
        .optional()
}
