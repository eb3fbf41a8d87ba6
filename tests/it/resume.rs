//! Streams that a client lost and takes up again.
//!
//! Connections are cut by balancers and lids that close; what was said meanwhile is not lost with them.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Client, Events, Reply, SseEvent};
use crate::support::upstream::{Get, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

/// Says `n` numbered things, waits for the latch, and answers.
fn talker(latch: &Latch) -> script::Script {
    let latch = latch.clone();
    script::script(move |mut call| {
        let latch = latch.clone();
        async move {
            call.open();
            for n in 1..=call.arg("n").as_u64().unwrap_or(0) {
                call.bytes(format!("id: up-{n}\nretry: 7\ndata: {}\n\n", note(n)));
            }
            latch.passed().await;
            call.say("done");
        }
    })
}

fn note(n: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": n}})
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Events {
    let params = json!({"name": tool, "arguments": arguments});
    client.post(client.body("\"r\"", "tools/call", params)).await.events()
}

async fn take_up(client: &Client, id: &str) -> Reply {
    client.send("GET", &[("accept", "text/event-stream"), ("last-event-id", id)], String::new()).await
}

/// The next event that is no comment.
async fn event(events: &mut Events) -> SseEvent {
    loop {
        let event = events.next().await.expect("the stream goes on");
        if event.comment.is_none() {
            return event;
        }
    }
}

/// The event that only tells an id.
async fn primed(events: &mut Events) -> String {
    let first = event(events).await;
    assert_eq!((first.data.as_deref(), first.event.as_deref()), (Some(""), None), "{first:?}");
    assert!(first.retry.is_some(), "{first:?}");
    ours(&first)
}

/// The id of an event, which has to be one of taskgate's.
fn ours(event: &SseEvent) -> String {
    let id = event.id.clone().unwrap_or_else(|| panic!("no id: {event:?}"));
    assert!(id.starts_with("tg") && id.len() > 30, "{id}");
    id
}

/// All that is still to come.
async fn rest(mut events: Events) -> Vec<SseEvent> {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        if event.comment.is_none() {
            ours(&event);
            seen.push(event);
        }
    }
    seen
}

#[tokio::test]
async fn b77_who_lost_the_stream_finds_the_answer() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("talker", talker(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let mut events = call(&client, "talker", json!({"n": 3})).await;
    let start = primed(&mut events).await;
    let first = event(&mut events).await;
    assert_eq!(first.json()["params"]["data"], 1);
    drop(events);

    let mut events = take_up(&client, &start).await.events();
    for n in 1..=3 {
        assert_eq!(event(&mut events).await.json()["params"]["data"], n);
    }
    drop(events);
    latch.open();
    sleep(ms(30)).await;

    let seen = rest(take_up(&client, &ours(&first)).await.events()).await;
    assert_eq!(seen.len(), 3, "two numbers and the answer: {seen:?}");
    let answer = seen[2].json();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!("r"), &json!("done")));
    assert_eq!(upstream.calls("talker").len(), 1);
    assert!(upstream.http("GET").is_empty(), "the upstream hears nothing of it");

    let over = take_up(&client, &ours(&seen[2])).await;
    assert_eq!((over.status, over.header("allow")), (405, Some("POST")), "past the answer there is nothing");
}

