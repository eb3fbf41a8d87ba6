//! The tasks extension in the handshake era: declared once or per request, readable both ways.
//!
//! A task shape goes only to those who asked for it.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::EXTENSION;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

const ISERROR: &str = r#"{"content":[{"type":"text","text":"no such mesh"}],"structuredContent":{"code":7},"isError":true,"_meta":{"x/y":1}}"#;

fn failing(latch: &Latch) -> script::Script {
    script::held_then(latch, |mut call| async move {
        match call.arg("how").as_str().unwrap() {
            "tool" => call.result_text(ISERROR),
            _ => call.error(-32042, "out of tokens", &json!({"left": 0})),
        }
    })
}

#[tokio::test]
async fn b52_only_a_declared_and_eligible_call_yields_a_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("eligible", script::held(&latch, "late"))
        .tool("ineligible", script::after(ms(150), "held"))
        .start()
        .await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"ineligible\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    let old = gate.client().version("2025-06-18").open().await;
    let plain = gate.client().open().await;
    let ext = gate.client().extension().open().await;
    let per_request = gate.client().extension_per_request().open().await;
    let experimental = gate.client().capabilities(json!({"experimental": {EXTENSION: {}}})).open().await;
    for (client, more) in
        [(&old, json!({"task": {}})), (&old, json!({})), (&plain, json!({})), (&plain, json!({"task": 7}))]
    {
        let handle = client.call_with("eligible", more).await;
        handle.job();
        assert!(handle.result().get("resultType").is_none() && handle.result().get("task").is_none());
    }
    for client in [&plain, &ext, &per_request] {
        client.call_with("eligible", json!({"task": {"ttl": 60000}})).await.core_task();
        let refused = client.call_with("ineligible", json!({"task": {}})).await;
        assert_eq!(refused.code(), -32601);
        assert!(refused.error()["message"].as_str().unwrap().contains("does not run as a task"), "{}", refused.raw);
    }
    for client in [&ext, &per_request, &experimental] {
        client.call_with("eligible", json!({})).await.task();
    }
    for client in [&old, &plain, &ext, &per_request] {
        let held = client.call_with("ineligible", json!({})).await;
        assert_eq!(held.text(), "held");
        assert!(held.result().get("resultType").is_none() && held.result().get("task").is_none());
    }
    for call in upstream.of("tools/call") {
        assert!(call.json["params"].get("task").is_none(), "servers fail on it: {}", call.body);
    }
}

#[tokio::test]
async fn b52_the_extension_is_announced_to_those_who_declared_it() {
    let upstream = Upstream::builder().tool("any", script::says("x")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let declared = gate.client().extension().hello().await;
    assert_eq!(declared.result()["capabilities"]["extensions"][EXTENSION], json!({}));
    let plain = gate.client().hello().await;
    assert!(plain.result()["capabilities"].get("extensions").is_none(), "{}", plain.raw);

    let gate = Gate::start(&upstream, "[dialect]\nhandshake_extension = false").await;
    let off = gate.client().extension().hello().await;
    assert!(off.result()["capabilities"].get("extensions").is_none(), "{}", off.raw);
}

#[tokio::test]
async fn b52_the_extension_can_be_turned_off() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[dialect]\nhandshake_extension = false").await;
    for client in [gate.client().extension(), gate.client().extension_per_request()] {
        let handle = client.open().await.call("slow", json!({})).await;
        handle.job();
        assert!(handle.result().get("taskId").is_none(), "{}", handle.raw);
    }
}

#[tokio::test]
async fn b52_a_server_with_tasks_of_its_own_is_left_alone() {
    let theirs = script::answers(r#"{"taskId":"theirs","status":"working"}"#);
    let upstream = Upstream::builder()
        .capabilities(json!({"tools": {}, "extensions": {EXTENSION: {}}}))
        .tool("slow", script::after(ms(200), "late"))
        .on("tasks/get", theirs)
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    assert_eq!(client.call("slow", json!({})).await.text(), "late");
    assert_eq!(client.task("theirs").await.result()["status"], "working");
    assert_eq!(client.tool_names().await, ["slow"]);
}

#[tokio::test]
async fn b52_the_hybrid_handle_is_readable_both_ways() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let handle = client.call("slow", json!({})).await;
    let (result, task) = (handle.result(), handle.task());
    assert_eq!(result["status"], "working");
    assert!(result["createdAt"].is_string() && result["lastUpdatedAt"].is_string(), "{}", handle.raw);
    assert!(result["ttlMs"].as_u64().unwrap() >= 3_600_000, "{}", handle.raw);
    assert!((200..=1000).contains(&result["pollIntervalMs"].as_u64().unwrap()), "{}", handle.raw);
    for none in ["result", "error", "inputRequests", "task"] {
        assert!(result.get(none).is_none(), "{none} in {}", handle.raw);
    }
    assert_eq!(handle.job(), task);
    assert!(client.tool_names().await.contains(&"get_job_result".to_owned()));

    let working = client.task(&task).await;
    let state = working.result();
    assert_eq!((&state["resultType"], &state["taskId"]), (&json!("complete"), &json!(task)));
    assert_eq!((&state["ttl"], &state["pollInterval"]), (&state["ttlMs"], &state["pollIntervalMs"]));
    assert!(state.get("result").is_none() && state.get("error").is_none(), "{}", working.raw);
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!((end.state().as_str(), &end.result()["result"]["content"][0]["text"]), ("completed", &json!("late")));
    assert!(end.result()["result"].get("resultType").is_none(), "{}", end.raw);
    assert_eq!(client.job_end(&task).await.block(1), "late");
}

