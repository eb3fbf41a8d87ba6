//! Clients that do not read what they are sent: what they hold up is their own stream, and nothing else.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Client, Events};
use crate::support::upstream::{Script, script};
use crate::support::{Dialect, Gate, Latch, PATIENT, Upstream, eventually, ms, soon};

/// Far more than sockets and queues hold.
const MUCH: usize = 1_000;
const LONG: usize = 40_000;

/// A connection that takes nothing for longer than this is given up.
const KEPT: &str = "[server]\nkeepalive = \"20s\"\n[tasks]\n";

/// Says much at once, and goes on until it is cancelled.
fn flood() -> Script {
    script::script(|mut call| async move {
        call.open();
        for n in 0..MUCH {
            let data = format!("{n}{}", ".".repeat(LONG));
            call.notify("notifications/message", &json!({"level": "info", "data": data}));
        }
        call.cancelled().await;
    })
}

/// A call whose client reads nothing of its stream until later.
async fn unread(client: &Client, id: &str) -> Events {
    let events = client.post(client.body(id, "tools/call", json!({"name": "flood"}))).await.events();
    sleep(ms(100)).await;
    events
}

/// The last message of a stream.
async fn last(mut events: Events) -> Option<Value> {
    let mut last = None;
    while let Some(message) = soon("a message", events.message()).await {
        last = Some(message);
    }
    last
}

#[tokio::test]
async fn a_cancellation_reaches_a_call_whose_client_reads_nothing() {
    let upstream = Upstream::builder().tool("flood", flood()).start().await;
    let gate = Gate::start(&upstream, &format!("{KEPT}threshold = \"30s\"")).await;
    let client = gate.client().open().await;
    let events = unread(&client, "77").await;
    assert_eq!(client.cancelled(&json!(77)).await.status, 202);
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert!(last(events).await.is_none_or(|last| last["id"] != 77), "no answer");
}

#[tokio::test]
async fn a_call_whose_client_reads_nothing_runs_no_longer_than_it_may() {
    let upstream = Upstream::builder().tool("flood", flood()).start().await;
    let gate = Gate::start(&upstream, &format!("{KEPT}threshold = \"30s\"\nmax_runtime = \"1500ms\"")).await;
    let client = gate.client().open().await;
    let events = unread(&client, "77").await;
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    let last = last(events).await.expect("an answer");
    assert_eq!((&last["id"], &last["error"]["data"]["reason"]), (&json!(77), &json!("max_runtime")), "{last}");
}

#[tokio::test]
async fn a_call_whose_client_reads_nothing_is_deferred_at_its_threshold() {
    let upstream = Upstream::builder().tool("flood", flood()).start().await;
    let settings = format!("{KEPT}threshold = \"1500ms\"\nowner = \"session\"");
    let gate = Gate::start(&upstream, &settings).await;
    let client = gate.client().extension().open().await;
    let events = unread(&client, "77").await;
    let listed = async {
        loop {
            let tasks = client.list_tasks(None).await.result()["tasks"].clone();
            if let Some(task) = tasks.get(0) {
                return task["taskId"].clone();
            }
            sleep(ms(10)).await;
        }
    };
    let task = soon("the task", listed).await;
    let last = last(events).await.expect("a handle");
    assert_eq!((&last["id"], &last["result"]["taskId"]), (&json!(77), &task));
}

#[tokio::test]
async fn a_question_that_found_no_room_is_put_to_who_reads_again() {
    let latch = Latch::new();
    let curious = script::accepted_then(&latch, |mut call| async move {
        for n in 0..MUCH {
            call.progress(n as f64, MUCH as f64, &".".repeat(LONG));
        }
        let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "go on?"})).await;
        call.say(answer["result"]["action"].as_str().unwrap_or("none"));
    });
    let upstream = Upstream::builder().tool("curious", curious).start().await;
    let gate = Gate::start(&upstream, &format!("{KEPT}threshold = \"60ms\"")).await;
    let client = Dialect::Core.client(&gate, json!({"elicitation": {}})).open().await;
    let params = json!({"task": {}, "_meta": {"progressToken": "t"}});
    let task = client.call_with("curious", params).await.core_task();
    let mut events = client.task_stream(&task).await;
    latch.open();
    sleep(ms(300)).await;
    let question = loop {
        let message = soon("the question", events.message()).await.expect("the stream goes on");
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    client.answer(&question, json!({"action": "accept"})).await;
    let end = last(events).await.expect("the result");
    assert_eq!(end["result"]["content"][0]["text"], "accept", "{end}");
}

#[tokio::test]
async fn a_large_answer_finds_the_client_that_came_back() {
    let large: &'static str = Box::leak("x".repeat(2_000_000).into_boxed_str());
    for stays in [false, true] {
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("slow", script::held(&latch, large)).start().await;
        let gate = Gate::start(&upstream, &format!("[server]\nkeepalive = \"40ms\"\n{PATIENT}")).await;
        let client = gate.client().open().await;
        let mut first = client.post(client.body("77", "tools/call", json!({"name": "slow"}))).await.events();
        let start = loop {
            let event = first.next().await.expect("it begins");
            if let Some(id) = event.id {
                break id;
            }
        };
        // A connection that hangs is not known to be gone.
        let first = stays.then_some(first);
        let headers = [("accept", "text/event-stream"), ("last-event-id", start.as_str())];
        let second = client.send("GET", &headers, String::new()).await.events();
        sleep(ms(30)).await;
        latch.open();
        let answer = last(second).await.expect("the answer");
        let text = answer["result"]["content"][0]["text"].as_str().map(str::len);
        assert_eq!((&answer["id"], text), (&json!(77), Some(large.len())), "it stays: {stays}");
        drop(first);
    }
}
