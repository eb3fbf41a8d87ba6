//! Clients that leave, and clients that say so.
//!
//! In the handshake era a lost connection cancels nothing, and a cancellation reaches the upstream within a second.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::client::Answer;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms, throughout, within};

#[tokio::test]
async fn b33_a_client_that_drops_a_held_call_loses_nothing() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nthreshold = \"200ms\"").await;
    let client = gate.client().open().await;
    tokio::select! {
        _ = client.call("slow", json!({})) => panic!("it is held"),
        () = eventually("it is upstream", || upstream.calls("slow").len() == 1) => {}
    }
    throughout(ms(300), "the call goes on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty())
        .await;
    let list = client.call("list_jobs", json!({})).await;
    let job = listed(&list).pop_first().unwrap_or_else(|| panic!("it is its owner's job now: {}", list.raw));
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
    assert_eq!(upstream.calls("slow").len(), 1);
}

/// The job ids in a list, in whatever form it writes them.
fn listed(list: &Answer) -> BTreeSet<String> {
    let text = list.text();
    let ids = (0..text.len().saturating_sub(35)).filter_map(|at| text.get(at..at + 36));
    ids.filter(|id| uuid::Uuid::try_parse(id).is_ok()).map(str::to_owned).collect()
}

#[tokio::test]
async fn b33_a_drop_while_the_handle_is_written_leaves_no_orphan() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let client = gate.client().open().await;
    let calls = (0..20).map(|number| timeout(ms(50 + number), client.call("slow", json!({}))));
    let answered = futures_util::future::join_all(calls).await.into_iter().filter(Result::is_ok).count();
    assert!(answered < 20, "nobody dropped");
    sleep(ms(100)).await;
    let jobs = listed(&client.call("list_jobs", json!({})).await);
    assert_eq!((jobs.len(), upstream.calls("slow").len()), (20, 20), "{jobs:?}");
    assert!(upstream.cancels().is_empty() && upstream.disconnects().is_empty());
    latch.open();
    for job in jobs {
        assert_eq!(client.job_end(&job).await.block(1), "late");
    }
}

#[tokio::test]
async fn b33_a_stateless_client_that_drops_cancels() {
    let latch = Latch::new();
    let upstream = Upstream::builder().without_sessions().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().version("2026-07-28").header("mcp-method", "tools/call").header("mcp-name", "slow");
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let body = client.body("1", "tools/call", json!({"name": "slow", "_meta": meta}));
    tokio::select! {
        _ = client.ask(body.clone()) => panic!("it is held"),
        () = eventually("it is upstream", || upstream.calls("slow").len() == 1) => {}
    }
    within(ms(1000), "the exchange is closed", || upstream.disconnects().len() == 1).await;
    assert_eq!(upstream.calls("slow")[0].body, body, "sealed");
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn b33_dropping_after_the_handle_and_dropping_polls_changes_nothing() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    for _ in 0..3 {
        assert!(timeout(ms(30), client.job(&task, 5.0)).await.is_err());
    }
    throughout(ms(100), "the work goes on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty())
        .await;
    latch.open();
    assert_eq!(client.task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn b34_a_cancellation_names_the_id_that_the_call_has_upstream() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("background", script::held(&latch, "late"))
        .tool("held", script::until_cancelled())
        .tool("fast", script::says("quick"))
        .start()
        .await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = [\"held\", \"fast\"]\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    let client = gate.client().open().await;
    let job = client.call_as("101", "background", json!({})).await.job();
    let meddling = async {
        eventually("it is upstream", || upstream.calls("held").len() == 1).await;
        let started = Instant::now();
        assert_eq!(client.cancelled(&json!(101)).await.status, 202);
        assert!(started.elapsed() < ms(500), "never queued behind the call");
        within(ms(500), "the upstream is told", || upstream.cancels().len() == 1).await;
        assert_eq!(client.call("fast", json!({})).await.text(), "quick");
    };
    let (held, ()) = tokio::join!(client.call_as("101", "held", json!({})), meddling);
    assert_eq!((held.json, held.raw.as_str()), (Value::Null, ""), "the stream ends without a message");
    let cancel = &upstream.cancels()[0];
    assert_eq!(cancel.json["params"]["requestId"].to_string(), upstream.calls("held")[0].id());
    assert_ne!(upstream.calls("held")[0].id(), "101");
    assert_eq!(cancel.session(), client.session.as_deref());

    assert_eq!(client.cancelled(&json!(101)).await.status, 202);
    throughout(ms(100), "a deferred call is not cancelled so", || upstream.cancels().len() == 1).await;
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
}

#[tokio::test]
async fn b35_every_way_of_cancelling_reaches_the_upstream() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let plain = gate.client().open().await;
    let ext = gate.client().extension().open().await;

    let job = plain.call("endless", json!({})).await.job();
    plain.cancel_job(&job).await.result();
    within(ms(1000), "cancel_job", || upstream.cancels().len() == 1).await;
    assert_eq!(plain.job_end(&job).await.state(), "cancelled");

    let task = ext.call("endless", json!({})).await.task();
    assert_eq!(ext.cancel_task(&task).await.result(), &json!({"resultType": "complete"}));
    within(ms(1000), "tasks/cancel", || upstream.cancels().len() == 2).await;
    assert_eq!(ext.task(&task).await.state(), "cancelled");

    for (cancel, client) in upstream.cancels().iter().zip([&plain, &ext]) {
        assert_eq!(cancel.session(), client.session.as_deref());
        let calls = upstream.calls("endless");
        let call = calls.iter().find(|call| call.session() == cancel.session()).unwrap();
        assert_eq!(cancel.json["params"]["requestId"].to_string(), call.id());
    }
}

#[tokio::test]
async fn b35_a_cancelled_exchange_is_closed() {
    let deaf = script::script(|mut call| async move { call.gone().await });
    let upstream = Upstream::builder().tool("deaf", deaf).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("deaf", json!({})).await.job();
    client.cancel_job(&job).await.result();
    within(ms(1000), "the exchange is closed", || upstream.disconnects().len() == 1).await;
    assert_eq!((upstream.cancels().len(), upstream.disconnects()[0].tool()), (1, "deaf"));
}

#[tokio::test]
async fn b37_the_first_end_is_the_only_one() {
    let jitter = script::script(|mut call| async move {
        sleep(ms(call.arg("ms").as_u64().unwrap())).await;
        call.say("done");
    });
    let upstream = Upstream::builder().tool("jitter", jitter).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"5ms\"").await;
    let client = gate.client().extension().open().await;
    let run = async |number: u64| {
        let answer = client.call("jitter", json!({"ms": 40 + number % 10})).await;
        let task = answer.task();
        sleep(ms(30 + number % 20)).await;
        client.cancel_task(&task).await.result();
        let first = client.task(&task).await;
        sleep(ms(60)).await;
        let second = client.task(&task).await;
        assert_eq!((first.state(), &first.result()["result"]), (second.state(), &second.result()["result"]));
        let completed = second.state() == "completed";
        assert!(completed || second.state() == "cancelled", "{}", second.raw);
        assert_eq!(second.result().get("result").is_some(), completed, "{}", second.raw);
        completed
    };
    let mut completed = 0;
    for batch in 0..10 {
        let runs = (0..20).map(|number| run(batch * 20 + number));
        completed += futures_util::future::join_all(runs).await.into_iter().filter(|end| *end).count();
    }
    assert!(completed > 0 && completed < 200, "{completed} of 200 completed: no race was run");
}
