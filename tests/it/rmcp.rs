//! The official Rust SDK on both sides of taskgate.
//!
//! Its server is unmodified and its client reads every answer with types of its own: what it cannot read is an error.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, GetTaskParams, JsonObject, ProtocolVersion,
    TASKS_EXTENSION_ID, TaskPayload, TaskStatus,
};
use rmcp::service::RunningService;
use rmcp::{ClientLifecycleMode, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::sdk::{HANDSHAKE, Server, User, call, text};
use crate::support::{Gate, PATIENT, eventually, ms, soon};

/// The fast tool is answered inline however busy the machine is.
const FAST: &str = "[upstream]\nmint_sessions = true\n[[upstream.rule]]\ntool = \"fast\"\nmode = \"sync\"\n";

type Client = RunningService<RoleClient, User>;

/// A client that declares the extension among its extensions, and one that does among its experiments.
fn users_of_tasks() -> [User; 2] {
    let declared = || Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
    let (mut extension, mut experiment) = (ClientCapabilities::default(), ClientCapabilities::default());
    extension.extensions = declared();
    experiment.experimental = declared();
    [User::with(extension), User::with(experiment)]
}

async fn called(client: &Client, tool: &'static str, arguments: Value) -> CallToolResult {
    soon(tool, client.call_tool(call(tool, arguments))).await.expect("a result")
}

/// The job that a handle names.
fn job(handle: &CallToolResult) -> String {
    assert_ne!(handle.is_error, Some(true), "{handle:?}");
    let note: Value = serde_json::from_str(text(handle, 0)).expect("JSON");
    assert_eq!((&note["status"], handle.structured_content.as_ref()), (&json!("running"), Some(&note)));
    note["job_id"].as_str().expect("an id").to_owned()
}

async fn finished(client: &Client, job: &str) -> CallToolResult {
    called(client, "get_job_result", json!({"job_id": job, "wait_s": 8})).await
}

/// The task that a call became.
async fn task(client: &Client, tool: &'static str, arguments: Value) -> String {
    let answer = soon(tool, client.call_tool_once(call(tool, arguments))).await.expect("an answer it can read");
    let CallToolResponse::Task(created) = answer else { panic!("no task: {answer:?}") };
    assert_eq!(created.task.status, TaskStatus::Working);
    created.task.task_id
}

/// What the task ended with.
async fn ended(client: &Client, id: &str) -> TaskPayload {
    for _ in 0..500 {
        let read = soon("tasks/get", client.get_task(GetTaskParams::new(id))).await.expect("a task it can read");
        if read.task.status().is_terminal() {
            return read.task.payload;
        }
        sleep(ms(10)).await;
    }
    panic!("task {id} does not end");
}

fn completed(payload: TaskPayload) -> CallToolResult {
    let TaskPayload::Completed { result } = payload else { panic!("not completed: {payload:?}") };
    serde_json::from_value(Value::Object(result)).expect("a tool result")
}

#[tokio::test]
async fn sdk_lists_calls_and_gets_answers_inline() {
    for server in [Server::start().await, Server::plain().await] {
        let gate = Gate::at(&server.url, PATIENT).await;
        let client = User::new().connect(&gate, HANDSHAKE).await;
        let peer = client.peer_info().expect("it said hello");
        assert_eq!(peer.protocol_version, ProtocolVersion::V_2025_11_25);
        let tools = soon("the list", client.list_all_tools()).await.expect("a list");
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        for tool in ["fast", "slow", "mesh", "fail", "report", "get_job_result", "cancel_job"] {
            assert_eq!(names.iter().filter(|name| **name == tool).count(), 1, "{tool} in {names:?}");
        }
        assert_eq!(names.last(), Some(&"cancel_job"), "the tools of taskgate come last");
        assert!(tools.iter().all(|tool| tool.output_schema.is_none()), "a handle would not fit the schema");

        assert_eq!(text(&called(&client, "fast", json!({"text": "äöü"})).await, 0), "äöü");
        server.seen.door.open();
        let mesh = called(&client, "mesh", json!({})).await;
        assert_eq!(mesh.structured_content, Some(json!({"cells": 9_007_199_254_740_993_u64})));
        let failed = called(&client, "fail", json!({})).await;
        assert_eq!((failed.is_error, text(&failed, 0)), (Some(true), "did not converge"));
        assert!(client.call_tool(call("no_such_tool", json!({}))).await.is_err());
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn sdk_reads_slow_calls_as_jobs() {
    for server in [Server::start().await, Server::plain().await] {
        let gate = Gate::at(&server.url, "").await;
        let client = User::new().connect(&gate, HANDSHAKE).await;
        let slow = job(&called(&client, "slow", json!({"text": "it"})).await);
        let (mesh, fail) = (called(&client, "mesh", json!({})).await, called(&client, "fail", json!({})).await);
        let (mesh, fail) = (job(&mesh), job(&fail));
        let running = called(&client, "get_job_result", json!({"job_id": slow, "wait_s": 0})).await;
        assert!(text(&running, 0).contains("\"running\""), "{running:?}");
        server.seen.door.open();

        let solved = finished(&client, &slow).await;
        assert_eq!((solved.is_error, text(&solved, 1)), (Some(false), "solved it"));
        let meshed = finished(&client, &mesh).await;
        assert_eq!(meshed.structured_content, Some(json!({"cells": 9_007_199_254_740_993_u64})));
        let failed = finished(&client, &fail).await;
        assert_eq!((failed.is_error, text(&failed, 1)), (Some(true), "did not converge"));
        let missing = finished(&client, "5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11").await;
        assert!(missing.is_error == Some(true) && text(&missing, 0).contains("not_found"), "{missing:?}");
        assert_eq!(server.seen.slow(), 3, "nothing is called twice");
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn sdk_reads_a_job_from_another_session() {
    let server = Server::start().await;
    let gate = Gate::at(&server.url, "").await;
    let first = User::new().connect(&gate, HANDSHAKE).await;
    let slow = job(&called(&first, "slow", json!({"text": "it"})).await);
    first.cancel().await.unwrap();
    let second = User::new().connect(&gate, HANDSHAKE).await;
    server.seen.door.open();
    assert_eq!(text(&finished(&second, &slow).await, 1), "solved it");
    assert_eq!((server.seen.slow(), server.seen.cancelled()), (1, 0));
}

#[tokio::test]
async fn sdk_cancels_a_job() {
    let server = Server::start().await;
    let gate = Gate::at(&server.url, "").await;
    let client = User::new().connect(&gate, HANDSHAKE).await;
    let slow = job(&called(&client, "slow", json!({"text": "it"})).await);
    called(&client, "cancel_job", json!({"job_id": slow})).await;
    eventually("the server is told", || server.seen.cancelled() == 1).await;
    let end = finished(&client, &slow).await;
    assert!(text(&end, 0).contains("\"cancelled\"") && end.is_error != Some(true), "{end:?}");
}

#[tokio::test]
async fn sdk_hears_of_progress_while_it_waits_and_not_after() {
    let server = Server::start().await;
    let gate = Gate::at(&server.url, "[tasks]\nthreshold = \"600ms\"").await;
    let user = User::new();
    let client = user.connect(&gate, HANDSHAKE).await;
    let report = job(&called(&client, "report", json!({})).await);
    assert_eq!(user.progress.load(Ordering::SeqCst), 3, "all of it came before the handle");
    let running = called(&client, "get_job_result", json!({"job_id": report, "wait_s": 0})).await;
    let note: Value = serde_json::from_str(text(&running, 0)).unwrap();
    assert!(note["progress"].to_string().contains("step 3"), "{note}");
    server.seen.door.open();
    assert_eq!(text(&finished(&client, &report).await, 1), "reported");
    assert_eq!(user.progress.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn sdk_is_asked_while_it_waits_and_after_the_handle() {
    let mut capabilities = ClientCapabilities::default();
    capabilities.roots = Some(Default::default());
    let (server, user) = (Server::start().await, User::with(capabilities));
    let gate = Gate::at(&server.url, "[tasks]\nthreshold = \"500ms\"").await;
    let client = user.connect(&gate, HANDSHAKE).await;
    let asked = called(&client, "ask", json!({"text": "now"})).await;
    assert_eq!(text(&asked, 0), "file:///here", "the threshold stands still while it thinks");
    assert_eq!(user.asked.load(Ordering::SeqCst), 1);

    let late = job(&called(&client, "ask", json!({"text": "late"})).await);
    server.seen.door.open();
    let end = finished(&client, &late).await;
    assert_eq!(text(&end, 1), "file:///here", "asked on the stream of the poll that waits");
    assert_eq!(user.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn sdk_hears_what_the_server_says_outside_of_calls() {
    let (server, user) = (Server::start().await, User::new());
    let gate = Gate::at(&server.url, PATIENT).await;
    let client = user.connect(&gate, HANDSHAKE).await;
    let hearing = async {
        // It opens its stream on its own, some time after the hello.
        while user.changes.load(Ordering::SeqCst) == 0 {
            called(&client, "change", json!({})).await;
            sleep(ms(20)).await;
        }
    };
    soon("it hears of it", Box::pin(hearing)).await;
    let tools = soon("the list", client.list_all_tools()).await.expect("a list");
    assert_eq!(tools.len(), 9);
}

#[tokio::test]
async fn sdk_reads_the_hybrid_handle_and_its_task() {
    for user in users_of_tasks() {
        for server in [Server::start().await, Server::plain().await] {
            let gate = Gate::at(&server.url, FAST).await;
            let client = user.connect(&gate, HANDSHAKE).await;
            assert_eq!(text(&called(&client, "fast", json!({"text": "now"})).await, 0), "now");
            let slow = task(&client, "slow", json!({"text": "it"})).await;
            let (mesh, fail) = (task(&client, "mesh", json!({})).await, task(&client, "fail", json!({})).await);
            let working = client.get_task(GetTaskParams::new(&slow)).await.expect("a task it can read");
            assert_eq!(working.task.payload, TaskPayload::Working);
            assert!(working.task.task.poll_interval_ms.is_some() && working.task.task.ttl_ms.is_some());
            server.seen.door.open();

            assert_eq!(text(&completed(ended(&client, &slow).await), 0), "solved it");
            let meshed = completed(ended(&client, &mesh).await);
            assert_eq!(meshed.structured_content, Some(json!({"cells": 9_007_199_254_740_993_u64})));
            let failed = completed(ended(&client, &fail).await);
            assert_eq!((failed.is_error, text(&failed, 0)), (Some(true), "did not converge"));
            assert_eq!(server.seen.slow(), 3);
            client.cancel().await.unwrap();
        }
    }
}

#[tokio::test]
async fn sdk_is_told_the_extension_and_cancels_a_task() {
    for user in users_of_tasks() {
        let server = Server::start().await;
        let gate = Gate::at(&server.url, "").await;
        let client = user.connect(&gate, HANDSHAKE).await;
        let extensions = client.peer_info().and_then(|peer| peer.capabilities.extensions.clone()).unwrap_or_default();
        assert_eq!(extensions.get(TASKS_EXTENSION_ID), Some(&JsonObject::new()));
        let slow = task(&client, "slow", json!({"text": "it"})).await;
        soon("tasks/cancel", client.cancel_task(CancelTaskParams::new(&slow))).await.expect("an acknowledgement");
        eventually("the server is told", || server.seen.cancelled() == 1).await;
        assert_eq!(ended(&client, &slow).await, TaskPayload::Cancelled);
        client.cancel_task(CancelTaskParams::new(&slow)).await.expect("also when it has ended");
        assert!(client.get_task(GetTaskParams::new("5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11")).await.is_err());
    }
}

#[tokio::test]
async fn sdk_defaults_pass_unharmed() {
    let server = Server::start().await;
    let gate = Gate::at(&server.url, FAST).await;
    let transport = rmcp::transport::StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", gate.addr));
    let client = soon("the hello", ().serve(transport)).await.expect("they understand each other");
    let fast = soon("fast", client.call_tool(call("fast", json!({"text": "x"})))).await.unwrap();
    assert_eq!(text(&fast, 0), "x");
    let handle = soon("slow", client.call_tool(call("slow", json!({"text": "it"})))).await.unwrap();
    server.seen.door.open();
    let read = call("get_job_result", json!({"job_id": job(&handle), "wait_s": 8}));
    assert_eq!(text(&soon("a read", client.call_tool(read)).await.unwrap(), 1), "solved it");
}

#[tokio::test]
async fn sdk_without_a_handshake_passes_unharmed() {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let auto = ClientLifecycleMode::Auto { preferred_versions: preferred_versions.clone(), legacy_version: None };
    for mode in [ClientLifecycleMode::Discover { preferred_versions }, auto] {
        // Who declares tasks is never given a job handle, and sees no tools for one.
        for (user, tools) in [(User::new(), 9), (users_of_tasks()[0].clone(), 7)] {
            let server = Server::start().await;
            let gate = Gate::at(&server.url, PATIENT).await;
            let client = user.connect(&gate, mode.clone()).await;
            assert_eq!(client.peer_info().unwrap().protocol_version, ProtocolVersion::V_2026_07_28);
            let listed = soon("the list", client.list_all_tools()).await.expect("a list");
            assert_eq!(listed.len(), tools, "{listed:?}");
            assert_eq!(text(&called(&client, "fast", json!({"text": "x"})).await, 0), "x");
            server.seen.door.open();
            let solved = called(&client, "slow", json!({"text": "it"})).await;
            assert_eq!((text(&solved, 0), solved.content.len()), ("solved it", 1));
            assert_eq!(server.seen.slow(), 1);
            client.cancel().await.unwrap();
        }
    }
}

#[tokio::test]
async fn sdk_that_gives_up_without_a_handshake_cancels() {
    let server = Server::start().await;
    let gate = Gate::at(&server.url, PATIENT).await;
    let mode = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = User::new().connect(&gate, mode).await;
    let given_up =
        tokio::time::timeout(Duration::from_millis(200), client.call_tool(call("slow", json!({"text": ""}))));
    assert!(given_up.await.is_err());
    eventually("the server is told", || server.seen.cancelled() == 1).await;
}
