//! Job handles: plain tool results for clients that know nothing of tasks, written for models to act on.

use bytes::Bytes;

use crate::jsonrpc::{ErrorObject, Object, Rope, insert_first, members};
use crate::mcp::text_block;
use crate::task::{Failure, Note, Status, Task, Timestamp};

use super::JobNames;
use super::error::failure_object;
use super::told::waiting;

/// The result that announces a job.
#[must_use]
pub fn created(task: &Task, names: &JobNames) -> String {
    said(&handle(task, names))
}

/// The `content` of that result: one text block with one JSON object.
#[must_use]
pub fn announcement(task: &Task, names: &JobNames) -> String {
    format!("[{}]", text_block(&handle(task, names)))
}

/// How a job stands; `result` is the text of a completed job's result.
#[must_use]
pub fn read(task: &Task, result: Option<&Bytes>, now: Timestamp, names: &JobNames) -> Rope {
    match (&task.status, result) {
        (Status::Working { .. } | Status::InputRequired { .. }, _) => said(&running(task, now, names)).into(),
        (Status::Completed { tool_error, .. }, Some(result)) => {
            let head = status(if tool_error.is_some() { "error" } else { "done" }, task).finish();
            finished(text_block(&head), result)
        }
        (Status::Completed { .. }, None) => expired().into(),
        (Status::Failed { failure, .. }, _) => failed(task, failure).into(),
        (Status::Cancelled { .. }, _) => said(&status("cancelled", task).finish()).into(),
    }
}

/// The answer to a cancellation; `task` is the job as it stands after it.
#[must_use]
pub fn cancelled(task: &Task, names: &JobNames) -> String {
    match &task.status {
        Status::Cancelled { .. } => said(&status("cancelled", task).finish()),
        Status::Working { .. } | Status::InputRequired { .. } | Status::Completed { .. } | Status::Failed { .. } => {
            let message = format!("The job had ended already. Read it with {}", next_call(task, names));
            said(&status(word(task), task).string("message", &message).finish())
        }
    }
}

/// The caller's jobs.
#[must_use]
pub fn listed(tasks: &[Task], now: Timestamp) -> String {
    let rows: Vec<String> = tasks
        .iter()
        .map(|task| status(word(task), task).string("tool", &task.tool).raw("elapsed_s", &elapsed(task, now)).finish())
        .collect();
    said(&Object::new().raw("jobs", &format!("[{}]", rows.join(","))).finish())
}

/// For an id that is unknown, or somebody else's: one and the same.
#[must_use]
pub fn not_found() -> String {
    refused("not_found", "There is no such job. Check the job_id, or call the tool again to start anew.")
}

/// For an id whose result is no longer kept.
#[must_use]
pub fn expired() -> String {
    refused(
        "not_found",
        "The job has expired: its result is no longer kept. Call the tool again if it is still needed.",
    )
}

/// For arguments that do not fit.
#[must_use]
pub fn bad_arguments(message: &str) -> String {
    refused("not_found", message)
}

/// For an error of taskgate's own.
#[must_use]
pub fn unavailable(error: &ErrorObject) -> String {
    refused("error", &error.message)
}

fn handle(task: &Task, names: &JobNames) -> String {
    let next = next_call(task, names);
    let message = format!(
        "The work is not finished: {} goes on in the background. Poll with {next} to wait for the result.",
        task.tool
    );
    status("running", task).string("message", &message).finish()
}

fn running(task: &Task, now: Timestamp, names: &JobNames) -> String {
    let seconds = elapsed(task, now);
    let note = task.status.note().map(Note::line);
    let mut told = note.as_deref().map(|line| format!(" Last reported: {line}.")).unwrap_or_default();
    if let Some(question) = task.status.questions().first() {
        told.push_str(&format!(" It is {}.", waiting(question)));
    }
    let next = next_call(task, names);
    let message = format!("Still not finished after {seconds} s.{told} Poll again with {next}.");
    status("running", task)
        .raw("elapsed_s", &seconds)
        .maybe_string("progress", note.as_deref())
        .string("message", &message)
        .finish()
}

fn failed(task: &Task, failure: &Failure) -> String {
    let object = failure_object(failure);
    let text = match failure {
        Failure::Upstream(_) => status("error", task)
            .raw("error", &serde_json::to_string(&object).expect("an error object is plain JSON"))
            .finish(),
        Failure::Lost { reason, text } => {
            status("error", task).string("reason", reason.word()).string("message", text).finish()
        }
    };
    Object::new().raw("content", &format!("[{}]", text_block(&text))).raw("isError", "true").finish()
}

/// The upstream's result with one more block before its content; all else is its own, and none of it is copied.
fn finished(head: String, result: &Bytes) -> Rope {
    let text = std::str::from_utf8(result).unwrap_or_default();
    let content = members(text).and_then(|found| found.into_iter().find(|member| member.name == "content"));
    match content {
        Some(member) if member.value.starts_with('[') => {
            let comma = if member.value[1..].trim_start().starts_with(']') { "" } else { "," };
            let at = member.value_at.start + 1;
            Rope::default().with(result.slice(..at)).with(head).with(comma).with(result.slice(at..))
        }
        Some(_) => Rope::default().with(result.clone()),
        None => Rope::default().with(insert_first(result, 0, "content", &format!("[{head}]"))),
    }
}

fn status(word: &str, task: &Task) -> Object {
    Object::new().string("status", word).string("job_id", &task.id.to_string())
}

