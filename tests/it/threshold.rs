//! The threshold and every other limit on waiting.
//!
//! A call is answered inline or by a handle, exactly once, and never so late that a client has given up.

use std::fmt::Write as _;

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::client::Answer;
use crate::support::upstream::script;
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

const SYNC: &str = "[upstream]\n[[upstream.rule]]\ntool = \"*\"\nmode = \"sync\"\n";

fn rule(keys: &str) -> String {
    let mut text = String::from("[upstream]\n[[upstream.rule]]\ntool = \"*\"\n");
    write!(text, "{keys}").unwrap();
    text
}

#[tokio::test]
async fn b20_a_handle_comes_long_before_clients_give_up() {
    let latch = Latch::new();
    let hello = script::script(|call| async move {
        sleep(ms(300)).await;
        call.hello();
    });
    let builder = Upstream::builder().on("initialize", hello).tool("slow", script::held(&latch, "late"));
    let upstream = builder.start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"50ms\"").await;
    let mut client = gate.client().extension();
    let hello = client.hello().await;
    assert!(!hello.sse, "initialize is never upgraded: its headers matter");
    assert!(hello.header("mcp-session-id").is_some());
    let started = Instant::now();
    client.call("slow", json!({})).await.task();
    let took = started.elapsed();
    assert!(took >= ms(55) && took < ms(1000), "{took:?}");
}

#[tokio::test]
async fn b21_a_waiting_read_is_never_silent() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"50ms\"").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let arguments = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 8}});
    let started = Instant::now();
    let mut events = client.post(client.body("8", "tools/call", arguments)).await.events();
    let mut last = started;
    for _ in 0..8 {
        let mut comment = events.next().await.unwrap();
        if comment.data.as_deref() == Some("") {
            comment = events.next().await.unwrap(); // after the event that only tells an id
        }
        assert!(comment.comment.is_some() && comment.data.is_none(), "{comment:?}");
        assert!(comment.at - last < ms(1000), "a gap of {:?}", comment.at - last);
        last = comment.at;
    }
    assert!(last - started >= ms(300), "the comments keep their pace");
    latch.open();
    let end = events.message().await.unwrap();
    assert_eq!((&end["id"], &end["result"]["content"][1]["text"]), (&json!(8), &json!("late")));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn b22_a_read_returns_within_half_a_minute_whatever_was_asked() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"5s\"").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    tokio::time::pause();
    let started = Instant::now();
    let read = client.job(&job, 600.0).await;
    let waited = started.elapsed();
    assert_eq!(read.state(), "running");
    assert!(waited > ms(20_000) && waited < ms(30_000), "{waited:?}");
}

#[tokio::test]
async fn b23_a_held_call_gets_comments_on_its_own_stream() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, &format!("[server]\nkeepalive = \"60ms\"\n{SYNC}")).await;
    let client = gate.client().open().await;
    let started = Instant::now();
    let reply = client.post(client.body("3", "tools/call", json!({"name": "slow"}))).await;
    let opened = started.elapsed();
    assert!(opened >= ms(55) && opened < ms(1000), "{opened:?}");
    assert_eq!((reply.status, reply.is_sse()), (200, true));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    let mut events = reply.events();
    assert!(events.next().await.unwrap().comment.is_some());
    assert_eq!(events.next().await.unwrap().data.as_deref(), Some(""), "an id to come back with");
    for _ in 0..3 {
        assert!(events.next().await.unwrap().comment.is_some());
    }
    latch.open();
    assert_eq!(events.message().await.unwrap()["result"]["content"][0]["text"], "late");
}

#[tokio::test]
async fn b23_a_client_that_reads_only_json_is_held_without_comments() {
    let upstream = Upstream::builder().tool("slow", script::after(ms(250), "late")).start().await;
    let gate = Gate::start(&upstream, &format!("[server]\nkeepalive = \"50ms\"\n{SYNC}")).await;
    let client = gate.client().accept("application/json").open().await;
    let answer = client.call("slow", json!({})).await;
    assert_eq!((answer.text(), answer.sse), ("late", false));
}

#[tokio::test]
async fn b23_an_http_error_after_the_comments_is_an_error_with_its_status() {
    let latch = Latch::new();
    let busy = script::held_then(&latch, |mut call| async move {
        call.raw(429, &[("retry-after", "7")], "slow down");
    });
    let upstream = Upstream::builder().tool("busy", busy).start().await;
    let gate = Gate::start(&upstream, &format!("[server]\nkeepalive = \"50ms\"\n{SYNC}")).await;
    let client = gate.client().open().await;
    let reply = client.post(client.body("3", "tools/call", json!({"name": "busy"}))).await;
    latch.open();
    let answer = Answer::read(reply).await;
    assert_eq!((answer.code(), answer.json["id"].clone()), (-32603, json!(3)));
    assert!(answer.error()["data"].to_string().contains("429"), "{}", answer.raw);
}

#[tokio::test]
async fn b24_fast_calls_stay_inline() {
    let upstream = Upstream::builder().tool("fast", script::after(ms(5), "quick")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"4s\"").await;
    let client = gate.client().extension().open().await;
    for _ in 0..50 {
        let answer = client.call("fast", json!({})).await;
        assert_eq!((answer.text(), answer.sse), ("quick", false));
        assert!(answer.result().get("resultType").is_none());
    }
    assert_eq!(upstream.calls("fast").len(), 50);
}

