//! A task as a row, and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Row;
use rusqlite::types::Type;
use serde::{Deserialize, Serialize};

use crate::jsonrpc::ErrorObject;
use crate::task::{
    Execution, Failure, Fingerprint, Identity, Lease, Made, Note, Owner, OwnerMode, Question, QuestionKey, Reason,
    ReplicaId, Sealed, Status, Task, TaskId, Timestamp, Way, millis,
};

/// Tasks in the columns that [`read`] reads; conditions follow.
pub(super) const TASK: &str = "SELECT task.id, version, upstream, tool, made, owner, credential, session, open_by_id, \
     created, updated, retention, poll_interval, threshold, status, detail, ended, execution, cursor, wait, holder, \
     fetched, sealed.body FROM task LEFT JOIN sealed ON sealed.n = task.n";

/// A number as it is stored.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn span(span: Duration) -> i64 {
    number(millis(span))
}

/// A row that no version of ours wrote.
fn odd(column: usize) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, "not a value of ours".into())
}

fn stored(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| odd(column))
}

/// Reads a row of [`TASK`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Task> {
    let time = |column| stored(row, column).map(Timestamp);
    let span = |column| stored(row, column).map(Duration::from_millis);
    let text = |column| row.get::<_, Arc<str>>(column);
    let holder = row.get::<_, Option<[u8; 16]>>(20)?.map(|holder| ReplicaId(u128::from_be_bytes(holder)));
    Ok(Task {
        id: TaskId::from_bytes(row.get(0)?),
        version: stored(row, 1)?,
        upstream: text(2)?,
        tool: text(3)?,
        made: made(&text(4)?).ok_or_else(|| odd(4))?,
        owner: owner(row)?,
        created: time(9)?,
        updated: time(10)?,
        retention: span(11)?,
        poll_interval: span(12)?,
        threshold: span(13)?,
        status: status(row)?,
        execution: execution(row)?,
        lease: holder.map(|holder| Lease { holder, until: Timestamp::default() }),
        fetched: row.get::<_, i64>(21)? > 0,
    })
}

pub(super) fn made_word(made: Made) -> &'static str {
    match made {
        Made::Ext => "ext",
        Made::Core => "core",
        Made::Job => "job",
    }
}

fn made(word: &str) -> Option<Made> {
    [Made::Ext, Made::Core, Made::Job].into_iter().find(|made| made_word(*made) == word)
}

pub(super) fn owner_word(mode: OwnerMode) -> &'static str {
    match mode {
        OwnerMode::Auto => "auto",
        OwnerMode::Session => "session",
        OwnerMode::Principal => "principal",
        OwnerMode::Id => "id",
    }
}

fn owner(row: &Row<'_>) -> rusqlite::Result<Owner> {
    let modes = [OwnerMode::Auto, OwnerMode::Session, OwnerMode::Principal, OwnerMode::Id];
    let word: String = row.get(5)?;
    let mode = modes.into_iter().find(|mode| owner_word(*mode) == word).ok_or_else(|| odd(5))?;
    let creator = Identity {
        credential: row.get::<_, Option<_>>(6)?.map(Fingerprint),
        session: row.get::<_, Option<_>>(7)?.map(Fingerprint),
    };
    let make = if creator.session.is_some() { Owner::new } else { Owner::without_session };
    let owner = make(mode, creator).ok_or_else(|| odd(5))?;
    Ok(if row.get(8)? { owner.of_job() } else { owner })
}

/// The data of a status beyond its word and its end.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<NoteText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    questions: Vec<QuestionText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct NoteText {
    progress: String,
    total: Option<String>,
    message: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct QuestionText {
    key: String,
    method: String,
    params: Option<String>,
    upstream_id: String,
}

