//! Sessions in front of a server without any, over time: what their clients listen to, and what a restart leaves.

use serde_json::{Value, json};

use crate::support::client::{EXTENSION, Events};
use crate::support::upstream::{Builder, Recorded, script};
use crate::support::{Client, Dialect, Gate, Home, Latch, Upstream, eventually, ms, throughout};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn server() -> Builder {
    Upstream::builder()
        .modern()
        .capabilities(json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}))
        .tool("echo", script::echo())
}

/// The latest subscription, once there are `count`.
async fn subscription(upstream: &Upstream, count: usize) -> Recorded {
    eventually("it listens", || upstream.of("subscriptions/listen").len() == count).await;
    eventually("it is heard", || upstream.listeners() > 0).await;
    upstream.of("subscriptions/listen").pop().unwrap()
}

/// Sends a notification on it.
fn tell(upstream: &Upstream, listen: &Recorded, method: &str, mut params: Value) {
    params["_meta"] = json!({SUBSCRIPTION: listen.json["id"]});
    upstream.push(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

async fn listens(client: &Client) -> Events {
    let stream = client.listen().await;
    assert_eq!(stream.status, 200);
    stream.events()
}

#[tokio::test]
async fn changes_are_heard_on_the_sessions_stream() {
    let upstream = server().start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    assert_eq!(client.request("resources/subscribe", json!({"uri": "file:///a"})).await.result(), &json!({}));
    assert_eq!(client.request("resources/subscribe", json!({})).await.code(), -32602);
    assert_eq!(upstream.of("subscriptions/listen").len(), 0, "nobody listens yet");
    let mut stream = listens(&client).await;
    let listen = subscription(&upstream, 1).await;
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["file:///a"]});
    assert_eq!(listen.json["params"]["notifications"], wanted);
    tell(&upstream, &listen, "notifications/resources/updated", json!({"uri": "file:///a"}));
    let heard = stream.message().await.unwrap();
    let updated =
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///a"}});
    assert_eq!(heard, updated);
    tell(&upstream, &listen, "notifications/tools/list_changed", json!({}));
    assert_eq!(stream.message().await.unwrap()["method"], "notifications/tools/list_changed");
    // One more resource, one less: there is one subscription at a time.
    client.request("resources/subscribe", json!({"uri": "file:///b"})).await.result();
    let listen = subscription(&upstream, 2).await;
    assert_eq!(listen.json["params"]["notifications"]["resourceSubscriptions"], json!(["file:///a", "file:///b"]));
    eventually("the first is closed", || upstream.listeners() == 1).await;
    client.request("resources/unsubscribe", json!({"uri": "file:///a"})).await.result();
    let listen = subscription(&upstream, 3).await;
    assert_eq!(listen.json["params"]["notifications"]["resourceSubscriptions"], json!(["file:///b"]));
    // The server ends it: it is opened again.
    upstream.hang_up();
    let listen = subscription(&upstream, 4).await;
    tell(&upstream, &listen, "notifications/resources/updated", json!({"uri": "file:///b"}));
    assert_eq!(stream.message().await.unwrap()["params"], json!({"uri": "file:///b"}));
    drop(stream);
    eventually("it ends with who listened", || upstream.listeners() == 0).await;
    assert_eq!(upstream.of("subscriptions/listen").len(), 4);
    assert_eq!(upstream.http("GET").len(), 0);
}

#[tokio::test]
async fn a_server_without_subscriptions_is_asked_once() {
    let refuses = script::responds(
        404,
        &[("content-type", "application/json")],
        br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#,
    );
    let upstream = server().on("subscriptions/listen", refuses).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let stream = listens(&client).await;
    eventually("it is asked", || upstream.of("subscriptions/listen").len() == 1).await;
    throughout(ms(250), "not again", || upstream.of("subscriptions/listen").len() == 1).await;
    drop(stream);
    // And one with nothing to tell not at all.
    let upstream = Upstream::builder().modern().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let _stream = listens(&client).await;
    throughout(ms(100), "nothing to hear", || upstream.of("subscriptions/listen").is_empty()).await;
}

#[tokio::test]
async fn a_stranger_does_not_listen() {
    let judge = script::script(|mut call| async move {
        if call.request.header("authorization").is_some_and(|credential| credential.ends_with("bad")) {
            return call.raw(401, &[], "");
        }
        call.result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}));
    });
    let upstream = server().on("server/discover", judge).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("good").open().await;
    let session = client.session.as_deref();
    let stranger = gate.client().bearer("bad").in_session(session);
    assert_eq!(stranger.listen().await.status, 403);
    assert_eq!(stranger.request("logging/setLevel", json!({"level": "info"})).await.status, 404);
    // That the server accepts another one does not make it the session's: a rotated one begins a new session.
    let rotated = gate.client().bearer("new").in_session(session);
    assert_eq!(rotated.listen().await.status, 403);
    assert_eq!(rotated.request("logging/setLevel", json!({"level": "info"})).await.status, 404);
    assert_eq!(gate.client().bearer("new").open().await.listen().await.status, 200);
    assert_eq!(client.listen().await.status, 200);
}

