//! A store that cannot be read, and answers that reach nobody: what is not known is said to be not known.

use serde_json::{Value, json};

use crate::support::dialect::asked;
use crate::support::gate::Fault;
use crate::support::upstream::{Script, script};
use crate::support::{Client, Home, Latch, Shared, Upstream, eventually, ms};

#[tokio::test]
async fn whoever_waits_hears_that_the_store_does_not_work() {
    let home = Home::new();
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let breaks = async {
        tokio::time::sleep(ms(100)).await;
        gate.fault(Fault::Unreadable);
    };
    let (read, ()) = tokio::join!(client.job(&job, 0.3), breaks);
    assert!(read.raw.contains("cannot be read at the moment"), "{}", read.raw);
    gate.fault(Fault::None);
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "worth it");
    gate.leave().await;
}

fn theirs() -> Script {
    script::script(|mut call| async move {
        let task = json!({"taskId": "theirs", "status": "working", "createdAt": "2025-11-25T00:00:00Z",
            "lastUpdatedAt": "2025-11-25T00:00:00Z", "ttl": 60000});
        match call.request.method() {
            "tasks/list" => call.result(&json!({"tasks": [task]})),
            _ => call.error(-32602, "no such task of mine", &Value::Null),
        }
    })
}

#[tokio::test]
async fn a_task_of_ours_is_not_asked_of_an_upstream_that_has_its_own() {
    let (home, latch) = (Home::new(), Latch::new());
    let tasks = json!({"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}});
    let upstream = Upstream::builder()
        .capabilities(tasks)
        .tool("plain", script::held(&latch, "done"))
        .on("tasks/get", theirs())
        .on("tasks/list", theirs())
        .start()
        .await;
    let gate = home.start(&upstream, "[tasks]\nowner = \"session\"\nthreshold = \"60ms\"").await;
    let client = gate.client().open().await;
    let job = client.call("plain", json!({})).await.job();
    gate.fault(Fault::Unreadable);
    assert_eq!(client.task(&job).await.reason(), "store_unavailable");
    assert!(upstream.of("tasks/get").is_empty());
    let page = client.list_tasks(None).await;
    assert_eq!(page.result()["tasks"][0]["taskId"], "theirs");
    let next = page.result()["nextCursor"].as_str().expect("ours follow").to_owned();
    assert_eq!(client.list_tasks(Some(&next)).await.reason(), "store_unavailable");
    gate.fault(Fault::None);
    assert_eq!(client.list_tasks(Some(&next)).await.result()["tasks"][0]["taskId"], *job);
    gate.leave().await;
}

#[tokio::test]
async fn a_session_that_cannot_be_read_is_not_taken_for_another() {
    let home = Home::new();
    let (upstream, latch) = Upstream::holding("worth it").await;
    latch.open();
    let settings = "[upstream]\nforward_authorization = false";
    let gate = home.start(&upstream, settings).await;
    let owner = gate.client().bearer("U").open().await;
    tokio::time::sleep(ms(50)).await;
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    let stranger = gate.client().bearer("THIEF").in_session(owner.session.as_deref());
    gate.fault(Fault::Unreadable);
    let refused = stranger.tools().await;
    assert_eq!((refused.status, refused.reason()), (503, "store_unavailable"), "{}", refused.raw);
    assert_eq!(stranger.delete().await.status, 503);
    gate.fault(Fault::None);
    assert_eq!(stranger.delete().await.status, 403, "it began with another credential");
    assert_eq!(owner.delete().await.status, 200);
    gate.leave().await;
}

/// Asks, and tells what it heard.
fn curious() -> Script {
    script::script(|mut call| async move {
        call.open();
        tokio::time::sleep(ms(150)).await;
        let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "go on?"})).await;
        call.say(answer["result"]["action"].as_str().unwrap_or("nothing"));
    })
}

#[tokio::test]
async fn an_answer_that_would_reach_nobody_leaves_its_question_open() {
    let shared = Shared::open(ms(10_000)).await;
    let upstream = Upstream::builder().tool("ask", curious()).start().await;
    let (runs, other) = (shared.start(&upstream, "").await, shared.start(&upstream, "").await);
    let client = runs.client().capabilities(json!({"elicitation": {}, "extensions": {
        "io.modelcontextprotocol/tasks": {}}}));
    let client = client.open().await;
    let task = client.call("ask", json!({})).await.task();
    let (key, _) = asked(&client, &task).await.remove(0);
    let elsewhere: Client = other.client().extension_per_request().in_session(client.session.as_deref());
    let answer = json!({key.clone(): {"action": "accept", "content": {}}});
    let lost = elsewhere.update_task(&task, answer.clone()).await;
    assert_eq!(lost.reason(), "store_unavailable", "{}", lost.raw);
    assert_eq!(asked(&client, &task).await.remove(0).0, key, "it is still open");
    elsewhere.update_task(&task, json!({"other": {"action": "accept"}})).await.result();
    client.update_task(&task, answer).await.result();
    eventually("the upstream hears it", || upstream.answers_to(&json!("q")).len() == 1).await;
    let end = client.task_end(&task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], "accept", "{}", end.raw);
    elsewhere.update_task(&task, json!({key: {"action": "accept"}})).await.result();
}
