//! What is dropped, so that a file does not grow for ever, while others write.

use std::time::Duration;

use futures_util::future::join_all;
use taskgate::store::embedded::{self, Fault};
use taskgate::store::{Clock, Embedded, Options, Tasks, conformance};
use taskgate::task::{Fingerprint, SessionRecord, TaskStore as _, Timestamp};
use taskgate::telemetry::metrics::Metrics;

use crate::home::{Home, finish, working};

#[tokio::test]
async fn so_many_sessions_are_remembered() {
    let home = Home::new();
    let options = Options { max_sessions: 3, ..Options::default() };
    let store = Embedded::open(home.path(), options, Clock::system()).await.expect("opened");
    // The later they were put, the sooner they expire.
    for n in 0..6_u8 {
        let session = conformance::session(9_000 - u64::from(n));
        store.put_session(Fingerprint([n; 16]), &session).await.expect("stored");
    }
    assert_eq!(store.purge(Timestamp(8_995)).await.expect("purged").sessions, 3, "one is expired, two are too many");
    for n in 0..6_u8 {
        let known = store.get_session(Fingerprint([n; 16])).await.expect("read").is_some();
        assert_eq!(known, n < 3, "{n}: those go first that expire first");
    }
    assert_eq!(store.purge(Timestamp(8_995)).await.expect("purged").sessions, 0);
    store.close().await;
}

#[tokio::test]
async fn a_client_cannot_have_a_long_text_kept() {
    let home = Home::new();
    let clock = Clock::system();
    let tasks = Tasks::new(home.open().await, clock, Metrics::new());
    let mut session = conformance::session(u64::MAX >> 1);
    // 256 bytes end within a character.
    session.client.client = format!("x{}", "\u{e9}".repeat(100_000));
    let id = Fingerprint([1; 16]);
    tasks.put_session(id, &session).await.expect("stored");
    let stored = tasks.session(id).await.expect("read").expect("it is there");
    assert_eq!(stored.client.client, format!("x{}", "\u{e9}".repeat(127)), "its beginning");
    let client = SessionRecord { client: stored.client.clone(), ..session.clone() };
    assert_eq!(stored, client, "and all else");
    session.client.client = "y".repeat(256);
    tasks.put_session(id, &session).await.expect("stored");
    assert_eq!(tasks.session(id).await.expect("read"), Some(session), "what is no longer is kept whole");
    tasks.close().await;
}

#[tokio::test]
async fn who_writes_does_not_wait_for_a_whole_purge() {
    let home = Home::new();
    let store = home.open().await;
    join_all((0..4_000).map(|_| finish(&store, 10))).await;
    // Eight steps, each with a sync.
    home.faults.set(Fault::Slow(Duration::from_millis(40)));
    let task = working();
    let mut purge = store.purge(Timestamp(12_000));
    tokio::select! {
        biased;
        purged = &mut purge => panic!("it was over before a single write: {purged:?}"),
        created = async {
            // So that the purge has begun.
            tokio::time::sleep(Duration::from_millis(20)).await;
            store.create(&task).await
        } => created.expect("created"),
    }
    let left = embedded::check(&home.path()).expect("it is ours").results;
    assert!((1..4_000).contains(&left), "it is written between the steps: {left} results are left");
    home.faults.set(Fault::None);
    let purged = purge.await.expect("purged");
    assert_eq!((purged.results, purged.records), (4_000, 0));
    assert_eq!(store.get(task.id).await, Ok(Some(task)));
    store.close().await;
}

#[tokio::test]
async fn who_reads_for_long_does_not_stop_those_who_write() {
    let home = Home::new();
    let store = home.open().await;
    join_all((0..200).map(|_| finish(&store, 100_000))).await;
    let reader = rusqlite::Connection::open(home.path()).expect("opened");
    reader.execute_batch("BEGIN; SELECT count(*) FROM task").expect("it reads");
    let purge = store.purge(Timestamp(12_000));
    // Less than what a log waits that is to be emptied.
    let purged = tokio::time::timeout(Duration::from_secs(4), purge).await.expect("nobody is waited for");
    assert_eq!(purged.expect("purged").results, 200);
    drop(reader);
    store.close().await;
    assert_eq!(home.bytes("-wal"), 0);
}

#[tokio::test]
async fn pruning_drops_what_is_expired_and_gives_the_space_back() {
    let home = Home::new();
    let store = home.open().await;
    join_all((0..100).map(|_| finish(&store, 100_000))).await;
    let kept = working();
    store.create(&kept).await.expect("created");
    let busy = embedded::prune(&home.path(), Timestamp(12_000)).await;
    assert!(busy.unwrap_err().to_string().contains("in use"));
    store.close().await;
    let full = home.bytes("");
    let purged = embedded::prune(&home.path(), Timestamp(11_999)).await.expect("pruned");
    assert_eq!((purged.results, purged.records), (0, 0), "nothing is expired yet");
    let purged = embedded::prune(&home.path(), Timestamp(12_000)).await.expect("pruned");
    assert_eq!((purged.results, purged.records), (100, 0));
    let report = embedded::check(&home.path()).expect("it is ours");
    assert_eq!((report.results, report.free_bytes, report.log_bytes), (0, 0, 0));
    assert!(full > 10_000_000 && report.file_bytes < 200_000, "{full} became {}", report.file_bytes);
    let purged = embedded::prune(&home.path(), Timestamp(22_000)).await.expect("pruned");
    assert_eq!((purged.results, purged.records), (0, 100));
    let store = home.open().await;
    assert_eq!(store.get(kept.id).await, Ok(Some(kept)), "what works never expires");
    store.close().await;
}
