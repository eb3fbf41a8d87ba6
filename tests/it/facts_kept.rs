//! What one caller's request, or one caller's trouble, must not change of what is known of an upstream for all others.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::upstream::{Builder, script};
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually, ms};

/// What a server answers to `server/discover`.
fn found() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
}

/// A server of both eras that tells how it was called, and refuses what is at fault in any of these ways:
/// what its client says it can do, the encoding, the credential, the query, the tenant.
fn strict() -> Builder {
    let fault = |call: &crate::support::upstream::Call| {
        let request = &call.request;
        let meta = &request.json["params"]["_meta"];
        let is_bearer = |value: &str| value.starts_with("Bearer ") && value.len() > 7;
        if request.path.contains("bad") {
            return Some((400, "Bad Request: query"));
        }
        if request.header("content-encoding").is_some() {
            return Some((415, ""));
        }
        if request.header("authorization").is_some_and(|value| !is_bearer(value)) {
            return Some((400, r#"{"error":"invalid_request"}"#));
        }
        if request.header("authorization") == Some("Bearer nowhere") || request.header("x-tenant").is_some() {
            return Some((404, ""));
        }
        let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
        let is_wrong = !capabilities.is_null() && !capabilities.is_object();
        is_wrong.then_some((400, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid Request"}}"#))
    };
    let answered = move |result: Value| {
        script::script(move |mut call| {
            let result = result.clone();
            async move {
                if let Some((status, body)) = fault(&call) {
                    return call.raw(status, &[("content-type", "application/json")], body);
                }
                call.result(&result);
            }
        })
    };
    let called = script::script(move |mut call| async move {
        if let Some((status, body)) = fault(&call) {
            return call.raw(status, &[("content-type", "application/json")], body);
        }
        let era = call.request.header("mcp-protocol-version").unwrap_or_default().to_owned();
        call.result(&json!({"resultType": "complete", "content": [{"type": "text", "text": era}]}));
    });
    Upstream::builder().without_sessions().on("server/discover", answered(found())).on("tools/call", called)
}

fn declares(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({}))
}

/// Clients at fault, each in its own way.
fn faulty(gate: &Gate) -> Vec<(&'static str, Client)> {
    vec![
        ("encoding", declares(gate).header("content-encoding", "x")),
        ("credential", declares(gate).header("authorization", "Bearer")),
        ("tenant", declares(gate).header("x-tenant", "nobody")),
        ("unknown", declares(gate).bearer("nowhere")),
        ("query", declares(gate).path("/mcp?bad=1")),
        ("capabilities", gate.client().stateless(json!(7))),
    ]
}

async fn is_native(client: &Client) -> bool {
    client.call("t", json!({})).await.json["result"]["content"][0]["text"] == "2026-07-28"
}

#[tokio::test]
async fn who_is_at_fault_is_not_believed_for_all_before_anything_is_known() {
    let upstream = strict().start().await;
    for at in 0..6 {
        let gate = Gate::start(&upstream, PATIENT).await;
        let (fault, client) = faulty(&gate).swap_remove(at);
        for _ in 0..2 {
            client.call("t", json!({})).await;
            client.request("server/discover", json!({})).await;
        }
        assert!(is_native(&declares(&gate)).await, "{fault}");
        assert!(is_native(&declares(&gate).bearer("good")).await, "{fault}");
    }
}

#[tokio::test]
async fn who_is_at_fault_is_not_believed_for_all_afterwards() {
    let upstream = strict().start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let good = declares(&gate).bearer("good");
    assert!(is_native(&good).await);
    for (fault, client) in faulty(&gate) {
        for _ in 0..3 {
            client.call("t", json!({})).await;
            client.request("server/discover", json!({})).await;
        }
        let asked = upstream.of("server/discover").len();
        assert!(is_native(&good).await, "{fault}");
        assert_eq!(upstream.of("server/discover").len(), asked, "{fault}: nor is it asked again");
    }
}

#[tokio::test]
async fn the_question_is_made_here_and_a_malformed_request_is_none_to_ask_for() {
    let upstream = strict().start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let malformed = gate.client().stateless(json!(7));
    malformed.call("t", json!({})).await;
    declares(&gate).version("1900-01-01").call("t", json!({})).await;
    assert!(upstream.of("server/discover").is_empty());
    let client = declares(&gate).bearer("good").header("x-own", "1").path("/mcp?k=1");
    assert!(is_native(&client).await);
    let probe = upstream.of("server/discover").pop().unwrap();
    let header = |name: &str| probe.header(name).map(str::to_owned);
    assert_eq!(header("authorization").as_deref(), Some("Bearer good"));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("mcp-protocol-version").as_deref(), Some("2026-07-28"));
    assert_eq!(header("mcp-method").as_deref(), Some("server/discover"));
    assert_eq!(header("x-own"), None);
    assert!(probe.path.ends_with("?k=1"), "{}", probe.path);
    let meta = &probe.json["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

#[tokio::test]
async fn a_refused_initialize_does_not_undo_that_others_have_sessions() {
    for status in [404, 405] {
        let hello = script::script(move |mut call| async move {
            if call.request.header("authorization") == Some("Bearer nowhere") {
                return call.raw(status, &[], "");
            }
            call.hello();
        });
        let found = script::script(|mut call| async move { call.result(&found()) });
        let upstream = Upstream::builder()
            .without_sessions()
            .on("initialize", hello)
            .on("server/discover", found)
            .tool("echo", script::echo())
            .start()
            .await;
        let gate = Gate::start(&upstream, PATIENT).await;
        gate.client().bearer("good").open().await;
        assert!(declares(&gate).call("echo", json!({"text": "hi"})).await.text() == "hi", "both eras are known");
        assert_eq!(gate.client().bearer("nowhere").hello().await.status, status);
        let asked = upstream.of("server/discover").len();
        gate.client().bearer("good").open().await;
        assert_eq!(upstream.of("server/discover").len(), asked, "{status}: its session is the upstream's as before");
    }
}

#[tokio::test]
async fn who_is_at_fault_has_it_asked_once_and_not_each_time() {
    let upstream = strict().start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (good, malformed) = (declares(&gate), gate.client().stateless(json!(7)));
    assert!(is_native(&good).await);
    for _ in 0..8 {
        assert_eq!(malformed.call("t", json!({})).await.code(), -32600, "the server's own answer");
        assert!(is_native(&good).await, "by the same way");
    }
    assert!(upstream.of("server/discover").len() <= 2, "{}", upstream.of("server/discover").len());
}

/// A server that keeps whoever brings no credential waiting, and then does not let it in.
fn guarded(wait: Duration) -> Builder {
    let found = script::script(move |mut call| async move {
        if call.request.header("authorization") != Some("Bearer good") {
            sleep(wait).await;
            return call.raw(401, &[], "no");
        }
        call.result(&found());
    });
    let called = script::script(|mut call| async move {
        if call.request.header("authorization") != Some("Bearer good") {
            return call.raw(401, &[], "no");
        }
        call.result(&json!({"resultType": "complete", "content": [{"type": "text", "text": "in"}]}));
    });
    Upstream::builder().without_sessions().on("server/discover", found).on("tools/call", called)
}

#[tokio::test]
async fn nobody_waits_for_the_questions_of_strangers() {
    let latch = Latch::new();
    let found = {
        let latch = latch.clone();
        script::script(move |mut call| {
            let latch = latch.clone();
            async move {
                if call.request.header("authorization") != Some("Bearer good") {
                    latch.passed().await;
                    return call.raw(401, &[], "no");
                }
                call.result(&found());
            }
        })
    };
    let upstream = guarded(ms(0)).on("server/discover", found).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let stranger = declares(&gate);
    let held = async { stranger.call("t", json!({})).await };
    let good = async {
        eventually("a stranger asks", || !upstream.of("server/discover").is_empty()).await;
        let answer = timeout(Duration::from_secs(4), declares(&gate).bearer("good").call("t", json!({}))).await;
        latch.open();
        answer.expect("it does not wait").text().to_owned()
    };
    let (_, good) = tokio::join!(held, good);
    assert_eq!(good, "in");
}

#[tokio::test]
async fn strangers_share_that_nothing_could_be_told() {
    let upstream = guarded(ms(150)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let start = Instant::now();
    let clients: Vec<_> = (0..16).map(|_| declares(&gate)).collect();
    let answers = futures_util::future::join_all(clients.iter().map(|client| client.call("t", json!({})))).await;
    assert!(answers.iter().all(|answer| answer.status == 401));
    let asked = upstream.of("server/discover").len();
    assert!(asked < 4, "{asked} questions, {:?}", start.elapsed());
}
