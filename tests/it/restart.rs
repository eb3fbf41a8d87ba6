//! A restart on the same store: what ran goes on if it can, and ends truthfully if it cannot.
//!
//! Who polls across it sees legal states only, and no tool is called a second time unless it allows that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::support::client::Client;
use crate::support::dialect::{asked, reaches};
use crate::support::upstream::script::{self, Script};
use crate::support::upstream::{Builder, Get};
use crate::support::{Dialect, Gate, Home, Latch, Upstream, eventually, ms, soon};

/// What a read of a task says of its loss: reason and text.
async fn loss(dialect: Dialect, client: &Client, id: &str) -> (String, String) {
    let end = dialect.wait(client, id).await;
    let word = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{}", end.raw)).to_owned();
    let error = match dialect {
        Dialect::Ext => {
            assert_eq!(end.state(), "failed", "{}", end.raw);
            end.result()["error"].clone()
        }
        Dialect::Core => end.error().clone(),
        Dialect::Job => {
            assert_eq!((end.state().as_str(), &end.result()["isError"]), ("error", &json!(true)), "{}", end.raw);
            let note = end.note();
            return (word(&note["reason"]), word(&note["message"]));
        }
    };
    (word(&error["data"]["reason"]), word(&error["message"]))
}

#[tokio::test]
async fn a_stream_with_event_ids_is_resumed_as_if_nothing_had_happened() {
    for dialect in Dialect::ALL {
        let (home, latch) = (Home::new(), Latch::new());
        let upstream = Upstream::solver(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "solve", json!({"text": "42"})).await;
        gate.leave().await;

        let gate = home.start(&upstream, "").await;
        let read = dialect.read(&client, &id).await.state();
        assert_eq!(read, if dialect == Dialect::Job { "running" } else { "working" }, "{dialect:?}");
        eventually("the stream is taken up", || upstream.resumes().len() == 1).await;
        latch.open();
        assert_eq!(dialect.text(&client, &id).await, "42", "{dialect:?}");
        assert_eq!(upstream.calls("solve").len(), 1, "{dialect:?}");
        let (call, resume) = (upstream.calls("solve").remove(0), upstream.resumes().remove(0));
        assert_eq!(resume.header("last-event-id"), Some(&*format!("{}|42", call.id())), "{dialect:?}");
        for name in ["mcp-session-id", "mcp-protocol-version"] {
            assert_eq!(resume.header(name), call.header(name), "{dialect:?}");
        }
        gate.leave().await;
    }
}

#[tokio::test]
async fn who_polls_across_restarts_sees_legal_states_only() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let mut gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let id = client.call("solve", json!({"text": "42"})).await.task();
    let over = Arc::new(AtomicBool::new(false));
    let polls = {
        let (url, session) = (format!("http://{}/mcp", gate.addr), client.session.clone().unwrap());
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": id}}).to_string();
        let over = over.clone();
        tokio::spawn(async move {
            let (http, mut seen) = (reqwest::Client::new(), Vec::new());
            while !over.load(Ordering::SeqCst) {
                let request = http.post(&url).header("mcp-session-id", &session).header("accept", "application/json");
                let answer = request.header("content-type", "application/json").body(body.clone()).send().await;
                // Refused while nobody listens.
                if let Ok(answer) = answer {
                    let text = answer.text().await.expect("an answer that has begun is complete");
                    let read: Value = serde_json::from_str(&text).expect("JSON");
                    seen.push(read["result"]["status"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned());
                }
                sleep(ms(3)).await;
            }
            seen
        })
    };
    for _ in 0..3 {
        sleep(ms(30)).await;
        gate.leave().await;
        gate = home.start(&upstream, "").await;
    }
    latch.open();
    assert_eq!(client.task_end(&id).await.state(), "completed");
    sleep(ms(20)).await;
    over.store(true, Ordering::SeqCst);
    let seen = soon("the last poll", polls).await.unwrap();
    let turn = seen.iter().position(|state| state == "completed").expect("the end is seen");
    assert!(turn > 3 && seen[..turn].iter().all(|state| state == "working"), "{seen:?}");
    assert!(seen[turn..].iter().all(|state| state == "completed"), "{seen:?}");
    assert_eq!(upstream.calls("solve").len(), 1);
    gate.leave().await;
}

