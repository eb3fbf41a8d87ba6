//! Progress, and questions in the middle of a call.
//!
//! What a client did not ask for it does not see; what it asked for comes back under its own token.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::upstream::{Get, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms, within};

const PROGRESS: &str = "notifications/progress";

/// Reports as often as its argument `n` says, then waits for the latch.
fn chatty(latch: &Latch) -> script::Script {
    let latch = latch.clone();
    script::script(move |mut call| {
        let latch = latch.clone();
        async move {
            for step in 1..=call.arg("n").as_u64().unwrap_or(1) {
                let text = format!("{} meshed {step}", call.arg("who").as_str().unwrap_or("x"));
                call.progress(step as f64, 4.0, &text);
                sleep(ms(5)).await;
            }
            latch.passed().await;
            call.say("done");
        }
    })
}

fn opened() -> Latch {
    let latch = Latch::new();
    latch.open();
    latch
}

#[tokio::test]
async fn b40_progress_only_with_the_clients_token() {
    let upstream = Upstream::builder().tool("chatty", chatty(&opened())).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let asked = client.call_with("chatty", json!({"arguments": {"n": 3}, "_meta": {"progressToken": "abc"}})).await;
    let seen = asked.before(PROGRESS);
    assert_eq!(seen.len(), 3, "{:?}", asked.events);
    assert!(seen.iter().all(|message| message["params"]["progressToken"] == "abc"), "{seen:?}");
    assert_eq!(seen[2]["params"]["message"], "x meshed 3");

    let silent = client.call("chatty", json!({"n": 3})).await;
    assert_eq!(silent.text(), "done");
    assert!(silent.before(PROGRESS).is_empty(), "{:?}", silent.events);
}

#[tokio::test]
async fn b40_progress_is_harvested_for_who_did_not_ask() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("chatty", chatty(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"150ms\"").await;
    let client = gate.client().extension().open().await;
    let handle = client.call("chatty", json!({"n": 2})).await;
    assert!(handle.before(PROGRESS).is_empty(), "{:?}", handle.events);
    let seen = client.task(&handle.task()).await;
    assert!(seen.result()["statusMessage"].as_str().unwrap_or_default().contains("x meshed 2"), "{}", seen.raw);

    let gate = Gate::start(&upstream, "[tasks]\nharvest_progress = false").await;
    let calls = upstream.calls("chatty").len();
    gate.client().open().await.call("chatty", json!({})).await.job();
    let call = &upstream.calls("chatty")[calls];
    assert!(call.json["params"]["_meta"].get("progressToken").is_none(), "{}", call.body);
}

