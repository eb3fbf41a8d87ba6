//! Tasks of the extension (SEP-2663), and the form of them that the handshake era reads both ways.
//!
//! Some clients declare the extension in `initialize` and then expect what the extension says, some expect core
//! tasks, and some only read `content`: the announcement carries all that any of them needs.

use bytes::Bytes;

use crate::jsonrpc::{Object, Rope};
use crate::mcp::{method, rfc3339};
use crate::task::{Question, Status, Task, Timestamp};

use super::error::failure_object;
use super::told::{Spelling, status_message};
use super::{JobNames, job};

/// The result that announces a task; in the handshake era with a job handle too, which names the job tools.
#[must_use]
pub fn created(task: &Task, now: Timestamp, names: Option<&JobNames>) -> String {
    let object = Object::new().string("resultType", "task");
    let object = fields(object, task, now);
    match names {
        Some(names) => object.raw("content", &job::announcement(task, names)),
        None => object,
    }
    .finish()
}

/// The result of `tasks/get`; `result` is the text of a completed task's result.
#[must_use]
pub fn read(task: &Task, result: Option<Bytes>, now: Timestamp, spelling: Spelling) -> Rope {
    let object = fields(Object::new().string("resultType", "complete"), task, now);
    let object = match spelling {
        Spelling::Own | Spelling::Stateless => object,
        Spelling::Both => {
            object.number("ttl", task.reported_ttl(now)).number("pollInterval", task.reported_interval(now))
        }
    };
    detailed(object, task, result)
}

/// `notifications/tasks` of a subscription: all that `tasks/get` tells, with its metadata (JSON text).
#[must_use]
pub fn changed(task: &Task, result: Option<Bytes>, now: Timestamp, meta: &str) -> Rope {
    let params = detailed(fields(Object::new().raw("_meta", meta), task, now), task, result);
    let head = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":"#, method::TASKS_CHANGED);
    Rope::from(head).with_all(params).with("}")
}

/// The task with what it has come to, or what it asks.
fn detailed(object: Object, task: &Task, result: Option<Bytes>) -> Rope {
    match (&task.status, result) {
        (Status::Completed { .. }, Some(result)) => {
            let head = object.raw("result", "").open();
            return Rope::from(head).with(result).with("}");
        }
        (Status::Failed { failure, .. }, _) => {
            let error = serde_json::to_string(&failure_object(failure)).expect("an error object is plain JSON");
            object.raw("error", &error)
        }
        (Status::InputRequired { questions, .. }, _) => object.raw("inputRequests", &input_requests(questions)),
        (Status::Working { .. } | Status::Completed { .. } | Status::Cancelled { .. }, _) => object,
    }
    .finish()
    .into()
}

/// The result of `tasks/cancel`, and of `tasks/update`: an acknowledgement and nothing else.
#[must_use]
pub fn acknowledged() -> &'static str {
    r#"{"resultType":"complete"}"#
}

fn fields(object: Object, task: &Task, now: Timestamp) -> Object {
    let status = match &task.status {
        Status::Working { .. } => "working",
        Status::InputRequired { .. } => "input_required",
        Status::Completed { .. } => "completed",
        Status::Failed { .. } => "failed",
        Status::Cancelled { .. } => "cancelled",
    };
    object
        .string("taskId", &task.id.to_string())
        .string("status", status)
        .maybe_string("statusMessage", status_message(&task.status).as_deref())
        .string("createdAt", &rfc3339(task.created.0))
        .string("lastUpdatedAt", &rfc3339(task.updated.0))
        .number("ttlMs", task.reported_ttl(now))
        .number("pollIntervalMs", task.reported_interval(now))
}

