//! Tasks of 2025-11-25: `params.task` on the call, and methods to read, wait, cancel and list.

use bytes::Bytes;

use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, Object, Rope, members, notification, offset_in, quote};
use crate::mcp::{IMMEDIATE_RESPONSE, RELATED_TASK, method, rfc3339};
use crate::task::{Status, Task, TaskId, Timestamp};

use super::error::failure_object;
use super::told::{Spelling, status_message};

/// The result that announces a task.
#[must_use]
pub fn created(task: &Task, now: Timestamp) -> String {
    let told = format!("{} runs in the background as a task; its result will follow.", task.tool);
    let meta = Object::new().string(IMMEDIATE_RESPONSE, &told).finish();
    Object::new().raw("task", &read(task, now, Spelling::Own)).raw("_meta", &meta).finish()
}

/// The result of `tasks/get` and `tasks/cancel`: the task alone.
#[must_use]
pub fn read(task: &Task, now: Timestamp, spelling: Spelling) -> String {
    let (status, message) = match &task.status {
        Status::Working { .. } => ("working", status_message(&task.status)),
        Status::InputRequired { .. } => ("input_required", status_message(&task.status)),
        Status::Completed { tool_error: None, .. } => ("completed", None),
        // Several clients never fetch the result of a failed task: what went wrong has to stand here.
        Status::Completed { tool_error: Some(text), .. } => ("failed", Some(text.to_string())),
        Status::Failed { .. } => ("failed", status_message(&task.status)),
        Status::Cancelled { .. } => ("cancelled", None),
    };
    let object = Object::new()
        .string("taskId", &task.id.to_string())
        .string("status", status)
        .maybe_string("statusMessage", message.as_deref())
        .string("createdAt", &rfc3339(task.created.0))
        .string("lastUpdatedAt", &rfc3339(task.updated.0))
        .number("ttl", task.reported_ttl(now))
        .number("pollInterval", task.reported_interval(now));
    let object = match spelling {
        Spelling::Own | Spelling::Stateless => object,
        Spelling::Both => {
            object.number("ttlMs", task.reported_ttl(now)).number("pollIntervalMs", task.reported_interval(now))
        }
    };
    object.finish()
}

/// The answer to `tasks/result` of a task that has ended: what the upstream returned, with the task's id among its
/// metadata, or the same error. `result` is the text of a completed task's result.
///
/// # Errors
/// The JSON-RPC error that the task ended with; `None` if the task has not ended, or its result is not kept any more.
pub fn outcome(task: &Task, result: Option<&Bytes>) -> Result<Rope, Option<ErrorObject>> {
    match (&task.status, result) {
        (Status::Completed { .. }, Some(result)) => Ok(related(result, task.id)),
        (Status::Failed { failure, .. }, _) => Err(Some(failure_object(failure))),
        (Status::Cancelled { .. }, _) => Err(Some(ErrorObject::new(INTERNAL_ERROR, "cancelled"))),
        (Status::Completed { .. }, None) | (Status::Working { .. } | Status::InputRequired { .. }, _) => Err(None),
    }
}

/// One page of `tasks/list`.
#[must_use]
pub fn listed(tasks: &[Task], next_cursor: Option<&str>, now: Timestamp) -> String {
    let rows: Vec<String> = tasks.iter().map(|task| read(task, now, Spelling::Own)).collect();
    Object::new().raw("tasks", &format!("[{}]", rows.join(","))).maybe_string("nextCursor", next_cursor).finish()
}

/// `notifications/tasks/status`: how the task stands, pushed.
#[must_use]
pub fn status_changed(task: &Task, now: Timestamp) -> Bytes {
    notification(method::TASKS_STATUS, &read(task, now, Spelling::Own))
}

/// A JSON object (a result, or parameters) with the task's id among its metadata; the rest is not copied.
#[must_use]
pub fn related(object: &Bytes, id: TaskId) -> Rope {
    let unchanged = || Rope::default().with(object.clone());
    let Ok(text) = std::str::from_utf8(object) else { return unchanged() };
    let Some(found) = members(text) else { return unchanged() };
    let entry = format!("{}:{{\"taskId\":{}}}", quote(RELATED_TASK), quote(&id.to_string()));
    let replaced = |from: usize, to: usize, with: String| {
        Rope::default().with(object.slice(..from)).with(with).with(object.slice(to..))
    };
    let Some(meta) = found.iter().find(|member| member.name == "_meta") else {
        let open = text.find('{').unwrap_or_default() + 1;
        let comma = if found.is_empty() { "" } else { "," };
        return replaced(open, open, format!("\"_meta\":{{{entry}}}{comma}"));
    };
    match members(meta.value) {
        Some(inside) => {
            let base = offset_in(text, meta.value).start;
            match inside.iter().find(|member| member.name == RELATED_TASK) {
                Some(known) => replaced(base + known.at.start, base + known.at.end, entry),
                None => {
                    let comma = if inside.is_empty() { "" } else { "," };
                    replaced(base + 1, base + 1, format!("{entry}{comma}"))
                }
            }
        }
        None => replaced(meta.value_at.start, meta.value_at.end, format!("{{{entry}}}")),
    }
}

