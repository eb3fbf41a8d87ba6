//! Who may see what: sessions, credentials, and both of them ending.
//!
//! Most losses in the field begin with a client that opens a new session for every call.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::dialect::{STRANGER, is_unknown};
use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually, ms, throughout, within};

#[tokio::test]
async fn b01_new_session_for_every_call_with_a_credential() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let first = gate.client().bearer("U").open().await;
    let job = first.call("slow", json!({})).await.job();
    latch.open();

    let second = gate.client().bearer("U").open().await;
    assert_ne!(first.session, second.session);
    assert_eq!(second.job_end(&job).await.block(1), "worth it");

    let foreign = gate.client().bearer("V").open().await;
    let refused = foreign.call_as("9", "get_job_result", json!({"job_id": job})).await;
    let unknown = foreign.call_as("9", "get_job_result", json!({"job_id": STRANGER})).await;
    assert_eq!(refused.state(), "not_found");
    assert_eq!(refused.raw.replace(&job, STRANGER), unknown.raw);
    assert_eq!(second.job_end(&job).await.block(1), "worth it", "reading never destroys");
}

#[tokio::test]
async fn b01_without_a_credential_a_job_id_is_enough_and_a_task_needs_its_session() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let owner = gate.client().extension().open().await;
    let other = gate.client().extension().open().await;
    let task = owner.call("slow", json!({})).await.task();
    assert_eq!(owner.task(&task).await.state(), "working");
    let refused = other.request("tasks/get", json!({"taskId": task})).await;
    assert_eq!((refused.status, refused.code()), (200, -32602));
    assert_eq!(refused.error()["message"], "Task is not available in this session");

    let plain = gate.client().open().await;
    let job = plain.call("slow", json!({})).await.job();
    latch.open();
    assert_eq!(plain.job_end(&job).await.block(1), "worth it");
    assert_eq!(gate.client().open().await.job_end(&job).await.block(1), "worth it");
    assert!(!plain.tool_names().await.contains(&"list_jobs".to_owned()));
}

#[tokio::test]
async fn b02_delete_right_after_the_call() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let started = Instant::now();
    assert_eq!(client.delete().await.status, 200);
    assert!(started.elapsed() < ms(500), "DELETE waits for nothing");
    let dead = client.tools().await;
    assert_eq!(dead.status, 404);
    assert!(dead.error()["code"].is_number(), "{}", dead.raw);
    throughout(ms(100), "the upstream session lives", || upstream.http("DELETE").is_empty()).await;

    latch.open();
    let later = gate.client().open().await;
    assert_eq!(later.job_end(&job).await.block(1), "worth it");
    eventually("the DELETE follows", || upstream.http("DELETE").len() == 1).await;
    assert_eq!(upstream.http("DELETE")[0].session(), client.session.as_deref());
    assert_eq!((upstream.calls("slow").len(), upstream.cancels().len()), (1, 0));
}