fn input_requests(questions: &[Question]) -> String {
    let requests = questions.iter().fold(Object::new(), |requests, question| {
        let request = Object::new().string("method", &question.method);
        let request = match &question.params {
            Some(params) => request.raw("params", params),
            None => request,
        };
        requests.raw(question.key.as_str(), &request.finish())
    });
    requests.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::ErrorObject;
    use crate::store::conformance::sample;
    use crate::task::{Event, Failure, Note, QuestionKey, Reason};
    use serde_json::{Value, json};

    fn text(rope: &Rope) -> String {
        String::from_utf8(rope.join().to_vec()).unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn announces_flat_with_a_job_handle_beside() {
        let task = sample(1, 1_764_374_400_000);
        let names = JobNames::default();
        let told = value(&created(&task, Timestamp(1_764_374_404_000), Some(&names)));
        assert_eq!(told["resultType"], "task");
        assert_eq!(told["taskId"], task.id.to_string());
        assert_eq!(told["status"], "working");
        assert_eq!(told["createdAt"], "2025-11-29T00:00:00.000Z");
        assert_eq!(told["ttlMs"], 14_000);
        assert_eq!(told["pollIntervalMs"], 800);
        assert!(told["content"][0]["text"].as_str().unwrap().contains("get_job_result"));
        let alone = value(&created(&task, Timestamp(1_764_374_404_000), None));
        for absent in ["result", "error", "inputRequests", "task", "isError", "structuredContent"] {
            assert!(told.get(absent).is_none() && alone.get(absent).is_none(), "{absent}");
        }
        assert!(alone.get("content").is_none(), "a stateless client reads no job handle in a task");
    }

    #[test]
    fn b53_every_end_as_the_extension_says() {
        let task = sample(1, 1_000);
        let now = Timestamp(2_000);
        let note = Note { progress: "4".into(), total: Some("10".into()), message: Some("meshing".into()) };
        let working = task.apply(Event::Progress(note), now).unwrap();
        let told = value(&text(&read(&working, None, now, Spelling::Both)));
        assert_eq!((&told["status"], &told["statusMessage"]), (&json!("working"), &json!("40% (4 of 10): meshing")));
        assert_eq!((&told["ttl"], &told["pollInterval"]), (&told["ttlMs"], &told["pollIntervalMs"]));

        let done = task.apply(Event::Completed { bytes: 1, tool_error: Some("no".into()) }, now).unwrap();
        let result = Bytes::from_static(br#"{"content":[],"isError":true,"n":1.0}"#);
        let told = text(&read(&done, Some(result), now, Spelling::Own));
        assert!(told.contains(r#""result":{"content":[],"isError":true,"n":1.0}"#), "{told}");
        assert_eq!(value(&told)["status"], "completed");

        let error: ErrorObject = serde_json::from_str(r#"{"code":-1,"message":"no","data":{"k":1.0}}"#).unwrap();
        let failed = task.apply(Event::Failed(Failure::Upstream(error)), now).unwrap();
        let told = text(&read(&failed, None, now, Spelling::Own));
        assert!(told.contains(r#""error":{"code":-1,"message":"no","data":{"k":1.0}}"#), "{told}");
        assert_eq!(value(&told)["statusMessage"], "no");

        let lost = Failure::Lost { reason: Reason::OutcomeUnknown, text: "outcome unknown: cut".into() };
        let told = value(&text(&read(&task.apply(Event::Failed(lost), now).unwrap(), None, now, Spelling::Own)));
        assert_eq!(told["error"]["data"]["reason"], "outcome_unknown");
        assert_eq!(
            value(&text(&read(&task.apply(Event::Cancelled, now).unwrap(), None, now, Spelling::Own)))["status"],
            "cancelled"
        );
    }

    #[test]
    fn b49_open_questions_are_told_with_their_keys() {
        let now = Timestamp(2_000);
        let ask = |method: &str, params: Option<&str>| Question {
            key: QuestionKey::random(),
            method: method.into(),
            params: params.map(Into::into),
            upstream_id: "0".into(),
        };
        let (one, two) = (ask("elicitation/create", Some(r#"{"message":"Go?","n":1.0}"#)), ask("roots/list", None));
        let asked = sample(1, 1_000).apply(Event::Asked(one.clone()), now).unwrap();
        let asked = asked.apply(Event::Asked(two.clone()), now).unwrap();
        let told = text(&read(&asked, None, now, Spelling::Own));
        let requests = format!(
            r#""inputRequests":{{"{}":{{"method":"elicitation/create","params":{{"message":"Go?","n":1.0}}}},"{}":{{"method":"roots/list"}}}}"#,
            one.key.as_str(),
            two.key.as_str()
        );
        assert!(told.contains(&requests), "{told}");
        assert_eq!(value(&told)["status"], "input_required");
    }
}
