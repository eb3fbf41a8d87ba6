//! How shared work ends: whatever becomes of it, everybody who shares it is told.
//!
//! The one exchange is all there is: nobody may be left waiting for another.

use serde_json::json;

use super::{HELD, ON, held, twice};
use crate::support::upstream::script;
use crate::support::{Gate, Latch, Upstream};

#[tokio::test]
async fn b72_an_error_reaches_everybody() {
    let latch = Latch::new();
    let fails = script::held_then(&latch, |mut call| async move {
        call.error(-32050, "no such mesh", &json!({"k": 1}));
    });
    let refuses = script::held_then(&latch, |mut call| async move {
        call.raw(429, &[("retry-after", "7")], "slow down");
    });
    let upstream = Upstream::builder().tool("fails", fails).tool("refuses", refuses).start().await;
    let rules = "[tasks]\ncoalesce = true\n[upstream]\n[[upstream.rule]]\ntool = \"refuses\"\nthreshold = \"30s\"";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().open().await;
    let (one, two) = twice(&client, "fails").await;
    let opening = async {
        held(&gate, 2).await;
        latch.open();
    };
    let (refused, ()) = tokio::join!(twice(&client, "refuses"), opening);
    for job in [one.job(), two.job()] {
        let end = client.job_end(&job).await;
        assert_eq!(end.note()["error"], json!({"code": -32050, "message": "no such mesh", "data": {"k": 1}}));
    }
    for answer in [refused.0, refused.1] {
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")), "{}", answer.raw);
    }
    assert_eq!((upstream.calls("fails").len(), upstream.calls("refuses").len()), (1, 1));
}

#[tokio::test]
async fn b72_an_exchange_that_breaks_is_an_unknown_outcome_for_all() {
    let latch = Latch::new();
    let cut = script::held_then(&latch, |mut call| async move { call.reset().await });
    let upstream = Upstream::builder().tool("cut", cut).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"600ms\"").await;
    let client = gate.client().open().await;
    let job = client.call("cut", json!({"n": 1})).await.job();
    let opening = async {
        held(&gate, 1).await;
        latch.open();
    };
    let (waited, ()) = tokio::join!(client.call("cut", json!({"n": 1})), opening);
    assert_eq!(waited.reason(), "outcome_unknown");
    assert!(client.job_end(&job).await.text().contains("outcome unknown"));
    assert_eq!(upstream.calls("cut").len(), 1);
}

#[tokio::test]
async fn b72_a_repeatable_call_is_repeated_once_for_all() {
    let latch = Latch::new();
    let flaky = script::held_then(&latch, |mut call| async move {
        if call.before == 0 {
            call.reset().await;
        } else {
            call.say("second");
        }
    });
    let upstream =
        Upstream::builder().tool_with("count", &json!({"annotations": {"readOnlyHint": true}}), flaky).start().await;
    let gate = Gate::start(&upstream, &format!("{HELD}retry = \"idempotent\"")).await;
    let client = gate.client().open().await;
    client.tools().await.result();
    let opening = async {
        held(&gate, 2).await;
        latch.open();
    };
    let ((one, two), ()) = tokio::join!(twice(&client, "count"), opening);
    assert_eq!((one.text(), two.text(), upstream.calls("count").len()), ("second", "second", 2));
}

#[tokio::test]
async fn b72_a_large_answer_is_everybodys() {
    for (config, waiting) in [(HELD, "held_calls"), (ON, "running_tasks")] {
        let latch = Latch::new();
        let large = script::held_then(&latch, |mut call| async move { call.say(&"A".repeat(2 << 20)) });
        let upstream = Upstream::builder().tool("large", large).start().await;
        let gate = Gate::start(&upstream, config).await;
        let client = gate.client().open().await;
        let opening = async {
            gate.gauge(waiting, 2).await;
            latch.open();
        };
        let (one, two, ()) =
            tokio::join!(client.outcome("large", json!({})), client.outcome("large", json!({})), opening);
        assert_eq!((one.len(), two.len(), upstream.calls("large").len()), (2 << 20, 2 << 20, 1));
    }
}
