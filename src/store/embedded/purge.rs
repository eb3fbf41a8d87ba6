//! What is dropped when its time is over, in steps between which others write.

use rusqlite::{named_params, params};

use crate::task::{Purged, Timestamp};

use super::row::number;
use super::write::{Before, Db};

/// How many expired ids are remembered at most.
const MAX_REMEMBERED: i64 = 100_000;
/// How many records one step of a purge takes, and how many bytes: others write in between.
const STEP: usize = 500;
const STEP_BYTES: i64 = 16 << 20;
/// How many pages one step gives back.
const STEP_PAGES: i64 = 500;

impl Db {
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
}
