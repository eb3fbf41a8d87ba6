//! The one GET stream of a session: shared by its clients and by what runs in the background.
//!
//! Servers refuse a second stream, ask questions on the only one, and end sessions whose pings nobody answers.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::{Client, Events};
use crate::support::upstream::{Get, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms, throughout};

fn note(n: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/n", "params": {"n": n}})
}

fn question(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": "go on?"}})
}

fn accepted(id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept"}}).to_string()
}

/// The answers that the upstream was given.
fn answers(upstream: &Upstream) -> Vec<Value> {
    upstream.answers().into_iter().map(|answer| answer.json).collect()
}

/// An upstream with such a stream, whose tool `slow` ends when the latch opens.
async fn streaming() -> (Upstream, Latch) {
    let latch = Latch::new();
    let builder = Upstream::builder().tool("slow", script::held(&latch, "done")).get(Get::Stream);
    (builder.start().await, latch)
}

async fn next(events: &mut Events) -> Value {
    events.message().await.expect("the stream goes on")
}

#[tokio::test]
async fn b80_one_stream_serves_two_clients_and_the_background() {
    let (upstream, latch) = streaming().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let (mut old, mut new) = (client.listen().await.events(), client.listen().await.events());
    let job = client.call("slow", json!({})).await.job();
    upstream.push(&note(1));
    assert_eq!(next(&mut new).await, note(1));
    drop(new);
    sleep(ms(20)).await;
    upstream.push(&note(2));
    assert_eq!(next(&mut old).await, note(2), "and not the first, which the other had");
    drop(old);
    throughout(ms(50), "the call still needs it", || upstream.listeners() == 1).await;
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "done");
    eventually("nobody needs it any more", || upstream.listeners() == 0).await;
    assert_eq!(upstream.http("GET").len(), 1);
}

#[tokio::test]
async fn b51_pings_are_answered_while_the_client_is_away() {
    let (upstream, latch) = streaming().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    assert!(upstream.http("GET").is_empty());
    let job = client.call("slow", json!({})).await.job();
    eventually("the stream is open", || upstream.listeners() == 1).await;
    for n in 0..3 {
        upstream.push(&json!({"jsonrpc": "2.0", "id": n, "method": "ping"}));
        eventually("the ping is answered", || answers(&upstream).len() == n + 1).await;
    }
    let expected: Vec<_> = (0..3).map(|n| json!({"jsonrpc": "2.0", "id": n, "result": {}})).collect();
    assert_eq!(answers(&upstream), expected);
    assert!(upstream.http("GET")[0].session() == client.session.as_deref());
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "done");
    eventually("it is closed", || upstream.listeners() == 0).await;
}

#[tokio::test]
async fn an_upstream_without_such_a_stream_is_asked_once_per_session() {
    let (upstream, latch) = Upstream::holding("done").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let first = client.call("slow", json!({})).await.job();
    eventually("it is asked", || upstream.http("GET").len() == 1).await;
    let second = client.call("slow", json!({})).await.job();
    latch.open();
    for job in [first, second] {
        assert_eq!(client.job_end(&job).await.block(1), "done");
    }
    assert_eq!(upstream.http("GET").len(), 1);
    let refused = client.listen().await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("POST, DELETE")), "a client is told");
}

/// Asks on the session's own stream, as servers do whose SDK relates a question to no request.
fn asks_elsewhere(latch: &Latch) -> script::Script {
    script::held(latch, "went on")
}

#[tokio::test]
async fn b46_a_question_on_the_stream_stops_the_clocks_of_the_only_call() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("curious", asks_elsewhere(&latch)).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"250ms\"").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut listening = client.listen().await.events();
    let flow = async {
        eventually("it runs", || upstream.calls("curious").len() == 1).await;
        upstream.push(&question(&json!(0)));
        let asked = next(&mut listening).await;
        assert_eq!(asked, question(&json!(0)));
        sleep(ms(400)).await;
        assert_eq!(client.ask(accepted(&asked["id"])).await.status, 202);
        latch.open();
    };
    let (answer, ()) = tokio::join!(client.call("curious", json!({})), flow);
    assert_eq!(answer.text(), "went on", "inline, although a person took longer than the threshold");
    assert_eq!(answers(&upstream)[0]["result"]["action"], "accept");
}

