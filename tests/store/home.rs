//! A store with a file of its own, and tasks to put into it.

use std::path::PathBuf;

use bytes::Bytes;
use taskgate::store::embedded::Faults;
use taskgate::store::{Clock, Embedded, OpenError, Options, conformance};
use taskgate::task::{Event, Replaced, Task, TaskStore as _, Timestamp};
use tempfile::TempDir;

/// A directory with one store.
pub struct Home {
    pub directory: TempDir,
    pub faults: Faults,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), faults: Faults::default() }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("taskgate.db")
    }

    pub async fn try_open(&self) -> Result<Embedded, OpenError> {
        let options = Options { max_retained: 1 << 30, faults: self.faults.clone(), ..Options::default() };
        Embedded::open(self.path(), options, Clock::system()).await
    }

    pub async fn open(&self) -> Embedded {
        self.try_open().await.expect("opened")
    }

    pub async fn refusal(&self) -> String {
        self.try_open().await.expect_err("it is refused").to_string()
    }

    pub fn bytes(&self, ending: &str) -> u64 {
        std::fs::metadata(format!("{}{ending}", self.path().display())).map_or(0, |file| file.len())
    }
}

pub fn working() -> Task {
    conformance::sample(1, 1_000)
}

pub fn done(task: &Task, bytes: usize) -> Task {
    task.apply(Event::Completed { bytes: bytes as u64, tool_error: None }, Timestamp(2_000)).expect("it works")
}

pub async fn finish(store: &Embedded, bytes: usize) -> (Task, Bytes) {
    let task = working();
    let result = Bytes::from(vec![b'7'; bytes]);
    store.create(&task).await.expect("created");
    let done = done(&task, bytes);
    assert_eq!(store.replace(&done, Some(result.clone())).await, Ok(Replaced::Done));
    (done, result)
}
