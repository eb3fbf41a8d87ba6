//! Tasks of 2025-11-25 as their clients wait for, list and cancel them.
//!
//! A wait may be longer than any proxy's patience, a list longer than a page, and a cancellation is final.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::dialect::{STRANGER, is_unknown};
use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually, ms, soon, throughout, within};

const RELATED: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn b21_a_wait_begins_at_once_and_is_kept_alive() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"400ms\"").await;
    let client = gate.client().open().await;
    let task = client.call_task("slow", json!({})).await.core_task();
    let started = Instant::now();
    let body = client.body("9", "tasks/result", json!({"taskId": task}));
    let reply = client.post(body).await;
    assert!(reply.status == 200 && reply.is_sse(), "{:?}", reply.headers);
    let mut events = reply.events();
    let first = events.next().await.unwrap();
    // Headers alone are held back by some edges.
    let is_soon = first.at - started < ms(300);
    assert!(first.comment.is_some() && is_soon, "at once, not at the first keepalive: {first:?}");
    let primer = events.next().await.unwrap();
    assert!(primer.id.is_some() && primer.data.as_deref() == Some(""), "to take it up again: {primer:?}");
    let mut last = first.at;
    for _ in 0..3 {
        let next = events.next().await.unwrap();
        let is_priming = next.id.is_some() && next.data.as_deref() == Some("");
        assert!((next.comment.is_some() || is_priming) && next.at - last < ms(1_000), "{next:?}");
        last = next.at;
    }
    latch.open();
    let end = soon("the result", events.message()).await.unwrap();
    assert_eq!((&end["id"], &end["result"]["content"][0]["text"]), (&json!(9), &json!("late")));
    assert!(events.next().await.is_none(), "the answer is the last event");
}

#[tokio::test]
async fn any_number_of_waiters_and_any_number_of_reads() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let task = client.call_task("slow", json!({})).await.core_task();
    let wait = || client.ask(client.body("3", "tasks/result", json!({"taskId": task})));
    let json_only = gate.client().in_session(client.session.as_deref()).accept("application/json");
    let opening = async {
        sleep(ms(60)).await;
        latch.open();
    };
    let (answers, plain, ()) = tokio::join!(join_all((0..8).map(|_| wait())), json_only.task_result(&task), opening);
    for answer in &answers {
        assert_eq!((answer.text(), &answer.raw), ("late", &answers[0].raw));
    }
    assert!(!plain.sse && plain.text() == "late", "{}", plain.raw);
    for _ in 0..3 {
        assert_eq!(wait().await.raw, answers[0].raw, "fetched again");
    }
    assert_eq!(upstream.of("tasks/result").len() + upstream.of("tasks/get").len(), 0);
}

#[tokio::test]
async fn a_waiter_that_leaves_changes_nothing() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let task = client.call_task("slow", json!({})).await.core_task();
    for _ in 0..3 {
        assert!(timeout(ms(40), client.task_result(&task)).await.is_err(), "it waits");
    }
    let other = client.task_stream(&task).await;
    let wait = client.task_result(&task);
    let leaving = async {
        sleep(ms(40)).await;
        drop(other);
        assert_eq!(client.cancelled(&json!(1)).await.status, 202, "naming some request changes nothing either");
        let still = || upstream.cancels().is_empty() && upstream.disconnects().is_empty();
        throughout(ms(100), "the work goes on", still).await;
        assert_eq!(client.task(&task).await.state(), "working");
        latch.open();
    };
    let (end, ()) = tokio::join!(wait, leaving);
    assert_eq!(end.text(), "late");
}

