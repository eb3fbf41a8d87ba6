//! Which credential work goes on with, and what one proves: tokens are renewed, dropped, and brought by others.

use serde_json::json;

use crate::support::dialect::is_unknown;
use crate::support::upstream::{Builder, Script, script};
use crate::support::{Gate, Home, Latch, Upstream, eventually, ms, throughout};

/// Accepts what brings a token that begins with `good`.
fn good_only() -> Script {
    script::script(|mut call| async move {
        match call.request.header("authorization") {
            Some(token) if token.starts_with("Bearer good") => call.result_text("{}"),
            _ => call.raw(401, &[("www-authenticate", "Bearer")], "who?"),
        }
    })
}

/// Its ping is for those who have a good token, its tools are for everybody.
fn lax() -> Builder {
    Upstream::builder()
        .on("ping", good_only())
        .tool("stuck", script::until_cancelled())
        .tool("free", script::says("hi"))
}

#[tokio::test]
async fn a_call_that_is_open_to_all_makes_nobody_the_owner() {
    let upstream = lax().start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30ms\"").await;
    let owner = gate.client().bearer("good").extension().open().await;
    let task = owner.call("stuck", json!({})).await.task();
    let stranger = gate.client().in_session(owner.session.as_deref());
    assert_eq!(stranger.call("free", json!({})).await.text(), "hi");
    is_unknown(&stranger, &task).await;
    for _ in 0..2 {
        assert_eq!(stranger.delete().await.status, 403);
        assert_eq!(stranger.cancelled(&json!(1)).await.status, 403);
    }
    owner.cancel_task(&task).await.result();
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].header("authorization"), Some("Bearer good"), "in its owner's name");
}

#[tokio::test]
async fn who_began_without_a_credential_needs_no_question() {
    let upstream = lax().start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30ms\"").await;
    let owner = gate.client().extension().open().await;
    let task = owner.call("stuck", json!({})).await.task();
    assert_eq!(owner.task(&task).await.state(), "working");
    assert_eq!(owner.delete().await.status, 200);
    assert!(upstream.of("ping").is_empty());
}

#[tokio::test]
async fn a_late_answer_does_not_put_an_old_token_back() {
    let latch = Latch::new();
    let upstream = lax().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30ms\"").await;
    let owner = gate.client().bearer("good-1").extension().open().await;
    let (stuck, slow) = (owner.call("stuck", json!({})).await.task(), owner.call("slow", json!({})).await.task());
    let owner = owner.bearer("good-2");
    owner.request("ping", json!({})).await.result();
    latch.open();
    assert_eq!(owner.task_end(&slow).await.state(), "completed");
    owner.cancel_task(&stuck).await.result();
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].header("authorization"), Some("Bearer good-2"));
}

#[tokio::test]
async fn after_a_restart_a_task_goes_on_in_nobody_elses_name() {
    for owner in ["id", "session"] {
        let (home, latch) = (Home::new(), Latch::new());
        let upstream = Upstream::solver(&latch).on("ping", good_only()).start().await;
        let settings = format!("[tasks]\nowner = \"{owner}\"");
        let gate = home.start(&upstream, &settings).await;
        let maker = gate.client().bearer("good-1").extension_per_request().open().await;
        let task = maker.call("solve", json!({"text": "42"})).await.task();
        gate.leave().await;

        let gate = home.start(&upstream, &settings).await;
        let other = gate.client().bearer("bad").in_session(maker.session.as_deref());
        assert_eq!(other.task(&task).await.state(), "working", "owner = {owner}: it may read");
        throughout(ms(100), "it speaks for itself only", || upstream.resumes().is_empty()).await;
        let maker = maker.bearer("good-2");
        assert_eq!(maker.task(&task).await.state(), "working");
        eventually("the stream is taken up", || upstream.resumes().len() == 1).await;
        assert_eq!(upstream.resumes()[0].header("authorization"), Some("Bearer good-2"), "owner = {owner}");
        latch.open();
        assert_eq!(maker.task_end(&task).await.state(), "completed");
        gate.leave().await;
    }
}
