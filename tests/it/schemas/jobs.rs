//! Job handles and what the job tools answer, as tool results of each revision.

use serde_json::json;
use tokio::time::sleep;

use super::{clients, ending};
use crate::support::schema::{self, assert_result, assert_valid};
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, ms};

const SESSION: &str = "[tasks]\nowner = \"session\"\n";

#[tokio::test]
async fn a_handle_its_polls_and_the_list() {
    if !schema::available() {
        return;
    }
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, SESSION).await;
    for (revision, client) in clients(&gate).await {
        let handle = client.call("slow", json!({})).await;
        let job = handle.job();
        assert_result(revision, "CallToolResult", &handle);
        let running = client.job(&job, 0.0).await;
        assert_eq!(running.state(), "running");
        assert_result(revision, "CallToolResult", &running);
        let listed = client.call("list_jobs", json!({})).await;
        assert!(listed.text().contains(&job), "{}", listed.raw);
        assert_result(revision, "CallToolResult", &listed);
    }
}

#[tokio::test]
async fn each_way_a_job_can_end() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("ending", ending(&latch)).tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, SESSION).await;
    let mut started = Vec::new();
    for (revision, client) in clients(&gate).await {
        let mut jobs = Vec::new();
        for (how, status) in [("result", "done"), ("tool", "error"), ("protocol", "error"), ("lost", "error")] {
            jobs.push((client.call("ending", json!({"how": how})).await.job(), status));
        }
        let endless = client.call("endless", json!({})).await.job();
        for _ in 0..2 {
            assert_result(revision, "CallToolResult", &client.cancel_job(&endless).await);
        }
        jobs.push((endless, "cancelled"));
        started.push((revision, client, jobs));
    }
    latch.open();
    for (revision, client, jobs) in started {
        for (job, status) in jobs {
            let end = client.job_end(&job).await;
            assert_eq!(end.note()["status"], status, "{}", end.raw);
            assert_result(revision, "CallToolResult", &end);
        }
    }
}

#[tokio::test]
async fn what_is_no_job_and_what_is_no_argument() {
    if !schema::available() {
        return;
    }
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nttl = \"50ms\"").await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    for (revision, client) in clients(&gate).await {
        client.tools().await;
        for tool in ["get_job_result", "cancel_job"] {
            for arguments in
                [json!({"job_id": unknown}), json!({"job_id": 7}), json!({"job_id": unknown, "wait_s": -1})]
            {
                let answer = client.call(tool, arguments).await;
                assert_eq!(answer.result()["isError"], true, "{}", answer.raw);
                assert_result(revision, "CallToolResult", &answer);
            }
        }
    }
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    client.job_end(&job).await;
    sleep(ms(120)).await;
    let expired = client.job(&job, 0.0).await;
    assert_eq!(expired.result()["isError"], true, "{}", expired.raw);
    assert_result("2025-11-25", "CallToolResult", &expired);
}

#[tokio::test]
async fn a_batch() {
    if !schema::available() {
        return;
    }
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().version("2025-03-26").open().await;
    let calls = ["1", "2"].map(|id| client.body(id, "tools/call", json!({"name": "slow", "arguments": {}})));
    let nothing = client.body("3", "no/such/method", json!({}));
    let batch = client.ask(format!("[{},{},{nothing}]", calls[0], calls[1])).await;
    assert_valid("2025-03-26", "JSONRPCBatchResponse", &batch.json);
    for answer in batch.json.as_array().expect("validated above").iter().filter(|answer| answer["id"] != 3) {
        assert_valid("2025-03-26", "CallToolResult", &answer["result"]);
    }
}
