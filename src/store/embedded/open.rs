//! From a path to connections: one process per file, ours alone to read, and of a version that is known.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::read::PATIENCE;
use super::schema::{self, Found};
use super::trouble::OpenError;

/// Files up to this many bytes are looked through when they are opened; larger ones by `taskgate store check`.
const LOOKED_THROUGH: u64 = 32 << 20;
/// Of `auto_vacuum`: free pages are given back when that is asked for.
const INCREMENTAL: i64 = 2;

/// Held while the file is in use.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code)] File);

/// The file that `path` names, under the one name that is locked, whatever links lead there; an empty file is made if
/// there is none.
pub(super) fn place(path: &Path) -> Result<PathBuf, OpenError> {
    let io = |error| OpenError::io(path, &error);
    match fs::metadata(path) {
        Ok(_) => regular(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => drop(own(path).map_err(io)?),
        Err(error) => return Err(io(error)),
    }
    fs::canonicalize(path).map_err(io)
}

/// Refuses what is there and no file: a device, a pipe, a directory.
pub(super) fn regular(path: &Path) -> Result<(), OpenError> {
    let file = fs::metadata(path).map_err(|error| OpenError::io(path, &error))?;
    if file.is_file() {
        return Ok(());
    }
    Err(OpenError::Unusable { path: path.to_owned(), why: "it is not a regular file".into() })
}

/// Takes the file for this process: a lock on a file beside it, since locks on the file itself are SQLite's.
pub(super) fn lock(path: &Path) -> Result<Lock, OpenError> {
    let beside = beside(path, ".lock");
    if beside.exists() {
        regular(&beside)?;
    }
    let mut file = own(&beside).map_err(|error| OpenError::io(path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::InUse { path: path.to_owned(), process });
        }
        Err(TryLockError::Error(error)) => return Err(OpenError::io(path, &error)),
    }
    // Only for whoever comes second; without it they learn less.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Lock(file))
}

/// A file next to the store's.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Opens a file, or makes one that only its owner may read.
fn own(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Lets only its owner read the store. SQLite gives files that it makes beside it the same mode; some may be there.
fn make_private(path: &Path) -> std::io::Result<()> {
    for path in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")] {
        let Ok(file) = fs::metadata(&path) else { continue };
        let mode = file.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))?;
        }
    }
    Ok(())
}

/// The connection that writes, to a file that is as this version wants it. Hold the lock.
pub(super) fn writer(path: &Path) -> Result<Connection, OpenError> {
    let sql = |error: rusqlite::Error| OpenError::sql(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sql)?;
    connection.busy_timeout(PATIENCE).map_err(sql)?;
    connection.set_prepared_statement_cache_capacity(64);
    let done = match schema::look(&connection).map_err(sql)? {
        Found::Empty => 0,
        Found::Foreign => return Err(OpenError::Foreign { path: path.to_owned() }),
        Found::Ours(found) if found > schema::STEPS.len() => {
            return Err(OpenError::Newer { path: path.to_owned(), found, known: schema::STEPS.len() });
        }
        Found::Ours(done) => done,
    };
    make_private(path).map_err(|error| OpenError::io(path, &error))?;
    settle(&connection).map_err(sql)?;
    if connection.is_readonly("main").map_err(sql)? {
        return Err(OpenError::Unusable { path: path.to_owned(), why: "the file cannot be written".into() });
    }
    if done > 0 && fs::metadata(path).is_ok_and(|file| file.len() <= LOOKED_THROUGH) {
        look_through(&connection, path)?;
    }
    schema::migrate(&mut connection, done, schema::STEPS).map_err(sql)?;
    Ok(connection)
}

/// What holds for the file as long as it is open. The first has to stand before anything else is written, and is
/// written even if it stands.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    if connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0))? != INCREMENTAL {
        connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // A commit is on the disk when it returns.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, |_| Ok(()))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -16_384)
}

fn look_through(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| OpenError::sql(path, &error))?;
    if found == "ok" { Ok(()) } else { Err(OpenError::Damaged { path: path.to_owned(), why: found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_synced() {
        let home = tempfile::tempdir().unwrap();
        let path = place(&home.path().join("taskgate.db")).unwrap();
        let _lock = lock(&path).unwrap();
        for _ in 0..2 {
            let connection = writer(&path).unwrap();
            let said = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(said("synchronous"), 2, "FULL: with a log, less syncs no commit");
            assert_eq!(said("auto_vacuum"), INCREMENTAL);
            let log: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(log, "wal");
        }
    }
}
