//! Rows that say what no taskgate writes, in a file that is sound otherwise: they stop nothing but themselves.

use std::path::Path;

use bytes::Bytes;
use taskgate::store::embedded;
use taskgate::store::{Clock, Embedded, Options};
use taskgate::task::{ClaimQuery, Event, Lease, Replaced, ReplicaId, StoreError, Task, TaskStore as _, Timestamp};

use crate::home::{Home, done, finish, working};

fn spoil(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).expect("opened");
    connection.execute_batch(sql).expect("it is done");
}

fn claim(limit: usize) -> ClaimQuery {
    ClaimQuery { now: Timestamp(1_500), holder: ReplicaId::random(), until: Timestamp(2_500), limit }
}

#[tokio::test]
async fn a_claim_passes_over_what_it_cannot_read() {
    for odd in ["status = 'asleep'", "made = ''", "created = -1", "holder = x'07'", "detail = '{'"] {
        let home = Home::new();
        let store = home.open().await;
        let lease = Some(Lease { holder: ReplicaId::random(), until: Timestamp(1) });
        let mut ids = Vec::new();
        for _ in 0..4 {
            let task = Task { lease, ..working() };
            store.create(&task).await.expect("created");
            ids.push(task.id);
        }
        store.close().await;
        spoil(&home.path(), &format!("UPDATE task SET {odd} WHERE n IN (1, 3)"));
        let store = home.open().await;
        let taken = store.claim(&claim(9)).await.expect("claimed");
        let mut taken: Vec<_> = taken.iter().map(|task| task.id).collect();
        taken.sort_by_key(|id| ids.iter().position(|known| known == id));
        assert_eq!(taken, [ids[1], ids[3]], "{odd}");
        assert!(store.get(ids[0]).await.is_err(), "{odd}: it is not told to be unknown");
        store.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_takes_no_place_in_a_claim() {
    let home = Home::new();
    let store = home.open().await;
    for _ in 0..3 {
        store.create(&working()).await.expect("created");
    }
    store.close().await;
    spoil(&home.path(), "UPDATE task SET status = 'asleep', created = 0 WHERE n = 2");
    let store = home.open().await;
    assert_eq!(store.claim(&claim(2)).await.expect("claimed").len(), 2);
    store.close().await;
}

#[tokio::test]
async fn the_result_of_what_cannot_be_read_makes_room() {
    let home = Home::new();
    let store = home.open().await;
    let mut stored = Vec::new();
    for _ in 0..2 {
        let (ended, _) = finish(&store, 600 << 10).await;
        let read = ended.apply(Event::Fetched, Timestamp(2_500)).expect("it ended");
        assert_eq!(store.replace(&read, None).await, Ok(Replaced::Done));
        stored.push(read);
    }
    store.close().await;
    spoil(&home.path(), "UPDATE task SET status = 'asleep' WHERE n = 1");
    let options = Options { max_retained: 1 << 20, ..Options::default() };
    let store = Embedded::open(home.path(), options, Clock::system()).await.expect("opened");
    store.create(&working()).await.expect("there is room again");
    assert_eq!(store.get_result(stored[0].id).await, Ok(None), "it was read first");
    assert!(matches!(store.get_result(stored[1].id).await, Ok(Some(_))), "and was enough");
    store.close().await;
}

#[tokio::test]
async fn a_check_names_what_cannot_be_read() {
    let home = Home::new();
    let store = home.open().await;
    for _ in 0..30 {
        finish(&store, 10).await;
    }
    for n in 0..3 {
        let id = taskgate::task::Fingerprint([n; 16]);
        store.put_session(id, &taskgate::store::conformance::session(9_000)).await.expect("stored");
    }
    store.close().await;
    spoil(&home.path(), "UPDATE task SET status = 'asleep' WHERE n = 7");
    let damage = embedded::check(&home.path()).expect("it is ours").damage;
    assert!(damage.len() == 1 && damage[0].starts_with("task number 7: "), "{damage:?}");
    spoil(
        &home.path(),
        "UPDATE task SET status = 'asleep' WHERE n > 5; UPDATE session SET client = CAST(x'ff' AS TEXT)",
    );
    let damage = embedded::check(&home.path()).expect("it is ours").damage;
    assert_eq!(damage.len(), 20 + 2, "{damage:?}");
    assert_eq!(damage[20..], ["5 more tasks cannot be read", "3 sessions cannot be read"]);
    let mut out = Vec::new();
    let (written, unread) = embedded::export(&home.path(), &mut out).expect("it is ours");
    assert_eq!((written, unread.len()), (5, 25), "what can be read is saved");
}

/// What the file itself lost, found while it is used.
#[tokio::test]
async fn b94_damage_that_is_found_in_use_is_told_as_such() {
    let home = Home::new();
    let store = home.open().await;
    let mut ended = Vec::new();
    for _ in 0..40 {
        ended.push(finish(&store, 20_000).await.0.id);
    }
    store.close().await;
    let store = home.open().await;
    let mut bytes = std::fs::read(home.path()).expect("read");
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 3 * 4096].fill(0xa5);
    std::fs::write(home.path(), &bytes).expect("written");
    let mut lost = 0;
    for id in ended {
        match store.get_result(id).await {
            Ok(result) => assert!(result.is_some_and(|result: Bytes| result.len() == 20_000)),
            Err(error) => {
                assert_eq!(error, StoreError::Damaged);
                lost += 1;
            }
        }
    }
    assert!((1..=6).contains(&lost), "{lost}");
    let task = working();
    store.create(&task).await.expect("what is elsewhere goes on");
    assert_eq!(store.replace(&done(&task, 2), Some("{}".into())).await, Ok(Replaced::Done));
    store.close().await;
}
