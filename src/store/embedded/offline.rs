//! A store's file looked at from outside: checked, written out, or made smaller.

use std::fs;
use std::io::Write;
use std::path::Path;

use rusqlite::{Connection, Row};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::jsonrpc::ErrorObject;
use crate::task::{Failure, Purged, Status, Task, Timestamp};

use super::leases::Leases;
use super::open::{self, beside};
use super::schema::{self, Found};
use super::trouble::{OpenError, reason};
use super::write::{Counts, Db};
use super::{read, row};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong with the file, one line each; none if it is sound.
    pub damage: Vec<String>,
    /// Version of the tables.
    pub schema: usize,
    /// How many tasks there are in each status.
    pub tasks: Vec<(String, u64)>,
    /// How many results are kept.
    pub results: u64,
    /// Bytes of them.
    pub result_bytes: u64,
    /// How many sessions are remembered.
    pub sessions: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of it that nothing uses.
    pub free_bytes: u64,
    /// Bytes of the log beside it.
    pub log_bytes: u64,
}

/// Opens an existing file to look at it, whether or not a process has it.
fn look_at(path: &Path) -> Result<(Connection, usize), OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    open::regular(path)?;
    let connection = read::open(path).map_err(sql)?;
    let known = schema::STEPS.len();
    match schema::look(&connection).map_err(sql)? {
        Found::Ours(found) if found > known => Err(OpenError::Newer { path: path.to_owned(), found, known }),
        Found::Ours(found) => Ok((connection, found)),
        Found::Empty | Found::Foreign => Err(OpenError::Foreign { path: path.to_owned() }),
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Looks through all of the file.
///
/// # Errors
/// If it cannot be opened as a store at all.
pub fn check(path: &Path) -> Result<Report, OpenError> {
    let (connection, schema) = look_at(path)?;
    let mut report =
        Report { schema, file_bytes: size(path), log_bytes: size(&beside(path, "-wal")), ..Report::default() };
    let found: rusqlite::Result<Vec<String>> = connection
        .prepare("PRAGMA integrity_check(20)")
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect());
    report.damage = match found {
        Ok(found) => found.into_iter().filter(|line| line != "ok").collect(),
        Err(error) => vec![reason(&error)],
    };
    if let Err(error) = count(&connection, &mut report) {
        report.damage.push(reason(&error));
    }
    Ok(report)
}

