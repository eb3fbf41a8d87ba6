//! What can go wrong with a file, in words that say what to do.

use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;

use crate::task::StoreError;

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("the store {path} is in use by another taskgate{}: one process per file", .process.map(by).unwrap_or_default())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The number of that process, if it told.
        process: Option<u32>,
    },
    /// It was written by a later version.
    #[error(
        "the store {path} was written by a newer taskgate (schema {found}, this one knows {known}): run that version, or name another file"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        found: usize,
        /// The newest that is known here.
        known: usize,
    },
    /// It is a database, but not ours.
    #[error("{path} is a database of another program: name another file in store.path (--store)")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read as a database, or not all of it.
    #[error(
        "the store {path} is damaged ({why}): `taskgate store check --store {path}` tells more, `taskgate store export` saves what can be read; then move the file away and start again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// It cannot be written.
    #[error("the store {path} cannot be opened: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

fn by(process: u32) -> String {
    format!(" (process {process})")
}

impl OpenError {
    pub(super) fn io(path: &std::path::Path, error: &io::Error) -> Self {
        Self::Unusable { path: path.to_owned(), why: error.to_string() }
    }

    pub(super) fn sql(path: &std::path::Path, error: &rusqlite::Error) -> Self {
        let (path, why) = (path.to_owned(), reason(error));
        if is_damage(error) { Self::Damaged { path, why } } else { Self::Unusable { path, why } }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// What the engine says to whoever asked.
pub(super) fn unavailable(error: &rusqlite::Error) -> StoreError {
    if is_damage(error) { StoreError::Damaged } else { StoreError::Unavailable(reason(error)) }
}

/// A few words; never a value that was stored.
pub(super) fn reason(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full".into(),
        Some(ErrorCode::ReadOnly) => "the file cannot be written".into(),
        Some(ErrorCode::SystemIoFailure) => format!("the disk failed: {}", code(error)),
        Some(ErrorCode::DatabaseCorrupt) => "the file is damaged".into(),
        Some(ErrorCode::NotADatabase) => "the file is no database".into(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another program holds the file".into(),
        Some(ErrorCode::CannotOpen) => "the file cannot be opened".into(),
        Some(_) => code(error),
        None => "a record cannot be read".into(),
    }
}

fn code(error: &rusqlite::Error) -> String {
    error.sqlite_error().map_or_else(|| "unknown".into(), ToString::to_string)
}

/// Whether a write may succeed where the one before it failed: it is smaller, or another, or elsewhere in the file.
pub(super) fn concerns_one(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DiskFull
            | ErrorCode::TooBig
            | ErrorCode::ConstraintViolation
            | ErrorCode::OutOfMemory
            | ErrorCode::DatabaseCorrupt,
        ) => true,
        Some(_) => false,
        None => true,
    }
}

/// Whether it is a row that is not as any version of ours wrote it, where the file itself is sound.
pub(super) fn is_odd(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code().is_none()
}