#[tokio::test]
async fn what_cannot_be_gone_on_with_is_an_unknown_outcome() {
    for dialect in Dialect::ALL {
        let (home, latch) = (Home::new(), Latch::new());
        let upstream = Upstream::solver(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "plain", json!({})).await;
        gate.leave().await;
        latch.open();
        let gate = home.start(&upstream, "").await;
        let (reason, text) = loss(dialect, &client, &id).await;
        assert_eq!(reason, "outcome_unknown", "{dialect:?}");
        assert!(text.contains("outcome unknown"), "{dialect:?}: {text}");
        sleep(ms(50)).await;
        assert_eq!(upstream.calls("plain").len(), 1, "{dialect:?}");
        gate.leave().await;
    }
}

#[tokio::test]
async fn only_what_may_be_repeated_is_called_again() {
    for (annotations, retry, calls) in [
        (json!({"idempotentHint": true}), "idempotent", 2),
        (json!({"readOnlyHint": true}), "idempotent", 2),
        (json!({}), "idempotent", 1),
        (json!({"idempotentHint": true}), "never", 1),
    ] {
        let (home, latch) = (Home::new(), Latch::new());
        let tool = script::echo_held(&latch);
        let upstream = Upstream::builder().tool_with("count", &json!({"annotations": annotations}), tool).start().await;
        let settings = format!("[tasks]\nthreshold = \"60ms\"\nretry = \"{retry}\"");
        let gate = home.start(&upstream, &settings).await;
        let client = gate.client().extension().open().await;
        client.tools().await.result();
        let task = client.call("count", json!({"text": "5"})).await.task();
        gate.leave().await;
        let gate = home.start(&upstream, &settings).await;
        if calls == 2 {
            eventually("it is called again", || upstream.calls("count").len() == 2).await;
        }
        latch.open();
        let end = client.task_end(&task).await;
        assert_eq!(upstream.calls("count").len(), calls, "{annotations} {retry}");
        if calls == 2 {
            assert_eq!(end.result()["result"]["content"][0]["text"], "5", "{}", end.raw);
            let made = upstream.calls("count");
            assert_eq!(made[0].body, made[1].body);
            assert_eq!(made[0].session(), made[1].session());
        } else {
            assert_eq!(end.result()["error"]["data"]["reason"], "outcome_unknown", "{}", end.raw);
        }
        gate.leave().await;
    }
}

