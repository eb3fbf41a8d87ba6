//! What is dropped when its time is over, in steps between which others write.

use rusqlite::params;

use crate::task::{Purged, Timestamp};

use super::row::number;
use super::write::{Before, Db};

/// How many records one step of a purge takes, and how many bytes: others write in between.
const STEP: usize = 500;
const STEP_BYTES: i64 = 16 << 20;
/// How many pages one step gives back.
const STEP_PAGES: i64 = 500;

/// How many there are beyond what may be remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    /// Of expired tasks that are not forgotten.
    pub(super) records: usize,
    /// Of sessions that are not expired.
    pub(super) sessions: usize,
}

impl Db {
    /// One step of a purge, and what is over after it; nothing dropped means that nothing is left to drop.
    pub(super) fn purge(&mut self, now: Timestamp, mut over: Over) -> rusqlite::Result<(Purged, Over)> {
        let results = self.purge_results(now)?;
        let doomed = self.drop_records("forgotten <= ?1", now, STEP)?;
        let early = self.drop_records("forgotten > ?1 AND expires <= ?1", now, STEP.min(over.records))?;
        let expired = self.drop_sessions("expires <= ?1", now, STEP)?;
        let first = self.drop_sessions("expires > ?1", now, STEP.min(over.sessions))?;
        over.records -= early;
        over.sessions -= first;
        Ok((Purged { results, records: doomed + early, sessions: expired + first }, over))
    }

    fn purge_results(&mut self, now: Timestamp) -> rusqlite::Result<usize> {
        let mut expired = Vec::new();
        let mut bytes = 0;
        {
            let mut statement = self.connection.prepare_cached(
                "SELECT n, version, fetched, kept FROM task WHERE kept IS NOT NULL AND expires <= ? LIMIT ?",
            )?;
            let mut rows = statement.query(params![number(now.0), number(STEP as u64)])?;
            while let Some(row) = rows.next()? {
                let kept: i64 = row.get(3)?;
                bytes += kept;
                expired.push(Before { n: row.get(0)?, version: row.get(1)?, fetched: row.get(2)?, kept: Some(kept) });
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

    /// Drops records whose result is gone, those first that are forgotten first.
    fn drop_records(&self, which: &str, now: Timestamp, most: usize) -> rusqlite::Result<usize> {
        self.connection
            .prepare_cached(&format!(
                "DELETE FROM task WHERE n IN \
                 (SELECT n FROM task WHERE {which} AND kept IS NULL ORDER BY forgotten LIMIT ?2)"
            ))?
            .execute(params![number(now.0), number(most as u64)])
    }

    /// Drops sessions, those first that expire first.
    fn drop_sessions(&self, which: &str, now: Timestamp, most: usize) -> rusqlite::Result<usize> {
        self.connection
            .prepare_cached(&format!(
                "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE {which} ORDER BY expires LIMIT ?2)"
            ))?
            .execute(params![number(now.0), number(most as u64)])
    }

    /// Gives so many free pages back, or as many as one step may. How many it gave.
    pub(super) fn shrink(&mut self, pages: i64) -> rusqlite::Result<i64> {
        let mut statement =
            self.connection.prepare(&format!("PRAGMA incremental_vacuum({})", pages.min(STEP_PAGES)))?;
        let mut rows = statement.query([])?;
        let mut given = 0_i64;
        while rows.next()?.is_some() {
            given += 1;
        }
        self.moved += given.unsigned_abs();
        Ok(given)
    }
}