#[tokio::test]
async fn b46_a_question_that_nobody_listens_for_comes_on_the_calls_own_stream() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("curious", asks_elsewhere(&latch))
        .tool("slow", script::held(&latch, "done"))
        .get(Get::Stream)
        .start()
        .await;
    let rules = "[upstream]\n[[upstream.rule]]\ntool = \"curious\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let body = client.body("\"held\"", "tools/call", json!({"name": "curious"}));
    let flow = async {
        eventually("it runs", || upstream.calls("curious").len() == 1).await;
        client.call("slow", json!({})).await.job();
        eventually("the stream is open", || upstream.listeners() == 1).await;
        upstream.push(&question(&json!("q")));
    };
    let (reply, ()) = tokio::join!(client.post(body), flow);
    let mut events = reply.events();
    assert_eq!(next(&mut events).await, question(&json!("q")), "the oldest call that asks nothing");
    assert_eq!(client.ask(accepted(&json!("q"))).await.status, 202);
    latch.open();
    assert_eq!(next(&mut events).await["result"]["content"][0]["text"], "went on");
    assert_eq!(answers(&upstream)[0]["result"]["action"], "accept");
}

#[tokio::test]
async fn b48_a_question_for_a_call_in_the_background_is_declined_for_who_cannot_answer() {
    let (upstream, latch) = streaming().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    eventually("the stream is open", || upstream.listeners() == 1).await;
    upstream.push(&question(&json!("q")));
    eventually("it is declined", || !answers(&upstream).is_empty()).await;
    assert_eq!(answers(&upstream), [json!({"jsonrpc": "2.0", "id": "q", "result": {"action": "decline"}})]);
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "done");
}

#[tokio::test]
async fn b47_answers_go_back_to_their_own_session() {
    let latch = Latch::new();
    let upstream = Upstream::builder().get(Get::Stream).tool("slow", script::held(&latch, "x")).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (one, two) = (gate.client().open().await, gate.client().open().await);
    let (mut first, mut second) = (one.listen().await.events(), two.listen().await.events());
    eventually("both listen", || upstream.listeners() == 2).await;
    upstream.push(&question(&json!(0)));
    for (client, events) in [(&two, &mut second), (&one, &mut first)] {
        let asked = next(events).await;
        assert_eq!(asked["id"], 0, "no call is in flight: it is relayed as it is");
        assert_eq!(client.ask(accepted(&asked["id"])).await.status, 202);
    }
    let sessions: Vec<_> = upstream.answers().iter().map(|answer| answer.session().map(str::to_owned)).collect();
    assert_eq!(sessions, [two.session.clone(), one.session.clone()]);
}

/// What a client hears on its session's stream, which is open upstream.
async fn listening(client: &Client, upstream: &Upstream) -> Events {
    let events = client.listen().await.events();
    eventually("it is open", || upstream.listeners() == 1).await;
    events
}

/// The same, when one event has come and the upstream has hung up.
async fn hung_up(client: &Client, upstream: &Upstream, retry: u64) -> Events {
    let mut events = listening(client, upstream).await;
    upstream.push_text(&format!("id: u1\nretry: {retry}\ndata: {}\n\n", note(1)));
    assert_eq!(next(&mut events).await, note(1));
    upstream.hang_up();
    events
}

#[tokio::test]
async fn a_stream_that_the_upstream_ends_is_taken_up_where_it_was() {
    let upstream = Upstream::builder().get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut events = hung_up(&client, &upstream, 20).await;
    eventually("it is open again", || upstream.listeners() == 1).await;
    upstream.push(&note(2));
    assert_eq!(next(&mut events).await, note(2), "the client has noticed nothing");
    let gets = upstream.http("GET");
    let cursors: Vec<_> = gets.iter().map(|get| get.header("last-event-id")).collect();
    assert_eq!(cursors, [None, Some("u1")]);
    assert!(gets[1].at - gets[0].at >= ms(20), "`retry` is honoured");
}

