//! What taskgate makes between clients and servers of the stateless era, as the schemas of 2026-07-28 and of the tasks
//! extension have it.

use serde_json::{Value, json};
use taskgate::mcp::STATELESS;

use super::ending;
use crate::support::client::Answer;
use crate::support::dialect::reaches;
use crate::support::schema::{self, EXT, assert_error, assert_result, assert_valid};
use crate::support::upstream::{Script, script};
use crate::support::{Client, Gate, Latch, Upstream};

fn tasks(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({"elicitation": {}, "roots": {}}))
}

/// Asks once when the latch opens.
fn curious(latch: &Latch) -> Script {
    let elicit = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}});
    let asks = json!({"resultType": "input_required", "inputRequests": {"e": elicit, "r": {"method": "roots/list"}}, "requestState": "s"});
    script::held_then(latch, move |mut call| {
        let asks = asks.clone();
        async move {
            let is_answered = call.request.json["params"].get("inputResponses").is_some();
            if is_answered { call.say("thanks") } else { call.result(&asks) }
        }
    })
}

#[track_caller]
fn assert_task(answer: &Answer) {
    assert_valid(EXT, "GetTaskResult", answer.result());
    assert_valid(STATELESS, "JSONRPCResultResponse", &answer.json);
}

#[tokio::test]
async fn lists_and_what_the_server_says_of_itself() {
    if !schema::available() {
        return;
    }
    let listed = script::answers(
        r#"{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}],"ttlMs":5,"cacheScope":"public"}"#,
    );
    let upstream = Upstream::builder().native().on("tools/list", listed).start().await;
    let gate = Gate::start(&upstream, "").await;
    for client in [tasks(&gate), gate.client().stateless(json!({}))] {
        assert_result(STATELESS, "DiscoverResult", &client.request("server/discover", json!({})).await);
        assert_result(STATELESS, "ListToolsResult", &client.tools().await);
    }
}

#[tokio::test]
async fn tasks_in_every_state() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .native()
        .tool("ending", ending(&latch))
        .tool("curious", curious(&latch))
        .tool("endless", script::until_gone())
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = tasks(&gate);
    let mut running = Vec::new();
    for how in ["result", "tool", "protocol", "lost"] {
        let handle = client.call("ending", json!({"how": how})).await;
        assert_valid(EXT, "CreateTaskResult", handle.result());
        assert_task(&client.task(&handle.task()).await);
        running.push(handle.task());
    }
    let asks = client.call("curious", json!({})).await.task();
    latch.open();
    for task in running {
        assert_task(&client.task_end(&task).await);
    }
    let asking = reaches(&client, &asks, "input_required").await;
    assert_task(&asking);
    let keys = asking.result()["inputRequests"].as_object().unwrap().keys().cloned();
    let answers: serde_json::Map<String, Value> =
        keys.map(|key| (key, json!({"action": "accept", "roots": []}))).collect();
    let updated = client.update_task(&asks, Value::Object(answers)).await;
    assert_valid(EXT, "UpdateTaskResult", updated.result());
    assert_task(&client.task_end(&asks).await);
    let endless = client.call("endless", json!({})).await.task();
    let cancelled = client.cancel_task(&endless).await;
    assert_valid(EXT, "CancelTaskResult", cancelled.result());
    assert_task(&client.task(&endless).await);
    for retry in &upstream.calls("curious") {
        assert_valid(STATELESS, "CallToolRequest", &retry.json);
    }
    assert_eq!(upstream.calls("curious").len(), 2);
}

#[tokio::test]
async fn jobs() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().native().tool("ending", ending(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().stateless(json!({}));
    let mut running = Vec::new();
    for how in ["result", "tool", "protocol", "lost"] {
        let handle = client.call("ending", json!({"how": how})).await;
        assert_result(STATELESS, "CallToolResult", &handle);
        assert_result(STATELESS, "CallToolResult", &client.job(&handle.job(), 0.0).await);
        running.push(handle.job());
    }
    latch.open();
    for job in running {
        assert_result(STATELESS, "CallToolResult", &client.job_end(&job).await);
        assert_result(STATELESS, "CallToolResult", &client.cancel_job(&job).await);
    }
    assert_result(STATELESS, "CallToolResult", &client.job("nothing", 0.0).await);
}

#[tokio::test]
async fn requests_and_errors_of_taskgates_own() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder()
        .native()
        .tool("one", script::says("x"))
        .tool("two", script::says("x"))
        .page(1)
        .start()
        .await;
    let gate = Gate::start(&upstream, "[tasks]\nwithout_tasks = \"refuse\"").await;
    let client = gate.client().stateless(json!({}));
    client.job("5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11", 0.0).await;
    let (probes, pages) = (upstream.of("server/discover"), upstream.of("tools/list"));
    assert_eq!((probes.len(), pages.len()), (1, 2));
    probes.iter().for_each(|probe| assert_valid(STATELESS, "DiscoverRequest", &probe.json));
    pages.iter().for_each(|page| assert_valid(STATELESS, "ListToolsRequest", &page.json));
    let refused = client.call("one", json!({})).await;
    assert_error(STATELESS, &refused);
    assert_valid(STATELESS, "MissingRequiredClientCapabilityError", &refused.json);
    let client = client.header("mcp-name", "two");
    let body = client.body("1", "tools/call", json!({"name": "one"}));
    let mismatch = Answer::read(client.send("POST", &[("mcp-name", "two")], body).await).await;
    assert_valid(STATELESS, "HeaderMismatchError", &mismatch.json);
}