/// Word and detail of a status.
pub(super) fn status_columns(status: &Status) -> (&'static str, Option<String>) {
    let note = |note: &Option<Note>| {
        note.clone().map(|Note { progress, total, message }| NoteText { progress, total, message })
    };
    let (word, detail) = match status {
        Status::Working { note: None } => ("working", None),
        Status::Working { note: said } => ("working", Some(Detail { note: note(said), ..Detail::default() })),
        Status::InputRequired { note: said, questions } => {
            let questions = questions.iter().map(|question| QuestionText {
                key: question.key.as_str().to_owned(),
                method: question.method.to_string(),
                params: question.params.as_deref().map(str::to_owned),
                upstream_id: question.upstream_id.to_string(),
            });
            let detail = Detail { note: note(said), questions: questions.collect(), ..Detail::default() };
            ("input_required", Some(detail))
        }
        Status::Completed { bytes, tool_error, .. } => {
            let detail = Detail {
                bytes: Some(*bytes),
                tool_error: tool_error.as_deref().map(str::to_owned),
                ..Detail::default()
            };
            ("completed", Some(detail))
        }
        Status::Failed { failure, .. } => ("failed", Some(failed(failure))),
        Status::Cancelled { .. } => ("cancelled", None),
    };
    (word, detail.map(|detail| serde_json::to_string(&detail).expect("it has no keys that are not text")))
}

fn failed(failure: &Failure) -> Detail {
    match failure {
        Failure::Upstream(error) => Detail { error: Some(error.clone()), ..Detail::default() },
        Failure::Lost { reason, text } => {
            Detail { reason: Some(reason.word().to_owned()), text: Some(text.clone()), ..Detail::default() }
        }
    }
}

fn status(row: &Row<'_>) -> rusqlite::Result<Status> {
    let word: String = row.get(14)?;
    let detail: Option<String> = row.get(15)?;
    let detail: Detail = match detail {
        Some(text) => serde_json::from_str(&text).map_err(|_| odd(15))?,
        None => Detail::default(),
    };
    let note = detail.note.map(|NoteText { progress, total, message }| Note { progress, total, message });
    let ended = || stored(row, 16).map(Timestamp);
    Ok(match word.as_str() {
        "working" => Status::Working { note },
        "input_required" => {
            let questions = detail.questions.into_iter().map(|question| {
                let key = QuestionKey::parse(&question.key).ok_or_else(|| odd(15))?;
                Ok(Question {
                    key,
                    method: question.method.into(),
                    params: question.params.map(Into::into),
                    upstream_id: question.upstream_id.into(),
                })
            });
            Status::InputRequired { note, questions: questions.collect::<rusqlite::Result<_>>()? }
        }
        "completed" => {
            let bytes = detail.bytes.ok_or_else(|| odd(15))?;
            Status::Completed { ended: ended()?, bytes, tool_error: detail.tool_error.map(Into::into) }
        }
        "failed" => {
            let lost = || {
                let reason = Reason::of_word(detail.reason.as_deref()?)?;
                Some(Failure::Lost { reason, text: detail.text.clone().unwrap_or_default() })
            };
            let failure = detail.error.map(Failure::Upstream).or_else(lost).ok_or_else(|| odd(15))?;
            Status::Failed { ended: ended()?, failure }
        }
        "cancelled" => Status::Cancelled { ended: ended()? },
        _ => return Err(odd(14)),
    })
}

/// Cursor, wait and sealed bytes of an execution; its word names the kind.
pub(super) fn execution_columns(execution: &Execution) -> (Option<&str>, Option<i64>, Option<&Sealed>) {
    match execution {
        Execution::Unstarted => (None, None, None),
        Execution::Local { repeat } => (None, None, repeat.as_ref()),
        Execution::Resumable { cursor, wait, way } => (Some(cursor), wait.map(span), Some(&way.sealed)),
        Execution::Delegated { task, way } => (Some(task), None, Some(&way.sealed)),
    }
}

fn execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    let sealed = row.get::<_, Option<Vec<u8>>>(22)?.map(|bytes| Sealed(Bytes::from(bytes)));
    let way = || sealed.clone().map(|sealed| Way { sealed }).ok_or_else(|| odd(22));
    let word: String = row.get(17)?;
    Ok(match word.as_str() {
        "unstarted" => Execution::Unstarted,
        "local" => Execution::Local { repeat: sealed },
        "resumable" => {
            let wait =
                row.get::<_, Option<i64>>(19)?.map(|_| stored(row, 19).map(Duration::from_millis)).transpose()?;
            Execution::Resumable { cursor: row.get(18)?, wait, way: way()? }
        }
        "delegated" => Execution::Delegated { task: row.get(18)?, way: way()? },
        _ => return Err(odd(17)),
    })
}
