//! What a client hears after its handle, in each dialect: its progress and the changes of status, where it listens.
//!
//! Each story lists all that comes: a message more is as wrong as one too few.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Client, Events};
use crate::support::upstream::{Get, Script, script};
use crate::support::{Dialect, Gate, Latch, Upstream, eventually, ms, soon};

const PROGRESS: &str = "notifications/progress";
const STATUS: &str = "notifications/tasks/status";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Reports twice when the first door opens, and ends at the second.
fn chatty(steps: &Latch, end: &Latch) -> Script {
    let (steps, end) = (steps.clone(), end.clone());
    script::script(move |mut call| {
        let (steps, end) = (steps.clone(), end.clone());
        async move {
            call.open();
            steps.passed().await;
            call.progress(1.0, 4.0, "meshed 1");
            call.progress(2.0, 4.0, "meshed 2");
            end.passed().await;
            call.say("done");
        }
    })
}

/// What the client is told of the two reports.
fn told(task: Option<&str>) -> Vec<Value> {
    let step = |n: u32| {
        let text = format!("meshed {n}");
        let mut params = json!({"progressToken": "mine", "progress": f64::from(n), "total": 4.0, "message": text});
        if let Some(task) = task {
            params["_meta"] = json!({RELATED: {"taskId": task}});
        }
        json!({"jsonrpc": "2.0", "method": PROGRESS, "params": params})
    };
    vec![step(1), step(2)]
}

/// Calls `chatty` in this dialect, with a token of the client's or without; gives back the id in the handle.
async fn start(dialect: Dialect, client: &Client, token: Option<&str>) -> String {
    let mut params = json!({"arguments": {}});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token});
    }
    if dialect == Dialect::Core {
        params["task"] = json!({});
    }
    let handle = client.call_with("chatty", params).await;
    assert!(handle.before(PROGRESS).is_empty(), "{:?}", handle.events);
    match dialect {
        Dialect::Ext => handle.task(),
        Dialect::Core => handle.core_task(),
        Dialect::Job => handle.job(),
    }
}

/// All messages on a session's stream up to now: whoever asks has made sure that they were sent.
async fn heard(upstream: &Upstream, stream: &mut Events) -> Vec<Value> {
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/last"}));
    let mut heard = Vec::new();
    loop {
        let message = soon("the last message", stream.message()).await.expect("the stream goes on");
        if message["method"] == "notifications/last" {
            return heard;
        }
        heard.push(message);
    }
}

fn with_method(messages: &[Value], method: &str) -> Vec<Value> {
    messages.iter().filter(|message| message["method"] == method).cloned().collect()
}

/// Waits until the record says what was reported last: then it was passed on as well.
async fn reported(dialect: Dialect, client: &Client, id: &str) {
    for _ in 0..500 {
        if dialect.read(client, id).await.raw.contains("meshed 2") {
            return;
        }
        sleep(ms(10)).await;
    }
    panic!("{dialect:?}: the status does not move");
}

struct Story {
    upstream: Upstream,
    gate: Gate,
    steps: Latch,
    end: Latch,
}

