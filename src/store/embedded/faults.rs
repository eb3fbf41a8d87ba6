//! A seam below the engine, through which tests let the disk fail.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Error, ffi};

/// What goes wrong from now on; shared with the engine by its options.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Fault>>);

/// One way in which a disk fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// There is no room: the file cannot grow.
    Full,
    /// It cannot be written.
    ReadOnly,
    /// Writes fail on the way.
    Broken,
    /// Nothing can be read, but all is written.
    Unreadable,
    /// Each sync takes this long.
    Slow(Duration),
}

/// More pages than any file has: the default of SQLite.
const NO_LIMIT: i64 = 0xffff_fffe;

impl Faults {
    /// From now on, until something else is set.
    pub fn set(&self, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn now(&self) -> Fault {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a transaction begins: makes the connection what the fault says, if that is not as it was.
    pub(super) fn prepare(&self, connection: &Connection, last: &mut Fault) -> rusqlite::Result<()> {
        let now = self.now();
        if now == std::mem::replace(last, now) {
            return Ok(());
        }
        let pages: i64 = match now {
            Fault::Full => connection.pragma_query_value(None, "page_count", |row| row.get(0))?,
            Fault::None | Fault::ReadOnly | Fault::Broken | Fault::Unreadable | Fault::Slow(_) => NO_LIMIT,
        };
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        connection.pragma_update(None, "query_only", now == Fault::ReadOnly)
    }

    /// Before something is read.
    pub(super) fn strike_read(&self) -> rusqlite::Result<()> {
        match self.now() {
            Fault::Unreadable => Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_READ), None)),
            Fault::None | Fault::Full | Fault::ReadOnly | Fault::Broken | Fault::Slow(_) => Ok(()),
        }
    }

    /// Before a transaction is committed that has something to write.
    pub(super) fn strike(&self) -> rusqlite::Result<()> {
        match self.now() {
            Fault::Broken => Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_WRITE), None)),
            Fault::Slow(span) => {
                std::thread::sleep(span);
                Ok(())
            }
            Fault::None | Fault::Full | Fault::ReadOnly | Fault::Unreadable => Ok(()),
        }
    }
}