#[tokio::test]
async fn b77_who_lost_the_stream_finds_the_handle() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("talker", talker(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"150ms\"").await;
    let client = gate.client().open().await;
    let mut events = call(&client, "talker", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    let mut events = take_up(&client, &start).await.events();
    let handle = event(&mut events).await.json();
    let note: Value = serde_json::from_str(handle["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&handle["id"], &note["status"]), (&json!("r"), &json!("running")));
    assert!(events.next().await.is_none(), "the handle is the last event");
    latch.open();
    assert_eq!(client.job_end(note["job_id"].as_str().unwrap()).await.block(1), "done");
}

#[tokio::test]
async fn b77_a_wait_that_became_a_stream_can_be_taken_up() {
    let (upstream, latch) = Upstream::holding("done").await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let mut events = call(&client, "slow", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    let follower = take_up(&client, &start).await.events();
    let mut newer = take_up(&client, &start).await.events();
    assert!(rest(follower).await.is_empty(), "the newest wins");
    latch.open();
    let answer = event(&mut newer).await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "done");
    assert!(newer.next().await.is_none());
}

#[tokio::test]
async fn b77_a_waiting_poll_can_be_taken_up() {
    let (upstream, latch) = Upstream::holding("done").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let mut events = call(&client, "get_job_result", json!({"job_id": job, "wait_s": 1})).await;
    let start = primed(&mut events).await;
    drop(events);
    latch.open();
    let mut events = take_up(&client, &start).await.events();
    assert_eq!(event(&mut events).await.json()["result"]["content"][1]["text"], "done");
}

#[tokio::test]
async fn only_the_latest_revision_is_primed_but_all_have_ids() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("talker", talker(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    latch.open();
    for (version, is_primed) in [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let client = gate.client().version(version).open().await;
        let seen = rest(call(&client, "talker", json!({"n": 1})).await).await;
        let texts: Vec<_> = seen.iter().map(|event| event.data.as_deref() == Some("")).collect();
        assert_eq!(texts, if is_primed { vec![true, false, false] } else { vec![false, false] }, "{version}");
        let ids: std::collections::HashSet<_> = seen.iter().map(ours).collect();
        assert_eq!(ids.len(), seen.len(), "{version}: each has its own");
    }
}

#[tokio::test]
async fn an_upstreams_ids_stay_with_taskgate() {
    let opened = Latch::new();
    opened.open();
    let upstream = Upstream::builder()
        .tool("talker", talker(&opened))
        .tool("never", talker(&opened))
        .on("resources/read", talker(&opened))
        .start()
        .await;
    let rules = "[tasks]\nthreshold = \"30s\"\n[upstream]\n[[upstream.rule]]\ntool = \"never\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().open().await;
    for (method, params) in [
        ("tools/call", json!({"name": "talker", "arguments": {"n": 2}})),
        ("tools/call", json!({"name": "never", "arguments": {"n": 2}})),
        ("resources/read", json!({"uri": "x:y", "arguments": {"n": 2}})),
    ] {
        let seen = rest(client.post(client.body("1", method, params)).await.events()).await;
        assert_eq!(seen.len(), 4, "{method}: {seen:?}");
        assert!(seen[1..].iter().all(|event| event.retry.is_none()), "{seen:?}");
    }
}

#[tokio::test]
async fn b77_a_stream_is_its_sessions_alone() {
    let latch = Latch::new();
    let builder = Upstream::builder().tool("talker", talker(&latch)).on("ping", script::picky("thief"));
    let upstream = builder.get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().bearer("owner").open().await;
    let mut events = call(&client, "talker", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    let stranger = gate.client().bearer("owner").open().await;
    assert_eq!(take_up(&stranger, &start).await.status, 405, "another session");
    let session = client.session.as_deref();
    for credential in ["Bearer thief", ""] {
        let thief = gate.client().header("authorization", credential).in_session(session);
        let expected = if credential.is_empty() { 200 } else { 405 };
        assert_eq!(take_up(&thief, &start).await.status, expected, "{credential:?}: as the upstream says");
    }
    let unknown = format!("tg{}-3", "0123456789abcdef".repeat(2));
    assert_eq!(take_up(&client, &unknown).await.status, 405, "forgotten");
    assert!(upstream.http("GET").is_empty(), "none was forwarded");

    let other = take_up(&stranger, "e1").await;
    assert_eq!(other.status, 200, "an id that is none of ours is a plain GET");
    assert_eq!(upstream.http("GET")[0].header("last-event-id"), None);
    latch.open();
    let mut events = take_up(&client, &start).await.events();
    assert_eq!(event(&mut events).await.json()["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn b77_without_a_session_a_stream_is_its_credentials() {
    let latch = Latch::new();
    let upstream = Upstream::builder().without_sessions().tool("talker", talker(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().bearer("owner").open().await;
    let mut events = call(&client, "talker", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    latch.open();
    let thief = gate.client().bearer("thief");
    assert_eq!(take_up(&thief, &start).await.status, 405);
    let mut events = take_up(&client, &start).await.events();
    assert_eq!(event(&mut events).await.json()["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn b77_what_is_kept_is_bounded() {
    let (latch, said) = (Latch::new(), Latch::new());
    let tool = {
        let said = said.clone();
        script::accepted_then(&latch, move |mut call| {
            let said = said.clone();
            async move {
                for n in 1..=400 {
                    call.event(&note(n).to_string());
                }
                call.say("done");
                said.open();
            }
        })
    };
    let upstream = Upstream::builder().tool("chatty", tool).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let mut events = call(&client, "chatty", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    latch.open();
    said.passed().await;
    let all = rest(take_up(&client, &start).await.events()).await;
    assert!(all.len() >= 257, "it follows to the end");
    let seen = rest(take_up(&client, &start).await.events()).await;
    assert_eq!(seen.len(), 257, "the window, and the answer");
    assert_eq!(seen[0].json()["params"]["data"], 145);
    assert_eq!(seen[256].json()["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn b77_a_question_waits_for_who_comes_back() {
    let latch = Latch::new();
    let curious = script::accepted_then(&latch, |mut call| async move {
        let pong = call.ask(&json!("p"), "ping", &json!({})).await;
        assert_eq!(pong["result"], json!({}), "{pong}");
        let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "go on?"})).await;
        call.say(answer["result"]["action"].as_str().unwrap_or("none"));
    });
    let upstream = Upstream::builder().tool("curious", curious).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut events = call(&client, "curious", json!({})).await;
    let start = primed(&mut events).await;
    drop(events);
    sleep(ms(20)).await;
    latch.open();
    eventually("the ping is answered for the client that is away", || upstream.answers().len() == 1).await;
    let mut events = take_up(&client, &start).await.events();
    let question = event(&mut events).await.json();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    assert_eq!(client.ask(answer.to_string()).await.status, 202);
    assert_eq!(event(&mut events).await.json()["result"]["content"][0]["text"], "accept");
}
