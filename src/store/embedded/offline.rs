//! A store's file looked at from outside: checked, written out, or made smaller.

use std::fs;
use std::io::Write;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::jsonrpc::ErrorObject;
use crate::task::{Failure, Purged, Status, StoreError, Task, TaskStore as _, Timestamp};

use super::super::{Clock, Options};
use super::open::{self, beside};
use super::schema::{self, Found};
use super::trouble::{OpenError, reason};
use super::write::at;
use super::{Embedded, read, row};

/// How many tasks that cannot be read are named.
const NAMED: usize = 20;

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
    name_unread(&connection, schema, &mut report.damage);
    Ok(report)
}

/// Reads every row, and names those that say what no version of ours writes.
fn name_unread(connection: &Connection, schema: usize, damage: &mut Vec<String>) {
    let (mut last, mut unread) = (i64::MIN, 0);
    loop {
        match number_after(connection, last) {
            Ok(None) => break,
            Ok(Some(n)) => {
                last = n;
                if let Err(error) = at(connection, n) {
                    unread += 1;
                    if unread <= NAMED {
                        damage.push(named(n, &error));
                    }
                }
            }
            Err(error) => return damage.push(reason(&error)),
        }
    }
    if unread > NAMED {
        damage.push(format!("{} more tasks cannot be read", unread - NAMED));
    }
    match unread_sessions(connection, schema) {
        Ok(0) => {}
        Ok(unread) => damage.push(format!("{unread} sessions cannot be read")),
        Err(error) => damage.push(reason(&error)),
    }
}

fn unread_sessions(connection: &Connection, schema: usize) -> rusqlite::Result<usize> {
    // A file that was not opened yet by this version has no such columns.
    let columns = match schema {
        0 | 1 => read::SESSION.replace("credential, stateless", "NULL, 0"),
        _ => read::SESSION.to_owned(),
    };
    let mut statement = connection.prepare(&format!("SELECT {columns} FROM session"))?;
    let (mut rows, mut unread) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        unread += usize::from(read::session_row(row).is_err());
    }
    Ok(unread)
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
    /// Tells tasks apart whose ids begin alike.
    number: i64,
    /// The beginning of it, as in the log: whoever has the whole id of a job may read it.
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

fn number_after(connection: &Connection, last: i64) -> rusqlite::Result<Option<i64>> {
    let mut next = connection.prepare_cached("SELECT n FROM task WHERE n > ? ORDER BY n LIMIT 1")?;
    next.query_row([last], |row| row.get(0)).optional()
}

type Unread = (Option<i64>, String);

fn named(n: i64, error: &rusqlite::Error) -> String {
    format!("task number {n}: {}", reason(error))
}

fn line_after(connection: &Connection, last: i64) -> Result<Option<(i64, String)>, Unread> {
    let next = number_after(connection, last);
    let Some(n) = next.map_err(|error| (None, reason(&error)))? else { return Ok(None) };
    let unread = |error: rusqlite::Error| (Some(n), named(n, &error));
    let task = at(connection, n).map_err(unread)?;
    let result: Option<Vec<u8>> = connection
        .prepare_cached("SELECT body FROM result WHERE n = ?")
        .and_then(|mut result| result.query_row([n], |row| row.get(0)).optional())
        .map_err(unread)?;
    let result = result.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some((n, line(n, &task, result.as_deref()))))
}

fn line(number: i64, task: &Task, result: Option<&str>) -> String {
    let (error, reason, message) = match &task.status {
        Status::Failed { failure: Failure::Upstream(error), .. } => (Some(error), None, None),
        Status::Failed { failure: Failure::Lost { reason, text }, .. } => (None, Some(reason.word()), Some(&**text)),
        Status::Completed { tool_error, .. } => (None, None, tool_error.as_deref()),
        Status::Working { .. } | Status::InputRequired { .. } | Status::Cancelled { .. } => (None, None, None),
    };
    let line = Line {
        number,
        id: task.id.short(),
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
    let line = serde_json::to_string(&line).expect("it has no keys that are not text");
    // Strings have escapes in their place: these stand between values, as an upstream may have laid them out.
    line.replace(['\n', '\r'], " ")
}

/// Drops what is expired at `now` and gives all free space back, in the same steps as a process that has the file.
/// Returns what was dropped. Not cancel safe: what was dropped by then stays dropped.
///
/// # Errors
/// If the file cannot be used, a process that has it among the reasons: such a process prunes by itself.
pub async fn prune(path: &Path, now: Timestamp) -> Result<Purged, OpenError> {
    fs::metadata(path).map_err(|error| OpenError::io(path, &error))?;
    // How many sessions are too many is not known here.
    let options = Options { max_sessions: usize::MAX, ..Options::default() };
    let store = Embedded::open(path.to_owned(), options, Clock::system()).await?;
    let pruned = store.prune(now).await;
    store.close().await;
    pruned.map_err(|error| match error {
        StoreError::Damaged => OpenError::Damaged { path: path.to_owned(), why: "it cannot be read".into() },
        StoreError::Unavailable(_) | StoreError::Full(_) => {
            OpenError::Unusable { path: path.to_owned(), why: error.to_string() }
        }
    })
}

impl Embedded {
    async fn prune(&self, now: Timestamp) -> Result<Purged, StoreError> {
        let purged = self.sweep(now).await?;
        let (free, _) = self.readers.read(read::pages).await?;
        self.give_back(free).await?;
        Ok(purged)
    }
}