#[tokio::test]
async fn status_of_core_tasks_is_told_on_the_sessions_stream() {
    let latch = Latch::new();
    let upstream = server().tool("slow", script::held(&latch, "42")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let id = Dialect::Core.start(&client, "slow", json!({})).await;
    let mut stream = listens(&client).await;
    latch.open();
    let told = stream.message().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks/status"), &json!(id)));
}

#[tokio::test]
async fn a_session_outlives_a_restart() {
    let upstream = server().tool("slow", script::until_gone()).start().await;
    let home = Home::new();
    let gate = home.start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"elicitation": {}, "extensions": {EXTENSION: {}}})).open().await;
    assert_eq!(client.call("echo", json!({"text": "1"})).await.text(), "1");
    let lost = client.call("slow", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    let again = gate.client().in_session(client.session.as_deref());
    assert_eq!(again.call("echo", json!({"text": "2"})).await.text(), "2");
    let meta = &upstream.calls("echo")[1].json["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"], json!({"name": "story", "version": "1"}));
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({"elicitation": {}}));
    assert_eq!(again.request("ping", json!({})).await.result(), &json!({}));
    let end = again.task_end(&lost).await;
    assert_eq!(
        (end.state().as_str(), end.result()["error"]["data"]["reason"].as_str()),
        ("failed", Some("outcome_unknown"))
    );
    assert_eq!((upstream.of("initialize").len(), upstream.of("server/discover").len()), (1, 1));
    // A new session is opened as before.
    assert_eq!(gate.client().open().await.call("echo", json!({"text": "3"})).await.text(), "3");
    // One that ended stays dead.
    assert_eq!(again.delete().await.status, 204);
    gate.leave().await;
    let gate = home.start(&upstream, "").await;
    let gone = gate.client().in_session(client.session.as_deref());
    assert_eq!(gone.call("echo", json!({"text": "4"})).await.status, 404);
}

#[tokio::test]
async fn a_session_that_nobody_knows_any_more_begins_anew() {
    let upstream = server().start().await;
    let gate = Gate::start(&upstream, "").await;
    gate.client().open().await;
    let lost = gate.client().in_session(Some("0d4b42c8-9d8c-4a6c-8e5c-3f8f4a1a2b3c"));
    assert_eq!(lost.call("echo", json!({"text": "1"})).await.status, 404);
    assert_eq!(upstream.calls("echo").len(), 0);
}

#[tokio::test]
async fn a_call_that_may_be_repeated_goes_on_after_a_restart() {
    let solves =
        script::script(|mut call| async move { if call.before == 0 { call.gone().await } else { call.say("solved") } });
    let more = json!({
        "annotations": {"readOnlyHint": true},
        "inputSchema": {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}},
    });
    let upstream = server().tool_with("solve", &more, solves).start().await;
    let (home, settings) = (Home::new(), "[tasks]\nthreshold = \"60ms\"\nretry = \"idempotent\"");
    let gate = home.start(&upstream, settings).await;
    let client = gate.client().extension().open().await;
    client.tools().await.result();
    let id = client.call("solve", json!({"r": "us"})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, settings).await;
    let again = gate.client().extension().in_session(client.session.as_deref());
    let end = again.task_end(&id).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], "solved", "{}", end.raw);
    assert!(end.result()["result"].get("resultType").is_none(), "{}", end.raw);
    assert_eq!(upstream.calls("solve").last().unwrap().header("mcp-param-region"), Some("us"));
}

#[tokio::test]
async fn a_session_of_a_process_that_is_gone_is_told_to_begin_anew() {
    let refuses = |supported: &str| {
        let data = format!(r#"{{"supported":{supported},"requested":"2025-11-25"}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32022,"message":"no","data":{data}}}}}"#);
        script::script(move |mut call| {
            let body = body.clone();
            async move { call.raw(400, &[("content-type", "application/json")], body) }
        })
    };
    for (supported, second) in [(r#"["2026-07-28"]"#, 404), (r#"["2025-06-18","2026-07-28"]"#, 400), ("[]", 400)] {
        let upstream = Upstream::builder().without_sessions().on("tools/call", refuses(supported)).start().await;
        let gate = Gate::start(&upstream, "").await;
        let lost = gate.client().in_session(Some("0d4b42c8-9d8c-4a6c-8e5c-3f8f4a1a2b3c"));
        assert_eq!(lost.call("echo", json!({})).await.status, 400, "{supported}");
        assert_eq!(lost.call("echo", json!({})).await.status, second, "{supported}");
    }
}
