//! Strangers who know a session's id, upstreams that say no late, and tools that bear our names.

use serde_json::json;

use crate::support::upstream::{Script, script};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms};

/// A ping is accepted from U alone.
fn accepts_u() -> Script {
    script::script(|mut call| async move {
        let is_u = call.request.header("authorization") == Some("Bearer U");
        if is_u { call.result_text("{}") } else { call.raw(401, &[("www-authenticate", "Bearer")], "who?") }
    })
}

async fn guarded() -> (Upstream, Latch) {
    let latch = Latch::new();
    let slow = script::held(&latch, "worth it");
    (Upstream::builder().tool("slow", slow).on("ping", accepts_u()).start().await, latch)
}

fn stranger(gate: &Gate, owner: &Client) -> [Client; 2] {
    let session = owner.session.as_deref();
    [gate.client().bearer("THIEF").in_session(session), gate.client().in_session(session)]
}

#[tokio::test]
async fn b08_a_stranger_cancels_nothing_and_ends_no_session() {
    let (upstream, latch) = guarded().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"10s\"").await;
    let owner = gate.client().bearer("U").open().await;
    let meddling = async {
        eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
        for thief in stranger(&gate, &owner) {
            assert_eq!(thief.cancelled(&json!(77)).await.status, 403);
            assert_eq!(thief.delete().await.status, 403);
        }
        assert!(upstream.cancels().is_empty() && upstream.http("DELETE").is_empty(), "nothing is forwarded");
        latch.open();
    };
    let (answer, ()) = tokio::join!(owner.call_as("77", "slow", json!({})), meddling);
    assert_eq!(answer.text(), "worth it");
    assert_eq!(owner.call("slow", json!({})).await.text(), "worth it", "the session is still usable");
}

#[tokio::test]
async fn b69_a_tool_of_our_name_is_the_upstreams_in_sessions_that_never_listed() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "done"))
        .tool("get_job_result", script::says("the upstream's own"))
        .start()
        .await;
    let gate =
        Gate::start(&upstream, "[upstream]\n[[upstream.rule]]\ntool = \"get_job_result\"\nthreshold = \"30s\"").await;
    let client = gate.client().open().await;
    assert_eq!(client.call("get_job_result", json!({"job_id": "j-1"})).await.text(), "the upstream's own");
    let handle = client.call("slow", json!({})).await;
    assert!(handle.text().contains("taskgate_get_job_result(job_id="), "{}", handle.raw);
    let again = gate.client().open().await;
    assert_eq!(again.call("get_job_result", json!({"q": 1})).await.text(), "the upstream's own");
    latch.open();
    let ours = again.call("get_job_result", json!({"job_id": handle.job(), "wait_s": 5.0})).await;
    assert_eq!((ours.state().as_str(), ours.block(1)), ("done", "done"), "with a job of ours it is ours");
}

#[tokio::test]
async fn a_refusal_after_the_stream_has_opened_is_an_error_with_the_callers_id() {
    for body in [r#"{"error":"invalid_token"}"#, "oops", ""] {
        let late = script::script(move |mut call| async move {
            tokio::time::sleep(ms(150)).await;
            call.raw(401, &[("content-type", "application/json")], body);
        });
        let upstream = Upstream::builder().tool("late", late).start().await;
        let rule = "[server]\nkeepalive = \"40ms\"\n[upstream]\n[[upstream.rule]]\ntool = \"late\"\nmode = \"sync\"";
        let gate = Gate::start(&upstream, rule).await;
        let answer = gate.client().open().await.call_as("\"x\"", "late", json!({})).await;
        assert_eq!((answer.status, answer.code()), (200, -32603), "{}", answer.raw);
        assert_eq!(answer.error()["data"]["status"], 401, "{}", answer.raw);
        assert!(answer.raw.contains("\"id\":\"x\""), "{}", answer.raw);
    }
}

#[tokio::test]
async fn b95_jobs_that_ended_just_before_the_signal_are_waited_for() {
    let (upstream, latch) = Upstream::holding("kept").await;
    let gate = Gate::start(&upstream, "[server]\ndrain_timeout = \"10s\"").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    let watcher = gate.client().open().await;
    eventually("it has ended", || upstream.calls("slow").len() == 1).await;
    tokio::time::sleep(ms(100)).await;
    gate.drain();
    let reading = async {
        tokio::time::sleep(ms(100)).await;
        assert_eq!(watcher.job_end(&job).await.block(1), "kept");
    };
    let leaving = gate.finished();
    tokio::join!(reading, leaving);
}

#[tokio::test]
async fn requests_that_nobody_waits_for_do_not_hold_up_the_end() {
    let hang = script::script(|mut call| async move { call.gone().await });
    let upstream = Upstream::builder().on("tools/list", hang).start().await;
    let gate = Gate::start(&upstream, "[server]\ndrain_timeout = \"60s\"").await;
    let client = gate.client().open().await;
    let given_up = tokio::time::timeout(ms(100), client.tools()).await;
    assert!(given_up.is_err());
    tokio::time::sleep(ms(50)).await;
    gate.drain();
    gate.finished().await;
}

#[tokio::test]
async fn an_upstream_that_never_stops_talking_outruns_no_deadline() {
    let babble = script::script(|mut call| async move {
        call.open();
        for n in 0..2_000_000_u32 {
            call.notify("notifications/message", &json!({"level": "info", "data": n}));
            if n % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        call.say("at last");
    });
    let upstream = Upstream::builder().tool("babble", babble).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"60ms\"\nmax_runtime = \"300ms\"").await;
    let client = gate.client().extension().open().await;
    let task = client.call("babble", json!({})).await.task();
    let end = client.task_end(&task).await;
    assert_eq!((end.state().as_str(), &end.result()["error"]["data"]["reason"]), ("failed", &json!("max_runtime")));
}