#[tokio::test]
async fn b02_delete_cancels_what_nobody_could_read_any_more() {
    let (upstream, _latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    assert_eq!(client.delete().await.status, 200);
    within(ms(1000), "the upstream is told", || upstream.cancels().len() == 1).await;
    let cancel = &upstream.cancels()[0];
    assert_eq!(cancel.json["params"]["requestId"].to_string(), upstream.calls("slow")[0].id());
    assert_eq!(cancel.session(), client.session.as_deref());
    eventually("the DELETE follows", || upstream.http("DELETE").len() == 1).await;
    assert_eq!(gate.client().extension().open().await.task(&task).await.code(), -32602);
}

#[tokio::test]
async fn b02_delete_by_setting_keeps_or_cancels() {
    for (setting, cancels) in [("keep", 0), ("cancel", 1)] {
        let (upstream, latch) = Upstream::holding("worth it").await;
        let gate = Gate::start(&upstream, &format!("[tasks]\non_session_end = \"{setting}\"")).await;
        let client = gate.client().bearer("U").open().await;
        let job = client.call("slow", json!({})).await.job();
        assert_eq!(client.delete().await.status, 200);
        if cancels == 0 {
            throughout(ms(80), setting, || upstream.cancels().is_empty()).await;
            latch.open();
        }
        let end = gate.client().bearer("U").open().await.job_end(&job).await;
        assert_eq!(end.state(), if cancels == 0 { "done" } else { "cancelled" }, "{setting}");
        eventually(setting, || upstream.cancels().len() == cancels).await;
    }
}

#[tokio::test]
async fn b04_foreign_ids_are_unknown_ids() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let owner = gate.client().bearer("A").extension().open().await;
    let other = gate.client().bearer("B").extension().open().await;
    let task = owner.call("slow", json!({})).await.task();
    is_unknown(&other, &task).await;
    assert_eq!(owner.task(&task).await.state(), "working");
    latch.open();
    assert_eq!(owner.task_end(&task).await.state(), "completed");
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn b04_a_list_shows_ones_own() {
    let (upstream, _latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let (first, second) = (gate.client().open().await, gate.client().open().await);
    let mut jobs = (Vec::new(), Vec::new());
    for _ in 0..3 {
        jobs.0.push(first.call("slow", json!({})).await.job());
        jobs.1.push(second.call("slow", json!({})).await.job());
    }
    let listed = second.call("list_jobs", json!({})).await;
    assert!(jobs.1.iter().all(|job| listed.text().contains(job.as_str())), "{}", listed.raw);
    assert!(!jobs.0.iter().any(|job| listed.raw.contains(job.as_str())), "{}", listed.raw);
    assert_eq!(second.job(&jobs.0[0], 0.0).await.state(), "not_found");
}

#[tokio::test]
async fn b05_no_list_when_callers_cannot_be_told_apart() {
    let (upstream, _latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    for client in [gate.client(), gate.client().bearer("service"), gate.client().extension()] {
        let client = client.open().await;
        let names = client.tool_names().await;
        assert!(names.contains(&"get_job_result".to_owned()), "{names:?}");
        assert!(!names.contains(&"list_jobs".to_owned()), "{names:?}");
        let listed = client.request("tasks/list", json!({})).await;
        assert_eq!((listed.status, listed.code()), (200, -32601));
    }
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    assert!(gate.client().open().await.tool_names().await.contains(&"list_jobs".to_owned()));
}

#[tokio::test]
async fn b06_ids_cannot_be_guessed() {
    let (upstream, _latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"1ms\"").await;
    let client = gate.client().open().await;
    let mut ids = HashSet::new();
    for _ in 0..60 {
        let id = client.call("slow", json!({})).await.job();
        let uuid = uuid::Uuid::parse_str(&id).unwrap();
        assert_eq!((uuid.get_version_num(), uuid.hyphenated().to_string()), (4, id.clone()));
        ids.insert(id);
    }
    let beginnings: HashSet<_> = ids.iter().map(|id| &id[..8]).collect();
    assert_eq!((ids.len(), beginnings.len()), (60, 60), "{ids:?}");
}

#[tokio::test]
async fn b09_upstream_sessions_are_never_shared() {
    let latch = Latch::new();
    let counts: Arc<Mutex<HashMap<Option<String>, u64>>> = Arc::default();
    let count = script::script(move |mut call| {
        let session = call.request.session().map(str::to_owned);
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(session).or_default();
        *count += 1;
        call.say(&count.to_string());
        async {}
    });
    let upstream = Upstream::builder().tool("count", count).tool("slow", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (a, b) = (gate.client().open().await, gate.client().open().await);
    for expected in ["1", "2", "3"] {
        assert_eq!(a.call("count", json!({})).await.text(), expected);
        assert_eq!(b.call("count", json!({})).await.text(), expected);
    }
    let meddling = async {
        eventually("both run", || upstream.calls("slow").len() == 2).await;
        assert_eq!(a.cancelled(&json!(50)).await.status, 202);
        eventually("one is cancelled", || upstream.cancels().len() == 1).await;
        latch.open();
    };
    let calls = (a.call_as("50", "slow", json!({"text": "a"})), b.call_as("50", "slow", json!({"text": "b"})));
    let (cancelled, finished, ()) = tokio::join!(calls.0, calls.1, meddling);
    assert_eq!((cancelled.json, finished.text()), (Value::Null, "b"));
    assert_eq!(upstream.cancels()[0].session(), a.session.as_deref());
}

#[tokio::test]
async fn b11_upstream_without_session_ids() {
    let latch = Latch::new();
    let builder = Upstream::builder().without_sessions().tool("slow", script::held(&latch, "worth it"));
    let upstream = builder.start().await;
    let gate = Gate::start(&upstream, "").await;
    let mut client = gate.client();
    assert_eq!(client.hello().await.header("mcp-session-id"), None);
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "worth it");

    let gate = Gate::start(&upstream, "[upstream]\nmint_sessions = true").await;
    let client = gate.client().extension().open().await;
    assert!(client.session.is_some());
    client.call("slow", json!({})).await;
    assert!(upstream.all().iter().all(|request| request.session().is_none()), "a minted id stays here");
}

#[tokio::test]
async fn b31_stale_session_is_passed_on() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "worth it");
    upstream.forget_sessions();
    let gone = client.call("slow", json!({})).await;
    assert_eq!(gone.status, 404);
    assert!(gone.error()["code"].is_number());
    assert_eq!(client.job_end(&job).await.block(1), "worth it", "finished work stays readable");
    assert_eq!(gate.client().open().await.outcome("slow", json!({})).await, "worth it");

    let refuse = script::responds(400, &[("content-type", "text/plain")], b"No valid session ID provided");
    let upstream = Upstream::builder().on("tools/call", refuse).tool("any", script::says("")).start().await;
    let gate = Gate::start(&upstream, crate::support::PATIENT).await;
    let client = gate.client().open().await;
    assert_eq!(client.call("any", json!({})).await.status, 400);
    assert_eq!(upstream.calls("any").len(), 1);
}

#[tokio::test]
async fn b98_idle_sessions_are_forgotten_but_not_busy_ones() {
    let (upstream, latch) = Upstream::holding("worth it").await;
    let gate = Gate::start(&upstream, "[server]\nsession_idle = \"100ms\"").await;
    let busy = gate.client().extension().open().await;
    let task = busy.call("slow", json!({})).await.task();
    let idle = gate.client().extension().open().await;
    tokio::time::sleep(ms(500)).await;
    busy.call("slow", json!({})).await.task();
    let plain = idle.call("slow", json!({})).await;
    plain.job();
    assert!(plain.result().get("resultType").is_none(), "what it declared is forgotten, the session itself is not");
    latch.open();
    assert_eq!(busy.task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn b98_a_client_that_vanishes_frees_its_get_stream() {
    let upstream = Upstream::builder().get(crate::support::upstream::Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client: Client = gate.client().open().await;
    let stream = client.listen().await;
    eventually("it is open", || upstream.listeners() == 1).await;
    drop(stream);
    eventually("it is closed", || upstream.listeners() == 0).await;
    assert_eq!(client.listen().await.status, 200, "and may be opened again");
}
