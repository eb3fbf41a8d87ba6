//! The server's side of a cell: the plays, each in the words of the era it is called in, and what has to reach it.

use serde_json::{Value, json};

use super::table::{Act, Era, Reaches, Server, When};
use super::{RESULT, Stage, TOOL, TOOL_ERROR};
use crate::support::upstream::{Call, Recorded, Script, script};
use crate::support::{Latch, eventually};

const META: &str = "io.modelcontextprotocol/";

/// What a server asks.
pub(super) fn question() -> Value {
    json!({"mode": "form", "message": "go on?", "requestedSchema": {"type": "object", "properties": {}}})
}

/// A tool that does this; what comes after the handle begins and ends as the latches say.
pub(super) fn plays(act: Act, when: When, latches: [Latch; 2]) -> Script {
    script::script(move |mut call| {
        let [begins, ends] = latches.clone();
        async move {
            if when == When::After {
                call.open();
                begins.passed().await;
            }
            match act {
                Act::Result => call.result_text(RESULT),
                Act::ToolError => call.result_text(TOOL_ERROR),
                Act::RpcError => call.error(-32050, "out of tokens", &json!({"left": 0})),
                Act::Lost => call.cut().await,
                Act::Question => asks(call).await,
                Act::Cancel => works(call).await,
                Act::Progress => {
                    call.progress(1.0, 2.0, "half");
                    ends.passed().await;
                    call.result_text(RESULT);
                }
            }
        }
    })
}

/// Asks, and says what it was answered with.
async fn asks(mut call: Call) {
    if !call.is_stateless() {
        let answer = call.ask(&json!("q"), "elicitation/create", &question()).await;
        return call.say(&answer["result"].to_string());
    }
    let params = &call.request.json["params"];
    if params["requestState"] == "s1" {
        let said = params["inputResponses"]["k"].to_string();
        return call.say(&said);
    }
    call.result(&asked());
}

/// How a stateless server asks.
pub(super) fn asked() -> Value {
    let request = json!({"method": "elicitation/create", "params": question()});
    json!({"resultType": "input_required", "inputRequests": {"k": request}, "requestState": "s1"})
}

/// Works until it is cancelled in the way of its era.
async fn works(mut call: Call) {
    call.open();
    if !call.is_stateless() {
        call.cancelled().await;
    }
    call.gone().await;
}

impl Stage {
    /// The server has seen no more and no less than this.
    pub(super) async fn reached(&self, reaches: Reaches) {
        let calls = self.calls();
        let era = match reaches {
            Reaches::InSession | Reaches::Response | Reaches::Notification => Era::Handshake,
            Reaches::Alone | Reaches::Retry | Reaches::Closed => Era::Stateless,
        };
        for call in &calls {
            assert!(call.json["params"].get("task").is_none(), "{}: {}", self.what, call.body);
            match era {
                Era::Handshake => self.is_in_session(call),
                Era::Stateless => self.is_alone(call),
            }
        }
        let (cancels, answers) = (self.upstream.cancels(), self.upstream.answers());
        match reaches {
            Reaches::InSession | Reaches::Alone => {
                assert_eq!((cancels.len(), answers.len()), (0, 0), "{}", self.what);
            }
            Reaches::Response => {
                assert_eq!((calls.len(), answers.len()), (1, 1), "{}", self.what);
                assert_eq!((&answers[0].json["id"], answers[0].session()), (&json!("q"), calls[0].session()));
            }
            Reaches::Retry => self.is_retried(&calls, &answers),
            Reaches::Notification | Reaches::Closed => self.is_cancelled(era, &calls).await,
        }
    }

    fn is_in_session(&self, call: &Recorded) {
        let what = format!("{}: {call:?}", self.what);
        assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"), "{what}");
        assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (None, None), "{what}");
        let meta = call.json["params"]["_meta"].as_object().cloned().unwrap_or_default();
        assert!(meta.keys().all(|key| !key.starts_with(META)), "{what}");
        assert!(call.session().is_some(), "{what}");
        if self.caller.era() == Era::Handshake {
            assert_eq!(call.session(), self.client.session.as_deref(), "the client's own: {what}");
            assert_eq!(self.upstream.of("initialize").len(), 1, "{what}");
        }
        let is_bridged = self.caller.era() == Era::Stateless;
        assert!(!(is_bridged && self.server == Server::Both), "a server of both eras is not bridged: {what}");
    }

    fn is_alone(&self, call: &Recorded) {
        let what = format!("{}: {call:?}", self.what);
        let named = ["mcp-protocol-version", "mcp-method", "mcp-name"].map(|name| call.header(name));
        assert_eq!(named, [Some("2026-07-28"), Some("tools/call"), Some(TOOL)], "{what}");
        let meta = |name: &str| &call.json["params"]["_meta"][format!("{META}{name}")];
        assert_eq!(meta("protocolVersion"), "2026-07-28", "{what}");
        assert_eq!(meta("clientInfo")["name"], "story", "{what}");
        assert_eq!(meta("clientCapabilities")["elicitation"], json!({"form": {}}), "{what}");
        assert_eq!(call.session(), None, "{what}");
        let tried = self.upstream.of("initialize").len();
        match self.caller.era() {
            Era::Handshake => assert!(tried <= 1, "{what}"),
            Era::Stateless => assert_eq!(tried, 0, "no session for who needs none: {what}"),
        }
    }

    fn is_retried(&self, calls: &[Recorded], answers: &[Recorded]) {
        assert_eq!((calls.len(), answers.len()), (2, 0), "{}", self.what);
        assert_ne!(calls[0].id(), calls[1].id(), "{}: another request, another id", self.what);
        let (first, second) = (&calls[0].json["params"], &calls[1].json["params"]);
        assert_eq!(second["inputResponses"], json!({"k": super::client::accept()}), "{}", self.what);
        assert_eq!(second["requestState"], "s1", "{}", self.what);
        assert_eq!((&first["name"], &first["arguments"]), (&second["name"], &second["arguments"]), "{}", self.what);
    }

    async fn is_cancelled(&self, era: Era, calls: &[Recorded]) {
        assert_eq!(calls.len(), 1, "{}", self.what);
        let is_closed = || self.upstream.disconnects().iter().any(|gone| gone.n == calls[0].n);
        eventually(&format!("{}: the exchange is closed", self.what), is_closed).await;
        let cancels = self.upstream.cancels();
        match era {
            Era::Stateless => assert!(cancels.is_empty(), "{}: {cancels:?}", self.what),
            Era::Handshake => {
                assert_eq!(cancels.len(), 1, "{}", self.what);
                assert_eq!(cancels[0].json["params"]["requestId"].to_string(), calls[0].id(), "{}", self.what);
                assert_eq!(cancels[0].session(), calls[0].session(), "{}", self.what);
            }
        }
    }
}
