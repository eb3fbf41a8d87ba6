//! What taskgate learns of the eras that an upstream speaks, and what it makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::{Answer, EXTENSION};
use crate::support::upstream::{Builder, script};
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually};

/// A way to answer `server/discover`: status, content type, body.
type Refusal = (u16, &'static str, &'static str);

/// What servers of the handshake era were seen to answer.
const REFUSALS: [Refusal; 5] = [
    (400, "text/plain", "Bad Request: no session"),
    (
        400,
        "application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session"}}"#,
    ),
    (404, "text/html", "<h1>nothing here</h1>"),
    (405, "text/plain", ""),
    (200, "application/json", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#),
];

/// A server with sessions that answers `server/discover` in this way.
fn refusing((status, kind, body): Refusal) -> Builder {
    let refusal = script::script(move |mut call| async move { call.raw(status, &[("content-type", kind)], body) });
    Upstream::builder().without_sessions().on("server/discover", refusal).tool("echo", script::echo())
}

fn declares(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({}))
}

fn does_not(gate: &Gate) -> Client {
    gate.client().stateless(json!({}))
}

async fn discover(client: &Client) -> Answer {
    client.ask(client.body("1", "server/discover", json!({}))).await
}

#[tokio::test]
async fn b89_a_server_of_the_other_era_is_bridged_or_answers_for_itself() {
    for refusal in REFUSALS {
        let upstream = refusing(refusal).start().await;
        for (bridge, is_bridged) in [("auto", [true, false]), ("always", [true, true]), ("off", [false, false])] {
            let gate = Gate::start(&upstream, &format!("{PATIENT}[upstream]\nbridge = \"{bridge}\"")).await;
            for (client, is_bridged) in [declares(&gate), does_not(&gate)].into_iter().zip(is_bridged) {
                let answer = discover(&client).await;
                if is_bridged {
                    let extensions = &answer.result()["capabilities"]["extensions"];
                    assert_eq!(extensions, &json!({EXTENSION: {}}), "{refusal:?} {bridge}: {}", answer.raw);
                    assert_eq!(client.call("echo", json!({"text": "hi"})).await.text(), "hi");
                } else {
                    let kind = answer.header("content-type").unwrap_or_default();
                    assert_eq!((answer.status, kind, answer.raw.as_str()), refusal, "{bridge}");
                }
            }
            // Whoever falls back to a session of its own finds it as before.
            assert_eq!(gate.client().open().await.call("echo", json!({"text": "hi"})).await.text(), "hi");
        }
    }
}

#[tokio::test]
async fn what_tells_of_the_caller_or_of_trouble_is_not_remembered() {
    for (status, headers) in [
        (401, &[("www-authenticate", "Bearer realm=\"x\"")][..]),
        (403, &[]),
        (429, &[("retry-after", "7")]),
        (503, &[]),
    ] {
        let upstream = Upstream::builder()
            .without_sessions()
            .on(
                "server/discover",
                script::script(move |mut call| async move {
                    if call.request.header("authorization") == Some("Bearer good") {
                        return call.raw(404, &[], "");
                    }
                    call.raw(status, headers, "no");
                }),
            )
            .tool("echo", script::echo())
            .start()
            .await;
        let gate = Gate::start(&upstream, PATIENT).await;
        for _ in 0..2 {
            let answer = discover(&declares(&gate)).await;
            assert_eq!((answer.status, answer.raw.as_str()), (status, "no"));
            for (name, value) in headers {
                assert_eq!(answer.header(name), Some(*value));
            }
        }
        assert!(upstream.of("initialize").is_empty());
        let good = declares(&gate).bearer("good");
        assert_eq!(good.call("echo", json!({"text": "hi"})).await.text(), "hi", "{status}");
        let asked = upstream.of("server/discover").len();
        good.call("echo", json!({"text": "hi"})).await.result();
        assert_eq!(upstream.of("server/discover").len(), asked, "what is known is not asked again");
        let probe = upstream.of("server/discover").pop().unwrap();
        assert_eq!(probe.header("authorization"), Some("Bearer good"), "the caller's own headers");
    }
}

#[tokio::test]
async fn one_asks_for_all() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .without_sessions()
        .on("server/discover", script::held_then(&latch, |mut call| async move { call.raw(404, &[], "") }))
        .tool("echo", script::echo())
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let clients: Vec<_> = (0..8).map(|_| declares(&gate).bearer("u")).collect();
    let calls =
        clients.iter().map(|client| async { client.call("echo", json!({"text": "hi"})).await.text().to_owned() });
    let (texts, ()) = tokio::join!(futures_util::future::join_all(calls), async {
        eventually("somebody asks", || !upstream.of("server/discover").is_empty()).await;
        latch.open();
    });
    assert_eq!(texts, vec!["hi"; 8]);
    assert_eq!(upstream.of("server/discover").len(), 1);
}

