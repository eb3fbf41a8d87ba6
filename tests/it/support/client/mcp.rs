//! A small MCP client: says hello, calls tools, reads tasks and jobs.
//!
//! One value is one client session; it may be shared by reference between calls that run side by side.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::ms;
use super::answer::Answer;
use super::http::{Http, Reply};
use super::sse::Events;

/// The name of the tasks extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The version of the stateless era.
pub const STATELESS: &str = "2026-07-28";

/// A client session.
#[derive(Debug)]
pub struct Client {
    http: Http,
    path: String,
    version: String,
    capabilities: Value,
    meta: Value,
    headers: Vec<(String, String)>,
    accept: String,
    /// The session id that the server gave.
    pub session: Option<String>,
    ids: AtomicU64,
}

/// A request with an id written exactly so.
pub fn text_request(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// The headers that repeat a stateless request.
fn routing(body: &str) -> Vec<(&'static str, String)> {
    let message: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(method) = message["method"].as_str() else { return Vec::new() };
    let params = &message["params"];
    let name = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str());
    let name = name.map(|name| ("mcp-name", name.to_owned()));
    std::iter::once(("mcp-method", method.to_owned())).chain(name).collect()
}

impl Client {
    /// A client of `/mcp` without tasks, speaking 2025-11-25.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            http: Http::new(addr),
            path: "/mcp".to_owned(),
            version: "2025-11-25".to_owned(),
            capabilities: json!({}),
            meta: Value::Null,
            headers: Vec::new(),
            accept: "application/json, text/event-stream".to_owned(),
            session: None,
            ids: AtomicU64::new(1),
        }
    }

    /// Talks to another path.
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Sends a bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends a header with every request; replaces an earlier one of that name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Speaks another protocol version.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Accepts only this.
    pub fn accept(mut self, accept: &str) -> Self {
        accept.clone_into(&mut self.accept);
        self
    }

    /// Declares these capabilities at `initialize`.
    pub fn capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Declares the tasks extension at `initialize`.
    pub fn extension(self) -> Self {
        self.capabilities(json!({"extensions": {EXTENSION: {}}}))
    }

    /// Declares the tasks extension in the `_meta` of every request.
    pub fn extension_per_request(mut self) -> Self {
        self.meta = json!({"io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}}});
        self
    }

    /// Speaks 2026-07-28: no session, and all that there is to know in each request.
    pub fn stateless(mut self, capabilities: Value) -> Self {
        self.meta = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
        });
        self.meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self.version(STATELESS)
    }

    /// The same, declaring the tasks extension beside these capabilities.
    pub fn stateless_with_tasks(self, mut capabilities: Value) -> Self {
        capabilities["extensions"] = json!({EXTENSION: {}});
        self.stateless(capabilities)
    }

    /// Uses a session that somebody else opened.
    pub fn in_session(mut self, session: Option<&str>) -> Self {
        self.session = session.map(str::to_owned);
        self
    }

    /// Says hello and keeps the session.
    pub async fn open(mut self) -> Self {
        let hello = self.hello().await;
        hello.result();
        assert_eq!(self.notify("notifications/initialized", &json!({})).await.status, 202);
        self
    }

    /// `initialize`; keeps the session that comes back.
    pub async fn hello(&mut self) -> Answer {
        let params = json!({
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "story", "version": "1"},
        });
        let answer = self.request("initialize", params).await;
        if let Some(session) = answer.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        answer
    }

    /// Sends any HTTP request of this session; its body may still be under way.
    pub async fn send(&self, method: &str, more: &[(&str, &str)], body: String) -> Reply {
        let mut headers: Vec<(&str, &str)> = vec![
            ("content-type", "application/json"),
            ("accept", &self.accept),
            ("mcp-protocol-version", &self.version),
        ];
        if let Some(session) = &self.session {
            headers.push(("mcp-session-id", session));
        }
        let routing = if self.version == STATELESS { routing(&body) } else { Vec::new() };
        headers.extend(routing.iter().map(|(name, value)| (*name, value.as_str())));
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        headers.retain(|(name, value)| !value.is_empty() && !more.iter().any(|(new, _)| new == name));
        headers.extend(more);
        self.http.send(method, &self.path, &headers, body).await
    }

    /// Posts a body and returns as soon as the head of the answer is there.
    pub async fn post(&self, body: String) -> Reply {
        self.send("POST", &[], body).await
    }

    /// Posts a body and reads the whole answer.
    pub async fn ask(&self, body: String) -> Answer {
        Answer::read(self.post(body).await).await
    }

    /// The next request id.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::SeqCst)
    }

    /// A request with this session's `_meta`.
    pub fn body(&self, id: &str, method: &str, mut params: Value) -> String {
        if !self.meta.is_null() && method != "initialize" {
            let mut meta = self.meta.clone();
            if let Some(own) = params.get("_meta").and_then(Value::as_object) {
                meta.as_object_mut().expect("an object").extend(own.clone());
            }
            params["_meta"] = meta;
        }
        text_request(id, method, &params)
    }

    /// A retry of `params` with these answers to what `asked` asks.
    pub async fn retry(&self, method: &str, mut params: Value, asked: &Answer, answers: Value) -> Answer {
        params["inputResponses"] = answers;
        params["requestState"] = asked.result()["requestState"].clone();
        self.request(method, params).await
    }

    /// A request and its answer.
    pub async fn request(&self, method: &str, params: Value) -> Answer {
        self.ask(self.body(&self.next_id().to_string(), method, params)).await
    }

    /// A notification.
    pub async fn notify(&self, method: &str, params: &Value) -> Answer {
        self.ask(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await
    }

    /// Says that a request is no longer wanted.
    pub async fn cancelled(&self, id: &Value) -> Answer {
        self.notify("notifications/cancelled", &json!({"requestId": id})).await
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Calls a tool under an id written exactly so.
    pub async fn call_as(&self, id: &str, tool: &str, arguments: Value) -> Answer {
        self.ask(self.body(id, "tools/call", json!({"name": tool, "arguments": arguments}))).await
    }

    /// Calls a tool with more parameters beside name and arguments.
    pub async fn call_with(&self, tool: &str, mut params: Value) -> Answer {
        params["name"] = json!(tool);
        self.request("tools/call", params).await
    }

    /// `tasks/get`.
    pub async fn task(&self, id: &str) -> Answer {
        self.request("tasks/get", json!({"taskId": id})).await
    }

    /// `tasks/get` until the task has ended.
    pub async fn task_end(&self, id: &str) -> Answer {
        for _ in 0..500 {
            let answer = self.task(id).await;
            if !["working", "input_required"].contains(&answer.state().as_str()) {
                return answer;
            }
            sleep(ms(10)).await;
        }
        panic!("task {id} does not end");
    }

    /// Calls a tool as a task of 2025-11-25.
    pub async fn call_task(&self, tool: &str, arguments: Value) -> Answer {
        self.call_with(tool, json!({"arguments": arguments, "task": {}})).await
    }

    /// `tasks/result`.
    pub async fn task_result(&self, id: &str) -> Answer {
        self.request("tasks/result", json!({"taskId": id})).await
    }

    /// `tasks/cancel`.
    pub async fn cancel_task(&self, id: &str) -> Answer {
        self.request("tasks/cancel", json!({"taskId": id})).await
    }

    /// `tasks/result` as a stream that goes on.
    pub async fn task_stream(&self, id: &str) -> Events {
        let body = self.body(&self.next_id().to_string(), "tasks/result", json!({"taskId": id}));
        self.post(body).await.events()
    }

    /// A read of a job as a stream that goes on.
    pub async fn job_stream(&self, id: &str, wait_s: f64) -> Events {
        let params = json!({"name": "get_job_result", "arguments": {"job_id": id, "wait_s": wait_s}});
        self.post(self.body(&self.next_id().to_string(), "tools/call", params)).await.events()
    }

    /// `tasks/update`.
    pub async fn update_task(&self, id: &str, responses: Value) -> Answer {
        self.request("tasks/update", json!({"taskId": id, "inputResponses": responses})).await
    }

    /// One page of `tasks/list`.
    pub async fn list_tasks(&self, cursor: Option<&str>) -> Answer {
        self.request("tasks/list", cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}))).await
    }

    /// Answers a question that the server put to this client with a result.
    pub async fn answer(&self, question: &Value, result: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        assert_eq!(self.ask(message.to_string()).await.status, 202, "{question}");
    }

    /// Answers a question with an error.
    pub async fn refuse(&self, question: &Value, error: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "error": error});
        assert_eq!(self.ask(message.to_string()).await.status, 202, "{question}");
    }

    /// One read of a job that waits that many seconds at most.
    pub async fn job(&self, id: &str, wait_s: f64) -> Answer {
        self.call("get_job_result", json!({"job_id": id, "wait_s": wait_s})).await
    }

    /// Reads a job until it has ended.
    pub async fn job_end(&self, id: &str) -> Answer {
        for _ in 0..20 {
            let answer = self.job(id, 5.0).await;
            if answer.state() != "running" {
                return answer;
            }
        }
        panic!("job {id} does not end");
    }

    /// Calls a tool and returns its text, whether it came inline or by a job.
    pub async fn outcome(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        match serde_json::from_str::<Value>(answer.text()) {
            Ok(note) if note["status"] == "running" => self.job_end(&answer.job()).await.block(1).to_owned(),
            _ => answer.text().to_owned(),
        }
    }

    /// Cancels a job.
    pub async fn cancel_job(&self, id: &str) -> Answer {
        self.call("cancel_job", json!({"job_id": id})).await
    }

    /// The first page of tools.
    pub async fn tools(&self) -> Answer {
        self.request("tools/list", json!({})).await
    }

    /// The names on the first page of tools.
    pub async fn tool_names(&self) -> Vec<String> {
        let answer = self.tools().await;
        let tools = answer.result()["tools"].as_array().expect("a list").clone();
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Ends the session.
    pub async fn delete(&self) -> Answer {
        Answer::read(self.send("DELETE", &[], String::new()).await).await
    }

    /// Opens the session's GET stream.
    pub async fn listen(&self) -> Reply {
        self.send("GET", &[("accept", "text/event-stream")], String::new()).await
    }
}