#[tokio::test]
async fn b53_outcomes_as_a_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("failing", failing(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let tool = client.call("failing", json!({"how": "tool"})).await.task();
    let protocol = client.call("failing", json!({"how": "protocol"})).await.task();
    latch.open();
    let end = client.task_end(&tool).await;
    assert_eq!(end.state(), "completed");
    assert_eq!(end.result()["result"], serde_json::from_str::<Value>(ISERROR).unwrap());
    assert!(end.result().get("error").is_none());
    let end = client.task_end(&protocol).await;
    assert_eq!(end.state(), "failed");
    assert_eq!(end.result()["error"], json!({"code": -32042, "message": "out of tokens", "data": {"left": 0}}));
    assert!(end.result().get("result").is_none());
    assert!(end.result()["statusMessage"].is_string(), "{}", end.raw);
}

#[tokio::test]
async fn b53_outcomes_as_a_job() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("failing", failing(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let tool = client.call("failing", json!({"how": "tool"})).await.job();
    let protocol = client.call("failing", json!({"how": "protocol"})).await.job();
    latch.open();
    let end = client.job_end(&tool).await;
    assert_eq!((&end.note()["status"], &end.note()["job_id"]), (&json!("error"), &json!(tool)));
    assert_eq!(end.block(1), "no such mesh");
    assert_eq!(end.result()["structuredContent"], json!({"code": 7}));
    assert_eq!((&end.result()["isError"], &end.result()["_meta"]["x/y"]), (&json!(true), &json!(1)));

    let end = client.job_end(&protocol).await;
    let note = end.note();
    assert_eq!(note["status"], "error");
    assert_eq!(note["error"], json!({"code": -32042, "message": "out of tokens", "data": {"left": 0}}));
    assert_eq!(end.result()["isError"], true);
    assert!(end.result().get("structuredContent").is_none(), "{}", end.raw);
}

#[tokio::test]
async fn b54_cancelling_a_finished_task_changes_nothing() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!(client.cancel_task(&task).await.result(), &json!({"resultType": "complete"}));
    let after = client.task(&task).await;
    assert_eq!((after.state().as_str(), &after.result()["result"]), ("completed", &end.result()["result"]));
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn b55_retention_counts_from_the_end_of_the_work() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nttl = \"500ms\"").await;
    let client = gate.client().extension().open().await;
    let handle = client.call("slow", json!({})).await;
    let task = handle.task();
    sleep(ms(800)).await;
    let working = client.task(&task).await;
    assert_eq!(working.state(), "working");
    let (before, after) = (handle.result()["ttlMs"].as_u64().unwrap(), working.result()["ttlMs"].as_u64().unwrap());
    assert!(after >= 1300 && after > before, "elapsed and retention: {before}, then {after}");
    latch.open();
    assert_eq!(client.task_end(&task).await.state(), "completed");
    sleep(ms(200)).await;
    assert_eq!(client.task(&task).await.state(), "completed");
    sleep(ms(450)).await;
    let expired = client.task(&task).await;
    assert_eq!((expired.status, expired.code()), (200, -32602));
    assert_eq!(expired.error()["message"], "Task has expired");
    assert!(upstream.cancels().is_empty());
    let stranger = gate.client().extension().open().await.task(&task).await;
    assert_eq!(stranger.error()["message"], "Task is not available in this session");
}

#[tokio::test]
async fn b56_absurd_retention_never_makes_a_dead_id() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    for ttl in ["0", "-1", "1", "1.5", "\"60000\"", "null", "9007199254740992", "9223372036854775807", "1e300", "[]"] {
        let params = format!(r#"{{"name":"slow","arguments":{{}},"task":{{"ttl":{ttl}}}}}"#);
        let id = client.next_id();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let answer = client.ask(body).await;
        if answer.json.get("error").is_some() {
            assert_eq!(answer.code(), -32602, "{ttl}");
        } else {
            assert_eq!(client.task(&answer.core_task()).await.state(), "working", "{ttl}");
        }
    }
}

#[test]
fn b56_absurd_times_in_the_file_are_refused() {
    for ttl in ["-1s", "1", "soon", "", "99999999999999999999h"] {
        assert!(!Gate::accepts(&format!("[tasks]\nttl = \"{ttl}\"")), "{ttl}");
    }
    assert!(!Gate::accepts("[tasks]\nttl = -5"));
    assert!(Gate::accepts("[tasks]\nttl = \"90m\""));
}

#[tokio::test]
async fn b59_an_update_is_acknowledged_and_needs_answers() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    let update = |params: Value| client.request("tasks/update", params);
    let known = update(json!({"taskId": task, "inputResponses": {"nobody-asked": {"action": "accept"}}})).await;
    assert_eq!(known.result(), &json!({"resultType": "complete"}));
    assert_eq!(update(json!({"taskId": task})).await.code(), -32602);
    latch.open();
    client.task_end(&task).await;
    let late = update(json!({"taskId": task, "inputResponses": {}})).await;
    assert_eq!(late.result(), &json!({"resultType": "complete"}));
    assert_eq!(client.task(&task).await.state(), "completed");
}

#[tokio::test]
async fn b01_an_async_call_needs_an_owner() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let rule = format!("{PATIENT}[upstream]\n[[upstream.rule]]\ntool = \"slow\"\nmode = \"async\"");
    let gate = Gate::start(&upstream, &rule).await;
    gate.client().open().await;
    let homeless = gate.client().extension_per_request().call("slow", json!({})).await;
    assert_eq!(homeless.code(), -32602);
    assert_eq!(homeless.error()["message"], "Task-capable async tool calls require an MCP session");
    assert!(upstream.calls("slow").is_empty(), "it is refused before anything is sent");
    let client = gate.client().extension().open().await;
    client.call("slow", json!({})).await.task();
    eventually("a call with a session is sent", || upstream.calls("slow").len() == 1).await;
}
