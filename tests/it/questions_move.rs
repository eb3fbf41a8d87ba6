//! A question that is with one stream when that ends: it goes to the next, of whatever kind, and bothers nobody twice.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Client, Events};
use crate::support::upstream::{Get, script};
use crate::support::{Dialect, Gate, Latch, Upstream, eventually, ms, soon};

/// What a question is answered with, as the tool says it.
const ACCEPTED: &str = r#"{"action":"accept","content":{}}"#;

struct Story {
    upstream: Upstream,
    gate: Gate,
    door: Latch,
}

async fn story(overrides: &str) -> Story {
    let door = Latch::new();
    let upstream = Upstream::builder().get(Get::Stream).tool("curious", script::curious(&door)).start().await;
    let gate = Gate::start(&upstream, overrides).await;
    Story { upstream, gate, door }
}

async fn question(events: &mut Events) -> Value {
    loop {
        let message = soon("the question", events.message()).await.expect("the stream goes on");
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

async fn accept(client: &Client, question: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}});
    assert_eq!(client.ask(answer.to_string()).await.status, 202);
}

/// The stream of a read that waits for the task.
async fn waiting(dialect: Dialect, client: &Client, id: &str) -> Events {
    let (method, params) = match dialect {
        Dialect::Job => ("tools/call", json!({"name": "get_job_result", "arguments": {"job_id": id, "wait_s": 20}})),
        _ => ("tasks/result", json!({"taskId": id})),
    };
    client.post(client.body("77", method, params)).await.events()
}

#[tokio::test]
async fn b48_a_question_goes_from_the_sessions_stream_to_a_waiting_read() {
    for dialect in [Dialect::Core, Dialect::Job] {
        let Story { upstream, gate, door } = story("[server]\nkeepalive = \"50ms\"").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let mut listening = client.listen().await.events();
        let id = dialect.start(&client, "curious", json!({})).await;
        door.open();
        let first = question(&mut listening).await;
        let mut read = waiting(dialect, &client, &id).await;
        drop(listening);
        let again = question(&mut read).await;
        assert_eq!(again["id"], first["id"], "{dialect:?}: it is the same question");
        accept(&client, &again).await;
        assert_eq!(dialect.text(&client, &id).await, ACCEPTED);
        assert_eq!(upstream.answers_to(&json!(0)).len(), 1);
    }
}

#[tokio::test]
async fn b48_a_question_goes_from_a_waiting_read_to_the_sessions_stream() {
    for (dialect, listens_before) in [(Dialect::Core, true), (Dialect::Core, false), (Dialect::Job, true)] {
        let Story { upstream: _upstream, gate, door } = story("[server]\nkeepalive = \"50ms\"").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let id = dialect.start(&client, "curious", json!({})).await;
        let mut read = waiting(dialect, &client, &id).await;
        let early = if listens_before { Some(client.listen().await.events()) } else { None };
        door.open();
        question(&mut read).await;
        drop(read);
        let mut listening = match early {
            Some(listening) => listening,
            None => client.listen().await.events(),
        };
        let again = question(&mut listening).await;
        accept(&client, &again).await;
        assert_eq!(dialect.text(&client, &id).await, ACCEPTED, "{dialect:?} {listens_before}");
    }
}

#[tokio::test]
async fn b48_a_read_does_not_end_while_a_person_thinks() {
    let Story { upstream: _upstream, gate, door } =
        story("[tasks]\nthreshold = \"60ms\"\n[server]\nkeepalive = \"50ms\"").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let job = client.call("curious", json!({})).await.job();
    door.open();
    let read = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 0.2}});
    let mut events = client.post(client.body("9", "tools/call", read)).await.events();
    let question = question(&mut events).await;
    sleep(ms(600)).await;
    accept(&client, &question).await;
    let end = soon("the outcome", events.message()).await.unwrap();
    assert_eq!(end["result"]["content"][1]["text"], ACCEPTED, "the one read brings it: {end}");
}

#[tokio::test]
async fn b49_what_is_no_answer_leaves_the_question_open() {
    let Story { upstream, gate, door } = story("").await;
    let client = gate.client().capabilities(json!({"elicitation": {}, "extensions": {EXTENSION: {}}})).open().await;
    let task = client.call("curious", json!({})).await.task();
    door.open();
    let requests = crate::support::dialect::asked(&client, &task).await;
    let key = requests[0].0.clone();
    for wrong in [json!(null), json!(5), json!([]), json!("yes")] {
        let update = json!({"taskId": task, "inputResponses": {key.as_str(): wrong}});
        assert_eq!(client.request("tasks/update", update).await.code(), -32602, "{wrong}");
    }
    let both = json!({"jsonrpc": "2.0", "id": key, "result": {}, "error": {"code": 1, "message": "no"}});
    assert_eq!(client.ask(both.to_string()).await.status, 400);
    assert!(upstream.answers_to(&json!(0)).is_empty());
    let update = json!({"taskId": task, "inputResponses": {key.as_str(): {"action": "accept"}}});
    client.request("tasks/update", update).await.result();
    assert_eq!(client.task_end(&task).await.result()["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
}

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

#[tokio::test]
async fn b77_any_number_may_read_what_has_ended() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30s\"\n[server]\nkeepalive = \"30ms\"").await;
    let client = gate.client().open().await;
    let mut events = client.post(client.body("5", "tools/call", json!({"name": "slow"}))).await.events();
    let start = loop {
        let event = events.next().await.expect("a primer");
        if let Some(id) = event.id {
            break id;
        }
    };
    drop(events);
    latch.open();
    let read = || async {
        let headers = [("accept", "text/event-stream"), ("last-event-id", start.as_str())];
        let mut events = client.send("GET", &headers, String::new()).await.events();
        loop {
            match soon("the answer", events.message()).await {
                Some(message) if message["id"] == 5 => return message,
                Some(_) => {}
                None => panic!("it ended without the answer"),
            }
        }
    };
    read().await;
    let all = futures_util::future::join_all((0..50).map(|_| read())).await;
    assert!(all.iter().all(|message| message["result"]["content"][0]["text"] == "late"));
}

#[tokio::test]
async fn a_server_that_says_much_at_once_does_not_cost_the_client_its_stream() {
    const BURST: usize = 5_000;
    let upstream = Upstream::builder().get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut events = client.listen().await.events();
    eventually("it is open", || upstream.listeners() == 1).await;
    for n in 0..BURST {
        let data = json!({"level": "info", "data": format!("{n}{}", ".".repeat(1_000))});
        upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": data}));
    }
    let mut seen = 0;
    while seen < BURST {
        let message = soon("a message", events.message()).await.expect("the stream goes on");
        assert!(message["params"]["data"].as_str().unwrap().starts_with(&format!("{seen}.")), "in order");
        seen += 1;
    }
}
