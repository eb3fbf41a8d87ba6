//! What large answers and many clients cost, measured at the built program.
//!
//! A proxy in front of many sessions is killed for its memory long before it is slow.

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde_json::json;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::support::client::{H2, Reply};
use crate::support::process::Process;
use crate::support::upstream::{Get, Script, script};
use crate::support::{Latch, Upstream, eventually, ms, soon};

const MIB: u64 = 1 << 20;
const LARGE: usize = 20 << 20;
const HEAD: &str = r#"{"jsonrpc":"2.0","id":"#;
const MIDDLE: &str = r#","result":{"content":[{"type":"text","text":""#;
const TAIL: &str = r#""}]}}"#;

/// Answers with [`LARGE`] letters that all calls share, when the latch is open.
fn large(latch: &Latch) -> Script {
    let letters = Bytes::from("A".repeat(LARGE));
    script::held_then(latch, move |mut call| {
        let letters = letters.clone();
        async move {
            let head = format!("{HEAD}{}{MIDDLE}", call.request.id());
            let length = (head.len() + LARGE + TAIL.len()).to_string();
            call.begin(200, &[("content-type", "application/json"), ("content-length", &length)], head);
            call.more(letters);
            call.more(TAIL);
            call.end();
        }
    })
}

#[tokio::test]
async fn b85_twenty_megabytes_inline_by_a_job_and_by_a_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("large", large(&latch)).tool("inline", large(&latch)).start().await;
    let rule = "[[upstream.rule]]\ntool = \"inline\"\nmode = \"sync\"\n";
    let config = format!("[tasks]\nthreshold = \"100ms\"\n{rule}");
    let gate = Process::start(&upstream, &config).await;
    let (plain, ext) = (gate.client().open().await, gate.client().extension().open().await);
    let job = plain.call("large", json!({})).await.job();
    let task = ext.call("large", json!({})).await.task();
    latch.open();
    let read = plain.job_end(&job).await;
    assert_eq!((read.block(1).len(), read.note()["status"].as_str()), (LARGE, Some("done")));
    let read = ext.task_end(&task).await;
    assert_eq!(read.result()["result"]["content"][0]["text"].as_str().map(str::len), Some(LARGE));
    let inline = plain.call("inline", json!({})).await;
    assert_eq!(inline.text().len(), LARGE);
    assert!(inline.text().bytes().all(|letter| letter == b'A'));
    assert!(gate.most_memory() < 320 * MIB, "{} MiB at most", gate.most_memory() / MIB);
}

