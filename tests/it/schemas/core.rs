//! Tasks of 2025-11-25: what creates, tells, ends and announces them.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::ending;
use crate::support::schema::{self, assert_error, assert_result, assert_valid};
use crate::support::upstream::{Get, script};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms, soon};

const REVISION: &str = "2025-11-25";
const RELATED: &str = "io.modelcontextprotocol/related-task";
const SESSION: &str = "[tasks]\nowner = \"session\"\n";

/// Calls a tool as a task; gives back the task's id.
async fn started(client: &Client, tool: &str, arguments: Value) -> String {
    let created = client.call_with(tool, json!({"arguments": arguments, "task": {"ttl": 60_000}})).await;
    assert_result(REVISION, "CreateTaskResult", &created);
    let immediate = &created.result()["_meta"]["io.modelcontextprotocol/model-immediate-response"];
    assert!(immediate.is_string(), "one sentence for the model: {}", created.raw);
    created.result()["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {}", created.raw)).to_owned()
}

#[tokio::test]
async fn what_is_announced() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("any", script::says("x")).start().await;
    let gate = Gate::start(&upstream, SESSION).await;
    let mut client = gate.client();
    let hello = client.hello().await;
    assert_result(REVISION, "InitializeResult", &hello);
    let tasks = json!({"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(hello.result()["capabilities"]["tasks"], tasks, "where clients look for it");
    let listed = client.tools().await;
    assert_result(REVISION, "ListToolsResult", &listed);
    assert_eq!(listed.result()["tools"][0]["execution"]["taskSupport"], "optional", "{}", listed.raw);
}

#[tokio::test]
async fn a_task_read_listed_and_cancelled() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, SESSION).await;
    let client = gate.client().open().await;
    let task = started(&client, "endless", json!({})).await;
    let working = client.task(&task).await;
    assert_eq!(working.state(), "working");
    assert_result(REVISION, "GetTaskResult", &working);
    let listed = client.request("tasks/list", json!({})).await;
    assert_eq!(listed.result()["tasks"][0]["taskId"], json!(task), "{}", listed.raw);
    assert_result(REVISION, "ListTasksResult", &listed);
    let cancelled = client.cancel_task(&task).await;
    assert_eq!(cancelled.state(), "cancelled");
    assert_result(REVISION, "CancelTaskResult", &cancelled);
    assert_error(REVISION, &client.cancel_task(&task).await);
    assert_error(REVISION, &client.task_result(&task).await);
    for answer in [&working, &cancelled, &listed] {
        assert!(!answer.raw.contains(RELATED), "only with a result, a question or a notification: {}", answer.raw);
    }
}

#[tokio::test]
async fn each_way_a_task_can_end() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ending", ending(&latch)).start().await;
    let gate = Gate::start(&upstream, SESSION).await;
    let client = gate.client().open().await;
    let mut tasks = Vec::new();
    for (how, status) in [("result", "completed"), ("tool", "failed"), ("protocol", "failed"), ("lost", "failed")] {
        tasks.push((how, started(&client, "ending", json!({"how": how})).await, status));
    }
    latch.open();
    for (how, task, status) in tasks {
        let end = client.task_end(&task).await;
        assert_eq!(end.state(), status, "{}", end.raw);
        assert_result(REVISION, "GetTaskResult", &end);
        let outcome = client.task_result(&task).await;
        if matches!(how, "result" | "tool") {
            assert_result(REVISION, "CallToolResult", &outcome);
            assert_valid(REVISION, "GetTaskPayloadResult", outcome.result());
            assert_valid(REVISION, "RelatedTaskMetadata", &outcome.result()["_meta"][RELATED]);
        } else {
            assert_error(REVISION, &outcome);
        }
    }
    let listed = client.request("tasks/list", json!({})).await;
    assert_result(REVISION, "ListTasksResult", &listed);
}

#[tokio::test]
async fn notifications_of_a_status() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ending", ending(&latch)).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut stream = client.listen().await.events();
    let tasks = [
        ("completed", started(&client, "ending", json!({"how": "result"})).await),
        ("failed", started(&client, "ending", json!({"how": "protocol"})).await),
    ];
    latch.open();
    let mut told = Vec::new();
    while told.len() < tasks.len() {
        let message = soon("a notification", stream.message()).await.expect("the stream stays open");
        if message["method"] != "notifications/tasks/status" {
            continue;
        }
        assert_valid(REVISION, "TaskStatusNotification", &message);
        let params = &message["params"];
        if tasks.iter().any(|(status, task)| params["taskId"] == json!(task) && params["status"] == json!(status)) {
            told.push(params["taskId"].clone());
        }
    }
    assert_ne!(told[0], told[1], "each end is told once");
}

#[tokio::test]
async fn progress_after_the_handle() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let chatty = script::accepted_then(&latch, |mut call| async move {
        for step in 1..=3 {
            call.progress(f64::from(step), 3.0, "meshed");
            sleep(ms(5)).await;
        }
        call.say("done");
    });
    let upstream = Upstream::builder().tool("chatty", chatty).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let params = json!({"arguments": {}, "task": {}, "_meta": {"progressToken": "mine"}});
    let created = client.call_with("chatty", params).await;
    let task = created.result()["task"]["taskId"].as_str().expect("a task").to_owned();
    let opening = async {
        sleep(ms(50)).await;
        latch.open();
    };
    let (outcome, ()) = tokio::join!(client.task_result(&task), opening);
    let progress = outcome.before("notifications/progress");
    assert!(!progress.is_empty(), "{:?}", outcome.events);
    for message in progress {
        assert_valid(REVISION, "ProgressNotification", &message);
        assert_eq!(message["params"]["progressToken"], "mine");
    }
}

#[tokio::test]
async fn errors_that_only_tasks_have() {
    if !schema::available() {
        return;
    }
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("sync", script::says("now")).start().await;
    let rules = "[tasks]\nmax_running = 1\n[upstream]\n[[upstream.rule]]\ntool = \"sync\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().open().await;
    let sync = client.call_with("sync", json!({"task": {}})).await;
    assert_eq!(sync.code(), -32601);
    assert_error(REVISION, &sync);
    started(&client, "slow", json!({})).await;
    eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
    let many = client.call_with("slow", json!({"task": {}})).await;
    assert_eq!((many.code(), many.reason()), (-32603, "too_many_tasks"));
    assert_error(REVISION, &many);
    for ttl in [json!(-1), json!(1.5), json!("60000"), json!([])] {
        let answer = client.call_with("sync", json!({"task": {"ttl": ttl}})).await;
        assert_error(REVISION, &answer);
    }
}
