//! What HTTP libraries leave to whoever builds a proxy on them.
//!
//! Each is harmless to a web site and loses calls, or lets requests in, here.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::support::client::{Answer, EXTENSION, raw_exchange};
use crate::support::upstream::{Script, script};
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually, ms, soon, throughout};

/// A call of `echo` as its bytes, with other framing headers.
fn request(client: &Client, framing: &str, body: &str) -> String {
    let session = client.session.as_deref().unwrap_or_default();
    format!(
        "POST /mcp HTTP/1.1\r\n{framing}Content-Type: application/json\r\nAccept: application/json\r\n\
         MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {session}\r\n\r\n{body}"
    )
}

fn call(client: &Client, text: &str) -> String {
    client.body("1", "tools/call", json!({"name": "echo", "arguments": {"text": text}}))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

async fn echo() -> (Upstream, Gate, Client) {
    let upstream = Upstream::builder().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, &format!("{PATIENT}harvest_progress = false")).await;
    let client = gate.client().open().await;
    (upstream, gate, client)
}

#[tokio::test]
async fn doubtful_framing_reaches_no_upstream() {
    let (upstream, gate, client) = echo().await;
    let body = call(&client, "x");
    let length = format!("Content-Length: {}\r\n", body.len());
    let before = upstream.all().len();
    for framing in [
        length.clone(),
        format!("Host: localhost\r\nHost: localhost\r\n{length}"),
        format!("Host: localhost, localhost\r\n{length}"),
        format!("Host: localhost\r\n{length}Content-Length: 1\r\n"),
        "Host: localhost\r\nContent-Length: +2\r\n".to_owned(),
        "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n".to_owned(),
        "Host: localhost\r\nTransfer-Encoding: xchunked\r\n".to_owned(),
        "Host: localhost\r\nTransfer-Encoding : chunked\r\n".to_owned(),
    ] {
        let answer =
            raw_exchange(gate.addr, request(&client, &framing, &body).as_bytes(), |seen| !seen.is_empty()).await;
        assert_eq!(status(&answer), "400", "{framing:?}: {answer}");
    }
    let other = request(&client, &format!("Host: localhost\r\n{length}"), &body);
    let other = other.replacen("/mcp", "http://other.localhost/mcp", 1);
    let answer = raw_exchange(gate.addr, other.as_bytes(), |seen| !seen.is_empty()).await;
    assert_eq!(status(&answer), "400", "{answer}");
    assert_eq!(upstream.all().len(), before);
}

