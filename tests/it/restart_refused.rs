//! A restart in front of an upstream that does not take up every stream at once: it refuses a token, or is on its way
//! back itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Answer, Client, Events};
use crate::support::dialect::asked;
use crate::support::gate::Fault;
use crate::support::upstream::{Get, Script, script};
use crate::support::{Home, Latch, Upstream, eventually, ms, throughout};

/// Lets through what brings this token from the `first`th time on, and answers all else with `status`.
fn picky(status: u16, token: &'static str, first: usize, inner: Script) -> Script {
    let came = Arc::new(AtomicUsize::new(0));
    script::script(move |mut call| {
        let (inner, came) = (inner.clone(), came.clone());
        async move {
            let is_right = call.request.header("authorization") == Some(&format!("Bearer {token}"));
            let is_late = came.fetch_add(1, Ordering::Relaxed) >= first;
            if is_right && is_late { inner(call).await } else { call.raw(status, &[], "not now") }
        }
    })
}

async fn is_text(client: &Client, task: &str, text: &str) {
    let end = client.task_end(task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], text, "{}", end.raw);
}

fn reason(end: &Answer) -> &Value {
    &end.result()["error"]["data"]["reason"]
}

#[tokio::test]
async fn a_refused_credential_is_waited_out() {
    for status in [401, 403] {
        let (home, latch) = (Home::new(), Latch::new());
        let taken_up = picky(status, "new", 0, script::resumed(&latch));
        let upstream = Upstream::solver(&latch).resume(taken_up).start().await;
        let gate = home.start(&upstream, "").await;
        let client = gate.client().bearer("old").extension().open().await;
        let task = client.call("solve", json!({"text": "42"})).await.task();
        gate.leave().await;

        let gate = home.start(&upstream, "").await;
        assert_eq!(client.task(&task).await.state(), "working");
        eventually("the old one is tried", || upstream.resumes().len() == 1).await;
        throughout(ms(100), "and not again", || upstream.resumes().len() == 1).await;
        assert_eq!(client.task(&task).await.state(), "working", "{status}");
        let client = client.bearer("new");
        assert_eq!(client.task(&task).await.state(), "working", "{status}");
        eventually("the new one is tried", || upstream.resumes().len() > 1).await;
        latch.open();
        is_text(&client, &task, "42").await;
        assert_eq!(upstream.calls("solve").len(), 1);
        gate.leave().await;
    }
}

/// What may be called twice is.
const REPEATS: &str = "[tasks]\nthreshold = \"60ms\"\nretry = \"idempotent\"";

/// A server whose tool `read` changes nothing: its first call hangs, those after it are answered by `tool`.
async fn reading(tool: Script) -> Upstream {
    let first = script::until_cancelled();
    let tool = script::script(move |call| {
        let (first, tool) = (first.clone(), tool.clone());
        async move { if call.before == 0 { first(call).await } else { tool(call).await } }
    });
    let about = json!({"annotations": {"readOnlyHint": true}});
    Upstream::builder().tool_with("read", &about, tool).start().await
}

