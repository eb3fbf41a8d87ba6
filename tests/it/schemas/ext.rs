//! Tasks of the extension, each message as the extension's schema has it and as the session's revision has it.

use serde_json::json;
use tokio::time::sleep;

use super::ending;
use crate::support::client::Answer;
use crate::support::schema::{self, EXT, REVISIONS, assert_result, assert_valid};
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, ms};

/// A task as it was read, by both readings: the one that carries everything, and the one that a session of 2025-11-25
/// may expect. Earlier revisions know no tasks; theirs are results of any kind.
#[track_caller]
fn assert_task(revision: &str, answer: &Answer) {
    assert_valid(EXT, "GetTaskResult", answer.result());
    if revision == "2025-11-25" {
        assert_result(revision, "GetTaskResult", answer);
    } else {
        assert_valid(revision, "JSONRPCResponse", &answer.json);
    }
}

#[tokio::test]
async fn the_hybrid_handle() {
    if !schema::available() {
        return;
    }
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    for revision in REVISIONS {
        let client = gate.client().version(revision).extension().open().await;
        let handle = client.call("slow", json!({})).await;
        // It is a task and a tool result at once: both schemas leave room for members that they do not name.
        assert_valid(EXT, "CreateTaskResult", handle.result());
        assert_result(revision, "CallToolResult", &handle);
        assert_task(revision, &client.task(&handle.task()).await);
    }
}

#[tokio::test]
async fn each_way_a_task_can_end() {
    if !schema::available() {
        return;
    }
    for revision in REVISIONS {
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("ending", ending(&latch)).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = gate.client().version(revision).extension().open().await;
        let mut tasks = Vec::new();
        for (how, status) in
            [("result", "completed"), ("tool", "completed"), ("protocol", "failed"), ("lost", "failed")]
        {
            tasks.push((client.call("ending", json!({"how": how})).await.task(), status));
        }
        latch.open();
        for (task, status) in tasks {
            let end = client.task_end(&task).await;
            assert_eq!(end.state(), status, "{}", end.raw);
            assert_task(revision, &end);
            match status {
                "completed" => assert_valid(revision, "CallToolResult", &end.result()["result"]),
                _ => assert_valid(EXT, "Error", &end.result()["error"]),
            }
        }
    }
}

#[tokio::test]
async fn reasons_of_taskgates_own() {
    if !schema::available() {
        return;
    }
    let big = script::script(|mut call| async move {
        sleep(ms(150)).await;
        call.say(&"A".repeat(5_000));
    });
    let upstream = Upstream::builder().tool("big", big).tool("endless", script::until_cancelled()).start().await;
    let limits = "[tasks]\nmax_result = \"2KiB\"\nmax_runtime = \"600ms\"";
    let gate = Gate::start(&upstream, limits).await;
    let client = gate.client().extension().open().await;
    for (tool, reason) in [("big", "too_large"), ("endless", "max_runtime")] {
        let end = client.task_end(&client.call(tool, json!({})).await.task()).await;
        assert_eq!(end.result()["error"]["data"]["reason"], reason, "{}", end.raw);
        assert_task("2025-11-25", &end);
    }
}

#[tokio::test]
async fn acknowledgements() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "").await;
    for revision in REVISIONS {
        let client = gate.client().version(revision).extension().open().await;
        let task = client.call("endless", json!({})).await.task();
        let update = json!({"taskId": task, "inputResponses": {"nobody-asked": {"action": "decline"}}});
        for cancelled in [false, true] {
            let updated = client.request("tasks/update", update.clone()).await;
            assert_valid(EXT, "UpdateTaskResult", updated.result());
            if !cancelled {
                assert_valid(EXT, "CancelTaskResult", client.cancel_task(&task).await.result());
            }
        }
        let end = client.task_end(&task).await;
        assert_eq!(end.state(), "cancelled");
        assert_task(revision, &end);
        assert_valid(EXT, "CancelTaskResult", client.cancel_task(&task).await.result());
    }
}
