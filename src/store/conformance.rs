//! What every engine must do, as one suite that each of them runs.
//!
//! ```no_run
//! # async fn run() {
//! use taskgate::store::{Clock, Memory, Options, conformance};
//! conformance::run(|| Memory::new(Options { max_retained: 1 << 20 }, Clock::system())).await;
//! # }
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::task::{
    Event, Failure, Fingerprint, Identity, ListQuery, Made, Owner, OwnerMode, Reason, Replaced, Status, StoreError,
    Task, TaskId, TaskStore, Timestamp,
};

/// Runs the suite; `open` makes an empty engine that keeps at most 1 MiB of results.
///
/// # Panics
/// If the engine does not conform; the message says where.
pub async fn run<S: TaskStore>(open: impl Fn() -> S) {
    keeps_what_it_is_given(open()).await;
    replaces_only_the_version_before(open()).await;
    decides_races_once(open()).await;
    lists_a_session_newest_first(open()).await;
    purges_in_two_steps(open()).await;
    makes_room_with_what_was_read(open()).await;
}

/// A working task of session `session`, made at `created`.
#[must_use]
pub fn sample(session: u8, created: u64) -> Task {
    let creator = Identity { credential: None, session: Some(Fingerprint([session; 16])) };
    Task {
        id: TaskId::random(),
        upstream: "/mcp".into(),
        tool: "slow".into(),
        made: Made::Ext,
        owner: Owner::new(OwnerMode::Session, creator).expect("it has a session"),
        created: Timestamp(created),
        updated: Timestamp(created),
        retention: Duration::from_secs(10),
        poll_interval: Duration::from_secs(2),
        threshold: Duration::from_secs(4),
        status: Status::Working { note: None },
        fetched: false,
        version: 0,
    }
}

fn completed(task: &Task, bytes: u64, at: u64) -> Task {
    task.apply(Event::Completed { bytes, tool_error: None }, Timestamp(at)).expect("it works")
}

