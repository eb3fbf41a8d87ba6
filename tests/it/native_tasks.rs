//! A server of the stateless era with the tasks extension of its own: its tasks are its clients' tasks.

use serde_json::{Value, json};

use crate::support::client::EXTENSION;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, ms};

/// Its handle, with all that it says of times.
const MADE: &str = r#"{"resultType":"task","taskId":"their-task-1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":60000,"pollIntervalMs":25}"#;
/// Its task at the end.
const ENDED: &str = r#"{"resultType":"complete","taskId":"their-task-1","status":"completed","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:01Z","ttlMs":61000,"pollIntervalMs":25,"result":{"resultType":"complete","content":[],"n":1.50}}"#;

#[tokio::test]
async fn b101_their_tasks_pass_untouched_however_late_their_handle_comes() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .native()
        .capabilities(json!({"tools": {}, "extensions": {EXTENSION: {}}}))
        .tool("slow", script::held_then(&latch, |mut call| async move { call.result_text(MADE) }))
        .on("tasks/get", script::answers(ENDED))
        .start()
        .await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"20ms\"\n[upstream]\nbridge = \"always\"\n").await;
    let client = gate.client().stateless_with_tasks(json!({})).bearer("a");
    let (handle, ()) = tokio::join!(client.call("slow", json!({})), async {
        tokio::time::sleep(ms(80)).await;
        latch.open();
    });
    let result = |text: &str| format!(r#""result":{text}"#);
    assert!(handle.raw.contains(&result(MADE)), "{}", handle.raw);
    let task = client.task("their-task-1").await;
    assert!(task.raw.contains(&result(ENDED)), "{}", task.raw);
    gate.gauge("running_tasks", 0).await;
    let seen: Vec<Value> = upstream.of("tasks/get").iter().map(|get| get.json["params"]["taskId"].clone()).collect();
    assert_eq!(seen, ["their-task-1"]);
}