#[tokio::test]
async fn an_upstreams_own_task_is_waited_for_again() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::builder()
        .capabilities(json!({"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}))
        .tool_with(
            "solve",
            &json!({"execution": {"taskSupport": "required"}}),
            script::script(|mut call| async move {
                call.result(&json!({"task": {"taskId": format!("theirs-{}", call.before), "status": "working",
                    "createdAt": "2025-11-25T00:00:00Z", "ttl": 60000}}));
            }),
        )
        .on("tasks/result", script::held(&latch, "solved"))
        .on("tasks/cancel", script::script(|mut call| async move { call.result(&json!({})) }))
        .start()
        .await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().open().await;
    let (job, unwanted) = (client.call("solve", json!({})).await.job(), client.call("solve", json!({})).await.job());
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    eventually("both are waited for again", || upstream.of("tasks/result").len() == 4).await;
    client.cancel_job(&unwanted).await;
    eventually("they hear of it", || upstream.of("tasks/cancel").len() == 1).await;
    assert_eq!(upstream.of("tasks/cancel")[0].json["params"]["taskId"], "theirs-1");
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "solved");
    assert_eq!(client.job_end(&unwanted).await.state(), "cancelled");
    assert_eq!(upstream.calls("solve").len(), 2);
    gate.leave().await;
}

#[tokio::test]
async fn a_cancellation_after_the_restart_finds_the_call() {
    for dialect in Dialect::ALL {
        let (home, latch) = (Home::new(), Latch::new());
        let upstream = Upstream::solver(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let other = dialect.client(&gate, json!({})).open().await;
        let client = dialect.client(&gate, json!({})).open().await;
        dialect.start(&other, "solve", json!({})).await;
        let id = dialect.start(&client, "solve", json!({})).await;
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        // Before and after its stream is taken up.
        if dialect != Dialect::Core {
            eventually("the streams are taken up", || upstream.resumes().len() == 2).await;
        }
        dialect.cancel(&client, &id).await.result();
        eventually("the upstream hears of it", || upstream.cancels().len() == 1).await;
        let (cancel, call) = (upstream.cancels().remove(0), upstream.calls("solve").remove(1));
        assert_eq!(cancel.json["params"]["requestId"].to_string(), call.id(), "{dialect:?}");
        assert_eq!(cancel.session(), client.session.as_deref(), "{dialect:?}");
        assert_eq!(dialect.read(&client, &id).await.state(), "cancelled", "{dialect:?}");
        gate.leave().await;
    }
}

#[tokio::test]
async fn a_call_in_flight_keeps_its_id_from_others() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call_as("7", "solve", json!({"text": "first"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    let again = client.call_as("7", "solve", json!({"text": "second"})).await.task();
    let calls = upstream.calls("solve");
    assert_eq!(calls[0].id(), "7");
    assert_ne!(calls[1].id(), "7", "an id in flight is not used twice on a session");
    latch.open();
    for (task, text) in [(&task, "first"), (&again, "second")] {
        assert_eq!(client.task_end(task).await.result()["result"]["content"][0]["text"], text);
    }
    gate.leave().await;
}

#[tokio::test]
async fn a_server_that_is_gone_and_another_secret_are_told_truthfully() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let secret = |letter: &str| format!("[server]\nsecret = \"{}\"\n[tasks]\nowner = \"id\"", letter.repeat(32));
    let settings = |letter: &str| format!("{}\nthreshold = \"60ms\"", secret(letter));
    for (first, second, path, why) in
        [("a", "b", "/mcp", "another secret"), ("a", "a", "/other", "is not configured any more")]
    {
        let gate = Gate::paths(&[("/mcp", &upstream)], &home.settings(&settings(first))).await;
        let client = gate.client().extension().open().await;
        let task = client.call("solve", json!({})).await.task();
        gate.leave().await;
        // Whoever asks on another path, or in a session that was keyed with another secret, would not find it.
        let gate = Gate::paths(&[(path, &upstream)], &home.settings(&settings(second))).await;
        sleep(ms(30)).await;
        gate.leave().await;
        let gate = Gate::paths(&[("/mcp", &upstream)], &home.settings(&settings(first))).await;
        let end = client.task_end(&task).await;
        assert_eq!(end.result()["error"]["data"]["reason"], "outcome_unknown", "{}", end.raw);
        let text = end.result()["error"]["message"].as_str().unwrap();
        assert!(text.contains("outcome unknown") && text.contains(why), "{text}");
        gate.leave().await;
    }
    assert_eq!(upstream.calls("solve").len(), 2);
    assert!(upstream.resumes().is_empty());
}

#[tokio::test]
async fn an_upstream_that_has_forgotten_the_session_is_an_unknown_outcome() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).get(Get::Stream).start().await;
    let gate = home.start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("solve", json!({})).await.task();
    gate.leave().await;
    upstream.forget_sessions();
    let gate = home.start(&upstream, "").await;
    assert_eq!(loss(Dialect::Ext, &client, &task).await.0, "outcome_unknown");
    assert_eq!(upstream.calls("solve").len(), 1);
    gate.leave().await;
}

/// A server that asks something, and answers with what was answered when the latch opens, whether or not its stream was
/// lost meanwhile.
fn curious(latch: &Latch) -> Builder {
    let (said, latch) = (watch::Sender::new(None), latch.clone());
    let (hears, knows) = (said.clone(), said.subscribe());
    let asks = script::script(move |mut call| {
        let hears = hears.clone();
        async move {
            let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                "params": {"message": "go on?"}});
            // A question before the handle would be put to the client there and then.
            for place in ["start", "handle"] {
                call.bytes(format!("id: {}|{place}\nretry: 10\ndata:\n\n", call.request.id()));
                sleep(ms(150)).await;
            }
            let answer = call.hear(&json!("q"));
            call.bytes(format!("id: {}|q\nretry: 10\ndata: {question}\n\n", call.request.id()));
            hears.send_replace(answer.await.ok());
            call.bytes(format!("id: {}|answered\ndata:\n\n", call.request.id()));
            call.gone().await;
        }
    });
    let goes_on = script::script(move |mut call| {
        let (mut knows, latch) = (knows.clone(), latch.clone());
        async move {
            let cursor = call.request.header("last-event-id").unwrap_or_default().to_owned();
            let (id, _) = cursor.split_once('|').expect("a cursor of ours");
            call.open();
            let answer = knows.wait_for(Option::is_some).await.unwrap().clone().unwrap();
            latch.passed().await;
            call.say_to(id, answer["result"]["action"].as_str().unwrap());
        }
    });
    Upstream::builder().tool("ask", asks).resume(goes_on)
}

