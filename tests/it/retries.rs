//! Broken connections: no call is made twice, and nobody is told a lie about the first one.
//!
//! "Outcome unknown" is an answer; a silent second execution is a loss.

use std::sync::Arc;

use serde_json::json;
use tokio::time::sleep;

use crate::support::upstream::script::{self, Script};
use crate::support::{Gate, PATIENT, Upstream, ms};

/// Executes, then resets the connection; answers from the second time on.
fn flaky() -> Script {
    script::script(|mut call| async move {
        if call.before == 0 {
            call.reset().await;
        } else {
            call.say("second");
        }
    })
}

#[tokio::test]
async fn b27_a_reset_call_is_not_made_twice() {
    for (annotations, retry, calls) in [
        (json!({}), "never", 1),
        (json!({}), "idempotent", 1),
        (json!({"idempotentHint": true}), "never", 1),
        (json!({"idempotentHint": true}), "idempotent", 2),
        (json!({"readOnlyHint": true}), "idempotent", 2),
    ] {
        let builder = Upstream::builder().tool_with("count", &json!({"annotations": annotations}), flaky());
        let upstream = builder.start().await;
        let gate = Gate::start(&upstream, &format!("{PATIENT}retry = \"{retry}\"")).await;
        let client = gate.client().open().await;
        client.tools().await.result();
        let answer = client.call_as("77", "count", json!({})).await;
        assert_eq!(upstream.calls("count").len(), calls, "{annotations} {retry}");
        assert_eq!((answer.status, &answer.json["id"]), (200, &json!(77)));
        if calls == 2 {
            assert_eq!(answer.text(), "second");
        } else {
            assert_eq!((answer.code(), answer.reason()), (-32603, "outcome_unknown"));
        }
    }
}

#[tokio::test]
async fn b27_a_cut_answer_is_an_unknown_outcome() {
    let cut: [(&str, Script); 3] = [
        ("before the head", script::script(|mut call| async move { call.cut().await })),
        (
            "in a body",
            script::script(|mut call| async move {
                call.begin(200, &[("content-type", "application/json"), ("content-length", "90")], "{\"jsonrpc\":");
                call.cut().await;
            }),
        ),
        (
            "in a stream",
            script::script(|mut call| async move {
                call.bytes(": working\n\n");
                call.cut().await;
            }),
        ),
    ];
    for (place, script) in cut {
        let upstream = Upstream::builder().tool("cut", script).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let answer = gate.client().open().await.call("cut", json!({})).await;
        assert_eq!(answer.reason(), "outcome_unknown", "{place}: {}", answer.raw);
        assert_eq!(upstream.calls("cut").len(), 1, "{place}");
    }
}

#[tokio::test]
async fn b27_a_task_that_lost_its_upstream_says_so() {
    let cut = script::script(|mut call| async move {
        sleep(ms(150)).await;
        call.reset().await;
    });
    let upstream = Upstream::builder().tool("cut", cut).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("cut", json!({})).await.task();
    let end = client.task_end(&task).await;
    assert_eq!(end.state(), "failed");
    assert_eq!(end.result()["error"]["data"]["reason"], "outcome_unknown", "{}", end.raw);
    assert_eq!(upstream.calls("cut").len(), 1);
}

#[tokio::test]
async fn b30_no_call_meets_a_stale_socket() {
    let upstream = Upstream::builder().idle(ms(150)).tool("echo", script::echo()).start().await;
    let config = format!("{PATIENT}[upstream]\nidle_timeout = \"100ms\"");
    let gate = Arc::new(Gate::start(&upstream, &config).await);
    let mut runs = Vec::new();
    for offset in 0..6 {
        let gate = gate.clone();
        runs.push(async move {
            let client = gate.client().open().await;
            for turn in 0..8 {
                sleep(ms(140 + (offset * 3 + turn * 5) % 20)).await;
                let text = format!("{offset} {turn}");
                assert_eq!(client.call("echo", json!({"text": text})).await.text(), text);
            }
        });
    }
    futures_util::future::join_all(runs).await;
    assert_eq!(upstream.calls("echo").len(), 48);
}

#[tokio::test]
async fn b30_a_refused_connection_is_not_an_unknown_outcome() {
    let upstream = Upstream::builder().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    drop(upstream);
    sleep(ms(50)).await;
    let answer = client.call("echo", json!({"text": "x"})).await;
    assert_eq!((answer.status, answer.code(), answer.reason()), (200, -32603, "upstream_unreachable"));
}