#[tokio::test]
async fn b85_twenty_megabytes_in_a_request() {
    let measure = script::script(|mut call| async move {
        let length = call.arg("blob").as_str().map_or(0, str::len);
        call.say(&length.to_string());
    });
    let upstream = Upstream::builder().tool("measure", measure).start().await;
    let gate = Process::start(&upstream, "[tasks]\nthreshold = \"30s\"").await;
    let client = gate.client().open().await;
    let request = |length: usize| {
        let blob = "B".repeat(length);
        let params = format!(r#"{{"name":"measure","arguments":{{"blob":"{blob}"}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let measured = client.ask(request(LARGE)).await;
    assert_eq!(measured.text(), LARGE.to_string());
    let refused = client.ask(request(33 << 20)).await;
    assert_eq!((refused.status, upstream.calls("measure").len()), (413, 1));
    assert!(gate.most_memory() < 160 * MIB, "{} MiB at most", gate.most_memory() / MIB);
}

#[tokio::test]
async fn b85_fifty_large_answers_at_once_are_not_kept() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("large", large(&latch)).start().await;
    let gate = Process::start(&upstream, "[tasks]\nthreshold = \"30s\"").await;
    let client = gate.client().open().await;
    let idle = gate.memory();
    let calls = (0..50).map(|id: u64| client.body(&id.to_string(), "tools/call", json!({"name": "large"})));
    let opening = async {
        eventually("all are held", || upstream.calls("large").len() == 50).await;
        latch.open();
    };
    let (replies, ()) = tokio::join!(join_all(calls.map(|body| client.post(body))), opening);
    sleep(ms(200)).await; // time to run full, if it read ahead of its clients
    let waiting = gate.memory().saturating_sub(idle);
    let lengths = join_all(replies.into_iter().map(Reply::length)).await;
    assert!(lengths.iter().all(|length| *length > LARGE && *length < LARGE + 100), "{lengths:?}");
    let most = gate.most_memory().saturating_sub(idle);
    assert!(waiting < 200 * MIB, "{} MiB while nobody reads", waiting / MIB);
    assert!(most < 200 * MIB, "{} MiB at most", most / MIB);
}

#[tokio::test]
async fn a_thousand_calls_at_once_from_a_thousand_sessions() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::echo_held(&latch)).start().await;
    let gate = Process::start(&upstream, "[tasks]\nthreshold = \"500ms\"").await;
    let idle = gate.memory();
    let clients: Vec<_> = stream::iter(0..1000).map(|_| gate.client().open()).buffered(64).collect().await;
    let calls = clients
        .iter()
        .enumerate()
        .map(async |(n, client)| client.call("slow", json!({"text": format!("result {n}")})).await.job());
    let jobs = join_all(calls).await;
    latch.open();
    let reads = clients.iter().zip(&jobs).map(|(client, job)| client.job_end(job));
    let reads: Vec<_> = stream::iter(reads).buffered(64).collect().await;
    for (n, read) in reads.iter().enumerate() {
        assert_eq!(read.block(1), format!("result {n}"));
    }
    assert_eq!(upstream.calls("slow").len(), 1000);
    let most = gate.most_memory().saturating_sub(idle);
    // Without optimisation every future is twice as large.
    let limit = if cfg!(debug_assertions) { 160 } else { 60 };
    assert!(most < limit * MIB, "{} MiB above idle", most / MIB);
}

/// That many sessions, opened over one connection and never ended.
async fn sessions(gate: &Process, count: usize) {
    let connection = H2::connect(gate.addr).await;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "s", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string();
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let opened = stream::iter(0..count).map(|_| connection.send("POST", &headers, body.clone())).buffer_unordered(32);
    let opened: Vec<u16> = opened.map(|(status, _)| status).collect().await;
    assert_eq!(opened.iter().filter(|status| **status == 200).count(), count);
}

/// Waits until the gauge of known sessions, which is brought up to date every two seconds, fits.
async fn known(gate: &Process, fits: impl Fn(u64) -> bool) {
    let watching = async {
        while !fits(gate.metric("taskgate_sessions").await) {
            sleep(ms(50)).await;
        }
    };
    soon("a number of sessions", watching).await;
}

#[tokio::test]
async fn b98_sessions_that_are_never_ended_are_given_back() {
    let upstream = Upstream::builder().start().await;
    let config = "[server]\nsession_idle = \"2500ms\"\n[log]\nlevel = \"warn,taskgate::app=info\"";
    let gate = Process::start(&upstream, config).await;
    sessions(&gate, 500).await;
    let before = gate.memory();
    sessions(&gate, 10_000).await;
    known(&gate, |count| count > 500).await;
    known(&gate, |count| count == 0).await;
    let more = gate.memory().saturating_sub(before);
    assert!(more < 12 * MIB, "{} KiB more than before", more >> 10);
}

#[tokio::test]
async fn b98_clients_that_vanish_leave_nothing_open() {
    let upstream = Upstream::builder().get(Get::Stream).start().await;
    let gate = Process::start(&upstream, "[server]\nkeepalive = \"100ms\"").await;
    let before = gate.open_files();
    let mut streams = Vec::new();
    for _ in 0..30 {
        let client = gate.client().open().await;
        let session = client.session.clone().expect("a session");
        let mut socket = TcpStream::connect(gate.addr).await.unwrap();
        let head = format!(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        streams.push(socket);
    }
    eventually("all are open", || upstream.listeners() == 30).await;
    assert!(gate.open_files() >= before + 60);
    for socket in &streams {
        SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
    drop(streams); // resets, without a goodbye
    eventually("the upstream's are closed", || upstream.listeners() == 0).await;
    // Idle connections to the upstream and the collector's own may stay a while.
    soon("closed files", async {
        while gate.open_files() > before + 8 {
            sleep(ms(20)).await;
        }
    })
    .await;
}
