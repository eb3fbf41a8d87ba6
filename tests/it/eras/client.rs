//! The client's side of a cell: what happens before there is a handle.

use serde_json::{Value, json};

use super::table::{Act, Era, Sees, Server};
use super::{SERVER_INFO, Stage, TOOL, server, server_info};
use crate::support::client::{Answer, Events};
use crate::support::dialect::last;
use crate::support::{Dialect, eventually};

pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// How its questions are answered.
pub(super) fn accept() -> Value {
    json!({"action": "accept", "content": {"n": 1}})
}

pub(super) fn their_error() -> Value {
    json!({"code": -32050, "message": "out of tokens", "data": {"left": 0}})
}

impl Stage {
    /// Walks the play as its client, which sees this.
    pub(super) async fn sees(&self, sees: Sees) {
        match sees {
            Sees::Inline => self.is_inline(&self.call().await),
            Sees::TheirError => assert_eq!(self.call().await.error(), &their_error(), "{}", self.what),
            Sees::OutcomeUnknown => self.is_unknown(&self.call().await),
            Sees::AskedOnTheStream => self.is_asked_on_the_stream().await,
            Sees::AskedByAnswer => self.is_asked_by_answer().await,
            Sees::Silence => self.withdraws_by_notification().await,
            Sees::Left => self.withdraws_by_leaving().await,
            Sees::OwnToken => self.hears_its_token().await,
            Sees::Ends(status, carried) => self.ends_after_the_handle(status, carried).await,
            Sees::AskedInTheTask => self.is_asked_in_the_task().await,
            Sees::AskedWhereItWaits => self.is_asked_where_it_waits().await,
            Sees::AskedByARead => self.is_asked_by_a_read().await,
            Sees::OwnTokenWhereItWaits => self.hears_its_token_where_it_waits().await,
            Sees::OwnTokenOnGet => self.hears_its_token_on_get().await,
            Sees::StatusText => self.reads_the_text_of_the_status().await,
        }
    }

    /// The parameters of the call, beside its name.
    fn params(&self) -> Value {
        let mut params = json!({"name": TOOL, "arguments": {"n": 1}});
        if self.dialect() == Dialect::Core {
            params["task"] = json!({});
        }
        if self.act == Act::Progress {
            params["_meta"] = json!({"progressToken": "mine"});
        }
        params
    }

    pub(super) async fn call(&self) -> Answer {
        let answer = self.client.request("tools/call", self.params()).await;
        assert_eq!(answer.status, 200, "{}: {}", self.what, answer.raw);
        let session = self.client.session.as_deref().filter(|_| self.caller.era() == Era::Handshake);
        let named = answer.header("mcp-session-id");
        assert!(named.is_none() || named == session, "{}: {named:?}", self.what);
        answer
    }

    pub(super) fn is_inline(&self, answer: &Answer) {
        let mut result = self.result();
        if self.is_bridged_down() {
            result["_meta"][SERVER_INFO] = server_info()[SERVER_INFO].clone();
        }
        assert_eq!(answer.result(), &result, "{}", self.what);
        self.has_every_digit(answer);
    }

    pub(super) fn has_every_digit(&self, answer: &Answer) {
        for text in [r#""structuredContent":{"n":9007199254740993}"#, r#""x/y":1.0"#] {
            assert!(answer.raw.contains(text), "{}: {}", self.what, answer.raw);
        }
    }

    pub(super) fn is_unknown(&self, answer: &Answer) {
        assert_eq!((answer.code(), answer.reason()), (-32603, "outcome_unknown"), "{}: {}", self.what, answer.raw);
    }

    /// Opens the call's stream.
    async fn stream(&self) -> Events {
        let reply = self.client.post(self.client.body("\"c\"", "tools/call", self.params())).await;
        assert_eq!(reply.status, 200, "{}", self.what);
        reply.events()
    }

