//! Stateless clients that listen to the lists and resources of a server that opens sessions.

use super::*;
use crate::support::upstream::script::script;

/// A server that tells of its lists and of resources, and whose tool `change` says so on its own stream.
fn telling() -> Builder {
    let change = script(|mut call| async move {
        let method = call.arg("method").as_str().unwrap().to_owned();
        call.notify(&method, &json!({"private": "words"}));
        call.say("changed");
    });
    Upstream::builder()
        .capabilities(json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true},
        }))
        .get(Get::Stream)
        .on(
            "resources/subscribe",
            script(|mut call| async move {
                if call.request.json["params"]["uri"] == "x://none" {
                    return call.error(-32002, "no such resource", &Value::Null);
                }
                call.result(&json!({}));
            }),
        )
        .on("resources/unsubscribe", script(|mut call| async move { call.result(&json!({})) }))
        .tool("change", change)
}

fn client(gate: &Gate) -> Client {
    gate.client().stateless(json!({}))
}

fn tools_changed() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
}

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

#[tokio::test]
async fn only_what_the_server_offers_is_honoured() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let filter = json!({
        "toolsListChanged": true,
        "promptsListChanged": false,
        "resourcesListChanged": true,
        "resourceSubscriptions": ["x://1", "x://none"],
    });
    let (_stream, honoured) = Stream::open(&client(&gate), "5", filter).await;
    assert_eq!(honoured, json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]}));
    let plain = Upstream::builder().start().await;
    let gate = Gate::start(&plain, ALWAYS).await;
    let (_stream, honoured) = Stream::open(&client(&gate), "5", json!({"toolsListChanged": true})).await;
    assert_eq!(honoured, json!({}));
}

#[tokio::test]
async fn a_change_is_heard_from_the_streams_of_sessions_and_of_calls() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    for owner in [client(&gate), client(&gate).bearer("a")] {
        let (mut tools, _) = Stream::open(&owner, "\"t\"", json!({"toolsListChanged": true})).await;
        let (mut prompts, _) = Stream::open(&owner, "9", json!({"promptsListChanged": true})).await;
        // It is another session where the caller has no credential, and what was said there stays there.
        for (method, stream) in [("tools", &mut tools), ("prompts", &mut prompts)] {
            let method = format!("notifications/{method}/list_changed");
            let answer = owner.call("change", json!({"method": method})).await;
            assert_eq!(answer.text(), "changed");
            assert!(answer.before(&method).is_empty(), "not on a call's stream in this era: {}", answer.raw);
            let told = stream.next().await;
            assert_eq!(told["method"], method);
            assert!(told["params"].get("private").is_none(), "{told}");
        }
        upstream.push(&tools_changed());
        assert_eq!(tools.next().await["method"], "notifications/tools/list_changed");
        owner.call("change", json!({"method": "notifications/prompts/list_changed"})).await;
        let told = prompts.next().await;
        assert_eq!(told["method"], "notifications/prompts/list_changed", "it did not ask for tools");
    }
}

#[tokio::test]
async fn b09_a_change_in_the_session_of_another_credential_is_not_told() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let (one, other) = (client(&gate).bearer("a"), client(&gate).bearer("b"));
    let (mut stream, _) = Stream::open(&one, "1", json!({"toolsListChanged": true, "promptsListChanged": true})).await;
    for stranger in [other, client(&gate)] {
        stranger.call("change", json!({"method": "notifications/tools/list_changed"})).await.result();
    }
    one.call("change", json!({"method": "notifications/prompts/list_changed"})).await.result();
    assert_eq!(stream.next().await["method"], "notifications/prompts/list_changed");
}

#[tokio::test]
async fn resources_are_counted_per_session() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let owner = client(&gate).bearer("a");
    let (mut one, _) = Stream::open(&owner, "1", json!({"resourceSubscriptions": ["x://1", "x://2"]})).await;
    let (mut two, _) = Stream::open(&owner, "2", json!({"resourceSubscriptions": ["x://1"]})).await;
    assert_eq!(upstream.of("initialize").len(), 1);
    assert_eq!(upstream.of("resources/subscribe").len(), 2, "the server hears of each resource once");
    upstream.push(&updated("x://1"));
    for stream in [&mut one, &mut two] {
        assert_eq!(stream.next().await["params"]["uri"], "x://1");
    }
    upstream.push(&updated("x://2"));
    assert_eq!(one.next().await["params"]["uri"], "x://2");
    drop(one);
    eventually("the second is left", || upstream.of("resources/unsubscribe").len() == 1).await;
    assert_eq!(upstream.of("resources/unsubscribe")[0].json["params"]["uri"], "x://2");
    upstream.push(&updated("x://1"));
    assert_eq!(two.next().await["params"]["uri"], "x://1", "what others left goes on here");
    drop(two);
    eventually("the first is left", || upstream.of("resources/unsubscribe").len() == 2).await;
    assert_eq!(upstream.of("resources/unsubscribe")[1].json["params"]["uri"], "x://1");
}