#[tokio::test]
async fn b24_at_the_threshold_there_is_exactly_one_outcome() {
    let jitter = script::script(|mut call| async move {
        sleep(ms(call.arg("ms").as_u64().unwrap())).await;
        let text = call.arg("text").as_str().unwrap().to_owned();
        call.say(&text);
    });
    for sse in [false, true] {
        let builder = Upstream::builder().tool("jitter", jitter.clone());
        let upstream = if sse { builder.sse() } else { builder }.start().await;
        let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"50ms\"").await;
        let client = gate.client().open().await;
        let run = async |number: usize| {
            let text = format!("done {number}");
            let answer = client.call("jitter", json!({"ms": 40 + number % 20, "text": text})).await;
            if answer.text() != text {
                assert_eq!(client.job_end(&answer.job()).await.block(1), text);
                return 1;
            }
            0
        };
        let mut handles = 0;
        for batch in 0..10 {
            let runs = (0..20).map(|number| run(batch * 20 + number));
            handles += futures_util::future::join_all(runs).await.into_iter().sum::<usize>();
        }
        assert_eq!(upstream.calls("jitter").len(), 200);
        assert!(handles > 0, "the delays are around the threshold");
        assert!(upstream.cancels().is_empty() && upstream.disconnects().is_empty());
    }
}

#[tokio::test]
async fn b25_no_progress_is_invented_to_keep_a_call_alive() {
    let chatty = script::script(|mut call| async move {
        for step in 1..=3 {
            call.progress(f64::from(step), 3.0, "working on it");
            sleep(ms(100)).await;
        }
        call.say("late");
    });
    let upstream = Upstream::builder().tool("chatty", chatty).start().await;
    let gate = Gate::start(&upstream, &format!("[server]\nkeepalive = \"50ms\"\n{SYNC}")).await;
    let answer = gate.client().open().await.call("chatty", json!({})).await;
    assert_eq!(answer.text(), "late");
    assert!(answer.comments() >= 2, "{:?}", answer.events);
    let is_silent = |data: &str| data.is_empty();
    assert!(answer.events.iter().filter_map(|event| event.data.as_deref()).all(is_silent), "{:?}", answer.events);
}

#[tokio::test]
async fn b26_no_limit_on_reading_but_the_one_that_is_written_down() {
    let patient = script::script(|mut call| async move {
        call.open();
        sleep(ms(400)).await;
        call.say("late");
    });
    let upstream = Upstream::builder().tool("patient", patient).start().await;
    let gate = Gate::start(&upstream, SYNC).await;
    assert_eq!(gate.client().open().await.call("patient", json!({})).await.text(), "late");
}

#[tokio::test]
async fn b26_max_runtime_cancels_and_says_so() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, &rule("max_runtime = \"200ms\"")).await;
    let client = gate.client().extension().open().await;
    let task = client.call("endless", json!({})).await.task();
    let end = client.task_end(&task).await;
    assert_eq!(end.state(), "failed");
    assert_eq!(end.result()["error"]["data"]["reason"], "max_runtime", "{}", end.raw);
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;

    let gate = Gate::start(&upstream, &rule("max_runtime = \"200ms\"\nmode = \"sync\"")).await;
    let held = gate.client().open().await.call("endless", json!({})).await;
    assert_eq!((held.code(), held.reason()), (-32603, "max_runtime"));
    eventually("the upstream is told again", || upstream.cancels().len() == 2).await;
}

#[tokio::test]
async fn b26_without_tasks_hold_and_refuse() {
    let upstream = Upstream::builder().tool("slow", script::after(ms(250), "late")).start().await;
    let gate = Gate::start(&upstream, &rule("without_tasks = \"hold\"")).await;
    assert_eq!(gate.client().open().await.call("slow", json!({})).await.text(), "late");
    gate.client().extension().open().await.call("slow", json!({})).await.task();

    let gate = Gate::start(&upstream, &rule("without_tasks = \"refuse\"")).await;
    let calls = upstream.calls("slow").len();
    let refused = gate.client().open().await.call("slow", json!({})).await;
    assert_eq!((refused.status, refused.code()), (200, -32601));
    assert_eq!(upstream.calls("slow").len(), calls, "it is decided before anything is sent");
}

#[tokio::test]
async fn b26_async_at_once_still_passes_refusals_on() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "late"))
        .tool("fast", script::says("quick"))
        .tool("locked", script::responds(401, &[("www-authenticate", "Bearer realm=\"x\"")], b"who are you"))
        .start()
        .await;
    let gate = Gate::start(&upstream, &format!("{PATIENT}{}", rule("mode = \"async\""))).await;
    let client = gate.client().open().await;
    let started = Instant::now();
    let job = client.call("slow", json!({})).await.job();
    assert!(started.elapsed() < ms(2000), "after 250 ms at the latest: {:?}", started.elapsed());
    assert_eq!(client.call("fast", json!({})).await.text(), "quick");
    let locked = client.call("locked", json!({})).await;
    assert_eq!((locked.status, locked.header("www-authenticate")), (401, Some("Bearer realm=\"x\"")));
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "late");
}
