//! Every JSON-RPC error that taskgate makes, in each revision.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::ending;
use crate::support::client::Answer;
use crate::support::schema::{self, REVISIONS, assert_error, assert_error_message};
use crate::support::upstream::{Upstream, script};
use crate::support::{Client, Gate, Latch, ms};

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

/// An upstream with a tool for each thing that goes wrong behind taskgate.
async fn faulty() -> Upstream {
    let cut = script::script(|mut call| async move { call.cut().await });
    Upstream::builder()
        .tool("html", script::responds(502, &[("content-type", "text/html")], b"<html>"))
        .tool("cut", cut)
        .tool("endless", script::until_cancelled())
        .tool("refused", script::says("never"))
        .start()
        .await
}

const RULES: &str = r#"
[tasks]
threshold = "30s"
[[upstream.rule]]
tool = "endless"
mode = "sync"
max_runtime = "60ms"
[[upstream.rule]]
tool = "refused"
without_tasks = "refuse"
"#;

/// A failure of the test unless this is such an error.
#[track_caller]
fn assert_reason(revision: &str, answer: &Answer, code: i64, reason: Option<&str>) {
    assert_error(revision, answer);
    assert_eq!((answer.code(), answer.error()["data"]["reason"].as_str()), (code, reason), "{}", answer.raw);
}

#[tokio::test]
async fn of_calls() {
    if !schema::available() {
        return;
    }
    let upstream = faulty().await;
    let gate = Gate::start(&upstream, RULES).await;
    for revision in REVISIONS {
        let client = gate.client().version(revision).open().await;
        for (tool, code, reason) in [
            ("html", -32603, Some("upstream_protocol")),
            ("cut", -32603, Some("outcome_unknown")),
            ("endless", -32603, Some("max_runtime")),
            ("refused", -32601, None),
        ] {
            assert_reason(revision, &client.call(tool, json!({})).await, code, reason);
        }
    }
}

#[tokio::test]
async fn of_tasks() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ending", ending(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    latch.open();
    for revision in REVISIONS {
        let client = gate.client().version(revision).extension().open().await;
        for method in ["tasks/get", "tasks/cancel", "tasks/update", "tasks/result"] {
            for params in [json!({"taskId": UNKNOWN, "inputResponses": {}}), json!({}), json!({"taskId": 7})] {
                assert_error(revision, &client.request(method, params).await);
            }
        }
        assert_reason(revision, &client.request("tasks/list", json!({})).await, -32601, None);
    }
}

#[tokio::test]
async fn of_an_expired_task() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ending", ending(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nttl = \"500ms\"").await;
    let client = gate.client().extension().open().await;
    let task = client.call("ending", json!({})).await.task();
    latch.open();
    client.task_end(&task).await;
    sleep(ms(650)).await;
    let expired = client.task(&task).await;
    assert_eq!(expired.error()["message"], "Task has expired");
    assert_reason("2025-11-25", &expired, -32602, None);
}

#[tokio::test]
async fn of_sessions() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ending", ending(&latch)).start().await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"ending\"\nmode = \"async\"";
    let gate = Gate::start(&upstream, rule).await;
    for revision in REVISIONS {
        let homeless = gate.client().version(revision).extension_per_request();
        gate.client().open().await;
        assert_reason(revision, &homeless.call("ending", json!({})).await, -32602, None);

        let client = gate.client().version(revision).extension().open().await;
        client.call("ending", json!({})).await.task();
        client.delete().await;
        let dead = client.tools().await;
        assert_eq!(dead.status, 404);
        assert_error(revision, &dead);
    }
    gate.drain();
    for revision in REVISIONS {
        let client = gate.client().version(revision);
        assert_reason(revision, &client.call("ending", json!({})).await, -32603, Some("shutting_down"));
    }
}

#[tokio::test]
async fn of_upstreams_that_are_not_there() {
    if !schema::available() {
        return;
    }
    let gate = Gate::at("http://127.0.0.1:9/mcp", "").await;
    for revision in REVISIONS {
        let refused = gate.client().version(revision).hello().await;
        assert_reason(revision, &refused, -32603, Some("upstream_unreachable"));
    }
}

#[tokio::test]
async fn of_envelopes_and_of_http() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().start().await;
    let gate = Gate::start(&upstream, "[server]\nmax_body = \"4KiB\"").await;
    let client: Client = gate.client().open().await;
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "A".repeat(5_000));
    for body in ["{", "7", "[]", r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":1}"#, &long]
    {
        let answer = client.ask(body.to_owned()).await;
        assert!((400..500).contains(&answer.status), "{body:.40}: {} {}", answer.status, answer.raw);
        assert_error("2025-11-25", &answer);
    }
    for (method, path, headers) in [
        ("PUT", "/mcp", [("accept", "*/*")]),
        ("POST", "/nowhere", [("accept", "*/*")]),
        ("POST", "/mcp", [("accept", "image/png")]),
        ("POST", "/mcp", [("origin", "http://stranger.example")]),
        ("POST", "/mcp", [("host", "stranger.example")]),
    ] {
        let reply = gate.http().send(method, path, &headers, "{}").await;
        assert!((400..500).contains(&reply.status), "{method} {path} {headers:?}: {}", reply.status);
        let body: Value = serde_json::from_str(&reply.text().await).expect("an error as JSON");
        assert_error_message("2025-11-25", &body);
    }
}
