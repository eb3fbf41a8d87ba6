//! Whose a session is that taskgate keeps for a server without any: such a server says of no credential that it is the
//! session's, since it accepts every valid one.

use serde_json::{Value, json};

use crate::support::upstream::{Script, script};
use crate::support::{Client, Gate, Home, Latch, PATIENT, Upstream, eventually};

/// Asks once, and says in the next round with what credential that came.
fn asks() -> Script {
    script::script(|mut call| async move {
        if call.request.json["params"].get("inputResponses").is_some() {
            let who = call.request.header("authorization").unwrap_or("nobody").to_owned();
            let said = format!("{who}: {}", call.request.json["params"]["inputResponses"]);
            return call.say(&said);
        }
        let question = json!({"method": "elicitation/create", "params": {"message": "go on?"}});
        call.result(&json!({"resultType": "input_required", "inputRequests": {"a": question}}));
    })
}

fn able() -> Value {
    json!({"elicitation": {}, "extensions": {crate::support::client::EXTENSION: {}}})
}

/// Nothing that a client can do in a session is done for this one.
async fn is_kept_out(stranger: &Client, upstream: &Upstream) {
    let before = upstream.all().len();
    for (method, params) in [
        ("tools/call", json!({"name": "echo", "arguments": {"text": "evil"}})),
        ("tools/list", json!({})),
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "file:///evil"})),
    ] {
        let refused = stranger.request(method, params).await;
        // As if it had ended: whoever has another credential by now begins a session anew.
        assert_eq!(refused.status, 404, "{method}: {}", refused.raw);
    }
    assert_eq!(stranger.listen().await.status, 403);
    assert_eq!(stranger.delete().await.status, 403);
    assert_eq!(upstream.all().len(), before, "the server is not even asked");
}

#[tokio::test]
async fn a_session_belongs_to_the_credential_that_began_it() {
    let upstream = Upstream::builder().modern().tool("echo", script::echo()).tool("curious", asks()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().bearer("A").capabilities(able()).open().await;
    for stranger in [gate.client().bearer("B"), gate.client()] {
        let stranger = stranger.in_session(client.session.as_deref());
        let mut stream = client.post(client.body("7", "tools/call", json!({"name": "curious"}))).await.events();
        let question = stream.message().await.unwrap();
        is_kept_out(&stranger, &upstream).await;
        let evil =
            json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"evil": 1}}});
        assert_eq!(stranger.post(evil.to_string()).await.status, 404);
        assert_eq!(stranger.cancelled(&json!(7)).await.status, 404);
        client.answer(&question, json!({"action": "accept"})).await;
        let answer = stream.message().await.unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], r#"Bearer A: {"a":{"action":"accept"}}"#);
    }
    assert_eq!(client.call("echo", json!({"text": "1"})).await.text(), "1");
    assert_eq!(client.delete().await.status, 204);
}

#[tokio::test]
async fn its_tasks_are_read_by_nobody_else() {
    let latch = Latch::new();
    let upstream = Upstream::builder().modern().tool("slow", script::held(&latch, "secret")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("A").extension().open().await;
    let id = client.call("slow", json!({})).await.task();
    let stranger = gate.client().bearer("B").extension().in_session(client.session.as_deref());
    assert_eq!(stranger.task(&id).await.status, 404);
    latch.open();
    assert_eq!(client.task_end(&id).await.result()["result"]["content"][0]["text"], "secret");
    assert!(!stranger.task(&id).await.raw.contains("secret"));
}

#[tokio::test]
async fn a_subscription_goes_out_as_who_began_the_session() {
    let upstream = Upstream::builder()
        .modern()
        .capabilities(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}))
        .tool("echo", script::echo())
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("A").open().await;
    let _stream = client.listen().await.events();
    eventually("it listens", || upstream.listeners() == 1).await;
    let stranger = gate.client().bearer("B").in_session(client.session.as_deref());
    is_kept_out(&stranger, &upstream).await;
    client.request("resources/subscribe", json!({"uri": "file:///a"})).await.result();
    eventually("it listens anew", || upstream.of("subscriptions/listen").len() == 2).await;
    let who: Vec<_> = upstream
        .of("subscriptions/listen")
        .iter()
        .map(|listen| listen.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(who, [Some("Bearer A".to_owned()), Some("Bearer A".to_owned())]);
}

#[tokio::test]
async fn it_is_the_same_after_a_restart() {
    let upstream = Upstream::builder().modern().tool("echo", script::echo()).start().await;
    let home = Home::new();
    let gate = home.start(&upstream, "").await;
    let client = gate.client().bearer("A").open().await;
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    let stranger = gate.client().bearer("B").in_session(client.session.as_deref());
    is_kept_out(&stranger, &upstream).await;
    let again = gate.client().bearer("A").in_session(client.session.as_deref());
    assert_eq!(again.request("ping", json!({})).await.result(), &json!({}));
    assert_eq!(again.call("echo", json!({"text": "1"})).await.text(), "1");
}

#[tokio::test]
async fn nothing_in_an_answer_is_a_session_after_listing_either() {
    // Misses a header first; then it says at once that it goes on, with a session's id.
    let latch = Latch::new();
    let opened = latch.clone();
    let picky = script::script(move |mut call| {
        let latch = opened.clone();
        async move {
            if call.before == 0 {
                return call.error(-32020, "Header mismatch", &Value::Null);
            }
            call.header("mcp-session-id", "theirs");
            call.open();
            latch.passed().await;
            call.say("done");
        }
    });
    let upstream = Upstream::builder().modern().tool("picky", picky).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let handle = client.call("picky", json!({})).await;
    assert_eq!(handle.header("mcp-session-id"), None, "{}", handle.raw);
    latch.open();
    assert_eq!(client.task_end(&handle.task()).await.result()["result"]["content"][0]["text"], "done");
}
