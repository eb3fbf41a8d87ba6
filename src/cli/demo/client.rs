//! A small MCP client of the handshake era, as the demo's flows need it.
//!
//! It sends what SDK clients send and keeps the raw answers, because the flows look at their shape.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::answer;

/// The extension's name in `capabilities.extensions`.
const TASKS: &str = "io.modelcontextprotocol/tasks";
const VERSION: &str = "2025-11-25";
/// Longest wait for one answer: the demo must not hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client declares at `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    /// Nothing.
    Plain,
    /// The tasks extension.
    Tasks,
}

/// One open session. Cloning shares the session.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    session: Option<String>,
    next: u64,
}

/// The answer to one request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The whole JSON-RPC response.
    pub(super) message: Value,
    /// What came before it on its stream.
    pub(super) notifications: Vec<Value>,
    /// From sending to the end of the answer.
    pub(super) took: Duration,
}

impl Answer {
    /// The `result`, or the JSON-RPC error in words.
    ///
    /// # Errors
    /// When the answer is a JSON-RPC error.
    pub(super) fn result(&self) -> Result<&Value, String> {
        match self.message.get("error") {
            Some(error) => Err(format!("JSON-RPC error {}: {}", error["code"], error["message"])),
            None => Ok(&self.message["result"]),
        }
    }
}

impl Client {
    /// Opens a session: `initialize`, then `notifications/initialized`.
    ///
    /// # Errors
    /// One sentence: what went wrong on the way.
    pub(super) async fn connect(url: &str, ability: Ability) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|error| error.to_string())?;
        let mut client = Self { http, url: url.to_owned(), session: None, next: 0 };
        let capabilities = match ability {
            Ability::Plain => json!({}),
            Ability::Tasks => json!({"extensions": {TASKS: {}}}),
        };
        let params = json!({"protocolVersion": VERSION, "capabilities": capabilities,
            "clientInfo": {"name": "taskgate-demo", "version": env!("CARGO_PKG_VERSION")}});
        client.request("initialize", params).await?.result()?;
        client.notify("notifications/initialized", json!({})).await?;
        Ok(client)
    }

    /// The id of the session, if the server gave one.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The JSON-RPC id that the next request will have.
    #[cfg(test)]
    pub(super) fn next_id(&self) -> u64 {
        self.next
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Answer, String> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Sends one request and waits for its answer, a JSON-RPC error included.
    ///
    /// # Errors
    /// One sentence, when there is no JSON-RPC answer.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Answer, String> {
        let id = self.next;
        self.next += 1;
        let began = Instant::now();
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let response = self.post(&body).await?;
        if method == "initialize" {
            let session = response.headers().get("mcp-session-id");
            self.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        }
        let (message, notifications) = answer::read(http::Response::from(response), id).await?;
        Ok(Answer { message, notifications, took: began.elapsed() })
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// One sentence, when it was not accepted.
    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), String> {
        let response = self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await?;
        accepted(&response)
    }

    /// Ends the session.
    ///
    /// # Errors
    /// One sentence, when the server refused.
    pub(super) async fn close(self) -> Result<(), String> {
        let request = self.headed(self.http.delete(&self.url));
        accepted(&request.send().await.map_err(|error| explain(&error))?)
    }

    async fn post(&self, body: &Value) -> Result<reqwest::Response, String> {
        let request = self.headed(self.http.post(&self.url)).body(body.to_string());
        request.send().await.map_err(|error| explain(&error))
    }

    fn headed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let request =
            request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json, text/event-stream");
        match &self.session {
            Some(session) => request.header("mcp-session-id", session).header("mcp-protocol-version", VERSION),
            None => request,
        }
    }
}

fn accepted(response: &reqwest::Response) -> Result<(), String> {
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("HTTP {status}")) }
}

/// An error with its causes: reqwest's own words stop short of the reason.
pub(in crate::cli) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
