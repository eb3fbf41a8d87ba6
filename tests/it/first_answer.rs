//! A question that can be answered in two ways, and answers that nobody asked for.
//!
//! The first answer is the one that the upstream hears; whatever comes later does no harm.

use serde_json::{Value, json};

use crate::support::client::{Client, Events};
use crate::support::dialect::{asked, reaches};
use crate::support::upstream::{Get, Script, script};
use crate::support::{Dialect, Gate, Latch, PATIENT, Upstream, eventually, ms, soon, throughout};

/// Asks when the door opens; says what was answered when the second opens.
fn curious(door: &Latch, end: &Latch) -> Script {
    let (door, end) = (door.clone(), end.clone());
    script::script(move |mut call| {
        let (door, end) = (door.clone(), end.clone());
        async move {
            call.open();
            door.passed().await;
            let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "Go?"})).await;
            end.passed().await;
            call.say(answer["result"]["content"]["by"].as_str().unwrap_or("nobody"));
        }
    })
}

fn accepts(by: &str) -> Value {
    json!({"action": "accept", "content": {"by": by}})
}

async fn question(events: &mut Events) -> Value {
    let message = soon("the question", events.message()).await.expect("the stream goes on");
    assert_eq!(message["method"], "elicitation/create", "{message}");
    message
}

struct Story {
    upstream: Upstream,
    _gate: Gate,
    client: Client,
    get: Events,
    task: String,
    end: Latch,
}

/// A task of the extension whose upstream has asked, and a client that listens to its session.
async fn story() -> Story {
    let (door, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("curious", curious(&door, &end)).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = Dialect::Ext.client(&gate, json!({"elicitation": {}})).open().await;
    let get = client.listen().await.events();
    let task = client.call("curious", json!({})).await.task();
    door.open();
    Story { upstream, _gate: gate, client, get, task, end }
}

async fn ends(story: &Story, by: &str) {
    story.end.open();
    let end = story.client.task_end(&story.task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], by, "{}", end.raw);
    assert_eq!(story.upstream.answers_to(&json!("q")).len(), 1, "the upstream hears one answer");
}

#[tokio::test]
async fn b49_an_answer_on_the_sessions_stream_removes_the_key() {
    let mut story = story().await;
    let message = question(&mut story.get).await;
    let open = asked(&story.client, &story.task).await;
    assert_eq!(open.len(), 1);
    assert_eq!(message["id"], open[0].0, "one question, one name");
    assert_eq!(message["params"], open[0].1["params"], "and nothing of 2025-11-25 in it");
    story.client.answer(&message, accepts("stream")).await;
    let working = reaches(&story.client, &story.task, "working").await;
    assert!(working.result().get("inputRequests").is_none(), "{}", working.raw);
    let late = story.client.update_task(&story.task, json!({open[0].0.as_str(): accepts("update")})).await;
    assert_eq!(late.result(), &json!({"resultType": "complete"}), "ignored");
    ends(&story, "stream").await;
}

#[tokio::test]
async fn b49_an_update_is_first_and_the_answer_to_the_stream_is_late() {
    let mut story = story().await;
    let message = question(&mut story.get).await;
    let open = asked(&story.client, &story.task).await;
    story.client.update_task(&story.task, json!({open[0].0.as_str(): accepts("update")})).await.result();
    story.client.answer(&message, accepts("stream")).await;
    reaches(&story.client, &story.task, "working").await;
    ends(&story, "update").await;
}

#[tokio::test]
async fn b49_of_two_answers_at_once_one_counts() {
    for _ in 0..20 {
        let mut story = story().await;
        let message = question(&mut story.get).await;
        let key = message["id"].as_str().unwrap().to_owned();
        let (updated, ()) = tokio::join!(
            story.client.update_task(&story.task, json!({key.as_str(): accepts("either")})),
            story.client.answer(&message, accepts("either")),
        );
        assert_eq!(updated.result(), &json!({"resultType": "complete"}));
        ends(&story, "either").await;
    }
}

#[tokio::test]
async fn b48_a_question_of_the_extension_goes_to_the_next_stream_of_the_session() {
    let mut story = story().await;
    let first = question(&mut story.get).await;
    story.get = story.client.listen().await.events();
    let again = question(&mut story.get).await;
    assert_eq!(again, first, "the first stream was dropped unanswered");
    story.client.answer(&again, accepts("second")).await;
    ends(&story, "second").await;
}

