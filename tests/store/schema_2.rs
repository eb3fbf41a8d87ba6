//! A file of schema 2, in which sessions know who began them, and the era of their upstream: whatever is changed later, it is read as it was
//! meant.
//!
//! `schema-2.sql` is what SQLite dumps of it. It is never changed; a later schema gets a file of its own.

use taskgate::mcp::{Era, OwnTasks, Version};
use taskgate::store::embedded;
use taskgate::task::{Fingerprint, Status, TaskId, TaskStore as _, Timestamp};

use crate::home::Home;

const DUMP: &str = include_str!("schema-2.sql");

#[tokio::test]
async fn b03_a_file_of_schema_2_is_read_as_it_was_meant() {
    let home = Home::new();
    rusqlite::Connection::open(home.path()).unwrap().execute_batch(DUMP).unwrap();
    assert_eq!(embedded::check(&home.path()).unwrap().damage, [""; 0]);
    let store = home.open().await;
    let session = store.get_session(Fingerprint([9; 16])).await.unwrap().expect("it is there");
    assert_eq!((session.era, session.minted, session.ended), (Era::Stateless, true, false));
    assert_eq!((session.server.version, session.server.own_tasks), (Version::V2025_11_25, OwnTasks::Core));
    assert_eq!(session.credential, Some(Fingerprint([7; 16])));
    assert_eq!((&*session.client.client, session.expires), ("client/1", Timestamp(1_800_000_000_000)));
    let task = store.get(TaskId::from_bytes([1; 16])).await.unwrap().expect("it is there");
    assert!(matches!(task.status, Status::Working { .. }), "{task:?}");
    store.close().await;
}
