//! What a script can do with the request it answers.
//!
//! Scripts are plain async functions over [`Call`]: waiting, asking, answering and breaking off in any order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Shared;
use super::record::Recorded;
use super::reply::Reply;

/// One request under way.
pub struct Call {
    /// What was asked.
    pub request: Recorded,
    /// How many of the same kind (tool or method) came before.
    pub before: usize,
    pub(super) reply: Reply,
    pub(super) shared: Arc<Shared>,
}

impl Call {
    /// Whether it is a request of the stateless era, at a server that speaks it.
    pub fn is_stateless(&self) -> bool {
        self.shared.settings.modern || (self.shared.settings.both && super::modern::says_so(&self.request))
    }

    /// An argument of the tool.
    pub fn arg(&self, name: &str) -> &Value {
        &self.request.json["params"]["arguments"][name]
    }

    /// The progress token that came with the request.
    pub fn token(&self) -> Option<&Value> {
        let token = &self.request.json["params"]["_meta"]["progressToken"];
        (!token.is_null()).then_some(token)
    }

    /// Adds a header to the answer.
    pub fn header(&mut self, name: &str, value: &str) {
        self.reply.header(name, value);
    }

    /// Sends the head of an event stream now.
    pub fn open(&mut self) {
        if !self.reply.begun() {
            self.reply.header("content-type", "text/event-stream");
            self.reply.open(200);
        }
    }

    /// Any bytes on the event stream.
    pub fn bytes(&mut self, bytes: impl Into<Bytes>) {
        self.open();
        self.reply.write(bytes);
    }

    /// One event with a JSON message.
    pub fn event(&mut self, message: &str) {
        self.bytes(format!("event: message\ndata: {message}\n\n"));
    }

    /// Ends the event stream, whatever was sent.
    pub fn end(&mut self) {
        self.reply.finish();
    }

    /// A notification on the call's stream.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.event(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Progress with the request's token; nothing without one.
    pub fn progress(&mut self, progress: f64, total: f64, message: &str) {
        if let Some(token) = self.token().cloned() {
            let params = json!({"progressToken": token, "progress": progress, "total": total, "message": message});
            self.notify("notifications/progress", &params);
        }
    }

    /// Asks the client something on the call's stream and waits for the answer: the whole JSON-RPC message.
    pub async fn ask(&mut self, id: &Value, method: &str, params: &Value) -> Value {
        self.pose(id, method, params).await.unwrap_or_default()
    }

    /// Asks the client something and goes on; the answer comes later.
    pub fn pose(&mut self, id: &Value, method: &str, params: &Value) -> oneshot::Receiver<Value> {
        let answer = self.hear(id);
        self.event(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        answer
    }

    /// Listens for an answer to the question `id` in this session.
    pub fn hear(&self, id: &Value) -> oneshot::Receiver<Value> {
        let (sender, answer) = oneshot::channel();
        let key = (self.request.session().map(str::to_owned), id.to_string());
        self.shared.state.lock().unwrap().questions.insert(key, sender);
        answer
    }

    /// The result as JSON text, digit for digit.
    pub fn result_text(&mut self, result: &str) {
        let id = self.request.id();
        let result = if self.is_stateless() { &super::modern::typed(result) } else { result };
        self.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    /// The result.
    pub fn result(&mut self, result: &Value) {
        self.result_text(&result.to_string());
    }

    /// A tool result with one text block.
    pub fn say(&mut self, text: &str) {
        self.result(&json!({"content": [{"type": "text", "text": text}]}));
    }

    /// The same for the request with this id, on the stream that takes up the one of that request.
    pub fn say_to(&mut self, id: &str, text: &str) {
        let result = json!({"content": [{"type": "text", "text": text}]});
        self.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        self.end();
    }

    /// A JSON-RPC error.
    pub fn error(&mut self, code: i64, message: &str, data: &Value) {
        let id = self.request.id();
        let error = json!({"code": code, "message": message, "data": data});
        self.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }

    /// The last message, framed as the upstream frames its answers.
    pub fn message(&mut self, message: &str) {
        if self.reply.begun() || self.shared.settings.sse {
            self.event(message);
            self.reply.finish();
        } else {
            self.reply.whole(200, &[("content-type", "application/json")], message.to_owned());
        }
    }

    /// Any HTTP answer.
    pub fn raw(&mut self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        self.reply.whole(status, headers, body);
    }

    /// A head, and a body of which this is only the beginning.
    pub fn begin(&mut self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        for (name, value) in headers {
            self.reply.header(name, value);
        }
        self.reply.open(status);
        self.reply.write(body);
    }

    /// More of the body.
    pub fn more(&mut self, body: impl Into<Bytes>) {
        self.reply.write(body);
    }

    /// Closes the connection without another word.
    pub async fn cut(&mut self) {
        self.reply.cut(None).await;
    }

    /// Resets the connection.
    pub async fn reset(&mut self) {
        self.reply.cut(Some(Duration::ZERO)).await;
    }

    /// Resolves when the peer has closed the exchange.
    pub async fn gone(&mut self) {
        self.reply.gone().await;
    }

    /// Resolves when this call was cancelled by a notification on its session that names its id.
    pub async fn cancelled(&self) {
        let mut changes = self.shared.log.changes();
        let id = &self.request.json["id"];
        loop {
            changes.borrow_and_update();
            let named =
                self.shared.log.cancels().iter().any(|cancel| {
                    cancel.session() == self.request.session() && cancel.json["params"]["requestId"] == *id
                });
            if named || changes.changed().await.is_err() {
                return;
            }
        }
    }
}