async fn keeps_what_it_is_given(store: impl TaskStore) {
    let task = sample(1, 1_000);
    assert_eq!(store.get(task.id).await, Ok(None), "unknown before it is created");
    store.create(&task).await.expect("created");
    assert!(store.create(&task).await.is_err(), "an id is given once");
    assert_eq!(store.get(task.id).await, Ok(Some(task.clone())));
    assert_eq!(store.get_result(task.id).await, Ok(None), "no result while it works");

    let failure = Failure::Lost { reason: Reason::OutcomeUnknown, text: "lost".into() };
    let failed = task.apply(Event::Failed(failure), Timestamp(2_000)).expect("it works");
    assert_eq!(store.replace(&failed, None).await, Ok(Replaced::Done));
    assert_eq!(store.get(task.id).await, Ok(Some(failed)));

    let other = sample(1, 1_000);
    let text = Bytes::from_static(br#"{"n":9007199254740993,"e":1e400,"z":-0}"#);
    store.create(&other).await.expect("created");
    let done = completed(&other, text.len() as u64, 3_000);
    assert_eq!(store.replace(&done, Some(text.clone())).await, Ok(Replaced::Done));
    assert_eq!(store.get_result(other.id).await, Ok(Some(text.clone())), "byte for byte");
    let read = done.apply(Event::Fetched, Timestamp(3_001)).expect("it ended");
    assert_eq!(store.replace(&read, None).await, Ok(Replaced::Done));
    assert_eq!(store.get_result(other.id).await, Ok(Some(text)), "a later write keeps the result");
}

async fn replaces_only_the_version_before(store: impl TaskStore) {
    let task = sample(1, 1_000);
    let done = completed(&task, 2, 2_000);
    assert_eq!(store.replace(&done, None).await, Ok(Replaced::Missing));
    store.create(&task).await.expect("created");
    assert_eq!(store.replace(&task, None).await, Ok(Replaced::Conflict), "the same version");
    let mut far = done.clone();
    far.version += 1;
    let result = Some(Bytes::from_static(b"{}"));
    assert_eq!(store.replace(&far, result.clone()).await, Ok(Replaced::Conflict), "a version was left out");
    assert_eq!(store.get_result(task.id).await, Ok(None), "a refused write stores no result");
    assert_eq!(store.replace(&done, result).await, Ok(Replaced::Done));
    assert_eq!(store.replace(&done, None).await, Ok(Replaced::Conflict), "twice");
}

async fn decides_races_once(store: impl TaskStore) {
    let store = Arc::new(store);
    for _ in 0..50 {
        let task = sample(1, 1_000);
        store.create(&task).await.expect("created");
        let rivals = [
            completed(&task, 2, 2_000),
            task.apply(Event::Cancelled, Timestamp(2_000)).expect("it works"),
            task.apply(Event::Cancelled, Timestamp(2_001)).expect("it works"),
        ];
        let (one, two, three) = tokio::join!(
            store.replace(&rivals[0], Some(Bytes::from_static(b"{}"))),
            store.replace(&rivals[1], None),
            store.replace(&rivals[2], None),
        );
        let won: Vec<usize> =
            [one, two, three].iter().enumerate().filter(|(_, r)| **r == Ok(Replaced::Done)).map(|(i, _)| i).collect();
        assert_eq!(won.len(), 1, "one of them wins");
        assert_eq!(store.get(task.id).await, Ok(Some(rivals[won[0]].clone())), "and is what is read");
        assert_eq!(store.get_result(task.id).await.map(|r| r.is_some()), Ok(won[0] == 0), "the result goes with it");
    }
}

async fn lists_a_session_newest_first(store: impl TaskStore) {
    let mut mine = Vec::new();
    for n in 0..5 {
        let (ours, theirs) = (sample(1, 1_000 + n / 2), sample(2, 1_000 + n));
        let mut elsewhere = sample(1, 1_000 + n);
        elsewhere.upstream = "/other".into();
        let mut private = sample(1, 1_000 + n);
        private.owner = Owner::new(OwnerMode::Auto, Identity::default()).expect("anybody");
        for task in [&ours, &theirs, &elsewhere, &private] {
            store.create(task).await.expect("created");
        }
        mine.push((ours.created, ours.id));
    }
    mine.sort_unstable();
    mine.reverse();
    let mut query = ListQuery { upstream: "/mcp".into(), session: Fingerprint([1; 16]), after: None, limit: 2 };
    let mut seen = Vec::new();
    loop {
        let page = store.list(&query).await.expect("listed");
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        query.after = Some((last.created, last.id));
        seen.extend(page.iter().map(|task| (task.created, task.id)));
        store.create(&sample(1, 9_000)).await.expect("a new one does not shift the pages");
    }
    assert_eq!(seen, mine);
}

async fn purges_in_two_steps(store: impl TaskStore) {
    let (working, ended) = (sample(1, 1_000), sample(1, 1_000));
    let done = completed(&ended, 2, 2_000);
    store.create(&working).await.expect("created");
    store.create(&ended).await.expect("created");
    store.replace(&done, Some(Bytes::from_static(b"{}"))).await.expect("stored");

    let at = |ms| Timestamp(ms);
    store.purge(at(11_999)).await.expect("purged");
    assert!(store.get_result(ended.id).await.expect("read").is_some(), "kept for its retention");
    assert_eq!(store.purge(at(12_000)).await.expect("purged").results, 1);
    assert_eq!(store.get_result(ended.id).await, Ok(None), "the result goes first");
    assert_eq!(store.get(ended.id).await, Ok(Some(done)), "the id is remembered as long again");
    assert_eq!(store.purge(at(22_000)).await.expect("purged").records, 1);
    assert_eq!(store.get(ended.id).await, Ok(None));
    store.purge(at(u64::MAX)).await.expect("purged");
    assert_eq!(store.get(working.id).await, Ok(Some(working)), "what works never expires");
}

async fn makes_room_with_what_was_read(store: impl TaskStore) {
    let mut stored = Vec::new();
    for n in 0..2 {
        let task = sample(1, 1_000 + n);
        store.create(&task).await.expect("there is room");
        let done = completed(&task, 600 << 10, 2_000 + n);
        store.replace(&done, Some(Bytes::from(vec![b' '; 600 << 10]))).await.expect("a running task's result is kept");
        stored.push(done);
    }
    let next = sample(1, 3_000);
    assert!(matches!(store.create(&next).await, Err(StoreError::Full(_))), "nothing unread is thrown away");
    let read = stored[1].apply(Event::Fetched, Timestamp(4_000)).expect("it ended");
    store.replace(&read, None).await.expect("stored");
    store.create(&next).await.expect("what was read makes room");
    assert!(store.get_result(stored[0].id).await.expect("read").is_some());
    assert_eq!(store.get_result(stored[1].id).await, Ok(None));
}