#[tokio::test]
async fn questions_open_at_the_stop_can_be_answered_after_the_start() {
    for dialect in Dialect::ALL {
        let (home, latch) = (Home::new(), Latch::new());
        latch.open();
        let upstream = curious(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let id = dialect.start(&client, "ask", json!({})).await;
        let has_asked = async {
            while upstream.hears().is_empty() {
                sleep(ms(5)).await;
            }
        };
        soon("the question", has_asked).await;
        sleep(ms(50)).await;
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        let question = dialect.answer_next(&client, &id, |_| json!({"action": "accept", "content": {}})).await;
        assert_eq!(question["params"]["message"], "go on?", "{dialect:?}");
        assert_eq!(dialect.text(&client, &id).await, "accept", "{dialect:?}");
        assert_eq!((upstream.answers_to(&json!("q")).len(), upstream.calls("ask").len()), (1, 1), "{dialect:?}");
        assert_eq!(upstream.answers_to(&json!("q"))[0].session(), client.session.as_deref());
        gate.leave().await;
    }
}

#[tokio::test]
async fn a_question_read_before_the_stop_is_answered_the_moment_it_is_back() {
    let (home, latch) = (Home::new(), Latch::new());
    latch.open();
    for _ in 0..5 {
        let upstream = curious(&latch).start().await;
        let gate = home.start(&upstream, "").await;
        let client = gate.client().capabilities(json!({"elicitation": {}, "extensions": {
            "io.modelcontextprotocol/tasks": {}}}));
        let client = client.open().await;
        let task = client.call("ask", json!({})).await.task();
        let (key, _) = asked(&client, &task).await.remove(0);
        gate.leave().await;
        let gate = home.start(&upstream, "").await;
        client.update_task(&task, json!({key: {"action": "decline"}})).await.result();
        let end = client.task_end(&task).await;
        assert_eq!(end.result()["result"]["content"][0]["text"], "decline", "{}", end.raw);
        gate.leave().await;
    }
}

#[tokio::test]
async fn what_was_answered_before_the_stop_is_not_asked_again() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = curious(&latch).start().await;
    let gate = home.start(&upstream, "").await;
    let client = Dialect::Ext.client(&gate, json!({"elicitation": {}})).open().await;
    let task = client.call("ask", json!({})).await.task();
    Dialect::Ext.answer_next(&client, &task, |_| json!({"action": "accept", "content": {}})).await;
    eventually("it is heard", || upstream.answers_to(&json!("q")).len() == 1).await;
    reaches(&client, &task, "working").await;
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    eventually("it goes on", || upstream.resumes().len() == 1).await;
    let place = upstream.resumes()[0].header("last-event-id").unwrap().to_owned();
    assert!(place.ends_with("|q") || place.contains("|answered"), "not before the question: {place}");
    gate.leave().await;
}

