//! The scripted upstream against the client, without taskgate between them.
//!
//! A story is only worth something if both ends are known to be good.

use serde_json::json;

use crate::support::client::{Answer, EXTENSION};
use crate::support::upstream::{Get, script};
use crate::support::{Client, Latch, Upstream, eventually, ms, throughout};

#[tokio::test]
async fn speaks_sessions_json_and_sse() {
    for sse in [false, true] {
        let builder = Upstream::builder().tool("echo", script::echo()).header("x-own", "1");
        let upstream = if sse { builder.sse() } else { builder }.start().await;
        let client = Client::new(upstream.addr()).extension().open().await;
        assert_eq!(upstream.sessions(), [client.session.clone().unwrap()]);
        let answer = client.call_as("\"seven\"", "echo", json!({"text": "hi"})).await;
        assert_eq!((answer.text(), answer.sse), ("hi", sse));
        assert_eq!(answer.json["id"], "seven");
        assert_eq!(answer.header("x-own"), Some("1"));
        let hello = &upstream.of("initialize")[0];
        assert_eq!(hello.json["params"]["capabilities"]["extensions"], json!({EXTENSION: {}}));
        assert_eq!(client.call("none", json!({})).await.code(), -32602);
        assert_eq!(upstream.calls("echo")[0].id(), "\"seven\"");
        upstream.forget_sessions();
        assert_eq!(client.tools().await.status, 404);
        assert!(upstream.disconnects().is_empty());
    }
}

#[tokio::test]
async fn asks_reports_and_notices_a_cancel() {
    let script = script::script(|mut call| async move {
        call.progress(1.0, 2.0, "half");
        let answer = call.ask(&json!(5), "roots/list", &json!({})).await;
        let roots = answer["result"]["roots"].to_string();
        call.cancelled().await;
        call.say(&roots);
    });
    let upstream = Upstream::builder().tool("curious", script).start().await;
    let client = Client::new(upstream.addr()).open().await;
    let params = json!({"name": "curious", "_meta": {"progressToken": "t"}});
    let mut events = client.post(client.body("77", "tools/call", params)).await.events();
    assert_eq!(events.message().await.unwrap()["params"]["progressToken"], "t");
    assert_eq!(events.message().await.unwrap()["id"], 5);
    client.ask(json!({"jsonrpc": "2.0", "id": 5, "result": {"roots": []}}).to_string()).await;
    client.cancelled(&json!(77)).await;
    assert_eq!(events.message().await.unwrap()["result"]["content"][0]["text"], "[]");
}

#[tokio::test]
async fn notices_who_leaves_before_and_after_the_head() {
    let latch = Latch::new();
    let open = script::script(|mut call| async move {
        call.open();
        call.gone().await;
    });
    let upstream = Upstream::builder().tool("closed", script::held(&latch, "late")).tool("open", open).start().await;
    let client = Client::new(upstream.addr()).open().await;
    tokio::select! {
        _ = client.call("closed", json!({})) => panic!("nobody opened the latch"),
        () = eventually("the call arrives", || upstream.calls("closed").len() == 1) => {}
    }
    eventually("one left", || upstream.disconnects().len() == 1).await;
    drop(client.post(client.body("2", "tools/call", json!({"name": "open"}))).await);
    eventually("two left", || upstream.disconnects().len() == 2).await;
    assert_eq!(upstream.disconnects()[1].tool(), "open");
}

#[tokio::test]
async fn breaks_off_in_every_way() {
    let cut = script::script(|mut call| async move {
        match call.arg("where").as_str().unwrap() {
            "head" => call.cut().await,
            "reset" => call.reset().await,
            "body" => {
                call.begin(200, &[("content-type", "application/json"), ("content-length", "100")], "{\"a\":");
                call.cut().await;
            }
            _ => {
                call.bytes(": hello\n\n");
                call.cut().await;
            }
        }
    });
    let upstream = Upstream::builder().without_sessions().tool("cut", cut).start().await;
    for place in ["head", "reset", "body", "stream"] {
        let addr = upstream.addr();
        let failed = tokio::spawn(async move { Client::new(addr).call("cut", json!({"where": place})).await });
        assert!(failed.await.is_err(), "{place} did not break");
    }
    assert!(upstream.disconnects().is_empty(), "{:?}", upstream.disconnects());
}

#[tokio::test]
async fn pages_listens_redirects_and_closes_idle_connections() {
    let upstream = Upstream::builder()
        .tool("a", script::says("a"))
        .tool_with("b", &json!({"title": "B"}), script::after(ms(1), "b"))
        .page(1)
        .empty_cursor()
        .get(Get::Stream)
        .delete(204)
        .redirect("/mcp")
        .own_host_only()
        .instructions("Be brief.")
        .version("2025-06-18")
        .idle(ms(50))
        .start()
        .await;
    let mut client = Client::new(upstream.addr());
    let hello = client.hello().await;
    assert_eq!(hello.result()["protocolVersion"], "2025-06-18");
    assert_eq!(hello.result()["instructions"], "Be brief.");
    let first = client.tools().await;
    assert_eq!(first.result()["nextCursor"], "1");
    let second = client.request("tools/list", json!({"cursor": "1"})).await;
    assert_eq!((&second.result()["tools"][0]["title"], &second.result()["nextCursor"]), (&json!("B"), &json!("")));
    assert_eq!(client.call("b", json!({})).await.text(), "b");

    let mut stream = client.listen().await.events();
    assert_eq!(client.listen().await.status, 409);
    upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/x"}));
    assert_eq!(stream.message().await.unwrap()["method"], "notifications/x");
    drop(stream);
    eventually("the stream closes", || upstream.listeners() == 0).await;

    let foreign = Client::new(upstream.addr()).header("host", "example.org");
    assert_eq!(foreign.tools().await.status, 421);
    let moved = Client::new(upstream.addr()).path("/old").tools().await;
    assert_eq!((moved.status, moved.header("location")), (307, Some("/mcp")));
    assert_eq!(client.delete().await.status, 204);
    assert_eq!(client.tools().await.status, 404);

    let reply = client.send("POST", &[], "{}".to_owned()).await;
    let seen = Answer::read(reply).await;
    assert_eq!(seen.status, 404);
    let raw = crate::support::client::raw_exchange(upstream.addr(), b"", |_| false).await;
    assert_eq!(raw, "", "an idle connection is closed without a word");
    let before = upstream.connections();
    throughout(ms(10), "no connection comes by itself", || upstream.connections() == before).await;
}