async fn story() -> Story {
    let (steps, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("chatty", chatty(&steps, &end)).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    Story { upstream, gate, steps, end }
}

#[tokio::test]
async fn b40_b41_progress_goes_where_the_session_listens_and_to_no_job() {
    for (dialect, token) in Dialect::ALL.into_iter().flat_map(|dialect| [(dialect, Some("mine")), (dialect, None)]) {
        let Story { upstream, gate, steps, end } = story().await;
        let client = dialect.client(&gate, json!({})).open().await;
        let mut get = client.listen().await.events();
        let id = start(dialect, &client, token).await;
        steps.open();
        reported(dialect, &client, &id).await;
        let seen = heard(&upstream, &mut get).await;
        let expected = match (dialect, token) {
            (_, None) | (Dialect::Job, _) => Vec::new(),
            (Dialect::Ext, Some(_)) => told(None),
            (Dialect::Core, Some(_)) => told(Some(&id)),
        };
        assert_eq!(with_method(&seen, PROGRESS), expected, "{dialect:?}, {token:?}");
        let statuses = with_method(&seen, STATUS).len();
        assert_eq!(seen.len(), expected.len() + statuses, "nothing else: {seen:?}");
        end.open();
        assert_eq!(dialect.text(&client, &id).await, "done");
    }
}

#[tokio::test]
async fn b41_b57a_progress_goes_to_a_waiting_read_and_not_to_the_session() {
    for (dialect, token) in Dialect::ALL.into_iter().flat_map(|dialect| [(dialect, Some("mine")), (dialect, None)]) {
        let Story { upstream, gate, steps, end } = story().await;
        let client = dialect.client(&gate, json!({})).open().await;
        let mut get = client.listen().await.events();
        let id = start(dialect, &client, token).await;
        let mut waiting = match dialect {
            Dialect::Ext | Dialect::Core => client.task_stream(&id).await,
            Dialect::Job => {
                let params = json!({"name": "get_job_result", "arguments": {"job_id": id, "wait_s": 20}});
                let body = client.body("77", "tools/call", params);
                let reply = client.send("POST", &[("accept", "text/event-stream")], body).await;
                reply.events()
            }
        };
        sleep(ms(50)).await; // so that the wait is under way
        steps.open();
        reported(dialect, &client, &id).await;
        end.open();
        let mut seen = Vec::new();
        while let Some(message) = soon("the end", waiting.message()).await {
            seen.push(message);
        }
        let answer = seen.pop().expect("an answer");
        assert!(answer["result"].is_object(), "{answer}");
        let expected = match (dialect, token) {
            (_, None) | (Dialect::Job, _) => Vec::new(),
            (Dialect::Ext, Some(_)) => told(None),
            (Dialect::Core, Some(_)) => told(Some(&id)),
        };
        assert_eq!(seen, expected, "{dialect:?}, {token:?}");
        assert!(with_method(&heard(&upstream, &mut get).await, PROGRESS).is_empty(), "each is told once");
    }
}

/// Asks when the door opens, and ends with the answer.
fn curious(door: &Latch) -> Script {
    let door = door.clone();
    script::script(move |mut call| {
        let door = door.clone();
        async move {
            call.open();
            door.passed().await;
            let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "Go?"})).await;
            call.say(answer["result"]["action"].as_str().unwrap_or("nothing"));
        }
    })
}

#[tokio::test]
async fn each_change_of_a_core_task_is_pushed_once_and_of_no_other() {
    for dialect in Dialect::ALL {
        let door = Latch::new();
        let upstream = Upstream::builder()
            .tool("curious", curious(&door))
            .tool("endless", script::until_cancelled())
            .get(Get::Stream)
            .start()
            .await;
        let gate = Gate::start(&upstream, "").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let mut get = client.listen().await.events();
        let answered = dialect.start(&client, "curious", json!({})).await;
        door.open();
        let mut seen = Vec::new();
        loop {
            let message = soon("the question", get.message()).await.expect("the stream goes on");
            if message["method"] == "elicitation/create" {
                client.answer(&message, json!({"action": "accept", "content": {}})).await;
                break;
            }
            seen.push(message);
        }
        assert_eq!(dialect.text(&client, &answered).await, "accept");
        let cancelled = dialect.start(&client, "endless", json!({})).await;
        dialect.cancel(&client, &cancelled).await.result();
        eventually("the upstream is told", || upstream.cancels().len() == 1).await;
        sleep(ms(50)).await;
        seen.extend(heard(&upstream, &mut get).await);

        assert_eq!(with_method(&seen, STATUS), seen, "nothing else came");
        let of = |id: &str| {
            let own = seen.iter().map(|message| &message["params"]).filter(|params| params["taskId"] == *id);
            own.map(|params| params["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        if dialect == Dialect::Core {
            assert_eq!(of(&answered), ["input_required", "working", "completed"]);
            assert_eq!(of(&cancelled), ["cancelled"]);
        }
        let expected = if dialect == Dialect::Core { 4 } else { 0 };
        assert_eq!(seen.len(), expected, "{dialect:?}: {seen:?}");
        for message in &seen {
            let params = message["params"].as_object().unwrap();
            let known = ["taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"];
            assert!(params.keys().all(|key| known.contains(&key.as_str())), "its own id says whose it is: {message}");
        }
    }
}
#[tokio::test]
async fn b41_progress_goes_to_a_waiting_read_of_an_upstream_without_sessions() {
    let (steps, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("chatty", chatty(&steps, &end)).without_sessions().start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("U").open().await;
    let id = start(Dialect::Core, &client, Some("mine")).await;
    let opening = async {
        sleep(ms(50)).await;
        steps.open();
        reported(Dialect::Core, &client, &id).await;
        end.open();
    };
    let (outcome, ()) = tokio::join!(client.task_result(&id), opening);
    assert_eq!(outcome.before(PROGRESS), told(Some(&id)));
}