#[tokio::test]
async fn taking_it_up_is_bounded() {
    let empty = script::script(|mut call| async move {
        call.open();
        call.end();
    });
    let upstream = Upstream::builder().get(Get::Stream).resume(empty).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let mut events = hung_up(&client, &upstream, 10).await;
    assert!(events.message().await.is_none(), "the client's stream ends when the upstream's is lost");
    assert_eq!(upstream.http("GET").len(), 6);
    let mut again = listening(&client, &upstream).await;
    upstream.push(&note(2));
    assert_eq!(next(&mut again).await, note(2));
}

async fn take_up(client: &Client, id: &str) -> Events {
    let headers = [("accept", "text/event-stream"), ("last-event-id", id)];
    client.send("GET", &headers, String::new()).await.events()
}

#[tokio::test]
async fn b77_a_client_that_comes_back_hears_what_it_missed() {
    let (upstream, _latch) = streaming().await;
    let gate = Gate::start(&upstream, "").await;
    for version in ["2025-06-18", "2025-11-25"] {
        let client = gate.client().version(version).open().await;
        let mut events = client.listen().await.events();
        let start = if version == "2025-11-25" { events.next().await.unwrap().id } else { None };
        client.call("slow", json!({})).await.job();
        let gets = upstream.http("GET").len();
        upstream.push(&note(1));
        let first = events.next().await.unwrap();
        assert_eq!((first.json(), first.retry.as_deref()), (note(1), None));
        drop(events);
        sleep(ms(20)).await;
        upstream.push(&note(2));
        sleep(ms(20)).await;
        let mut events = take_up(&client, &first.id.unwrap()).await;
        assert_eq!(next(&mut events).await, note(2), "{version}");
        upstream.push(&note(3));
        let last = events.next().await.unwrap();
        assert_eq!(last.json(), note(3));
        if let Some(start) = start {
            let mut events = take_up(&client, &start).await;
            for n in 1..=3 {
                assert_eq!(next(&mut events).await, note(n));
            }
        }
        assert_eq!(upstream.http("GET").len(), gets, "the upstream hears nothing of it");
        upstream.hang_up();
        assert_eq!(client.delete().await.status, 200);
    }
}

#[tokio::test]
async fn a_deleted_session_hears_nothing_more_but_its_calls_go_on() {
    let (upstream, latch) = streaming().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"60ms\"").await;
    let client = gate.client().open().await;
    let mut events = client.listen().await.events();
    let job = client.call("slow", json!({})).await.job();
    assert_eq!(client.delete().await.status, 200);
    assert!(events.message().await.is_none());
    assert_eq!(client.listen().await.status, 404);
    throughout(ms(50), "the call still needs it", || upstream.listeners() == 1).await;
    latch.open();
    let other = gate.client().open().await;
    assert_eq!(other.job_end(&job).await.block(1), "done");
    eventually("it is closed", || upstream.listeners() == 0).await;
}

#[tokio::test]
async fn only_who_the_upstream_accepts_may_join() {
    let upstream = Upstream::builder().on("ping", script::picky("thief")).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("owner").open().await;
    let mut events = listening(&client, &upstream).await;
    let session = client.session.as_deref();
    let thief = gate.client().bearer("thief").in_session(session);
    assert_eq!(thief.listen().await.status, 403);
    upstream.push(&note(1));
    assert_eq!(next(&mut events).await, note(1));
    let mut renewed = gate.client().bearer("renewed").in_session(session).listen().await.events();
    upstream.push(&note(2));
    assert_eq!(next(&mut renewed).await, note(2));
    assert_eq!(upstream.http("GET").len(), 1);
}
