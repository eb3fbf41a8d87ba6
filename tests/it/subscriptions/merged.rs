//! Upstreams with subscriptions of their own: one stream for what is theirs and what is ours.

use super::*;
use crate::support::upstream::script::script;

/// A server that acknowledges what `theirs` says, then tells of a list, and ends when the latch opens.
fn listens(latch: &Latch, theirs: Value) -> Builder {
    let latch = latch.clone();
    let listen = script(move |mut call| {
        let (latch, theirs) = (latch.clone(), theirs.clone());
        async move {
            let id = call.request.json["id"].clone();
            let meta = json!({TAG: id, "own": 1});
            call.notify("notifications/subscriptions/acknowledged", &json!({"_meta": meta, "notifications": theirs}));
            call.notify("notifications/tools/list_changed", &json!({"_meta": meta}));
            latch.passed().await;
            call.result(&json!({"resultType": "complete", "_meta": {TAG: id}}));
        }
    });
    slow(&Latch::new()).without_sessions().on("subscriptions/listen", listen)
}

fn stateless(gate: &Gate) -> Client {
    gate.client().bearer("a").stateless_with_tasks(json!({}))
}

/// A gate that passes stateless requests on.
async fn passing(upstream: &Upstream) -> Gate {
    Gate::start(upstream, "[upstream]\nbridge = \"off\"\n").await
}

#[tokio::test]
async fn one_acknowledgement_for_both() {
    let latch = Latch::new();
    let upstream = listens(&latch, json!({"toolsListChanged": true, "taskIds": ["theirs"]})).start().await;
    let gate = passing(&upstream).await;
    let session = gate.client().bearer("a").extension_per_request();
    let task = session.call("forever", json!({})).await.task();
    let filter = json!({"taskIds": [task, "theirs"], "toolsListChanged": true, "later": {"n": 1}});
    for (client, rest) in [
        (&session, json!({"toolsListChanged": true, "later": {"n": 1}})),
        (&stateless(&gate), json!({"taskIds": ["theirs"], "toolsListChanged": true, "later": {"n": 1}})),
    ] {
        let before = upstream.of("subscriptions/listen").len();
        let (mut stream, honoured) = Stream::open(client, "\"s\"", filter.clone()).await;
        assert_eq!(honoured, json!({"toolsListChanged": true, "taskIds": [task, "theirs"]}));
        let mut told = [stream.next().await, stream.next().await];
        told.sort_by_key(|message| message["method"].to_string());
        assert_eq!(told[0]["params"]["taskId"], json!(task));
        assert_eq!(told[1]["method"], "notifications/tools/list_changed");
        let seen = &upstream.of("subscriptions/listen")[before];
        assert_eq!((&seen.json["id"], &seen.json["params"]["notifications"]), (&json!("s"), &rest));
    }
}

#[tokio::test]
async fn the_upstreams_end_is_the_end_unless_tasks_are_ours() {
    let latch = Latch::opened();
    let upstream = listens(&latch, json!({"toolsListChanged": true})).start().await;
    let gate = passing(&upstream).await;
    let session = gate.client().bearer("a").extension_per_request();
    let task = session.call("forever", json!({})).await.task();
    let client = stateless(&gate);
    let (mut none, _) = Stream::open(&client, "1", json!({"taskIds": ["theirs"], "toolsListChanged": true})).await;
    assert_eq!(none.next().await["method"], "notifications/tools/list_changed");
    none.end().await;
    let (mut ours, _) = Stream::open(&client, "2", json!({"taskIds": [task], "toolsListChanged": true})).await;
    for _ in 0..2 {
        ours.next().await;
    }
    client.cancel_task(&task).await.result();
    assert_eq!(ours.status().await, (task, "cancelled".into()));
}

