//! A restart and clients' credentials, which are never stored; and what a stop leaves to the next start.
//!
//! A proxy that writes tokens to a disk is a loss of another kind.

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::support::client::Client;
use crate::support::dialect::asked;
use crate::support::upstream::Builder;
use crate::support::upstream::script::{self, Script};
use crate::support::{Dialect, Gate, Home, Latch, PATIENT, Upstream, eventually, ms, soon, throughout};

/// Lets through what brings a token that begins with `good`.
fn guarded(inner: Script) -> Script {
    script::script(move |mut call| {
        let inner = inner.clone();
        async move {
            match call.request.header("authorization") {
                Some(token) if token.starts_with("Bearer good") => inner(call).await,
                _ => call.raw(401, &[("www-authenticate", "Bearer")], ""),
            }
        }
    })
}

fn guarded_solver(latch: &Latch) -> Builder {
    Upstream::builder()
        .tool("solve", guarded(script::resumable(latch)))
        .on("ping", guarded(script::script(|mut call| async move { call.result(&json!({})) })))
        .resume(guarded(script::resumed(latch)))
}

async fn is_text(client: &Client, task: &str, text: &str) {
    let end = client.task_end(task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], text, "{}", end.raw);
}

#[tokio::test]
async fn the_owners_next_read_brings_its_credential() {
    for builder in [guarded_solver, |latch: &Latch| guarded_solver(latch).without_sessions()] {
        let (home, latch) = (Home::new(), Latch::new());
        let upstream = builder(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let client = gate.client().bearer("good-1").extension_per_request().open().await;
        let task = client.call("solve", json!({"text": "42"})).await.task();
        gate.leave().await;

        let gate = home.start(&upstream, "").await;
        let stranger = gate.client().bearer("bad").in_session(client.session.as_deref());
        assert_eq!(stranger.task(&task).await.code(), -32602, "it is another's");
        throughout(ms(150), "nobody has brought it", || upstream.resumes().is_empty()).await;
        assert_eq!(client.task(&task).await.state(), "working");
        eventually("the stream is taken up", || upstream.resumes().len() == 1).await;
        assert_eq!(upstream.resumes()[0].header("authorization"), Some("Bearer good-1"));
        latch.open();
        is_text(&client, &task, "42").await;
        assert_eq!((upstream.calls("solve").len(), upstream.resumes().len()), (1, 1));
        gate.leave().await;
    }
}

#[tokio::test]
async fn any_request_in_its_session_brings_it_and_a_new_one_will_do() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = guarded_solver(&latch).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().bearer("good-1").extension().open().await;
    let one = client.call("solve", json!({"text": "1"})).await.task();
    let two = client.call("solve", json!({"text": "2"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    let client = client.bearer("good-2");
    client.request("ping", json!({})).await.result();
    eventually("both are taken up", || upstream.resumes().len() == 2).await;
    for resume in upstream.resumes() {
        assert_eq!(resume.header("authorization"), Some("Bearer good-2"));
    }
    latch.open();
    is_text(&client, &one, "1").await;
    is_text(&client, &two, "2").await;
    gate.leave().await;
}

#[tokio::test]
async fn nobody_brings_the_credential() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = guarded_solver(&latch).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\ninput_timeout = \"400ms\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().bearer("good").extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    sleep(ms(600)).await;
    let end = client.task(&task).await;
    assert_eq!(end.state(), "failed", "{}", end.raw);
    assert_eq!(end.result()["error"]["data"]["reason"], "input_timeout", "{}", end.raw);
    assert!(end.result()["error"]["message"].as_str().unwrap().contains("outcome unknown"), "{}", end.raw);
    sleep(ms(100)).await;
    assert!(upstream.resumes().is_empty());
    gate.leave().await;
}

#[tokio::test]
async fn whoever_cancels_brings_it_too() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = guarded_solver(&latch).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().bearer("good").extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    client.cancel_task(&task).await.result();
    assert_eq!(client.task(&task).await.state(), "cancelled");
    eventually("the upstream hears of it", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].header("authorization"), Some("Bearer good"));
    assert_eq!(upstream.cancels()[0].json["params"]["requestId"].to_string(), upstream.calls("solve")[0].id());
    gate.leave().await;
}

/// Asks when its client has a handle, and tells what it heard; its stream says "yes" when it is taken up.
fn curious(said: &watch::Sender<bool>) -> Script {
    let said = said.clone();
    script::script(move |mut call| {
        let said = said.clone();
        async move {
            call.bytes(format!("id: {}|yes\nretry: 10\ndata:\n\n", call.request.id()));
            sleep(ms(200)).await;
            let answer = call.pose(&json!("q"), "elicitation/create", &json!({"message": "go on?"}));
            said.send_replace(answer.await.is_ok_and(|answer| answer["result"]["action"] == "accept"));
        }
    })
}

#[tokio::test]
async fn an_answer_that_brings_the_credential_is_not_lost() {
    for dialect in Dialect::ALL {
        let (home, heard, said) = (Home::new(), Latch::new(), watch::Sender::new(false));
        let solver = Upstream::builder().tool("ask", curious(&said)).resume(guarded(script::resumed(&heard)));
        let upstream = solver.start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).bearer("good").open().await;
        let id = dialect.start(&client, "ask", json!({})).await;
        let key = match dialect {
            Dialect::Ext => asked(&client, &id).await.remove(0).0,
            Dialect::Core | Dialect::Job => {
                let question = dialect.stream(&client, &id).await.message().await.expect("the question");
                question["id"].as_str().expect("a key").to_owned()
            }
        };
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        let answer = json!({"action": "accept", "content": {}});
        match dialect {
            Dialect::Ext => drop(client.update_task(&id, json!({key: answer})).await),
            Dialect::Core | Dialect::Job => client.answer(&json!({"id": key}), answer).await,
        }
        eventually("the upstream hears the answer", || *said.borrow()).await;
        heard.open();
        assert_eq!(dialect.text(&client, &id).await, "yes", "{dialect:?}");
        gate.leave().await;
    }
}