fn word(task: &Task) -> &'static str {
    match &task.status {
        Status::Working { .. } | Status::InputRequired { .. } => "running",
        Status::Completed { tool_error: None, .. } => "done",
        Status::Completed { tool_error: Some(_), .. } | Status::Failed { .. } => "error",
        Status::Cancelled { .. } => "cancelled",
    }
}

fn next_call(task: &Task, names: &JobNames) -> String {
    format!("{}(job_id=\"{}\")", names.result, task.id)
}

fn elapsed(task: &Task, now: Timestamp) -> String {
    let until = task.status.ended().unwrap_or(now);
    format!("{:.1}", until.since(task.created).as_secs_f64())
}

/// One JSON object as text, and again as structured content.
fn said(object: &str) -> String {
    Object::new()
        .raw("content", &format!("[{}]", text_block(object)))
        .raw("structuredContent", object)
        .raw("isError", "false")
        .finish()
}

/// An error of ours: text alone, since validating clients throw structured errors away.
fn refused(status: &str, message: &str) -> String {
    let object = Object::new().string("status", status).string("message", message).finish();
    Object::new().raw("content", &format!("[{}]", text_block(&object))).raw("isError", "true").finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::sample;
    use crate::task::{Event, Note, Reason};
    use serde_json::{Value, json};

    fn read(task: &Task, result: Option<&Bytes>, now: Timestamp, names: &JobNames) -> String {
        String::from_utf8(super::read(task, result, now, names).join().to_vec()).unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn block(result: &Value) -> Value {
        assert_eq!(result["content"][0]["type"], "text");
        value(result["content"][0]["text"].as_str().unwrap())
    }

    #[test]
    fn b66_a_handle_cannot_be_mistaken_for_the_answer() {
        let task = sample(1, 1_000);
        let told = value(&created(&task, &JobNames::default()));
        let object = block(&told);
        assert_eq!(told["isError"], false);
        assert_eq!(told["structuredContent"], object);
        assert_eq!(object["status"], "running");
        assert_eq!(object["job_id"], task.id.to_string());
        let message = object["message"].as_str().unwrap();
        assert!(message.contains("not finished"), "{message}");
        assert!(message.contains(&format!("get_job_result(job_id=\"{}\")", task.id)), "{message}");
    }

    #[test]
    fn polls_differ_and_tell_the_progress() {
        let task = sample(1, 1_000);
        let note = Note { progress: "4".into(), total: Some("10".into()), message: Some("meshing".into()) };
        let task = task.apply(Event::Progress(note), Timestamp(2_000)).unwrap();
        let names = JobNames::default();
        let (one, two) = (read(&task, None, Timestamp(3_000), &names), read(&task, None, Timestamp(3_100), &names));
        assert_ne!(one, two);
        let object = block(&value(&one));
        assert_eq!(object["elapsed_s"], json!(2.0));
        assert_eq!(object["progress"], "40% (4 of 10): meshing");
        assert!(object["message"].as_str().unwrap().contains("not finished"));
    }

    #[test]
    fn a_finished_job_is_the_upstreams_own_result_and_one_block() {
        let names = JobNames::default();
        let done = |text: &'static str, is_error: bool| {
            let tool_error = is_error.then(|| "no".into());
            let task = sample(1, 1_000).apply(Event::Completed { bytes: 1, tool_error }, Timestamp(2_000)).unwrap();
            let head = text_block(&status(if is_error { "error" } else { "done" }, &task).finish());
            (read(&task, Some(&Bytes::from_static(text.as_bytes())), Timestamp(3_000), &names), head)
        };
        let (told, head) =
            done(r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":1.0},"_meta":{}}"#, false);
        let expected = format!(
            r#"{{"content":[{head},{{"type":"text","text":"x"}}],"structuredContent":{{"n":1.0}},"_meta":{{}}}}"#
        );
        assert_eq!(told, expected);
        let (told, head) = done(r#"{"content" : [ ],"isError":true}"#, true);
        assert_eq!(told, format!(r#"{{"content" : [{head} ],"isError":true}}"#));
        let (told, head) = done(r#"{"structuredContent":{}}"#, false);
        assert_eq!(told, format!(r#"{{"content":[{head}],"structuredContent":{{}}}}"#));
    }

    #[test]
    fn b64_errors_of_ours_are_text_alone() {
        let lost = Failure::Lost { reason: Reason::OutcomeUnknown, text: "outcome unknown: cut".into() };
        let task = sample(1, 1_000);
        let names = JobNames::default();
        let failed = task.apply(Event::Failed(lost), Timestamp(2_000)).unwrap();
        let error: ErrorObject = serde_json::from_str(r#"{"code":-1,"message":"no","data":[1]}"#).unwrap();
        let refused = task.apply(Event::Failed(Failure::Upstream(error)), Timestamp(2_000)).unwrap();
        for text in [read(&failed, None, Timestamp(3_000), &names), read(&refused, None, Timestamp(3_000), &names)]
            .into_iter()
            .chain([not_found(), expired(), bad_arguments("job_id is missing")])
        {
            let told = value(&text);
            assert_eq!(told["isError"], true);
            assert!(told.get("structuredContent").is_none());
            assert!(block(&told).is_object());
        }
        let told = value(&read(&refused, None, Timestamp(3_000), &names));
        assert_eq!(block(&told)["error"], json!({"code":-1,"message":"no","data":[1]}));
        let gone = task.apply(Event::Cancelled, Timestamp(2_000)).unwrap();
        let told = value(&read(&gone, None, Timestamp(3_000), &names));
        assert_eq!((&told["isError"], &block(&told)["status"]), (&json!(false), &json!("cancelled")));
    }
}
