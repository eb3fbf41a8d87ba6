//! The tables, and how those of an older version become them.
//!
//! `user_version` counts the steps that were made; `application_id` tells our files from those of other programs.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// "tgst", in the header of every file of ours.
pub(super) const APPLICATION: i32 = 0x7467_7374;

/// The steps from an empty file to what this version uses. A step that was released is never changed.
pub(super) const STEPS: &[&str] = &[TABLES, SESSIONS];

/// Spans and times are milliseconds, times since 1970. What a poll does not read stands in tables of its own, under
/// the same `n`: results, and the sealed bytes that a restart needs.
const TABLES: &str = "
CREATE TABLE task (
    n             INTEGER PRIMARY KEY,
    id            BLOB NOT NULL UNIQUE,
    version       INTEGER NOT NULL,
    upstream      TEXT NOT NULL,
    tool          TEXT NOT NULL,
    made          TEXT NOT NULL,
    owner         TEXT NOT NULL,
    credential    BLOB,
    session       BLOB,
    open_by_id    INTEGER NOT NULL,
    listed        BLOB,              -- the session whose list it stands in
    created       INTEGER NOT NULL,
    updated       INTEGER NOT NULL,
    retention     INTEGER NOT NULL,
    poll_interval INTEGER NOT NULL,
    threshold     INTEGER NOT NULL,
    status        TEXT NOT NULL,
    detail        TEXT,              -- the data of the status, as JSON
    ended         INTEGER,
    expires       INTEGER,
    forgotten     INTEGER,
    execution     TEXT NOT NULL,
    cursor        TEXT,              -- of a stream, or the id of a task of the upstream's
    wait          INTEGER,
    holder        BLOB,              -- who runs it
    fetched       INTEGER NOT NULL,  -- 0, or the place in the order in which outcomes were read
    kept          INTEGER            -- bytes of its result, while that is kept
) STRICT;
CREATE INDEX task_listed ON task (listed, upstream, created, id) WHERE listed IS NOT NULL;
CREATE INDEX task_running ON task (created, id, holder) WHERE ended IS NULL;
CREATE INDEX task_kept ON task (fetched, kept) WHERE kept IS NOT NULL;
CREATE INDEX task_expires ON task (expires) WHERE kept IS NOT NULL;
CREATE INDEX task_forgotten ON task (forgotten, expires) WHERE forgotten IS NOT NULL;
CREATE TABLE result (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE sealed (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE session (
    id             BLOB PRIMARY KEY,
    client         TEXT NOT NULL,
    declares_tasks INTEGER NOT NULL,
    capabilities   TEXT NOT NULL,
    version        TEXT NOT NULL,
    own_tasks      TEXT NOT NULL,
    minted         INTEGER NOT NULL,
    ended          INTEGER NOT NULL,
    expires        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_expires ON session (expires);
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
";

/// The credential that a session began with, and whether its requests go upstream in the stateless era.
const SESSIONS: &str = "
ALTER TABLE session ADD COLUMN credential BLOB;
ALTER TABLE session ADD COLUMN stateless INTEGER NOT NULL DEFAULT 0;
";

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet.
    Empty,
    /// What another program keeps there.
    Foreign,
    /// Our tables after this many steps.
    Ours(usize),
}

/// Looks what is in a file.
pub(super) fn look(connection: &Connection) -> rusqlite::Result<Found> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match application {
        APPLICATION => Found::Ours(usize::try_from(version).unwrap_or(usize::MAX)),
        0 if version == 0 && tables == 0 => Found::Empty,
        _ => Found::Foreign,
    })
}

/// Makes the steps that are missing, all or none; writes nothing if none is.
pub(super) fn migrate(connection: &mut Connection, done: usize, steps: &[&str]) -> rusqlite::Result<()> {
    if done == steps.len() {
        return Ok(());
    }
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    for step in steps.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", i64::try_from(steps.len()).unwrap_or(i64::MAX))?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[&str] = &["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y DEFAULT 7", "CREATE TABLE b (z)"];

    #[test]
    fn an_older_file_is_brought_up_step_by_step_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(look(&connection), Ok(Found::Empty));
        migrate(&mut connection, 0, &STEPS[..1]).unwrap();
        assert_eq!(look(&connection), Ok(Found::Ours(1)));
        connection.execute("INSERT INTO a VALUES (1)", []).unwrap();
        migrate(&mut connection, 1, STEPS).unwrap();
        assert_eq!(look(&connection), Ok(Found::Ours(3)));
        let row: (i64, i64) = connection.query_row("SELECT x, y FROM a", [], |row| row.try_into()).unwrap();
        assert_eq!(row, (1, 7));
        migrate(&mut connection, 3, STEPS).unwrap();
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, 0, &STEPS[..1]).unwrap();
        assert!(migrate(&mut connection, 1, &["", STEPS[2], "no SQL"]).is_err());
        assert_eq!(look(&connection), Ok(Found::Ours(1)));
        assert!(connection.prepare("SELECT * FROM b").is_err());
    }

    #[test]
    fn what_another_program_keeps_is_not_ours() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert_eq!(look(&connection), Ok(Found::Foreign));
    }
}