#[tokio::test]
async fn b57a_the_task_is_named_in_results_and_nowhere_else() {
    let latch = Latch::new();
    let tool = script::accepted_then(&latch, |mut call| async move {
        call.result_text(r#"{"content":[{"type":"text","text":"x"}],"_meta":{"x/y":{"z":[1.0]}},"n":1e2}"#);
    });
    let upstream = Upstream::builder().tool("slow", tool).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let client = gate.client().open().await;
    let handle = client.call_task("slow", json!({})).await;
    let (task, gone) = (handle.core_task(), client.call_task("slow", json!({})).await.core_task());
    let cancelled = client.cancel_task(&gone).await;
    let working = client.task(&task).await;
    latch.open();
    let done = client.task_end(&task).await;
    for answer in [&handle, &working, &done, &cancelled, &client.list_tasks(None).await, &client.job(&task, 0.0).await]
    {
        assert!(!answer.raw.contains(RELATED), "{}", answer.raw);
    }
    let result = client.task_result(&task).await;
    assert_eq!(result.result()["_meta"], json!({"x/y": {"z": [1.0]}, RELATED: {"taskId": task}}));
    assert!(result.raw.contains(r#""x/y":{"z":[1.0]}"#) && result.raw.contains(r#""n":1e2"#), "{}", result.raw);
    assert!(!client.task_result(&gone).await.raw.contains(RELATED), "an error has no metadata");
}

/// All pages, with `meddle` between the first and the second.
async fn pages(client: &Client, meddle: impl AsyncFnOnce()) -> Vec<Vec<Value>> {
    let first = client.list_tasks(None).await;
    meddle().await;
    let (mut pages, mut answer) = (Vec::new(), first);
    loop {
        pages.push(answer.result()["tasks"].as_array().unwrap().clone());
        let Some(cursor) = answer.result().get("nextCursor") else { return pages };
        answer = client.list_tasks(Some(cursor.as_str().unwrap())).await;
        assert!(pages.len() < 10, "the list has no end");
    }
}

fn id(task: &Value) -> String {
    task["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_list_has_pages_that_stay_while_tasks_come_and_end() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nmax_running_per_owner = 200").await;
    let client = gate.client().open().await;
    let make = async || client.call_task("slow", json!({})).await.core_task();
    let mut made: Vec<String> = join_all((0..60).map(|_| make())).await;
    sleep(ms(5)).await;
    let later = join_all((0..60).map(|_| make())).await;
    let newer: HashSet<String> = later.iter().cloned().collect();
    made.extend(later);
    let pages = pages(&client, async || {
        make().await;
        client.cancel_task(&made[0]).await.result();
        latch.open();
        client.task_end(&made[1]).await;
    });
    let pages = pages.await;
    let listed: Vec<Value> = pages.concat();
    assert!(pages.len() > 2 && pages.iter().all(|page| !page.is_empty()), "{} pages", pages.len());
    let ids: Vec<String> = listed.iter().map(id).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>(), made.iter().collect(), "each once, and none that came later");
    assert_eq!(ids.len(), 120);
    assert!(ids[..60].iter().all(|id| newer.contains(id)), "newest first");
    assert!(listed.iter().is_sorted_by(|a, b| a["createdAt"].as_str() >= b["createdAt"].as_str()));
    let of = |wanted: &str| listed.iter().find(|task| id(task) == wanted).unwrap()["status"].clone();
    assert_eq!((of(&made[0]), of(&made[1])), (json!("cancelled"), json!("completed")), "as they are by then");
    let keys: HashSet<&str> = listed.iter().flat_map(|task| task.as_object().unwrap().keys().map(|k| &**k)).collect();
    let core = ["taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"];
    assert_eq!(keys, core.into_iter().collect());
}

#[tokio::test]
async fn b04_every_page_is_ones_own_and_foreign_cursors_are_none() {
    let (upstream, _latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nmax_running_per_owner = 200").await;
    let (a, b) = (gate.client().open().await, gate.client().open().await);
    let make = async |client: &Client| client.call_task("slow", json!({})).await.core_task();
    let both = join_all((0..55).map(|_| async { (make(&a).await, make(&b).await) })).await;
    let (of_a, of_b): (HashSet<String>, HashSet<String>) = both.into_iter().unzip();
    for (client, own) in [(&a, &of_a), (&b, &of_b)] {
        let pages = pages(client, async || {}).await;
        assert!(pages.len() > 1 && pages.iter().all(|page| !page.is_empty()));
        assert_eq!(&pages.concat().iter().map(id).collect::<HashSet<_>>(), own);
    }
    let first = a.list_tasks(None).await;
    let cursor = first.result()["nextCursor"].as_str().unwrap();
    assert_eq!(a.list_tasks(Some(cursor)).await.result()["tasks"].as_array().unwrap().len(), 5);
    let altered = format!("{cursor}0");
    for wrong in ["", "x", "0", "taskgate:x", "taskgate:1.x", &altered, STRANGER] {
        assert_eq!(a.list_tasks(Some(wrong)).await.code(), -32602, "{wrong:?}");
    }
    for wrong in [json!(7), json!(["x"]), json!({})] {
        assert_eq!(a.request("tasks/list", json!({"cursor": wrong})).await.code(), -32602, "{wrong}");
    }
    assert_eq!(b.list_tasks(Some(cursor)).await.code(), -32602, "somebody else's");
    for foreign in of_a.iter().take(2) {
        is_unknown(&b, foreign).await;
        assert_eq!(a.task(foreign).await.state(), "working");
    }
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn foreign_tasks_are_unknown_ones_by_credential_too() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let maker = gate.client().bearer("A").open().await;
    let task = maker.call_task("slow", json!({})).await.core_task();
    is_unknown(&gate.client().bearer("B").open().await, &task).await;
    is_unknown(&gate.client().open().await, &task).await;
    for bad in [json!({}), json!({"taskId": 7}), json!({"taskId": null}), json!({"taskId": ""})] {
        assert_eq!(maker.request("tasks/get", bad.clone()).await.code(), -32602, "{bad}");
    }
    latch.open();
    assert_eq!(maker.task_result(&task).await.text(), "late");
    is_unknown(&gate.client().bearer("B").open().await, &task).await;
}

#[tokio::test]
async fn b54_a_cancellation_is_final_and_reaches_the_upstream_and_every_waiter() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::accepted(&latch, "late"))
        .tool("mute", script::held(&latch, "late"))
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    for (number, tool) in ["slow", "mute"].into_iter().enumerate() {
        let task = client.call_task(tool, json!({})).await.core_task();
        let cancelling = async {
            sleep(ms(40)).await;
            client.cancel_task(&task).await
        };
        let (waited, cancelled) = tokio::join!(client.task_result(&task), cancelling);
        assert_eq!(cancelled.state(), "cancelled", "already");
        assert_eq!(cancelled.result()["taskId"], json!(task), "the task itself: {}", cancelled.raw);
        assert!(cancelled.result()["ttl"].is_u64() && cancelled.result().get("task").is_none());
        assert_eq!((waited.code(), &waited.error()["message"]), (-32603, &json!("cancelled")));
        within(ms(1_000), "the upstream hears of it", || upstream.cancels().len() == number + 1).await;
        let cancel = &upstream.cancels()[number];
        assert_eq!(cancel.json["params"]["requestId"].to_string(), upstream.calls(tool)[0].id());
        assert_eq!(cancel.session(), client.session.as_deref());
        let again = client.cancel_task(&task).await;
        assert_eq!((again.status, again.code()), (200, -32602));
        assert_eq!(client.task(&task).await.state(), "cancelled");
        eventually("the exchange is closed", || upstream.disconnects().len() == number + 1).await;
    }
    latch.open();
    let task = client.call_task("slow", json!({})).await.core_task();
    client.task_result(&task).await.result();
    assert_eq!(client.cancel_task(&task).await.code(), -32602);
    assert_eq!(
        (client.task(&task).await.state().as_str(), client.task_result(&task).await.text()),
        ("completed", "late")
    );
    assert_eq!(upstream.cancels().len(), 2);
}
