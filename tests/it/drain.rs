//! Leaving: what a SIGTERM means for calls, tasks and readiness.
//!
//! The embedder's `drain` is what the signal calls, so these stories need no process of their own.

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::support::upstream::script;
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms, soon};

#[tokio::test]
async fn b95_held_calls_finish_and_new_ones_are_refused() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("fast", script::says("x")).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    assert_eq!(gate.admin("/readyz").await.0, 200);
    let meddling = async {
        eventually("it is held", || upstream.calls("slow").len() == 1).await;
        gate.drain();
        assert_eq!(gate.admin("/readyz").await.0, 503);
        assert_eq!(gate.admin("/healthz").await.0, 200);
        latch.open();
    };
    let (held, ()) = tokio::join!(client.call("slow", json!({})), meddling);
    assert_eq!(held.text(), "late");
    soon("the drain", gate.finished()).await;
}

#[tokio::test]
async fn b95_polls_are_served_while_draining() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("fast", script::says("x")).start().await;
    let gate = Gate::start(&upstream, "[server]\ndrain_timeout = \"8s\"").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    gate.drain();
    assert_eq!(client.job(&job, 0.0).await.state(), "running");
    let refused = client.call("fast", json!({})).await;
    assert_eq!((refused.code(), refused.reason()), (-32603, "shutting_down"));
    assert!(upstream.calls("fast").is_empty());
    assert!(timeout(ms(150), gate.finished()).await.is_err(), "work is running");
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
    let read = Instant::now();
    soon("the drain", gate.finished()).await;
    assert!(read.elapsed() < ms(4000), "it leaves when the results are read: {:?}", read.elapsed());
}

#[tokio::test]
async fn b95_what_does_not_finish_in_time_is_an_unknown_outcome() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[server]\ndrain_timeout = \"400ms\"").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    let waiting = async {
        let read = client.call("get_job_result", json!({"job_id": task, "wait_s": 8})).await;
        assert_eq!(read.state(), "error", "{}", read.raw);
        assert!(read.text().contains("outcome unknown"), "{}", read.raw);
    };
    let draining = async {
        sleep(ms(50)).await;
        gate.drain();
        let started = Instant::now();
        soon("the drain", gate.finished()).await;
        assert!(started.elapsed() < ms(4000), "{:?}", started.elapsed());
    };
    tokio::join!(waiting, draining);
}

#[tokio::test]
async fn b95_a_second_signal_ends_at_once() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[server]\ndrain_timeout = \"60s\"").await;
    gate.client().open().await.call("slow", json!({})).await.job();
    gate.drain();
    assert!(timeout(ms(100), gate.finished()).await.is_err());
    gate.stop();
    let stopped = Instant::now();
    soon("the end", gate.finished()).await;
    assert!(stopped.elapsed() < ms(1500), "{:?}", stopped.elapsed());
}