#[tokio::test]
async fn a_call_that_is_made_again_waits_for_another_credential_too() {
    let (home, latch) = (Home::new(), Latch::new());
    let tool = picky(401, "new", 1, script::echo_held(&latch));
    let upstream = reading(tool).await;
    let gate = home.start(&upstream, REPEATS).await;
    let client = gate.client().bearer("old").extension().open().await;
    client.tools().await.result();
    let task = client.call("read", json!({"text": "42"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, REPEATS).await;
    assert_eq!(client.task(&task).await.state(), "working");
    eventually("it is tried", || upstream.calls("read").len() == 2).await;
    throughout(ms(100), "and not again", || upstream.calls("read").len() == 2).await;
    let client = client.bearer("new");
    assert_eq!(client.task(&task).await.state(), "working");
    latch.open();
    is_text(&client, &task, "42").await;
    gate.leave().await;
}

#[tokio::test]
async fn who_brings_only_what_is_refused_waits_no_longer_than_for_nobody() {
    let (home, latch) = (Home::new(), Latch::new());
    let taken_up = picky(401, "new", 0, script::resumed(&latch));
    let upstream = Upstream::solver(&latch).resume(taken_up).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\ninput_timeout = \"400ms\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().bearer("old").extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    let end = client.task_end(&task).await;
    assert_eq!(reason(&end), "input_timeout", "{}", end.raw);
    let text = end.result()["error"]["message"].as_str().unwrap();
    assert!(text.contains("outcome unknown") && text.contains("refused"), "{text}");
    gate.leave().await;
}

#[tokio::test]
async fn an_upstream_that_is_not_back_yet_is_asked_again() {
    for status in [503, 500, 429, 409] {
        let (home, latch) = (Home::new(), Latch::new());
        latch.open();
        let taken_up = picky(status, "token", 1, script::resumed(&latch));
        let upstream =
            Upstream::builder().tool("solve", script::resumable(&Latch::new())).resume(taken_up).start().await;
        let gate = home.start(&upstream, "").await;
        let client = gate.client().bearer("token").extension().open().await;
        let task = client.call("solve", json!({"text": "42"})).await.task();
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        is_text(&client, &task, "42").await;
        let tried = upstream.resumes();
        assert_eq!(tried.len(), 2, "{status}");
        assert!(tried[1].at - tried[0].at >= ms(150), "it is left alone for a while, {status}");
        gate.leave().await;
    }
}

#[tokio::test]
async fn a_call_that_is_made_again_is_made_until_somebody_is_there() {
    let (home, latch) = (Home::new(), Latch::new());
    let tool = picky(503, "token", 2, script::echo_held(&latch));
    let upstream = reading(tool).await;
    let gate = home.start(&upstream, REPEATS).await;
    let client = gate.client().bearer("token").extension().open().await;
    client.tools().await.result();
    let task = client.call("read", json!({"text": "42"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, REPEATS).await;
    latch.open();
    is_text(&client, &task, "42").await;
    assert_eq!(upstream.calls("read").len(), 4);
    gate.leave().await;
}

#[tokio::test]
async fn what_waits_for_its_owner_runs_no_longer_than_it_may() {
    let home = Home::new();
    let about = json!({"annotations": {"readOnlyHint": true}});
    let upstream = Upstream::builder().tool_with("read", &about, script::until_cancelled()).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\nmax_runtime = \"500ms\"\nretry = \"idempotent\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().bearer("token").extension().open().await;
    client.tools().await.result();
    let task = client.call("read", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    sleep(ms(600)).await;
    let end = client.task_end(&task).await;
    assert_eq!(reason(&end), "max_runtime", "{}", end.raw);
    sleep(ms(50)).await;
    assert_eq!(upstream.calls("read").len(), 1, "nobody brought a credential to call it with");
    assert!(upstream.cancels().is_empty(), "nor to cancel it with");
    gate.leave().await;
}

#[tokio::test]
async fn a_loss_that_cannot_be_stored_is_told_when_the_store_works() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\ninput_timeout = \"200ms\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().bearer("token").extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    gate.fault(Fault::Broken);
    sleep(ms(350)).await;
    gate.fault(Fault::None);
    let end = client.task_end(&task).await;
    assert_eq!(reason(&end), "input_timeout", "{}", end.raw);
    gate.leave().await;
}

#[tokio::test]
async fn equal_calls_that_a_stop_cuts_off_go_on_after_it() {
    let (home, latch) = (Home::new(), Latch::new());
    let about = json!({"annotations": {"readOnlyHint": true}});
    let tool = script::echo_held(&latch);
    let upstream = Upstream::builder().tool_with("read", &about, tool).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\nretry = \"idempotent\"\ncoalesce = true";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    client.tools().await.result();
    let (one, two) = tokio::join!(client.call("read", json!({"text": "5"})), client.call("read", json!({"text": "5"})));
    assert_eq!(upstream.calls("read").len(), 1, "they share the work");
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    latch.open();
    for task in [one.task(), two.task()] {
        is_text(&client, &task, "5").await;
    }
    gate.leave().await;
}

/// What the session's own stream says of tasks' states until a moment of silence.
async fn states(heard: &mut Events, silence: std::time::Duration) -> Vec<Value> {
    let mut states = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(silence, heard.message()).await {
        if message["method"] == "notifications/tasks/status" {
            states.push(message["params"]["status"].clone());
        }
    }
    states
}

#[tokio::test]
async fn where_a_stream_can_be_taken_up_is_no_news_for_the_client() {
    let home = Home::new();
    let silent = script::script(|mut call| async move {
        call.open();
        // Longer after the handle than news of mere words are kept back.
        sleep(ms(1200)).await;
        call.bytes("id: e1\nretry: 10\ndata:\n\n");
        call.gone().await;
    });
    let upstream = Upstream::builder().tool("silent", silent).get(Get::Stream).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut heard = client.listen().await.events();
    client.call_task("silent", json!({})).await.core_task();
    assert_eq!(states(&mut heard, ms(1500)).await, Vec::<Value>::new());
    gate.leave().await;
}

#[tokio::test]
async fn what_a_client_can_be_asked_is_still_known() {
    for can_be_asked in [true, false] {
        let home = Home::new();
        let asks = script::script(|mut call| async move {
            let cursor = call.request.header("last-event-id").unwrap_or_default().to_owned();
            let (id, _) = cursor.split_once('|').expect("a cursor of ours");
            call.open();
            let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "go on?"})).await;
            call.say_to(id, answer["result"]["action"].as_str().unwrap_or("refused"));
        });
        let solver = Upstream::builder().tool("solve", script::resumable(&Latch::new())).resume(asks);
        let upstream = solver.start().await;
        let gate = home.start(&upstream, "").await;
        let mut abilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        if can_be_asked {
            abilities["elicitation"] = json!({});
        }
        let client = gate.client().capabilities(abilities).open().await;
        let task = client.call("solve", json!({})).await.task();
        // The session is written down in the background.
        sleep(ms(50)).await;
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        if can_be_asked {
            let (key, _) = asked(&client, &task).await.remove(0);
            client.update_task(&task, json!({key: {"action": "accept", "content": {}}})).await.result();
        }
        is_text(&client, &task, if can_be_asked { "accept" } else { "decline" }).await;
        gate.leave().await;
    }
}