#[tokio::test]
async fn b48_a_question_leaves_a_stream_that_the_upstream_ends() {
    for dialect in [Dialect::Core, Dialect::Job] {
        let (door, end) = (Latch::new(), Latch::new());
        let upstream = Upstream::builder().tool("curious", curious(&door, &end)).get(Get::Stream).start().await;
        let gate = Gate::start(&upstream, "[server]\nkeepalive = \"50ms\"").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let mut get = client.listen().await.events();
        let id = dialect.start(&client, "curious", json!({})).await;
        upstream.push_text("retry: 10\ndata:\n\n");
        door.open();
        let first = loop {
            let message = soon("the question", get.message()).await.expect("the stream goes on");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        let mut waiting = dialect.stream(&client, &id).await;
        // The session is gone upstream: its stream cannot be taken up again.
        upstream.forget_sessions();
        upstream.hang_up();
        while soon("the end of the stream", get.message()).await.is_some() {}
        let again = question(&mut waiting).await;
        assert_eq!(again["id"], first["id"], "{dialect:?}");
    }
}

/// A tool that asks before its handle or after it, at an upstream that acknowledges answers in this way.
async fn acknowledging(status: u16, body: &'static str, wait: std::time::Duration) -> (Upstream, Latch) {
    let answered = Latch::new();
    let (heard, opens) = (answered.clone(), answered.clone());
    let tool = script::script(move |mut call| {
        let heard = heard.clone();
        async move {
            call.open();
            tokio::time::sleep(wait).await;
            drop(call.pose(&json!(0), "elicitation/create", &json!({"message": "Go?"})));
            heard.passed().await;
            call.say("went on");
        }
    });
    let acknowledge = script::script(move |mut call| {
        let opens = opens.clone();
        async move {
            let kind: &[(&str, &str)] = if body.is_empty() { &[] } else { &[("content-type", "application/json")] };
            call.raw(status, kind, body);
            opens.open();
        }
    });
    (Upstream::builder().tool("curious", tool).on("", acknowledge).start().await, answered)
}

const WAYS: [(u16, &str); 4] = [(200, ""), (200, "{}"), (202, ""), (204, "")];

#[tokio::test]
async fn b47_an_answer_before_the_handle_is_acknowledged_in_any_way() {
    for (status, body) in WAYS {
        let (upstream, _) = acknowledging(status, body, ms(0)).await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
        let mut call = client.post(client.body("7", "tools/call", json!({"name": "curious"}))).await.events();
        let message = question(&mut call).await;
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": accepts("post")});
        let acknowledged = client.ask(answer.to_string()).await;
        assert_eq!((acknowledged.status, acknowledged.raw.as_str()), (202, ""), "{status} {body}");
        let end = soon("the end", call.message()).await.unwrap();
        assert_eq!(end["result"]["content"][0]["text"], "went on", "{status} {body}");
        assert_eq!(upstream.answers_to(&json!(0)).len(), 1);
    }
}

#[tokio::test]
async fn b47_an_answer_after_the_handle_is_acknowledged_in_any_way() {
    for (status, body) in WAYS {
        for dialect in Dialect::ALL {
            let (upstream, _) = acknowledging(status, body, ms(100)).await;
            let gate = Gate::start(&upstream, "").await;
            let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
            let id = dialect.start(&client, "curious", json!({})).await;
            dialect.answer_next(&client, &id, |_| accepts("post")).await;
            assert_eq!(dialect.text(&client, &id).await, "went on", "{dialect:?}, {status} {body}");
            let heard = upstream.answers_to(&json!(0));
            assert_eq!((heard.len(), heard[0].json["result"].clone()), (1, accepts("post")), "it is sent once");
        }
    }
}

#[tokio::test]
async fn b47_an_answer_to_no_question_is_taken_and_dropped() {
    let upstream = Upstream::builder().get(Get::Stream).tool("slow", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    client.call("slow", json!({})).await.job();
    let unknown = format!("ask-{}", "0".repeat(32));
    let before = upstream.all().len();
    for message in [
        json!({"jsonrpc": "2.0", "id": unknown, "result": accepts("nobody")}),
        json!({"jsonrpc": "2.0", "id": unknown, "error": {"code": -1, "message": "no"}}),
    ] {
        let taken = client.ask(message.to_string()).await;
        assert_eq!((taken.status, taken.raw.as_str()), (202, ""), "{message}");
    }
    throughout(ms(50), "the upstream hears nothing", || {
        upstream.all()[before..].iter().all(|request| request.http != "POST")
    })
    .await;

    // An id that is not taskgate's may be that of a question which another replica has relayed: it is for the upstream
    // of that session to know.
    let theirs = json!({"jsonrpc": "2.0", "id": 99, "result": {}});
    assert_eq!(client.ask(theirs.to_string()).await.status, 202);
    eventually("it is passed on", || upstream.answers_to(&json!(99)).len() == 1).await;
    assert_eq!(upstream.answers_to(&json!(99))[0].session(), client.session.as_deref());
}