#[tokio::test]
async fn the_time_it_may_run_goes_on() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\nmax_runtime = \"700ms\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    let began = Instant::now();
    let task = client.call("solve", json!({})).await.task();
    sleep(ms(300)).await;
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    let (reason, text) = loss(Dialect::Ext, &client, &task).await;
    assert_eq!(reason, "max_runtime");
    assert!(text.contains("700ms"), "the limit is the tool's, not what was left: {text}");
    assert!(began.elapsed() >= ms(700) && began.elapsed() < ms(1500), "{:?}", began.elapsed());
    eventually("the upstream hears of it", || upstream.cancels().len() == 1).await;
    gate.leave().await;
}

#[tokio::test]
async fn sessions_survive_with_what_was_said_in_them() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).get(Get::Stream).start().await;
    let gate = home.start(&upstream, "").await;
    let ext = gate.client().extension().open().await;
    let plain = gate.client().open().await;
    let core = gate.client().open().await;
    let ended = gate.client().open().await;
    assert_eq!(ended.delete().await.status, 200);
    gate.leave().await;
    for _ in 0..2 {
        let gate = home.start(&upstream, "").await;
        // A task keeps its session in memory from the start on; the others are looked up.
        let task = ext.call("solve", json!({})).await.task();
        plain.call("solve", json!({})).await.job();
        core.call_task("solve", json!({})).await.core_task();
        assert_eq!(ext.task(&task).await.state(), "working");
        let dead = ended.call("solve", json!({})).await;
        assert_eq!((dead.status, dead.json["jsonrpc"].clone()), (404, json!("2.0")), "{}", dead.raw);
        gate.leave().await;
    }
    assert_eq!(upstream.of("initialize").len(), 4);
}

#[tokio::test]
async fn what_had_ended_reads_the_same() {
    let (home, latch) = (Home::new(), Latch::new());
    let upstream = Upstream::solver(&latch).tool("fails", fails(&latch)).start().await;
    let settings = "[tasks]\nthreshold = \"60ms\"\nowner = \"session\"\nttl = \"3s\"";
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().open().await;
    let done = client.call_task("solve", json!({"text": "42"})).await.core_task();
    let failed = client.call_task("fails", json!({})).await.core_task();
    let cancelled = client.call_task("plain", json!({})).await.core_task();
    client.cancel_task(&cancelled).await.result();
    latch.open();
    let ids = [&done, &failed, &cancelled];
    for id in ids {
        client.task_end(id).await;
    }
    let look = async || {
        let mut seen = vec![client.list_tasks(None).await.json["result"].clone()];
        for id in ids {
            seen.push(client.task(id).await.json["result"].clone());
            let result = client.task_result(id).await.json;
            seen.extend([result["result"].clone(), result["error"].clone()]);
        }
        seen
    };
    let before = look().await;
    assert_eq!(before[0]["tasks"].as_array().map(Vec::len), Some(3));
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    assert_eq!(look().await, before);
    let expired = timeout(ms(8000), async {
        while client.task(&done).await.json["result"].is_object() {
            sleep(ms(100)).await;
        }
        client.task(&done).await
    });
    let expired = expired.await.expect("it expires");
    assert_eq!((expired.code(), expired.error()["message"].as_str()), (-32602, Some("Task has expired")));
    gate.leave().await;
}

fn fails(latch: &Latch) -> Script {
    script::held_then(latch, |mut call| async move {
        call.error(-32050, "diverged", &json!({"residual": 1.5}));
    })
}