#[tokio::test]
async fn b41_no_progress_after_the_handle() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("chatty", chatty(&latch)).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut get = client.listen().await.events();
    eventually("the stream is open", || upstream.listeners() == 1).await;
    let handle = client.call("chatty", json!({"n": 30})).await; // reading it fails if the handle is not the last
    let job = handle.job();
    let all = async {
        while !client.job(&job, 0.0).await.text().contains("x meshed 30") {
            sleep(ms(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("the last progress is told");
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": upstream.calls("chatty")[0].json["params"]["_meta"]["progressToken"], "progress": 31}}));
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/last"}));
    let seen = get.message().await.unwrap();
    assert_eq!(seen["method"], "notifications/last", "a token of taskgate's own is kept back");
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "done");
}

#[tokio::test]
async fn b42_tokens_keep_their_type_and_their_call() {
    let upstream = Upstream::builder().tool("chatty", chatty(&opened())).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (one, two) = (gate.client().open().await, gate.client().open().await);
    let params =
        |who: &str, token: Value| json!({"arguments": {"n": 4, "who": who}, "_meta": {"progressToken": token}});
    let (a, b, c, d) = tokio::join!(
        one.call_with("chatty", params("a", json!(7))),
        one.call_with("chatty", params("b", json!("7"))),
        one.call_with("chatty", params("c", json!(1))),
        two.call_with("chatty", params("d", json!(1))),
    );
    for (answer, who, token) in [(a, "a", json!(7)), (b, "b", json!("7")), (c, "c", json!(1)), (d, "d", json!(1))] {
        let seen = answer.before(PROGRESS);
        assert_eq!(seen.len(), 4, "{who}: {:?}", answer.events);
        for message in seen {
            assert_eq!(message["params"]["progressToken"], token, "{who}: {message}");
            assert!(message["params"]["message"].as_str().unwrap().starts_with(who), "{who}: {message}");
        }
    }
}

#[tokio::test]
async fn b44_the_status_moves() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("chatty", chatty(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"150ms\"").await;
    let client = gate.client().extension().open().await;
    let handle = client.call("chatty", json!({"n": 2})).await;
    let task = handle.task();
    let seen = client.task(&task).await;
    let text = seen.result()["statusMessage"].as_str().unwrap_or_default();
    assert!(text.contains("x meshed 2") && text.contains("50"), "message and percent: {}", seen.raw);
    let read = client.job(&task, 0.0).await;
    assert!(read.text().contains("x meshed 2") && read.text().contains("50"), "{}", read.raw);

    let plain = gate.client().open().await;
    let job = plain.call("chatty", json!({"n": 40})).await.job();
    let before = plain.task(&job).await.result()["lastUpdatedAt"].clone();
    sleep(ms(300)).await;
    let after = plain.task(&job).await.result()["lastUpdatedAt"].clone();
    assert!(before.as_str() < after.as_str(), "{before} then {after}");
}

/// Asks whether to go on and says what was answered.
fn curious(wait: std::time::Duration, answered: &Latch) -> script::Script {
    let answered = answered.clone();
    script::script(move |mut call| {
        let answered = answered.clone();
        async move {
            sleep(wait).await;
            let pong = call.ask(&json!("p"), "ping", &json!({})).await;
            let params = json!({"message": "go on?", "requestedSchema": {"type": "object", "properties": {}}});
            let answer = call.ask(&json!(0), "elicitation/create", &params).await;
            answered.open();
            let said = json!({"pong": pong["result"], "answer": answer.get("result").or(answer.get("error"))});
            call.say(&said.to_string());
        }
    })
}

#[tokio::test]
async fn b46_a_question_before_the_handle_is_relayed_and_stops_the_clock() {
    let upstream = Upstream::builder().tool("curious", curious(ms(0), &Latch::new())).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"300ms\"").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut events = client.post(client.body("5", "tools/call", json!({"name": "curious"}))).await.events();
    let mut question = events.message().await.unwrap();
    while question["method"] == "ping" {
        let pong = json!({"jsonrpc": "2.0", "id": question["id"], "result": {}});
        assert_eq!(client.ask(pong.to_string()).await.status, 202);
        question = events.message().await.unwrap();
    }
    assert_eq!(question["method"], "elicitation/create");
    sleep(ms(500)).await;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}});
    assert_eq!(client.ask(answer.to_string()).await.status, 202);
    let end = events.message().await.unwrap();
    let text = end["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{end}"));
    assert!(text.contains(r#""action":"accept""#), "inline although a person took longer than the threshold: {text}");
}

#[tokio::test]
async fn b48_a_question_after_the_handle_is_declined_at_once_and_pings_are_answered() {
    let answered = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(ms(150), &answered)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("curious", json!({})).await.job();
    let started = Instant::now();
    answered.passed().await;
    assert!(started.elapsed() < ms(1200), "the upstream is never blocked: {:?}", started.elapsed());
    let end = client.job_end(&job).await;
    let said: Value = serde_json::from_str(end.block(1)).unwrap();
    assert_eq!(said["pong"], json!({}));
    let declined = said["answer"]["action"] == "decline" || said["answer"]["code"].is_number();
    assert!(declined, "{said}");
    within(ms(100), "the answers went to the call's session", || {
        upstream.answers().iter().all(|answer| answer.session() == client.session.as_deref())
    })
    .await;
}