#[tokio::test]
async fn a_configured_credential_needs_nobody() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = guarded_solver(&latch).start().await;
    let settings = "[upstream]\nheaders = { authorization = \"Bearer good-own\" }";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().bearer("mine").extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    eventually("the stream is taken up", || upstream.resumes().len() == 1).await;
    assert_eq!(upstream.resumes()[0].header("authorization"), Some("Bearer good-own"));
    latch.open();
    is_text(&client, &task, "done").await;
    gate.leave().await;
}

#[tokio::test]
async fn a_session_deleted_before_the_stop_ends_upstream_when_its_work_has() {
    let (home, latch) = (Home::new(), Latch::new());
    let solver = Upstream::builder().tool("solve", script::resumable(&latch)).resume(script::resumed(&latch));
    let upstream = solver.start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\nowner = \"id\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    assert_eq!(client.delete().await.status, 200);
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    assert_eq!(client.task(&task).await.status, 404, "the session is dead");
    assert!(upstream.http("DELETE").is_empty(), "its call is under way");
    latch.open();
    eventually("the upstream hears of the end", || upstream.http("DELETE").len() == 1).await;
    assert_eq!(upstream.http("DELETE")[0].session(), client.session.as_deref());
    let other = gate.client().extension().open().await;
    is_text(&other, &task, "done").await;
    gate.leave().await;
}

#[tokio::test]
async fn b95_what_ends_within_the_grace_is_written_down() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let settings = "[server]\ndrain_timeout = \"10s\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let tasks = [client.call("plain", json!({})).await.task(), client.call("solve", json!({})).await.task()];
    gate.drain();
    assert!(timeout(ms(150), gate.finished()).await.is_err(), "work is running");
    latch.open();
    let began = Instant::now();
    soon("the drain", gate.finished()).await;
    assert!(began.elapsed() < ms(5000), "nobody has to read them first: {:?}", began.elapsed());
    let gate = home.start(&upstream, settings).await;
    is_text(&client, &tasks[0], "plain end").await;
    is_text(&client, &tasks[1], "done").await;
    assert!(upstream.resumes().is_empty());
    gate.leave().await;
}

#[tokio::test]
async fn b95_what_does_not_end_in_time_is_handed_over_or_told_to_be_unknown_before_the_exit() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let plain = client.call("plain", json!({})).await.task();
    let solve = client.call("solve", json!({})).await.task();
    let waits = async {
        let read = client.call("get_job_result", json!({"job_id": plain, "wait_s": 8})).await;
        assert!(read.text().contains("outcome unknown"), "{}", read.raw);
    };
    let leaves = async {
        sleep(ms(50)).await;
        gate.drain();
        soon("the drain", gate.finished()).await;
    };
    tokio::join!(waits, leaves);
    drop(gate);
    let gate = home.start(&upstream, "").await;
    let (lost, kept) = (client.task(&plain).await, client.task(&solve).await);
    assert_eq!((lost.state(), kept.state()), ("failed".into(), "working".into()), "{} {}", lost.raw, kept.raw);
    assert_eq!(lost.result()["error"]["data"]["reason"], "outcome_unknown", "{}", lost.raw);
    latch.open();
    is_text(&client, &solve, "done").await;
    gate.leave().await;
}

#[tokio::test]
async fn b95_a_held_call_gets_its_answer_or_a_handle_that_outlives_the_stop() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let settings = "[server]\ndrain_timeout = \"10s\"\n[tasks]\nthreshold = \"600ms\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let held = client.call("solve", json!({}));
    let meddling = async {
        eventually("it is held", || upstream.calls("solve").len() == 1).await;
        gate.drain();
    };
    let (handle, ()) = tokio::join!(held, meddling);
    let task = handle.task();
    gate.stop();
    soon("the end", gate.finished()).await;
    drop(gate);
    let gate = home.start(&upstream, settings).await;
    latch.open();
    is_text(&client, &task, "done").await;
    gate.leave().await;

    let gate = home.start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    latch.open();
    assert_eq!(client.call("plain", json!({})).await.text(), "plain end");
    gate.leave().await;
}

#[tokio::test]
async fn b95_a_second_signal_hands_over_at_once() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let settings = "[server]\ndrain_timeout = \"60s\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let plain = client.call("plain", json!({})).await.task();
    let solve = client.call("solve", json!({})).await.task();
    gate.drain();
    assert!(timeout(ms(100), gate.finished()).await.is_err());
    let stopped = Instant::now();
    gate.stop();
    soon("the end", gate.finished()).await;
    assert!(stopped.elapsed() < ms(1500), "{:?}", stopped.elapsed());
    drop(gate);
    latch.open();
    let gate = home.start(&upstream, settings).await;
    assert_eq!(client.task(&plain).await.state(), "failed");
    is_text(&client, &solve, "done").await;
    gate.leave().await;
}

#[tokio::test]
async fn the_next_may_start_the_moment_one_has_left() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let gate: Gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    for _ in 0..5 {
        home.start(&upstream, "").await.leave().await;
    }
    let gate = home.start(&upstream, "").await;
    latch.open();
    is_text(&client, &task, "done").await;
    assert_eq!(upstream.calls("solve").len(), 1);
    gate.leave().await;
}
