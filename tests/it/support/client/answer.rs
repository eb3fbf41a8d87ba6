//! The whole answer to one JSON-RPC request, JSON or event stream alike.
//!
//! Its readers fail with the answer in the message, so that a story needs no asserts of its own for them.

use http::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;

use super::super::parsed;
use super::http::Reply;
use super::sse::SseEvent;

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The JSON text of the answer, or whatever else the body was.
    pub raw: String,
    /// The answer as JSON, `Null` if it is none.
    pub json: Value,
    /// What came before the answer on its stream, comments too; empty for JSON.
    pub events: Vec<SseEvent>,
    /// Whether it came as an event stream.
    pub sse: bool,
    /// When it was complete.
    pub at: Instant,
}

impl Answer {
    /// Reads a reply to its end.
    pub async fn read(reply: Reply) -> Self {
        let (status, headers, sse) = (reply.status, reply.headers.clone(), reply.is_sse());
        let mut events = Vec::new();
        let mut raw = String::new();
        if sse {
            let mut stream = reply.events();
            while let Some(event) = stream.next().await {
                let json = event.json();
                let last = json.get("result").is_some() || json.get("error").is_some();
                if last && json.get("method").is_none() {
                    assert!(raw.is_empty(), "two answers: {raw} and {json}");
                    raw = event.data.clone().expect("it was parsed above");
                } else {
                    assert!(raw.is_empty() || event.data.is_none(), "after the answer came {event:?}");
                    events.push(event);
                }
            }
        } else {
            raw = reply.text().await;
        }
        let json = parsed(&raw);
        Self { status, headers, raw, json, events, sse, at: Instant::now() }
    }

    /// A header's only value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?;
        assert!(values.next().is_none(), "{name} came twice: {:?}", self.headers);
        Some(first.to_str().expect("headers of these tests are ASCII"))
    }

    /// The result of a request that succeeded.
    pub fn result(&self) -> &Value {
        assert!(self.json.get("error").is_none(), "an error instead of a result: {} {}", self.status, self.raw);
        self.json.get("result").unwrap_or_else(|| panic!("no result: {} {:?}", self.status, self.raw))
    }

    /// The error of a request that failed.
    pub fn error(&self) -> &Value {
        self.json.get("error").unwrap_or_else(|| panic!("no error: {} {:?}", self.status, self.raw))
    }

    /// The code of its error.
    pub fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap_or_else(|| panic!("no code: {}", self.raw))
    }

    /// The `data.reason` that taskgate gave its error.
    pub fn reason(&self) -> &str {
        let data = &self.error()["data"];
        assert_eq!(data["source"], "taskgate", "{}", self.raw);
        data["reason"].as_str().unwrap_or_else(|| panic!("no reason: {}", self.raw))
    }

    /// The text of a content block.
    pub fn block(&self, index: usize) -> &str {
        let block = &self.result()["content"][index];
        assert_eq!(block["type"], "text", "{}", self.raw);
        block["text"].as_str().unwrap_or_else(|| panic!("no text: {}", self.raw))
    }

    /// The text of the first content block.
    pub fn text(&self) -> &str {
        self.block(0)
    }

    /// The JSON object in the first content block: a handle or a job's status.
    pub fn note(&self) -> Value {
        let note: Value = serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error}: {}", self.raw));
        assert!(note.is_object(), "{}", self.raw);
        note
    }

    /// The job that a handle names.
    pub fn job(&self) -> String {
        let note = self.note();
        assert_eq!(note["status"], "running", "{}", self.raw);
        note["job_id"].as_str().unwrap_or_else(|| panic!("no job: {}", self.raw)).to_owned()
    }

    /// The task that a handle names.
    pub fn task(&self) -> String {
        assert_eq!(self.result()["resultType"], "task", "{}", self.raw);
        self.result()["taskId"].as_str().unwrap_or_else(|| panic!("no task: {}", self.raw)).to_owned()
    }

    /// The task of 2025-11-25 that a handle names.
    pub fn core_task(&self) -> String {
        let task = &self.result()["task"];
        assert_eq!(task["status"], "working", "{}", self.raw);
        task["taskId"].as_str().unwrap_or_else(|| panic!("no task: {}", self.raw)).to_owned()
    }

    /// The status that a note or a task states.
    pub fn state(&self) -> String {
        let result = self.result();
        let status =
            if result.get("status").is_some() { result["status"].clone() } else { self.note()["status"].clone() };
        status.as_str().unwrap_or_else(|| panic!("no status: {}", self.raw)).to_owned()
    }

    /// Messages with this method that came before the answer.
    pub fn before(&self, method: &str) -> Vec<Value> {
        self.events.iter().map(SseEvent::json).filter(|message| message["method"] == method).collect()
    }

    /// How many comments came before the answer.
    pub fn comments(&self) -> usize {
        self.events.iter().filter(|event| event.comment.is_some()).count()
    }
}
