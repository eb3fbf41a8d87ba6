//! A disk that fails while calls run: what cannot be written is held or tried again, and nobody is told a lie.

use serde_json::json;
use tokio::time::sleep;

use crate::support::client::Answer;
use crate::support::gate::{Fault, Home};
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream, eventually, ms, soon};

const TROUBLE: [Fault; 3] = [Fault::Broken, Fault::ReadOnly, Fault::Full];

/// Waits until readiness is answered with this status.
pub async fn ready(gate: &Gate, status: u16) {
    for _ in 0..400 {
        if gate.admin("/readyz").await.0 == status {
            return;
        }
        sleep(ms(10)).await;
    }
    panic!("readiness is not {status}: {:?}", gate.admin("/readyz").await);
}

#[tokio::test]
async fn b94_before_the_threshold_calls_are_held_and_nothing_falls_back() {
    let home = Home::new();
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::accepted(&latch, "late"))
        .tool("slower", script::until_cancelled())
        .start()
        .await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    gate.fault(Fault::Broken);
    let held = client.call("slow", json!({}));
    let story = async {
        eventually("the call is on its way", || upstream.calls("slow").len() == 1).await;
        ready(&gate, 503).await;
        let cancelled = client.call_task("slow", json!({})).await;
        assert_eq!(cancelled.reason(), "store_unavailable", "a core call cannot be held");
        latch.open();
    };
    let (held, ()) = tokio::join!(held, story);
    assert_eq!(held.text(), "late", "past its threshold, and inline");

    gate.fault(Fault::None);
    ready(&gate, 200).await;
    assert!(client.call("slower", json!({})).await.job().len() == 36, "handles are given again");
}

#[tokio::test]
async fn b94_between_handle_and_end_the_result_is_kept_and_tried_again() {
    for trouble in TROUBLE {
        let home = Home::new();
        let latch = Latch::new();
        let large = Box::leak("x".repeat(300_000).into_boxed_str());
        let upstream = Upstream::builder().tool("slow", script::held(&latch, large)).start().await;
        let gate = home.start(&upstream, "").await;
        let client = gate.client().open().await;
        let job = client.call("slow", json!({})).await.job();
        gate.fault(trouble);
        latch.open();
        // A disk on which only this result finds no room is good enough for all else.
        if trouble != Fault::Full {
            ready(&gate, 503).await;
        }
        for _ in 0..3 {
            sleep(ms(30)).await;
            assert_eq!(client.job(&job, 0.0).await.state(), "running", "{trouble:?}: known, and not ended yet");
        }
        gate.fault(Fault::None);
        let end = soon("the end", client.job_end(&job)).await;
        assert_eq!(end.block(1).len(), 300_000, "{trouble:?}");
        assert_eq!(upstream.calls("slow").len(), 1);
        ready(&gate, 200).await;
    }
}

#[tokio::test]
async fn b94_polls_and_cancellations_meanwhile_are_told_the_truth() {
    let home = Home::new();
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::accepted(&latch, "late"))
        .tool("brief", script::after(ms(120), "done"))
        .start()
        .await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let brief = client.call("brief", json!({})).await.task();
    client.task_end(&brief).await;
    let slow = client.call("slow", json!({})).await.task();
    gate.fault(Fault::Broken);
    assert_eq!(client.task(&brief).await.state(), "completed", "what was written can be read");
    assert_eq!(client.task(&slow).await.state(), "working");
    assert_eq!(client.cancel_task(&slow).await.reason(), "store_unavailable");
    gate.fault(Fault::None);
    assert_eq!(client.cancel_task(&slow).await.result(), &json!({"resultType": "complete"}));
    assert_eq!(client.task(&slow).await.state(), "cancelled");
}

#[tokio::test]
async fn b94_a_slow_disk_delays_handles_and_loses_none() {
    let home = Home::new();
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::echo_held(&latch)).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    gate.fault(Fault::Slow(ms(100)));
    let calls = futures_util::future::join_all((0..20).map(|n| client.call("slow", json!({"text": n.to_string()}))));
    let jobs: Vec<String> = calls.await.iter().map(Answer::job).collect();
    latch.open();
    for (n, job) in jobs.iter().enumerate() {
        assert_eq!(client.job_end(job).await.block(1), n.to_string());
    }
    assert_eq!(upstream.calls("slow").len(), 20);
}
