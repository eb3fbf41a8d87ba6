//! An upstream that taskgate reaches with a credential of its own accepts whatever a client brings: its word is none
//! about strangers who know a session's id.

use serde_json::json;
use tokio::time::sleep;

use crate::support::gate::Home;
use crate::support::upstream::{Get, script};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms};

/// Both ways in which the upstream never sees a client's credential.
const OURS: [&str; 2] =
    ["[upstream]\nforward_authorization = false", "[upstream]\nheaders = { Authorization = \"Bearer ours\" }"];

/// An upstream that lets everybody in, with a tool that waits for the latch.
async fn open_to_all() -> (Upstream, Latch) {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "worth it")).get(Get::Stream).start().await;
    (upstream, latch)
}

/// Whoever learnt the session's id, with a credential and with none; their requests pass as anybody's do.
async fn strangers(gate: &Gate, owner: &Client) -> [Client; 2] {
    let session = owner.session.as_deref();
    let strangers = [gate.client().bearer("THIEF").in_session(session), gate.client().in_session(session)];
    for stranger in &strangers {
        stranger.request("resources/list", json!({})).await;
        stranger.tools().await.result();
    }
    strangers
}

#[tokio::test]
async fn a_stranger_reads_and_cancels_no_task() {
    for ours in OURS {
        let (upstream, latch) = open_to_all().await;
        let gate = Gate::start(&upstream, ours).await;
        let owner = gate.client().bearer("U").open().await;
        let task = owner.call_task("slow", json!({})).await.core_task();
        for stranger in strangers(&gate, &owner).await {
            for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
                let params = json!({"taskId": task, "inputResponses": {}});
                assert_eq!(stranger.request(method, params).await.code(), -32602, "{method} {ours}");
            }
            for tool in ["get_job_result", "cancel_job"] {
                let answer = stranger.call(tool, json!({"job_id": task})).await;
                assert_eq!(answer.state(), "not_found", "{tool} {ours}");
            }
        }
        assert_eq!(owner.task(&task).await.state(), "working", "{ours}");
        assert!(upstream.of("ping").is_empty() && upstream.cancels().is_empty(), "{ours}");
        latch.open();
        assert_eq!(owner.task_result(&task).await.text(), "worth it", "{ours}");
        for stranger in strangers(&gate, &owner).await {
            assert_eq!(stranger.task_result(&task).await.code(), -32602, "{ours}");
        }
    }
}

#[tokio::test]
async fn a_stranger_withdraws_no_call_and_ends_no_session() {
    for ours in OURS {
        let (upstream, latch) = open_to_all().await;
        let gate = Gate::start(&upstream, &format!("[tasks]\nthreshold = \"10s\"\n{ours}")).await;
        let owner = gate.client().bearer("U").open().await;
        for idle in strangers(&gate, &owner).await {
            assert_eq!(idle.delete().await.status, 403, "{ours}");
        }
        let meddling = async {
            eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
            for stranger in strangers(&gate, &owner).await {
                assert_eq!(stranger.cancelled(&json!(77)).await.status, 403, "{ours}");
                assert_eq!(stranger.delete().await.status, 403, "{ours}");
            }
            assert!(upstream.cancels().is_empty() && upstream.http("DELETE").is_empty(), "{ours}");
            latch.open();
        };
        let (answer, ()) = tokio::join!(owner.call_as("77", "slow", json!({})), meddling);
        assert_eq!(answer.text(), "worth it", "{ours}");
        assert_eq!(owner.delete().await.status, 200, "its owner does, {ours}");
        assert_eq!(upstream.http("DELETE").len(), 1);
    }
}

#[tokio::test]
async fn a_stranger_hears_nothing_of_a_session() {
    for ours in OURS {
        let (upstream, _latch) = open_to_all().await;
        let gate = Gate::start(&upstream, ours).await;
        let owner = gate.client().bearer("U").open().await;
        for first in strangers(&gate, &owner).await {
            assert_eq!(first.listen().await.status, 403, "before anybody listens, {ours}");
        }
        assert_eq!(upstream.listeners(), 0);
        let mut heard = owner.listen().await.events();
        for second in strangers(&gate, &owner).await {
            assert_eq!(second.listen().await.status, 403, "while another listens, {ours}");
        }
        upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "news"}}));
        assert_eq!(heard.message().await.unwrap()["params"]["data"], "news", "{ours}");
    }
}

#[tokio::test]
async fn after_a_restart_a_session_is_still_its_owners() {
    for ours in OURS {
        let home = Home::new();
        let (upstream, latch) = open_to_all().await;
        let gate = home.start(&upstream, ours).await;
        let owner = gate.client().bearer("U").open().await;
        // It is written down in the background.
        sleep(ms(50)).await;
        gate.closed().await;
        let gate = home.start(&upstream, ours).await;
        for stranger in strangers(&gate, &owner).await {
            assert_eq!(stranger.listen().await.status, 403, "{ours}");
            assert_eq!(stranger.delete().await.status, 403, "{ours}");
        }
        let listening = owner.listen().await;
        assert_eq!(listening.status, 200, "{ours}");
        assert_eq!(owner.delete().await.status, 200, "{ours}");
        latch.open();
    }
}

#[tokio::test]
async fn a_session_that_began_elsewhere_is_whose_who_comes_first() {
    let (upstream, _latch) = open_to_all().await;
    let before = Gate::start(&upstream, OURS[0]).await;
    let owner = before.client().bearer("U").open().await;
    let gate = Gate::start(&upstream, OURS[0]).await;
    let owner = gate.client().bearer("U").in_session(owner.session.as_deref());
    owner.tools().await.result();
    for stranger in strangers(&gate, &owner).await {
        assert_eq!(stranger.listen().await.status, 403);
        assert_eq!(stranger.delete().await.status, 403);
    }
    assert_eq!(owner.listen().await.status, 200);
    assert_eq!(owner.delete().await.status, 200);
}

#[tokio::test]
async fn an_idle_session_of_our_own_is_ended_by_whom_the_upstream_accepts() {
    let accepts_u = script::script(|mut call| async move {
        let is_u = call.request.header("authorization") == Some("Bearer U");
        if is_u { call.result_text("{}") } else { call.raw(401, &[("www-authenticate", "Bearer")], "who?") }
    });
    let upstream = Upstream::builder().without_sessions().on("ping", accepts_u).start().await;
    let gate = Gate::start(&upstream, "[upstream]\nmint_sessions = true").await;
    let owner = gate.client().bearer("U").open().await;
    let session = owner.session.as_deref();
    for stranger in [gate.client().bearer("THIEF").in_session(session), gate.client().in_session(session)] {
        assert_eq!(stranger.delete().await.status, 403);
    }
    owner.tools().await.result();
    assert_eq!(owner.delete().await.status, 204);
    assert_eq!(owner.tools().await.status, 404);
}
