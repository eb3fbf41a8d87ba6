//! Upstreams that ping, and end a session whose ping nobody answers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::client::Events;
use crate::support::upstream::{Get, script};
use crate::support::{Gate, Latch, Upstream, eventually, ms, soon, throughout};

/// How long this upstream waits for a pong.
const PATIENCE: Duration = ms(2_000);

/// Pings on the sessions' streams; forgets every session if nobody answers in time.
async fn ping(upstream: &Upstream, id: &Value) {
    upstream.push(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
    let started = Instant::now();
    while upstream.answers_to(id).is_empty() {
        if started.elapsed() > PATIENCE {
            return upstream.forget_sessions();
        }
        sleep(ms(5)).await;
    }
}

async fn next(get: &mut Events) -> Value {
    soon("a message", get.message()).await.expect("the stream goes on")
}

#[tokio::test]
async fn b51_a_job_outlives_its_client_at_an_upstream_that_ends_sessions_without_a_pong() {
    for ping_on_call in [false, true] {
        let (latch, door) = (Latch::new(), Latch::new());
        let opens = door.clone();
        let end = latch.clone();
        let tool = script::script(move |mut call| {
            let (door, end) = (opens.clone(), end.clone());
            async move {
                call.open();
                door.passed().await;
                if ping_on_call {
                    for n in 0..5 {
                        call.ask(&json!(format!("call-{n}")), "ping", &json!({})).await;
                    }
                }
                end.passed().await;
                call.say("worth it");
            }
        });
        let upstream = Upstream::builder().tool("slow", tool).get(Get::Stream).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = gate.client().open().await;
        let job = client.call("slow", json!({})).await.job();
        eventually("taskgate listens in its place", || upstream.listeners() == 1).await;
        door.open();
        for n in 0..5 {
            ping(&upstream, &json!(n)).await;
        }
        assert_eq!(upstream.sessions().len(), 1, "the session lives");
        latch.open();
        assert_eq!(client.job_end(&job).await.block(1), "worth it");
        assert!((0..5).all(|n| upstream.answers_to(&json!(n)).len() == 1), "each ping is answered once");
    }
}

#[tokio::test]
async fn b51_an_idle_client_that_only_listens_answers_for_itself_and_keeps_its_session() {
    let upstream = Upstream::builder().tool("fast", script::says("x")).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut get = client.listen().await.events();
    eventually("it listens", || upstream.listeners() == 1).await;
    for id in [json!(0), json!("0"), json!("p")] {
        let answering = async {
            let message = next(&mut get).await;
            assert_eq!(message, json!({"jsonrpc": "2.0", "id": id, "method": "ping"}), "as it was sent");
            client.answer(&message, json!({})).await;
        };
        tokio::join!(ping(&upstream, &id), answering);
        let heard = upstream.answers_to(&id);
        assert_eq!((heard.len(), heard[0].session()), (1, client.session.as_deref()), "the client's own pong");
    }
    assert_eq!(upstream.sessions().len(), 1);
    assert_eq!(client.call("fast", json!({})).await.text(), "x");
}

#[tokio::test]
async fn b51_a_client_that_listens_is_not_asked_while_its_work_runs_in_the_background() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut get = client.listen().await.events();
    let job = client.call("slow", json!({})).await.job();
    for n in 0..3 {
        ping(&upstream, &json!(n)).await;
    }
    assert_eq!(upstream.sessions().len(), 1, "taskgate answers");
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/last"}));
    assert_eq!(next(&mut get).await["method"], "notifications/last", "and the client hears none of it");
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "done");
    throughout(ms(30), "each once", || (0..3).all(|n| upstream.answers_to(&json!(n)).len() == 1)).await;
}