    async fn is_asked_on_the_stream(&self) {
        let mut stream = self.stream().await;
        let asks = stream.message().await.expect("a question");
        self.is_question(&asks);
        assert!(asks["params"].get("_meta").is_none_or(|meta| meta.get(RELATED).is_none()), "{}: {asks}", self.what);
        self.client.answer(&asks, accept()).await;
        let answer = last(&mut stream).await;
        assert_eq!(answer["id"], "c", "{}: {answer}", self.what);
        self.says_the_answer(answer["result"]["content"][0]["text"].as_str());
    }

    pub(super) fn is_question(&self, asks: &Value) {
        assert_eq!(asks["method"], "elicitation/create", "{}: {asks}", self.what);
        for (key, value) in server::question().as_object().expect("an object") {
            assert_eq!(&asks["params"][key], value, "{}: {asks}", self.what);
        }
    }

    pub(super) fn says_the_answer(&self, text: Option<&str>) {
        let said: Value = serde_json::from_str(text.unwrap_or_default()).unwrap_or_default();
        assert_eq!(said, accept(), "{}: {text:?}", self.what);
    }

    /// The one question that an answer asks, by its key.
    pub(super) fn required(&self, answer: &Answer) -> String {
        let result = answer.result();
        assert_eq!(result["resultType"], "input_required", "{}: {}", self.what, answer.raw);
        assert!(result["requestState"].is_string(), "{}: {}", self.what, answer.raw);
        let requests = result["inputRequests"].as_object().expect("questions");
        assert_eq!(requests.len(), 1, "{}: {}", self.what, answer.raw);
        let (key, asks) = requests.iter().next().expect("one");
        self.is_question(asks);
        key.clone()
    }

    async fn is_asked_by_answer(&self) {
        let first = self.call().await;
        let key = self.required(&first);
        if self.server != Server::Handshake {
            assert_eq!(first.result(), &server::asked(), "{}: it passes untouched", self.what);
        }
        let end = self.client.retry("tools/call", self.params(), &first, json!({key: accept()})).await;
        assert_eq!((end.status, &end.result()["resultType"]), (200, &json!("complete")), "{}", self.what);
        self.says_the_answer(Some(end.text()));
    }

    async fn withdraws_by_notification(&self) {
        let mut stream = self.stream().await;
        eventually("the call is there", || self.calls().len() == 1).await;
        let taken = self.client.cancelled(&json!("c")).await;
        assert_eq!((taken.status, &*taken.raw), (202, ""), "{}", self.what);
        let last = stream.message().await;
        assert!(last.is_none(), "{}: {last:?}", self.what);
    }

    async fn withdraws_by_leaving(&self) {
        let stream = self.stream().await;
        eventually("the call is there", || self.calls().len() == 1).await;
        let swallowed = self.client.cancelled(&json!("c")).await;
        assert_eq!((swallowed.status, &*swallowed.raw), (202, ""), "{}", self.what);
        assert!(self.upstream.disconnects().is_empty() && self.upstream.cancels().is_empty(), "{}", self.what);
        drop(stream);
    }

    async fn hears_its_token(&self) {
        let answer = self.call().await;
        let told = answer.before("notifications/progress");
        assert_eq!(told.len(), 1, "{}: {told:?}", self.what);
        self.is_progress(&told[0]);
        self.is_inline(&answer);
        if self.is_bridged_down() {
            let token = &self.calls()[0].json["params"]["_meta"]["progressToken"];
            assert!(token.is_string() && token != "mine", "{}: one of taskgate's own, not {token}", self.what);
        }
        let silent = self.client.call(TOOL, json!({"n": 1})).await;
        assert!(silent.before("notifications/progress").is_empty(), "{}: nobody asked for it", self.what);
    }

    pub(super) fn is_progress(&self, told: &Value) {
        let expected = json!({"progressToken": "mine", "progress": 1.0, "total": 2.0, "message": "half"});
        let mut params = told["params"].clone();
        // Where a task is there, it may be named.
        params.as_object_mut().expect("an object").remove("_meta");
        assert_eq!(params, expected, "{}: {told}", self.what);
    }
}
