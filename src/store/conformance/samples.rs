//! What engines are tried with: tasks of every kind, and a session.

use std::time::Duration;

use bytes::Bytes;

use crate::jsonrpc::ErrorObject;
use crate::mcp::{Abilities, ClientHello, Era, OwnTasks, ServerHello, Version};
use crate::task::{
    Execution, Failure, Fingerprint, Identity, Lease, Made, Note, Owner, OwnerMode, Question, QuestionKey, Reason,
    ReplicaId, Sealed, SessionRecord, Status, Task, TaskId, Timestamp, Way,
};

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
        execution: Execution::LOCAL,
        lease: None,
        fetched: false,
        version: 0,
    }
}

/// A session that is remembered until `expires`.
#[must_use]
pub fn session(expires: u64) -> SessionRecord {
    SessionRecord {
        client: ClientHello {
            declares_tasks: true,
            abilities: Abilities::read(r#"{"elicitation":{}}"#),
            client: "client/1".into(),
        },
        server: ServerHello { version: Version::V2025_11_25, own_tasks: OwnTasks::Core },
        era: Era::Stateless,
        minted: true,
        credential: Some(Fingerprint([7; 16])),
        ended: false,
        expires: Timestamp(expires),
    }
}

/// Tasks in every status, owned in every way, with everything that a restart may need.
pub(super) fn every_kind() -> Vec<Task> {
    let (at, text) = (Timestamp(1_500), || Some("a \"quote\",\n\u{0} and \u{1F600}".to_owned()));
    let note = Note { progress: "1".into(), total: Some("1e400".into()), message: text() };
    let question = |params: Option<&str>| Question {
        key: QuestionKey::random(),
        method: "elicitation/create".into(),
        params: params.map(Into::into),
        upstream_id: "7".into(),
    };
    let questions = vec![question(Some(r#"{"n":9007199254740993}"#)), question(None)];
    let error = r#"{"code":-32000,"message":"no","data":{"n":9007199254740993}}"#;
    let error: ErrorObject = serde_json::from_str(error).expect("an error object");
    let way = || Way { sealed: Sealed(Bytes::from_static(&[0, 255, 10, 39])) };
    let lease = Some(Lease { holder: ReplicaId::random(), until: Timestamp(5_000) });
    let statuses = [
        Status::Working { note: Some(note.clone()) },
        Status::InputRequired { note: Some(note), questions },
        Status::Working { note: Some(Note { progress: "2".into(), ..Note::default() }) },
        Status::Completed { ended: at, bytes: 7, tool_error: None },
        Status::Completed { ended: at, bytes: 7, tool_error: Some("it said no".into()) },
        Status::Failed { ended: at, failure: Failure::Upstream(error) },
        Status::Failed { ended: at, failure: Failure::Lost { reason: Reason::InputTimeout, text: "late".into() } },
        Status::Cancelled { ended: at },
    ];
    let executions = [
        Execution::Unstarted,
        Execution::Local { repeat: Some(Sealed(Bytes::from_static(b"{\"body\":1}"))) },
        Execution::Resumable { cursor: "17".into(), wait: Some(Duration::from_millis(250)), way: way() },
        Execution::Resumable { cursor: "".into(), wait: None, way: way() },
        Execution::Delegated { task: "t-1".into(), way: way() },
    ];
    let both = Identity { credential: Some(Fingerprint([7; 16])), session: Some(Fingerprint([9; 16])) };
    let owners = [
        Owner::new(OwnerMode::Auto, both).expect("anybody"),
        Owner::new(OwnerMode::Auto, Identity { credential: None, ..both }).expect("anybody").of_job(),
        Owner::new(OwnerMode::Session, both).expect("it has a session"),
        Owner::new(OwnerMode::Id, Identity::default()).expect("anybody"),
    ];
    let running = executions.into_iter().map(|execution| Task { execution, lease, ..sample(1, 1_000) });
    let stated = statuses.into_iter().map(|status| Task { status, updated: at, ..sample(1, 1_000) });
    let owned = owners.into_iter().zip([Made::Job, Made::Core, Made::Ext, Made::Job]);
    let owned = owned.map(|(owner, made)| Task { owner, made, fetched: true, ..sample(1, 1_000) });
    running.chain(stated).chain(owned).collect()
}
