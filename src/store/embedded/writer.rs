//! The one thread that writes: what waits when a sync ends goes into the next one together.

use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::task::StoreError;

use super::faults::{Fault, Faults};
use super::read::PATIENCE;
use super::trouble::{concerns_one, reason, unavailable};
use super::write::Db;

/// How many writes share a sync at most, and about how many bytes of results.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 8 << 20;
/// How many writes may wait; over it, whoever writes waits to be let in.
const QUEUE: usize = 4096;

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Command>,
}

enum Command {
    Write(Box<dyn Write>),
    /// Moves what was committed to its place in the file, so that pages which were given back leave it.
    Checkpoint(oneshot::Sender<()>),
    /// Ends the thread after what came before.
    Close(oneshot::Sender<()>),
}

/// Something to be done within a transaction.
trait Write: Send {
    fn bytes(&self) -> usize;
    /// May run again if the transaction that it ran in was put back.
    fn run(&mut self, db: &mut Db) -> rusqlite::Result<()>;
    /// Tells whoever waits. Called once, after the transaction.
    fn tell(&mut self, committed: Result<(), StoreError>);
}

struct Pending<T, F> {
    bytes: usize,
    work: F,
    outcome: Option<T>,
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T: Send, F: FnMut(&mut Db) -> rusqlite::Result<T> + Send> Write for Pending<T, F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, db: &mut Db) -> rusqlite::Result<()> {
        self.outcome = Some((self.work)(db)?);
        Ok(())
    }

    fn tell(&mut self, committed: Result<(), StoreError>) {
        let outcome = self.outcome.take().ok_or_else(closed);
        if let Some(reply) = self.reply.take() {
            // Whoever does not wait any more need not know.
            let _ = reply.send(committed.and(outcome));
        }
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".into())
}

impl Writer {
    /// Starts the thread. `after` is dropped when the file is closed.
    pub(super) fn start(db: Db, faults: Faults, after: impl Send + 'static) -> std::io::Result<Self> {
        let (queue, commands) = mpsc::channel(QUEUE);
        let transactions = Transactions { db, faults, fault: Fault::None, is_well: true };
        thread::Builder::new().name("taskgate-store".into()).spawn(move || {
            let asked = transactions.serve(commands);
            drop(after);
            if let Some(asked) = asked {
                let _ = asked.send(());
            }
        })?;
        Ok(Self { queue })
    }

    /// Does `work`, which holds about so many bytes, and returns when that is on the disk.
    pub(super) async fn write<T, F>(&self, bytes: usize, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        let pending = Pending { bytes, work, outcome: None, reply: Some(reply) };
        self.queue.send(Command::Write(Box::new(pending))).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }

    pub(super) async fn checkpoint(&self) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Command::Checkpoint(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }

    /// Returns when everything that came before is on the disk and the file is closed.
    pub(super) async fn close(&self) {
        let (done, is_done) = oneshot::channel();
        if self.queue.send(Command::Close(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }
}

struct Transactions {
    db: Db,
    faults: Faults,
    fault: Fault,
    is_well: bool,
}

impl Transactions {
    /// Works until it is told to end, or until nobody can ask any more. Closes the file; returns whoever waits for that.
    fn serve(mut self, mut commands: mpsc::Receiver<Command>) -> Option<oneshot::Sender<()>> {
        let mut asked = None;
        let mut next = commands.blocking_recv();
        while let Some(command) = next.take() {
            match command {
                Command::Write(first) => {
                    let (batch, left) = gather(first, &mut commands);
                    self.commit(batch);
                    next = left;
                }
                Command::Checkpoint(done) => {
                    checkpoint(&self.db.connection);
                    let _ = done.send(());
                }
                Command::Close(done) => {
                    asked = Some(done);
                    break;
                }
            }
            next = next.or_else(|| commands.blocking_recv());
        }
        checkpoint(&self.db.connection);
        if let Err((_, error)) = self.db.connection.close() {
            warn!(error = reason(&error), "the store was not closed in good order; nothing that was told is lost");
        }
        asked
    }

    fn commit(&mut self, mut batch: Vec<Box<dyn Write>>) {
        let outcome = self.attempt(&mut batch);
        let Err(error) = outcome else { return tell(&mut batch, None) };
        if batch.len() == 1 || !concerns_one(&error) {
            return tell(&mut batch, Some(&error));
        }
        // One of them may be at fault: the others shall not suffer for it.
        for write in &mut batch {
            let write = std::slice::from_mut(write);
            let outcome = self.attempt(write);
            tell(write, outcome.as_ref().err());
        }
    }

    /// One transaction, all or nothing.
    fn attempt(&mut self, batch: &mut [Box<dyn Write>]) -> rusqlite::Result<()> {
        let (counts, changes) = (self.db.counts, self.db.changes());
        let outcome = self.transaction(batch, changes);
        if outcome.is_err() {
            self.db.counts = counts;
            if !self.db.connection.is_autocommit()
                && let Err(error) = self.db.connection.execute_batch("ROLLBACK")
            {
                warn!(error = reason(&error), "a transaction could not be put back");
            }
        }
        // What changes nothing does not reach the disk, and tells nothing of it.
        if outcome.is_err() || self.db.changes() != changes {
            self.note(outcome.as_ref().err());
        }
        outcome
    }

    fn transaction(&mut self, batch: &mut [Box<dyn Write>], changes: u64) -> rusqlite::Result<()> {
        self.faults.prepare(&self.db.connection, &mut self.fault)?;
        self.db.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for write in batch {
            write.run(&mut self.db)?;
        }
        if self.db.changes() != changes {
            self.faults.strike()?;
        }
        self.db.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn note(&mut self, error: Option<&rusqlite::Error>) {
        match error {
            Some(error) if self.is_well => warn!(error = reason(error), "the store cannot be written"),
            None if !self.is_well => info!("the store can be written again"),
            Some(_) | None => {}
        }
        self.is_well = error.is_none();
    }
}

/// The writes that wait, as far as they share a transaction, and a command of another kind that came after them.
fn gather(first: Box<dyn Write>, commands: &mut mpsc::Receiver<Command>) -> (Vec<Box<dyn Write>>, Option<Command>) {
    let mut bytes = first.bytes();
    let mut batch = vec![first];
    while batch.len() < BATCH && bytes < BATCH_BYTES {
        match commands.try_recv() {
            Ok(Command::Write(write)) => {
                bytes += write.bytes();
                batch.push(write);
            }
            Ok(other) => return (batch, Some(other)),
            Err(_) => break,
        }
    }
    (batch, None)
}

fn tell(batch: &mut [Box<dyn Write>], error: Option<&rusqlite::Error>) {
    for write in batch {
        write.tell(error.map_or(Ok(()), |error| Err(unavailable(error))));
    }
}

fn checkpoint(connection: &Connection) {
    // Whoever still reads keeps it from being complete; the next one is. Waiting for them would stop all writes.
    let outcome = connection
        .busy_timeout(Duration::ZERO)
        .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(error) = outcome.and_then(|()| connection.busy_timeout(PATIENCE)) {
        warn!(error = reason(&error), "the store's log could not be emptied");
    }
}
