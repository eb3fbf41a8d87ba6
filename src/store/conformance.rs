//! What every engine must do, as one suite that each of them runs.
//!
//! ```no_run
//! # async fn run() {
//! use taskgate::store::{Clock, Memory, conformance};
//! conformance::run(async || Memory::new(conformance::options(), Clock::system())).await;
//! # }
//! ```

mod samples;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use samples::{sample, session};

use super::Options;
use crate::mcp::{ClientHello, Era, OwnTasks, ServerHello, Version};
use crate::task::{
    ClaimQuery, Event, Failure, Fingerprint, Identity, Lease, ListQuery, Note, Owner, OwnerMode, Reason, Replaced,
    ReplicaId, SessionRecord, StoreError, Task, TaskId, TaskStore, Timestamp,
};

use samples::every_kind;

/// How many expired ids the engine under test remembers.
const REMEMBERED: usize = 3;

/// What the engine under test is opened with: it keeps at most 1 MiB of results and remembers few expired ids.
#[must_use]
pub fn options() -> Options {
    Options { max_retained: 1 << 20, max_remembered: REMEMBERED, ..Options::default() }
}

/// Runs the suite; `open` makes an empty engine with these [`options`].
///
/// # Panics
/// If the engine does not conform; the message says where.
pub async fn run<S: TaskStore>(open: impl AsyncFn() -> S) {
    keeps_what_it_is_given(open().await).await;
    keeps_every_kind(open().await).await;
    replaces_only_the_version_before(open().await).await;
    decides_races_once(open().await).await;
    lists_a_session_newest_first(open().await).await;
    purges_in_two_steps(open().await).await;
    remembers_so_many_ids(open().await).await;
    makes_room_with_what_was_read(open().await).await;
    leases_what_runs(open().await).await;
    gives_each_task_to_one(open().await).await;
    fences_who_comes_back_late(open().await).await;
    remembers_sessions(open().await).await;
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

async fn keeps_every_kind(store: impl TaskStore) {
    for (n, task) in every_kind().into_iter().enumerate() {
        store.create(&task).await.expect("created");
        assert_eq!(store.get(task.id).await, Ok(Some(task.clone())), "kind {n} as it was created");
        let mut next = Task { version: 1, retention: Duration::MAX, ..task };
        next.lease = next.status.ended().and(None).or(next.lease);
        assert_eq!(store.replace(&next, None).await, Ok(Replaced::Done));
        let stored = store.get(next.id).await.expect("read").expect("it is there");
        assert!(stored.retention >= Duration::from_secs(1 << 40), "a span of any length is kept as a long one");
        assert_eq!(Task { retention: next.retention, ..stored }, next, "kind {n} as it was replaced");
    }
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

async fn remembers_so_many_ids(store: impl TaskStore) {
    let mut ended = Vec::new();
    for n in 0..6 {
        let task = sample(1, 1_000);
        store.create(&task).await.expect("created");
        let done = completed(&task, 2, 2_000 + n);
        store.replace(&done, Some(Bytes::from_static(b"{}"))).await.expect("stored");
        ended.push(task.id);
    }
    // The last ends its retention a moment later than the others, which are expired by now.
    let purged = store.purge(Timestamp(12_004)).await.expect("purged");
    assert_eq!((purged.results, purged.records), (5, 2), "those that would be forgotten first go first");
    for (n, id) in ended.iter().enumerate() {
        assert_eq!(store.get(*id).await.expect("read").is_some(), n >= 5 - REMEMBERED, "{n}");
    }
    let purged = store.purge(Timestamp(22_003)).await.expect("purged");
    assert_eq!((purged.results, purged.records), (1, 2), "what is forgotten does not count as remembered");
    assert!(store.get(ended[4]).await.expect("read").is_some() && store.get(ended[5]).await.expect("read").is_some());
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

fn leased(holder: ReplicaId, until: u64, created: u64) -> Task {
    Task { lease: Some(Lease { holder, until: Timestamp(until) }), ..sample(1, created) }
}

fn claim(holder: ReplicaId, now: u64, limit: usize) -> ClaimQuery {
    ClaimQuery { now: Timestamp(now), holder, until: Timestamp(now + 1_000), limit }
}

async fn leases_what_runs(store: impl TaskStore) {
    let (one, other) = (ReplicaId::random(), ReplicaId::random());
    let (task, second) = (leased(one, 2_000, 1_000), leased(one, 2_000, 1_001));
    store.create(&task).await.expect("created");
    store.create(&second).await.expect("created");
    let until = |task: Task| task.lease.map(|lease| lease.until);
    let stored = async |id| store.get(id).await.expect("read").expect("it is there");

    store.renew(one, Timestamp(3_000)).await.expect("renewed");
    for id in [task.id, second.id] {
        assert_eq!((stored(id).await.version, until(stored(id).await)), (0, Some(Timestamp(3_000))), "all at once");
    }
    assert_eq!(store.claim(&claim(other, 2_999, 9)).await, Ok(vec![]), "renewed in time");

    // Whoever writes does not know the lease as it is by now.
    let moved = task.apply(Event::Progress(Note::default()), Timestamp(2_500)).expect("it works");
    assert_eq!(store.replace(&moved, None).await, Ok(Replaced::Done));
    assert_eq!(until(stored(task.id).await), Some(Timestamp(3_000)), "a lease is not shortened by a write");
    let done = completed(&second, 2, 2_500);
    assert_eq!(store.replace(&done, None).await, Ok(Replaced::Done));
    assert_eq!(stored(second.id).await.lease, None, "what has ended has no holder");

    let taken = store.claim(&claim(other, 3_000, 9)).await.expect("claimed");
    assert_eq!(taken.iter().map(|task| task.id).collect::<Vec<_>>(), [task.id], "only what runs");
    assert_eq!(taken[0].lease, Some(Lease { holder: other, until: Timestamp(4_000) }));
    assert_eq!(taken[0], stored(task.id).await);
    store.renew(one, Timestamp(9_000)).await.expect("renewed");
    assert_eq!(until(stored(task.id).await), Some(Timestamp(4_000)), "it is not his any more");

    store.renew(other, Timestamp(0)).await.expect("given up");
    assert_eq!(store.claim(&claim(other, 3_100, 9)).await, Ok(vec![]), "nobody takes over from himself");
    store.renew(other, Timestamp(0)).await.expect("given up");
    assert_eq!(store.claim(&claim(one, 3_100, 9)).await.expect("claimed").len(), 1, "given up is free at once");
    let nobodys = sample(1, 1_002);
    store.create(&nobodys).await.expect("created");
    assert_eq!(store.claim(&claim(other, 3_100, 9)).await.expect("claimed")[0].id, nobodys.id, "as is what has none");
}

async fn gives_each_task_to_one(store: impl TaskStore) {
    let gone = ReplicaId::random();
    let mut all: Vec<TaskId> = Vec::new();
    for n in 0..40 {
        let task = leased(gone, 2_000, 1_000 + n);
        store.create(&task).await.expect("created");
        all.push(task.id);
    }
    let first = store.claim(&claim(ReplicaId::random(), 2_000, 3)).await.expect("claimed");
    let ids = |tasks: &[Task]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!(ids(&first), all[..3], "the oldest first, no more than asked for");
    let store = Arc::new(store);
    let rivals: Vec<_> = (0..4).map(|_| claim(ReplicaId::random(), 2_000, 20)).collect();
    let (one, two, three, four) = tokio::join!(
        store.claim(&rivals[0]),
        store.claim(&rivals[1]),
        store.claim(&rivals[2]),
        store.claim(&rivals[3]),
    );
    let mut taken = ids(&first);
    for claimed in [one, two, three, four] {
        taken.extend(ids(&claimed.expect("claimed")));
    }
    taken.sort_unstable();
    all.sort_unstable();
    assert_eq!(taken, all, "each task once");
}

async fn fences_who_comes_back_late(store: impl TaskStore) {
    let (old, new) = (ReplicaId::random(), ReplicaId::random());
    let task = leased(old, 2_000, 1_000);
    store.create(&task).await.expect("created");
    let late = completed(&task, 2, 2_500);
    let taken = store.claim(&claim(new, 2_000, 9)).await.expect("claimed").remove(0);
    assert_eq!(taken.version, task.version + 1);
    let result = Some(Bytes::from_static(b"{}"));
    assert_eq!(store.replace(&late, result.clone()).await, Ok(Replaced::Conflict), "the version is the fence");
    assert_eq!(store.get_result(task.id).await, Ok(None));
    assert_eq!(store.replace(&completed(&taken, 2, 2_600), result).await, Ok(Replaced::Done));
}

async fn remembers_sessions(store: impl TaskStore) {
    let (id, other) = (Fingerprint([1; 16]), Fingerprint([2; 16]));
    assert_eq!(store.get_session(id).await, Ok(None));
    let known = session(2_000);
    store.put_session(id, &known).await.expect("stored");
    assert_eq!(store.get_session(id).await, Ok(Some(known.clone())));
    assert_eq!(store.get_session(other).await, Ok(None));
    let quiet = SessionRecord {
        client: ClientHello::default(),
        server: ServerHello { version: Version::V2025_03_26, own_tasks: OwnTasks::Extension },
        era: Era::Handshake,
        minted: false,
        credential: None,
        ended: true,
        expires: Timestamp(3_000),
    };
    store.put_session(id, &quiet).await.expect("stored");
    store.put_session(other, &known).await.expect("stored");
    assert_eq!(store.purge(Timestamp(2_000)).await.expect("purged").sessions, 1);
    assert_eq!(store.get_session(id).await, Ok(Some(quiet)), "the latest counts");
    assert_eq!(store.get_session(other).await, Ok(None), "forgotten when it expires");
    assert_eq!(store.secret().await.expect("there is one"), store.secret().await.expect("there is one"));
}
