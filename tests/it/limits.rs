//! Bounds: over them a call is held, never lost.
//!
//! Polls and cancellations work at every limit.

use serde_json::json;

use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, eventually, ms, throughout};

#[tokio::test]
async fn b97_over_a_cap_calls_are_held() {
    for cap in ["max_running = 2", "max_running_per_owner = 2"] {
        let latch = Latch::new();
        let upstream = Upstream::builder().tool("slow", script::echo_held(&latch)).start().await;
        let gate = Gate::start(&upstream, &format!("[tasks]\n{cap}")).await;
        let client = gate.client().open().await;
        let first = client.call("slow", json!({"text": "1"})).await.job();
        let second = client.call("slow", json!({"text": "2"})).await.job();
        let meddling = async {
            eventually("the third is upstream", || upstream.calls("slow").len() == 3).await;
            throughout(ms(150), "nothing is cancelled", || upstream.cancels().is_empty()).await;
            assert_eq!(client.job(&first, 0.0).await.state(), "running", "polls work");
            client.cancel_job(&second).await.result();
            assert_eq!(client.job_end(&second).await.state(), "cancelled", "cancels work");
            latch.open();
        };
        let (third, ()) = tokio::join!(client.call("slow", json!({"text": "3"})), meddling);
        assert_eq!(third.text(), "3", "held, {cap}");
        assert_eq!(client.job_end(&first).await.block(1), "1");
        assert_eq!(upstream.calls("slow").len(), 3);
    }
}

#[tokio::test]
async fn b97_the_cap_of_one_owner_is_not_anothers() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_running_per_owner = 1").await;
    let (a, b) = (gate.client().bearer("A").open().await, gate.client().bearer("B").open().await);
    a.call("slow", json!({})).await.job();
    b.call("slow", json!({})).await.job();
    latch.open();
}

#[tokio::test]
async fn b97_a_place_is_free_again_when_its_work_has_ended() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "late"))
        .tool("endless", script::until_cancelled())
        .start()
        .await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_running_per_owner = 1").await;
    let client = gate.client().open().await;
    for _ in 0..3 {
        let job = client.call("endless", json!({})).await.job();
        client.cancel_job(&job).await.result();
        assert_eq!(client.job_end(&job).await.state(), "cancelled");
    }
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
}

#[tokio::test]
async fn b97_many_sessions_of_one_client_push_out_idle_ones_only() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("fast", script::says("x")).start().await;
    let gate = Gate::start(&upstream, "[server]\nmax_sessions = 5").await;
    let busy = gate.client().extension().open().await;
    let task = busy.call("slow", json!({})).await.task();
    for _ in 0..30 {
        let client = gate.client().open().await;
        assert_eq!(client.outcome("fast", json!({})).await, "x", "nobody is rejected");
    }
    busy.call("slow", json!({})).await.task(); // what it declared is still known
    latch.open();
    assert_eq!(busy.task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn b97_retained_results_are_bounded() {
    let big = script::script(|mut call| async move {
        tokio::time::sleep(ms(120)).await;
        call.say(&"A".repeat(100_000));
    });
    let upstream = Upstream::builder().tool("big", big).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_retained = \"250KiB\"").await;
    let client = gate.client().open().await;
    let mut jobs = Vec::new();
    for _ in 0..4 {
        let job = client.call("big", json!({})).await.job();
        assert_eq!(client.job_end(&job).await.block(1).len(), 100_000);
        jobs.push(job);
    }
    assert_eq!(client.job(&jobs[0], 0.0).await.state(), "not_found", "the oldest that was read goes first");
    assert_eq!(client.job(&jobs[3], 0.0).await.state(), "done");
}
