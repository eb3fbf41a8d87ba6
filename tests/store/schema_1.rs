//! A file of schema 1: whatever is changed later, it is read as it was meant.
//!
//! `schema-1.sql` is what SQLite dumps of it. It is never changed; a later schema gets a file of its own.

use std::time::Duration;

use bytes::Bytes;
use taskgate::jsonrpc::ErrorObject;
use taskgate::mcp::{Abilities, ClientHello, Era, OwnTasks, ServerHello, Version};
use taskgate::store::embedded;
use taskgate::task::{
    ClaimQuery, Execution, Failure, Fingerprint, Identity, Lease, Made, Note, Owner, OwnerMode, Question, QuestionKey,
    Reason, ReplicaId, Sealed, SessionRecord, Status, Task, TaskId, TaskStore as _, Timestamp, Way,
};

use crate::home::Home;

const DUMP: &str = include_str!("schema-1.sql");
const SESSION: Fingerprint = Fingerprint([9; 16]);
const RESULT: &[u8] = b"{\"content\":[]}";

fn plain(n: u8) -> Task {
    let creator = Identity { credential: Some(Fingerprint([7; 16])), session: Some(SESSION) };
    Task {
        id: TaskId::from_bytes([n; 16]),
        upstream: "/mcp".into(),
        tool: "slow".into(),
        made: Made::Ext,
        owner: Owner::new(OwnerMode::Auto, creator).expect("anybody"),
        created: Timestamp(1_700_000_000_000 + u64::from(n)),
        updated: Timestamp(1_700_000_001_000),
        retention: Duration::from_secs(86_400),
        poll_interval: Duration::from_secs(2),
        threshold: Duration::from_millis(4_500),
        status: Status::Working { note: None },
        execution: Execution::LOCAL,
        lease: None,
        fetched: false,
        version: 3,
    }
}

/// Tasks that run, in every way in which a restart may find them.
fn running() -> Vec<Task> {
    let way = || Way { sealed: Sealed(Bytes::from_static(&[0, 255, 10, 39])) };
    let note = Note { progress: "1".into(), total: Some("1e400".into()), message: Some("a \"quote\"".into()) };
    let key = QuestionKey::parse(&format!("ask-{}", "ab".repeat(16))).expect("a key");
    let params = Some(r#"{"n":9007199254740993}"#.into());
    let question = Question { key, method: "elicitation/create".into(), params, upstream_id: "7".into() };
    let lease = Some(Lease { holder: ReplicaId(1 << 100), until: Timestamp::default() });
    vec![
        Task { execution: Execution::Unstarted, ..plain(1) },
        Task { execution: Execution::Local { repeat: Some(Sealed("{\"body\":1}".into())) }, lease, ..plain(2) },
        Task {
            execution: Execution::Resumable { cursor: "17".into(), wait: Some(Duration::from_millis(250)), way: way() },
            status: Status::Working { note: Some(note.clone()) },
            lease,
            ..plain(3)
        },
        Task {
            execution: Execution::Delegated { task: "t-1".into(), way: way() },
            status: Status::InputRequired { note: Some(note), questions: vec![question] },
            made: Made::Core,
            lease,
            ..plain(4)
        },
    ]
}

/// Tasks in every status that ends one, owned in every way.
fn ended() -> Vec<Task> {
    let ended = Timestamp(1_700_000_001_000);
    let error = r#"{"code":-32000,"message":"no","data":{"n":9007199254740993}}"#;
    let error: ErrorObject = serde_json::from_str(error).expect("an error object");
    let lost = Failure::Lost { reason: Reason::OutcomeUnknown, text: "lost".into() };
    let alone = Identity { credential: None, session: Some(SESSION) };
    let owner = |mode, creator| Owner::new(mode, creator).expect("it has what it needs");
    let bytes = RESULT.len() as u64;
    vec![
        Task {
            status: Status::Completed { ended, bytes, tool_error: None },
            owner: owner(OwnerMode::Session, alone),
            fetched: true,
            ..plain(5)
        },
        Task {
            status: Status::Completed { ended, bytes, tool_error: Some("it said no".into()) },
            owner: owner(OwnerMode::Auto, alone).of_job(),
            made: Made::Job,
            ..plain(6)
        },
        Task {
            status: Status::Failed { ended, failure: Failure::Upstream(error) },
            owner: owner(OwnerMode::Id, Identity::default()),
            made: Made::Job,
            ..plain(7)
        },
        Task { status: Status::Failed { ended, failure: lost }, ..plain(8) },
        Task { status: Status::Cancelled { ended }, made: Made::Core, ..plain(9) },
    ]
}

fn session() -> SessionRecord {
    SessionRecord {
        client: ClientHello {
            declares_tasks: true,
            abilities: Abilities::read(r#"{"elicitation":{}}"#),
            client: "client/1".into(),
        },
        server: ServerHello { version: Version::V2025_11_25, own_tasks: OwnTasks::Core },
        era: Era::Handshake,
        minted: true,
        ended: false,
        credential: None,
        expires: Timestamp(1_800_000_000_000),
    }
}

#[tokio::test]
async fn b03_a_file_of_schema_1_is_read_as_it_was_meant() {
    let home = Home::new();
    rusqlite::Connection::open(home.path()).unwrap().execute_batch(DUMP).unwrap();
    assert_eq!(embedded::check(&home.path()).unwrap().damage, [""; 0]);
    let store = home.open().await;
    for task in running().into_iter().chain(ended()) {
        let result = matches!(task.status, Status::Completed { .. }).then(|| Bytes::from_static(RESULT));
        assert_eq!(store.get_result(task.id).await, Ok(result), "{}", task.id);
        assert_eq!(store.get(task.id).await, Ok(Some(task)));
    }
    assert_eq!(store.get_session(SESSION).await, Ok(Some(session())));
    assert_eq!(store.secret().await, Ok([42; 32]));
    let now = Timestamp(1_700_000_002_000);
    let claim = ClaimQuery { now, holder: ReplicaId::random(), until: now, limit: 9 };
    let taken = store.claim(&claim).await.expect("claimed");
    assert_eq!(taken.len(), running().len(), "whoever ran them is gone");
    store.close().await;
    assert_eq!(embedded::check(&home.path()).unwrap().damage, [""; 0]);
}
