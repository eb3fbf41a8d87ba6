//! The three dialects of a deferral, so that one story can be told in each.
//!
//! Everything here is what a client of that dialect would send, and nothing else.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{Answer, Client, EXTENSION, Events};
use super::{Gate, ms, parsed};

/// An id that no task ever had.
pub const STRANGER: &str = "5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11";

/// A way to read slow calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Tasks of the extension, declared in `initialize`.
    Ext,
    /// Tasks of 2025-11-25.
    Core,
    /// Jobs.
    Job,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext, Self::Core, Self::Job];

    /// A client of this dialect with these capabilities that has not said hello yet.
    pub fn client(self, gate: &Gate, mut capabilities: Value) -> Client {
        if self == Self::Ext {
            capabilities["extensions"] = json!({EXTENSION: {}});
        }
        gate.client().capabilities(capabilities)
    }

    /// Calls a tool that does not end soon; returns the id in the handle.
    pub async fn start(self, client: &Client, tool: &str, arguments: Value) -> String {
        match self {
            Self::Ext => client.call(tool, arguments).await.task(),
            Self::Core => client.call_task(tool, arguments).await.core_task(),
            Self::Job => client.call(tool, arguments).await.job(),
        }
    }

    /// Reads without waiting.
    pub async fn read(self, client: &Client, id: &str) -> Answer {
        match self {
            Self::Ext | Self::Core => client.task(id).await,
            Self::Job => client.job(id, 0.0).await,
        }
    }

    /// Waits for the end as such a client does: polls, `tasks/result`, or reads that wait.
    pub async fn wait(self, client: &Client, id: &str) -> Answer {
        match self {
            Self::Ext => client.task_end(id).await,
            Self::Core => client.task_result(id).await,
            Self::Job => client.job_end(id).await,
        }
    }

    /// Cancels.
    pub async fn cancel(self, client: &Client, id: &str) -> Answer {
        match self {
            Self::Ext | Self::Core => client.cancel_task(id).await,
            Self::Job => client.cancel_job(id).await,
        }
    }

    /// Waits for the end of a call that succeeds; returns the text of its result.
    pub async fn text(self, client: &Client, id: &str) -> String {
        let end = self.wait(client, id).await;
        let result = match self {
            Self::Ext => &end.result()["result"],
            Self::Core | Self::Job => end.result(),
        };
        let block = &result["content"][usize::from(self == Self::Job)];
        block["text"].as_str().unwrap_or_else(|| panic!("no text: {}", end.raw)).to_owned()
    }

    /// Waits on a stream, where questions come too: `tasks/result`, or a read of a job.
    pub async fn stream(self, client: &Client, id: &str) -> Events {
        match self {
            Self::Ext => panic!("the extension puts its questions into tasks/get"),
            Self::Core => client.task_stream(id).await,
            Self::Job => client.job_stream(id, 9.0).await,
        }
    }

    /// Waits until something is asked, in the way such a client learns of it, and answers with what `respond` makes
    /// of the request; returns the request as the client saw it.
    pub async fn answer_next(self, client: &Client, id: &str, respond: impl Fn(&Value) -> Value) -> Value {
        if self == Self::Ext {
            let (key, request) = asked(client, id).await.remove(0);
            let updated = client.update_task(id, json!({key: respond(&request)})).await;
            assert_eq!(updated.result(), &json!({"resultType": "complete"}));
            return request;
        }
        let mut stream = self.stream(client, id).await;
        let request = stream.message().await.unwrap_or_else(|| panic!("the stream of {id} ended"));
        assert!(request["method"].is_string(), "no question but {request}");
        client.answer(&request, respond(&request)).await;
        request
    }
}

/// The open questions of a task with their keys, once there are any.
pub async fn asked(client: &Client, id: &str) -> Vec<(String, Value)> {
    for _ in 0..500 {
        let answer = client.task(id).await;
        if answer.state() == "input_required" {
            let requests = answer.result()["inputRequests"].as_object();
            let requests = requests.unwrap_or_else(|| panic!("no inputRequests: {}", answer.raw));
            return requests.iter().map(|(key, request)| (key.clone(), request.clone())).collect();
        }
        assert_eq!(answer.state(), "working", "it ended: {}", answer.raw);
        sleep(ms(10)).await;
    }
    panic!("task {id} asks nothing");
}

/// Waits until a task has this status.
pub async fn reaches(client: &Client, id: &str, status: &str) -> Answer {
    for _ in 0..500 {
        let answer = client.task(id).await;
        if answer.state() == status {
            return answer;
        }
        sleep(ms(10)).await;
    }
    panic!("task {id} does not become {status}");
}

/// Fails unless a task reads as one that does not exist, whatever is asked of it in whichever dialect.
pub async fn is_unknown(client: &Client, task: &str) {
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
        let ask = |id: &str| {
            let params = match method {
                "tasks/update" => json!({"taskId": id, "inputResponses": {}}),
                _ => json!({"taskId": id}),
            };
            client.ask(client.body("7", method, params))
        };
        let (this, none) = (ask(task).await, ask(STRANGER).await);
        assert_eq!((this.status, this.code(), &this.raw), (200, -32602, &none.raw), "{method}");
        assert_eq!((none.status, &this.error()["message"]), (200, &json!("Task is not available in this session")));
    }
    for tool in ["get_job_result", "cancel_job"] {
        let this = client.call_as("8", tool, json!({"job_id": task})).await;
        let none = client.call_as("8", tool, json!({"job_id": STRANGER})).await;
        assert_eq!(this.raw.replace(task, STRANGER), none.raw, "{tool}");
        assert_eq!(this.state(), "not_found", "{tool}");
    }
}

/// The last message of a stream: whatever else comes before it fails the test.
pub async fn last(stream: &mut Events) -> Value {
    let message = stream.message().await.unwrap_or_else(|| panic!("the stream ended without an answer"));
    assert!(message.get("result").is_some() || message.get("error").is_some(), "no answer but {message}");
    message
}

/// The text of a tool's result, read as JSON.
pub fn said(text: &str) -> Value {
    let value = parsed(text);
    assert!(!value.is_null(), "no JSON: {text}");
    value
}