/// Where the page after `task` begins.
#[must_use]
pub fn cursor(task: &Task) -> String {
    format!("{}.{}", task.created.0, task.id)
}

/// Reads a cursor; `None` if it is none of ours.
#[must_use]
pub fn read_cursor(text: &str) -> Option<(Timestamp, TaskId)> {
    let (created, id) = text.split_once('.')?;
    Some((Timestamp(created.parse().ok()?), id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::sample;
    use crate::task::{Event, Failure, Question, QuestionKey};
    use serde_json::{Value, json};

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn text(rope: &Rope) -> String {
        String::from_utf8(rope.join().to_vec()).unwrap()
    }

    #[test]
    fn announces_nested_with_a_word_for_the_model() {
        let task = sample(1, 1_000);
        let told = value(&created(&task, Timestamp(5_000)));
        assert_eq!(told["task"]["taskId"], task.id.to_string());
        assert_eq!((&told["task"]["ttl"], &told["task"]["pollInterval"]), (&json!(14_000), &json!(800)));
        assert!(told["_meta"][IMMEDIATE_RESPONSE].is_string());
        assert!(told.get("content").is_none() && told.get("resultType").is_none());
    }

    #[test]
    fn b53_every_end_as_2025_11_25_says() {
        let (task, now) = (sample(1, 1_000), Timestamp(2_000));
        let result = Bytes::from_static(br#"{"content":[]}"#);
        let error: ErrorObject = serde_json::from_str(r#"{"code":-1,"message":"no","data":{"k":1.0}}"#).unwrap();
        let completed = |tool_error| Event::Completed { bytes: 1, tool_error };
        for (event, status, message, code) in [
            (completed(None), "completed", Value::Null, None),
            (completed(Some("bad mesh".into())), "failed", json!("bad mesh"), None),
            (Event::Failed(Failure::Upstream(error)), "failed", json!("no"), Some(-1)),
            (Event::Cancelled, "cancelled", Value::Null, Some(INTERNAL_ERROR)),
        ] {
            let task = task.apply(event, now).unwrap();
            let told = value(&read(&task, now, Spelling::Own));
            assert_eq!((&told["status"], &told["statusMessage"]), (&json!(status), &message));
            assert!(told.get("ttlMs").is_none() && told.get("_meta").is_none());
            let kept = code.is_none().then_some(&result);
            let got = outcome(&task, kept).map(|rope| text(&rope)).map_err(|error| error.map(|error| error.code));
            match code {
                Some(code) => assert_eq!(got, Err(Some(code))),
                None => assert!(got.unwrap().contains(RELATED_TASK)),
            }
        }
        assert_eq!(outcome(&task, None).unwrap_err().map(|error| error.code), None, "it has not ended");
        let key = QuestionKey::random();
        let params = Some(r#"{"message":"Proceed?"}"#.into());
        let asked =
            Event::Asked(Question { key, method: "elicitation/create".into(), params, upstream_id: "0".into() });
        let told = value(&read(&task.apply(asked, now).unwrap(), now, Spelling::Both));
        assert_eq!((&told["status"], &told["ttlMs"]), (&json!("input_required"), &told["ttl"]));
        assert_eq!(told["statusMessage"], "waiting for an answer: Proceed?");
    }

    #[test]
    fn b57a_the_tasks_id_is_merged_into_metadata() {
        let id = TaskId::random();
        let entry = format!(r#""{RELATED_TASK}":{{"taskId":"{id}"}}"#);
        for (before, after) in [
            ("{}".to_owned(), format!(r#"{{"_meta":{{{entry}}}}}"#)),
            (r#" {"n":1.0}"#.to_owned(), format!(r#" {{"_meta":{{{entry}}},"n":1.0}}"#)),
            (r#"{"n":1,"_meta":{"x":1e400}}"#.to_owned(), format!(r#"{{"n":1,"_meta":{{{entry},"x":1e400}}}}"#)),
            (r#"{"_meta":{}}"#.to_owned(), format!(r#"{{"_meta":{{{entry}}}}}"#)),
            (r#"{"_meta":null}"#.to_owned(), format!(r#"{{"_meta":{{{entry}}}}}"#)),
            (
                format!(r#"{{"_meta":{{"a":1,"{RELATED_TASK}":{{"taskId":"theirs"}}}}}}"#),
                format!(r#"{{"_meta":{{"a":1,{entry}}}}}"#),
            ),
            ("[1]".to_owned(), "[1]".to_owned()),
        ] {
            assert_eq!(text(&related(&Bytes::from(before), id)), after);
        }
    }

    #[test]
    fn cursors_are_read_back() {
        let task = sample(1, 77);
        assert_eq!(read_cursor(&cursor(&task)), Some((task.created, task.id)));
        for text in ["", "x", "1.", "1.x", ".", "-1.00000000-0000-4000-8000-000000000000"] {
            assert_eq!(read_cursor(text), None, "{text}");
        }
    }
}