#[tokio::test]
async fn a_resource_that_the_server_is_slow_about_holds_up_nobody_else_of_the_session() {
    let latch = Latch::new();
    let slow = latch.clone();
    let subscribe = script(move |mut call| {
        let slow = slow.clone();
        async move {
            if call.request.json["params"]["uri"] == "x://slow" {
                slow.passed().await;
            }
            call.result(&json!({}));
        }
    });
    let upstream = telling().on("resources/subscribe", subscribe).start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let owner = client(&gate).bearer("a");
    let waits = Stream::open(&owner, "1", json!({"resourceSubscriptions": ["x://slow", "x://1"]}));
    let others = async {
        eventually("the first waits", || upstream.of("resources/subscribe").len() == 2).await;
        let (mut other, honoured) = Stream::open(&owner, "2", json!({"resourceSubscriptions": ["x://1"]})).await;
        assert_eq!(honoured, json!({"resourceSubscriptions": ["x://1"]}));
        upstream.push(&updated("x://1"));
        assert_eq!(other.next().await["params"]["uri"], "x://1");
        latch.open();
        other
    };
    let ((first, honoured), other) = tokio::join!(waits, others);
    assert_eq!(honoured, json!({"resourceSubscriptions": ["x://slow", "x://1"]}), "it was answered in time");
    drop((first, other));
    eventually("both are left", || upstream.of("resources/unsubscribe").len() == 2).await;
}

#[tokio::test]
async fn a_session_of_its_own_lives_as_long_as_the_stream() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let (stream, _) = Stream::open(&client(&gate), "1", json!({"toolsListChanged": true})).await;
    assert_eq!((upstream.sessions().len(), upstream.listeners()), (1, 1));
    drop(stream);
    eventually("it is closed", || upstream.sessions().is_empty()).await;
}

#[tokio::test]
async fn a_session_that_was_lost_is_replaced_while_the_client_listens() {
    let upstream = telling().start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let owner = client(&gate).bearer("a");
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]});
    let (mut stream, _) = Stream::open(&owner, "1", filter).await;
    upstream.forget_sessions();
    upstream.hang_up();
    eventually("another is open", || upstream.of("resources/subscribe").len() == 2 && upstream.listeners() == 1).await;
    upstream.push(&updated("x://1"));
    assert_eq!(stream.next().await["params"]["uri"], "x://1");
}

#[tokio::test]
async fn listeners_keep_no_place_that_calls_need() {
    let upstream = telling().tool("fast", script::says("fast end")).start().await;
    let gate = Gate::start(&upstream, &format!("{ALWAYS}bridge_max_sessions = 1\n")).await;
    let kind = |n: u64| gate.client().bearer("a").stateless(json!({"experimental": {"kind": n}}));
    let (mut one, _) = Stream::open(&kind(1), "1", json!({"toolsListChanged": true})).await;
    let (mut two, _) = Stream::open(&kind(2), "2", json!({"toolsListChanged": true})).await;
    assert_eq!(upstream.of("initialize").len(), 1, "who listens takes the session that there is");
    assert_eq!(soon("a place", kind(3).call("fast", json!({}))).await.text(), "fast end");
    assert_eq!(upstream.sessions().len(), 1);
    eventually("they listen again", || upstream.listeners() == 1).await;
    upstream.push(&tools_changed());
    for stream in [&mut one, &mut two] {
        assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
    }
}

#[tokio::test]
async fn an_upstream_that_opens_no_session_says_why() {
    let denied = script::responds(401, &[("www-authenticate", "Bearer realm=\"meshes\"")], b"who are you?");
    let upstream = Upstream::builder().on("initialize", denied).start().await;
    let gate = Gate::start(&upstream, ALWAYS).await;
    let reply = ask(&client(&gate), "1", json!({"toolsListChanged": true})).await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer realm=\"meshes\"")));
}