#[tokio::test]
async fn who_knows_no_subscriptions_is_not_missed() {
    let upstream = slow(&Latch::new()).without_sessions().start().await;
    let gate = passing(&upstream).await;
    let session = gate.client().bearer("a").extension_per_request();
    let task = session.call("forever", json!({})).await.task();
    for client in [&session, &stateless(&gate)] {
        let filter = json!({"taskIds": [task], "toolsListChanged": true});
        let (mut stream, honoured) = Stream::open(client, "1", filter).await;
        assert_eq!(honoured, json!({"taskIds": [task]}));
        assert_eq!(stream.status().await.1, "working");
    }
    let before = upstream.of("subscriptions/listen").len();
    let (_stream, honoured) = Stream::open(&stateless(&gate), "1", json!({"taskIds": [task]})).await;
    assert_eq!(honoured, json!({"taskIds": [task]}));
    assert_eq!(upstream.of("subscriptions/listen").len(), before, "there was nothing left to ask");
}

#[tokio::test]
async fn an_upstream_that_refuses_answers_itself() {
    let refuses = script::responds(401, &[("www-authenticate", "Bearer")], b"who are you?");
    let upstream = slow(&Latch::new()).without_sessions().on("subscriptions/listen", refuses).start().await;
    let gate = passing(&upstream).await;
    for client in [gate.client().extension_per_request(), stateless(&gate)] {
        let reply = ask(&client, "1", json!({"taskIds": [], "toolsListChanged": true})).await;
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    }
}

#[tokio::test]
async fn what_names_no_task_passes_untouched() {
    let latch = Latch::opened();
    let upstream = listens(&latch, json!({"toolsListChanged": true})).start().await;
    let gate = passing(&upstream).await;
    let session = gate.client().open().await;
    for client in [session, gate.client().stateless(json!({}))] {
        let body = client.body("1", "subscriptions/listen", json!({"notifications": {"toolsListChanged":  true}}));
        let answer = client.ask(body.clone()).await;
        assert_eq!(answer.result()["resultType"], "complete");
        let methods = answer.events.iter().map(|event| event.json()["method"].clone()).filter(Value::is_string);
        let expected = ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"];
        assert_eq!(methods.collect::<Vec<_>>(), expected);
        assert_eq!(upstream.of("subscriptions/listen").last().unwrap().body, body);
    }
}

#[tokio::test]
async fn tasks_of_ours_are_told_of_beside_what_a_stateless_upstream_tells() {
    let discovered = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"public"}"#;
    let latch = Latch::new();
    let upstream = listens(&latch, json!({"toolsListChanged": true}));
    let upstream = upstream.on("server/discover", script::answers(discovered)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = stateless(&gate);
    let task = client.call("slow", json!({})).await.task();
    let (mut stream, honoured) =
        Stream::open(&client, "\"s\"", json!({"taskIds": [task], "toolsListChanged": true})).await;
    assert_eq!(honoured, json!({"taskIds": [task], "toolsListChanged": true}));
    let mut told = [stream.next().await, stream.next().await];
    told.sort_by_key(|message| message["method"].to_string());
    assert_eq!(told[0]["params"]["status"], "working");
    client.cancel_task(&task).await.result();
    assert_eq!(stream.status().await.1, "cancelled");
    let seen = &upstream.of("subscriptions/listen")[0];
    assert_eq!(seen.header("mcp-method"), Some("subscriptions/listen"));
    assert_eq!(seen.json["params"]["notifications"], json!({"toolsListChanged": true}));
    drop(stream);
    eventually("the upstream's stream is closed", || upstream.disconnects().iter().any(|one| one.n == seen.n)).await;
}

#[tokio::test]
async fn a_session_in_front_of_a_stateless_upstream_listens_to_both() {
    let upstream = slow(&Latch::new()).modern().capabilities(json!({"tools": {"listChanged": true}})).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    let (mut stream, honoured) = Stream::open(&client, "4", json!({"taskIds": [task], "toolsListChanged": true})).await;
    assert_eq!(honoured, json!({"taskIds": [task], "toolsListChanged": true}));
    assert_eq!(stream.status().await, (task, "working".into()));
    eventually("it listens there", || upstream.listeners() > 0).await;
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
}
