//! Every message that taskgate makes or edits, held to the schemas of the protocol.
//!
//! One story per kind of message; what passes through untouched is the upstream's and is not judged here.

mod core;
mod eras;
mod errors;
mod ext;
mod jobs;
mod native;
mod questions;
mod upward;

use serde_json::{Value, json};

use crate::support::schema::{self, EXT, REVISIONS, assert_result, assert_valid};
use crate::support::upstream::{Script, script};
use crate::support::{Client, Gate, Latch, Upstream};

/// What a tool answers that has everything a result can have.
const RICH: &str = r#"{"content":[{"type":"text","text":"42"},{"type":"resource","resource":{"uri":"file:///x","text":"x"}}],"structuredContent":{"n":42},"_meta":{"x/y":1}}"#;

const FAILURE: &str = r#"{"content":[{"type":"text","text":"no mesh"}],"isError":true}"#;

/// Clients of every kind that a handshake revision has, open.
async fn clients(gate: &Gate) -> Vec<(&'static str, Client)> {
    let mut clients = Vec::new();
    for revision in REVISIONS {
        clients.push((revision, gate.client().version(revision).open().await));
        clients.push((revision, gate.client().version(revision).extension().open().await));
    }
    clients
}

/// Ends when the latch opens, as its argument `how` says.
fn ending(latch: &Latch) -> Script {
    script::held_then(latch, |call| script::ends(call, RICH, FAILURE))
}

#[test]
fn a_wrong_message_is_refused() {
    if !schema::available() {
        return;
    }
    let valid = json!({"content": [{"type": "text", "text": "x"}]});
    let wrong =
        [json!(null), json!({}), json!({"content": [{"type": "text"}]}), json!({"content": [], "isError": null})];
    for revision in REVISIONS {
        assert_valid(revision, "CallToolResult", &valid);
        for message in &wrong {
            assert!(!schema::errors(revision, "CallToolResult", message).is_empty(), "{revision}: {message}");
        }
    }
    let told = schema::errors("2025-11-25", "CallToolResult", &json!({"content": [], "structuredContent": null}));
    assert!(told[0].contains("structuredContent") && told[0].contains("object"), "it says what and where: {told:?}");
    let half = json!({"resultType": "complete", "taskId": "1", "status": "completed", "createdAt": "", "lastUpdatedAt": "", "ttlMs": 1});
    assert!(!schema::errors(EXT, "GetTaskResult", &half).is_empty(), "completed without a result");
}

#[tokio::test]
async fn the_hello() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("any", script::says("x")).instructions("Mind the gap.").start().await;
    for owner in ["auto", "session"] {
        let gate = Gate::start(&upstream, &format!("[tasks]\nowner = \"{owner}\"")).await;
        for revision in REVISIONS {
            for mut client in [gate.client(), gate.client().extension()] {
                client = client.version(revision);
                assert_result(revision, "InitializeResult", &client.hello().await);
            }
        }
    }
}

#[tokio::test]
async fn the_list_of_tools() {
    if !schema::available() {
        return;
    }
    let typed: Value = json!({"outputSchema": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
        "required": ["n"], "$defs": {"n": {"type": "integer"}}}, "execution": {"taskSupport": "forbidden"}});
    let upstream = Upstream::builder()
        .tool_with("typed", &typed, script::answers(RICH))
        .tool("any", script::says("x"))
        .page(1)
        .empty_cursor()
        .start()
        .await;
    for output_schema in ["drop", "widen", "keep"] {
        let jobs = format!("[tasks]\nowner = \"session\"\n[jobs]\noutput_schema = \"{output_schema}\"");
        let gate = Gate::start(&upstream, &jobs).await;
        for (revision, client) in clients(&gate).await {
            let first = client.tools().await;
            assert_result(revision, "ListToolsResult", &first);
            assert!(first.raw.contains("list_jobs"), "{}", first.raw);
            let last = client.request("tools/list", json!({"cursor": "1"})).await;
            assert_result(revision, "ListToolsResult", &last);
        }
    }
}