#[tokio::test]
async fn a_length_beside_chunks_smuggles_nothing() {
    let (upstream, gate, client) = echo().await;
    let before = upstream.all().len();
    let body = call(&client, "x");
    let hidden = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n{hidden}", body.len());
    // Whoever believes the length takes what follows the chunks for part of this body.
    let framing = format!("Host: localhost\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n", chunks.len());
    let ended = |seen: &str| seen.contains("\r\n\r\n") && (!seen.starts_with("HTTP/1.1 200") || seen.contains("\"x\""));
    let answer = raw_exchange(gate.addr, request(&client, &framing, &chunks).as_bytes(), ended).await;
    assert!(["200", "400"].contains(&status(&answer)), "{answer}");
    sleep(ms(50)).await;
    let seen = upstream.all().split_off(before);
    assert!(seen.iter().all(|request| request.body == body), "{seen:?}");
    assert_eq!(seen.len(), usize::from(status(&answer) == "200"), "{answer}");
    for request in seen {
        assert_eq!(request.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(request.header("transfer-encoding"), None);
    }
}

#[tokio::test]
async fn chunks_become_a_length_and_an_expectation_is_answered_here() {
    let (upstream, gate, client) = echo().await;
    let body = call(&client, "x");
    let (first, second) = body.split_at(10);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let framing = "Host: localhost\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n";
    let mut socket = TcpStream::connect(gate.addr).await.unwrap();
    socket.write_all(request(&client, framing, "").as_bytes()).await.unwrap();
    let mut seen = vec![0; 25];
    soon("the go-ahead", socket.read_exact(&mut seen)).await.unwrap();
    assert_eq!(String::from_utf8(seen).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(upstream.calls("echo").is_empty(), "nothing is sent before the body is there");
    socket.write_all(chunks.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    soon("the answer", socket.read_exact(&mut answer)).await.unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), "HTTP/1.1 200");
    let seen = upstream.calls("echo").remove(0);
    assert_eq!((&seen.body, seen.header("content-length")), (&body, Some(body.len().to_string().as_str())));
    assert_eq!((seen.header("expect"), seen.header("transfer-encoding")), (None, None));
}

#[tokio::test]
async fn headers_of_one_connection_stay_on_it() {
    let hops = script::script(|mut call| async move {
        for (name, value) in [("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "timeout=1"), ("x-end", "1")] {
            call.header(name, value);
        }
        call.header("proxy-authenticate", "Basic");
        call.say("hopped");
    });
    let upstream = Upstream::builder().tool("hop", hops).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().header("connection", "keep-alive, x-mine").header("x-mine", "1");
    let client = client.header("keep-alive", "timeout=9").header("proxy-authorization", "Basic eA==");
    let client = client.header("proxy-connection", "keep-alive").header("upgrade", "h2c").open().await;
    let answer = client.call("hop", json!({})).await;
    assert_eq!((answer.text(), answer.header("x-end")), ("hopped", Some("1")));
    for gone in ["x-hop", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    let seen = upstream.calls("hop").remove(0);
    for gone in ["x-mine", "keep-alive", "proxy-authorization", "proxy-connection", "upgrade"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn slow_heads_are_closed_as_the_file_says_and_held_calls_are_not() {
    let upstream = Upstream::builder().tool("slow", script::after(ms(500), "in time")).start().await;
    let gate = Gate::start(&upstream, &format!("[server]\nheader_timeout = \"150ms\"\n{PATIENT}")).await;
    let client = gate.client().open().await;
    let silent = async {
        for start in ["", "POST /mcp HTTP/1.1\r\nHost: localho"] {
            let started = Instant::now();
            raw_exchange(gate.addr, start.as_bytes(), |_| false).await;
            assert!(started.elapsed() >= ms(140) && started.elapsed() < ms(2000), "{:?}", started.elapsed());
        }
    };
    let (answer, ()) = tokio::join!(client.call("slow", json!({})), silent);
    assert_eq!(answer.text(), "in time");
}

#[tokio::test]
async fn half_a_request_is_no_call() {
    let (upstream, gate, client) = echo().await;
    let before = upstream.all().len();
    let body = call(&client, "x");
    let whole = request(&client, &format!("Host: localhost\r\nContent-Length: {}\r\n", body.len()), &body);
    let mut socket = TcpStream::connect(gate.addr).await.unwrap();
    socket.write_all(&whole.as_bytes()[..whole.len() - 1]).await.unwrap();
    sleep(ms(50)).await;
    drop(socket);
    throughout(ms(100), "nothing was sent", || upstream.all().len() == before).await;
    assert_eq!(client.call("echo", json!({"text": "y"})).await.text(), "y");
}

#[tokio::test]
async fn a_client_that_leaves_takes_no_task_with_it() {
    let latch = Latch::new();
    let upstream = Upstream::builder().sse().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nthreshold = \"150ms\"").await;
    let client = gate.client().extension().open().await;
    let body = client.body("7", "tools/call", json!({"name": "slow", "arguments": {}}));
    let whole = request(&client, &format!("Host: localhost\r\nContent-Length: {}\r\n", body.len()), &body);
    let mut socket = TcpStream::connect(gate.addr).await.unwrap();
    socket.write_all(whole.as_bytes()).await.unwrap();
    eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
    socket.set_zero_linger().unwrap();
    drop(socket); // a reset, as from a machine that lost power and came back
    throughout(ms(300), "the call goes on", || upstream.disconnects().is_empty() && upstream.cancels().is_empty())
        .await;
    latch.open();
    let list = client.call("list_jobs", json!({})).await;
    let id = list.text().split('"').find(|word| uuid::Uuid::try_parse(word).is_ok()).expect("a task").to_owned();
    assert_eq!(client.task_end(&id).await.result()["result"]["content"][0]["text"], "late");
    assert_eq!(upstream.calls("slow").len(), 1);
}

#[tokio::test]
async fn an_upstream_that_closes_idle_connections_early_costs_no_call() {
    let upstream = Upstream::builder().idle(ms(150)).tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await; // keeps connections for 4 s
    let client = gate.client().open().await;
    for turn in 0..6 {
        sleep(ms(400)).await; // well after the upstream has closed it: at the same moment nobody can tell
        let text = turn.to_string();
        assert_eq!(client.call("echo", json!({"text": text})).await.text(), text);
    }
    assert_eq!(upstream.calls("echo").len(), 6);
    assert!(upstream.connections() >= 6, "the connections were not closed: {}", upstream.connections());
}

/// Answers on a stream that says something else first, as the servers of the official SDKs do.
fn streamed(first: &'static str, header: (&'static str, &'static str), result: &'static str) -> Script {
    script::script(move |mut call| async move {
        call.header(header.0, header.1);
        call.bytes(first);
        let id = call.request.id();
        call.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        call.end();
    })
}

#[tokio::test]
async fn what_comes_first_on_a_stream_does_not_cost_the_headers() {
    let greeting =
        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
    for first in [
        "",
        "id: 0\nretry: 3000\ndata:\n\n",
        ": comment\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"x\"}}\n\n",
    ] {
        let hello = streamed(first, ("mcp-session-id", "primed"), greeting);
        let list = streamed(first, ("x-listed", "yes"), r#"{"tools":[]}"#);
        let builder = Upstream::builder().without_sessions().on("initialize", hello).on("tools/list", list);
        let upstream = builder.start().await;
        let gate = Gate::start(&upstream, "").await;
        for mut client in [gate.client(), gate.client().extension()] {
            let hello = client.hello().await;
            assert_eq!(hello.header("mcp-session-id"), Some("primed"), "{first:?}: {hello:?}");
            assert_eq!(hello.result()["serverInfo"]["name"], "s");
            assert_eq!(client.tools().await.header("x-listed"), Some("yes"), "{first:?}");
        }
        let hello = gate.client().extension().hello().await;
        assert_eq!(hello.result()["capabilities"]["extensions"], json!({EXTENSION: {}}), "{first:?}");
    }
    let hello = streamed("id: 0\ndata:\n\n", ("x-hello", "yes"), greeting);
    let upstream = Upstream::builder().without_sessions().on("initialize", hello).start().await;
    let gate = Gate::start(&upstream, "[upstream]\nmint_sessions = true").await;
    let hello = gate.client().hello().await;
    assert_eq!((hello.header("x-hello"), hello.header("mcp-session-id").is_some()), (Some("yes"), true));
}

/// Accepts connections and says nothing, as a firewall's tarpit or a stopped process does.
async fn mute() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            kept.push(socket);
        }
    });
    format!("https://{addr}/mcp")
}

/// The best of a few attempts: a busy machine is no fault of taskgate's.
async fn quickest(client: &Client, body: String) -> (Duration, Answer) {
    let mut best = None;
    for _ in 0..3 {
        let started = Instant::now();
        let answer = client.ask(body.clone()).await;
        let took = started.elapsed();
        if best.as_ref().is_none_or(|(least, _)| took < *least) {
            best = Some((took, answer));
        }
        if took < ms(1000) {
            break;
        }
    }
    best.expect("three attempts")
}

#[tokio::test]
async fn b79_an_upstream_that_cannot_be_reached_is_an_error_within_a_second() {
    let plain = Upstream::builder().start().await;
    let no_tls = plain.url().replace("http:", "https:");
    let config = format!("[server]\nkeepalive = \"5s\"\n{PATIENT}[upstream]\nconnect_timeout = \"400ms\"");
    for url in [no_tls.as_str(), &mute().await, "http://does-not-exist.invalid/mcp", "http://127.0.0.1:1/mcp"] {
        let gate = Gate::at(url, &config).await;
        let client = gate.client();
        for body in [
            client.body("\"h\"", "initialize", json!({"protocolVersion": "2025-11-25"})),
            client.body("\"h\"", "tools/call", json!({"name": "x", "arguments": {}})),
            client.body("\"h\"", "tools/list", json!({})),
        ] {
            let (took, answer) = quickest(&client, body).await;
            assert!(took < ms(1000), "{url}: {took:?}");
            assert_eq!((answer.status, answer.reason()), (502, "upstream_unreachable"), "{url}: {}", answer.raw);
            assert_eq!((answer.code(), &answer.json["id"]), (-32603, &Value::from("h")), "{url}");
        }
    }
    assert!(plain.all().is_empty());
}