#[tokio::test]
async fn nobody_asks_where_nothing_depends_on_it() {
    let upstream = refusing(REFUSALS[2]).on("prompts/list", script::answers(r#"{"prompts":[]}"#)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    gate.client().open().await.call("echo", json!({"text": "hi"})).await.result();
    does_not(&gate).request("prompts/list", json!({})).await;
    assert!(upstream.of("server/discover").is_empty());
}

#[tokio::test]
async fn an_upstream_that_was_down_is_asked_when_it_is_up() {
    let upstream = Upstream::builder().native().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    drop(upstream);
    let answer = declares(&gate).call("echo", json!({"text": "hi"})).await;
    assert_eq!((answer.status, answer.reason()), (200, "upstream_unreachable"));
}

/// A server that speaks another era from one moment to the next.
fn changing(era: &Arc<AtomicUsize>) -> Builder {
    let speaks = |era: &Arc<AtomicUsize>| {
        let era = era.clone();
        move || era.load(Ordering::SeqCst)
    };
    let discovers = speaks(era);
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"});
    let calls = speaks(era);
    let hello = speaks(era);
    Upstream::builder()
        .without_sessions()
        .on("server/discover", script::script(move |mut call| {
            let (now, found) = (discovers(), found.clone());
            async move { if now == 0 { call.raw(404, &[], "") } else { call.result(&found) } }
        }))
        .on("initialize", script::script(move |mut call| {
            let now = hello();
            async move {
                if now == 0 { return call.hello(); }
                call.raw(400, &[("content-type", "application/json")], r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"Unsupported","data":{"supported":["2026-07-28"]}}}"#);
            }
        }))
        .on("tools/call", script::script(move |mut call| {
            let now = calls();
            async move {
                let is_stateless = call.request.header("mcp-protocol-version") == Some("2026-07-28");
                if is_stateless == (now == 1) {
                    call.result(&json!({"resultType": "complete", "content": [{"type": "text", "text": now.to_string()}]}));
                } else {
                    call.raw(400, &[], "Bad Request: unsupported protocol version");
                }
            }
        }))
}

#[tokio::test]
async fn what_was_learnt_is_corrected_when_an_answer_shows_the_opposite() {
    let era = Arc::new(AtomicUsize::new(0));
    let upstream = changing(&era).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = declares(&gate);
    let said = |answer: &Answer| answer.json["result"]["content"][0]["text"].clone();
    assert_eq!(said(&client.call("t", json!({})).await), "0", "bridged");
    for now in [1, 0, 1] {
        era.store(now, Ordering::SeqCst);
        // The first request meets the change, the next knows of it.
        let first = client.call("t", json!({})).await;
        assert_ne!(said(&first), json!(now.to_string()), "{}", first.raw);
        let mut second = client.call("t", json!({})).await;
        if said(&second) == Value::Null {
            second = client.call("t", json!({})).await;
        }
        assert_eq!(said(&second), json!(now.to_string()), "{now}: {} {}", second.status, second.raw);
    }
}

#[tokio::test]
async fn a_relayed_discovery_is_learnt_from() {
    let era = Arc::new(AtomicUsize::new(0));
    let upstream = changing(&era).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = does_not(&gate);
    assert_eq!(discover(&client).await.status, 404);
    era.store(1, Ordering::SeqCst);
    assert_eq!(discover(&client).await.result()["supportedVersions"], json!(["2026-07-28"]));
    let asked = upstream.of("server/discover").len();
    assert_eq!(declares(&gate).call("t", json!({})).await.text(), "1", "not bridged");
    assert_eq!(upstream.of("server/discover").len(), asked);
}

#[tokio::test]
async fn a_server_of_both_eras_is_never_bridged() {
    let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"});
    let upstream = Upstream::builder()
        .without_sessions()
        .on(
            "server/discover",
            script::script(move |mut call| {
                let found = found.clone();
                async move { call.result(&found) }
            }),
        )
        .tool("echo", script::echo())
        .start()
        .await;
    let gate = Gate::start(&upstream, &format!("{PATIENT}[upstream]\nbridge = \"always\"")).await;
    assert_eq!(declares(&gate).call("echo", json!({"text": "hi"})).await.text(), "hi");
    assert!(upstream.of("initialize").is_empty());
    assert_eq!(gate.client().open().await.call("echo", json!({"text": "hi"})).await.text(), "hi");
    assert_eq!(upstream.of("initialize").len(), 1);
    assert_eq!(declares(&gate).call("echo", json!({"text": "hi"})).await.text(), "hi");
    assert_eq!(upstream.of("initialize").len(), 1, "it still is not");
}

/// Status and code of an answer to these headers.
async fn told(gate: &Gate, version: Option<&[u8]>, method: &str) -> (u16, Value) {
    let client = declares(gate);
    let body = client.body("1", method, json!({}));
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json\r\n",
        gate.addr
    )
    .into_bytes();
    request.extend(format!("mcp-method: {method}\r\n").bytes());
    if let Some(version) = version {
        request.extend([b"mcp-protocol-version: ", version, b"\r\n"].concat());
    }
    request.extend(format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).bytes());
    let text = raw(gate, &request).await;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    let json = text.split("\r\n\r\n").nth(1).map(crate::support::parsed).unwrap_or_default();
    (status, json["error"]["code"].clone())
}

async fn raw(gate: &Gate, request: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut tcp = tokio::net::TcpStream::connect(gate.addr).await.unwrap();
    tcp.write_all(request).await.unwrap();
    let mut text = Vec::new();
    tcp.read_to_end(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn b89_a_version_that_is_malformed_is_not_one_that_is_absent() {
    let handshake = refusing(REFUSALS[2]).start().await;
    let native = Upstream::builder().native().start().await;
    let versions: [(Option<&[u8]>, bool); 5] = [
        (None, false),
        (Some(b"2026-07-28"), true),
        (Some(b"1900-01-01"), false),
        (Some(b"x"), false),
        (Some(b"\xff\xfe"), false),
    ];
    for (version, fits) in versions {
        for upstream in [&handshake, &native] {
            let gate = Gate::start(upstream, "[upstream]\nbridge = \"always\"").await;
            for method in ["server/discover", "tools/list"] {
                let expected = if fits { (200, Value::Null) } else { (400, json!(-32020)) };
                assert_eq!(told(&gate, version, method).await, expected, "{version:?} {method}");
            }
        }
    }
}