fn count(connection: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let number = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    report.tasks = connection
        .prepare("SELECT status, count(*) FROM task GROUP BY status ORDER BY status")?
        .query_map([], |row| Ok((row.get(0)?, number(row, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    (report.results, report.result_bytes) =
        connection.query_row("SELECT count(*), coalesce(sum(length(body)), 0) FROM result", [], |row| {
            Ok((number(row, 0)?, number(row, 1)?))
        })?;
    report.sessions = connection.query_row("SELECT count(*) FROM session", [], |row| number(row, 0))?;
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    report.free_bytes = (read::pages(connection)?.0 * page).unsigned_abs();
    let strange: i64 = connection.query_row(
        "SELECT count(*) FROM task LEFT JOIN result ON result.n = task.n WHERE kept IS NOT length(body)",
        [],
        |row| row.get(0),
    )?;
    if strange > 0 {
        report.damage.push(format!("{strange} tasks and their results do not agree"));
    }
    Ok(())
}

/// One task for whoever reads an export: without owners, and without what a restart needs.
#[derive(Serialize)]
struct Line<'a> {
    id: String,
    upstream: &'a str,
    tool: &'a str,
    made: &'static str,
    status: &'static str,
    created_ms: u64,
    updated_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    fetched: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

/// Writes every task that can be read as a line of JSON, its result with it. Returns how many, and what could not be
/// read.
///
/// # Errors
/// If the file cannot be opened as a store at all.
pub fn export(path: &Path, out: &mut impl Write) -> Result<(u64, Vec<String>), OpenError> {
    let (connection, _) = look_at(path)?;
    let (mut written, mut trouble) = (0, Vec::new());
    let mut last = i64::MIN;
    loop {
        match line_after(&connection, last) {
            Ok(None) => break,
            Ok(Some((n, line))) => {
                last = n;
                if let Err(error) = writeln!(out, "{line}") {
                    trouble.push(format!("the output was closed: {error}"));
                    break;
                }
                written += 1;
            }
            Err((n, why)) => {
                trouble.push(why);
                // Without the number of what cannot be read, there is no way past it.
                let Some(n) = n else { break };
                last = n;
            }
        }
    }
    Ok((written, trouble))
}

type Unread = (Option<i64>, String);

fn line_after(connection: &Connection, last: i64) -> Result<Option<(i64, String)>, Unread> {
    use rusqlite::OptionalExtension as _;
    let next = connection
        .prepare_cached("SELECT n FROM task WHERE n > ? ORDER BY n LIMIT 1")
        .and_then(|mut next| next.query_row([last], |row| row.get::<_, i64>(0)).optional());
    let Some(n) = next.map_err(|error| (None, reason(&error)))? else { return Ok(None) };
    let unread = |error: rusqlite::Error| (Some(n), format!("task number {n}: {}", reason(&error)));
    let task = connection
        .prepare_cached(&format!(
            "SELECT {} FROM task LEFT JOIN sealed ON sealed.n = task.n WHERE task.n = ?",
            row::COLUMNS
        ))
        .and_then(|mut task| task.query_row([n], row::read))
        .map_err(unread)?;
    let result: Option<Vec<u8>> = connection
        .prepare_cached("SELECT body FROM result WHERE n = ?")
        .and_then(|mut result| result.query_row([n], |row| row.get(0)).optional())
        .map_err(unread)?;
    let result = result.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some((n, line(&task, result.as_deref()))))
}

fn line(task: &Task, result: Option<&str>) -> String {
    let (error, reason, message) = match &task.status {
        Status::Failed { failure: Failure::Upstream(error), .. } => (Some(error), None, None),
        Status::Failed { failure: Failure::Lost { reason, text }, .. } => (None, Some(reason.word()), Some(&**text)),
        Status::Completed { tool_error, .. } => (None, None, tool_error.as_deref()),
        Status::Working { .. } | Status::InputRequired { .. } | Status::Cancelled { .. } => (None, None, None),
    };
    let line = Line {
        id: task.id.to_string(),
        upstream: &task.upstream,
        tool: &task.tool,
        made: row::made_word(task.made),
        status: row::status_columns(&task.status).0,
        created_ms: task.created.0,
        updated_ms: task.updated.0,
        ended_ms: task.status.ended().map(|at| at.0),
        expires_ms: task.expires().map(|at| at.0),
        fetched: task.fetched,
        progress: task.status.note().map(crate::task::Note::line),
        error,
        reason,
        message,
        result: result.and_then(|text| serde_json::from_str(text).ok()),
    };
    serde_json::to_string(&line).expect("it has no keys that are not text")
}

/// Drops what is expired at `now` and gives all free space back. Returns what was dropped.
///
/// # Errors
/// If the file cannot be used, a process that has it among the reasons: such a process prunes by itself.
pub fn prune(path: &Path, now: Timestamp) -> Result<Purged, OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    fs::metadata(path).map_err(|error| OpenError::io(path, &error))?;
    let _lock = open::lock(path)?;
    let connection = open::writer(path)?;
    let counts = Counts::read(&connection).map_err(sql)?;
    let leases = std::sync::Arc::<Leases>::default();
    let mut db = Db { connection, leases, max_retained: u64::MAX, counts };
    let mut purged = Purged::default();
    loop {
        let over = read::remembered(&db.connection, now).map_err(sql)?;
        let step = db.purge(now, over).map_err(sql)?;
        if step == Purged::default() {
            break;
        }
        purged.results += step.results;
        purged.records += step.records;
    }
    let mut left = i64::MAX;
    loop {
        let free = db.shrink().map_err(sql)?;
        if free == 0 || free >= left {
            break;
        }
        left = free;
    }
    db.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(sql)?;
    Ok(purged)
}
