//! Clients that read slowly, and tasks that another process ends.

use super::*;
use crate::support::Shared;
use crate::support::upstream::script::script;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_slow_reader_finds_the_latest_state_and_holds_up_nobody() {
    let latch = Latch::new();
    let held = latch.clone();
    let large = script(move |mut call| {
        let latch = held.clone();
        async move {
            call.open();
            latch.passed().await;
            call.say(&"x".repeat(1 << 20));
        }
    });
    let upstream = Upstream::builder().tool("large", large).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"10ms\"").await;
    let client = gate.client().extension().open().await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        tasks.push(client.call("large", json!({})).await.task());
    }
    let body = client.body("1", "subscriptions/listen", json!({"notifications": {"taskIds": tasks}}));
    let mut tcp = TcpStream::connect(gate.addr).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, \
         text/event-stream\r\nmcp-session-id: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        gate.addr,
        client.session.as_deref().unwrap(),
        body.len()
    );
    tcp.write_all(head.as_bytes()).await.unwrap();
    latch.open();
    // It does not read; all tasks end, and can be read by others meanwhile.
    for task in &tasks {
        assert_eq!(client.task_end(task).await.state(), "completed");
    }
    let mut seen = String::new();
    let mut buffer = vec![0; 1 << 16];
    let ends = |seen: &str| seen.matches(r#""status":"completed""#).count();
    while ends(&seen) < tasks.len() {
        let count = crate::support::soon("more", tcp.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "the stream ended: {} bytes", seen.len());
        // The long texts would make the search slow.
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]).replace("xxxxxxxx", ""));
    }
    assert!(seen.matches("notifications/tasks").count() <= 2 * tasks.len(), "each was told of at most twice");
}

#[tokio::test]
async fn the_end_of_a_task_of_another_replica_is_told() {
    let latch = Latch::new();
    let upstream = slow(&latch).start().await;
    let shared = Shared::open(ms(30_000)).await;
    let settings = "[server]\nsecret = \"0123456789abcdef0123456789abcdef\"\n[tasks]\nthreshold = \"20ms\"";
    let (here, there) = (shared.start(&upstream, settings).await, shared.start(&upstream, settings).await);
    let client = there.client().bearer("a").extension().open().await;
    let task = client.call("slow", json!({})).await.task();
    let elsewhere = here.client().bearer("a").extension().in_session(client.session.as_deref());
    let (mut stream, honoured) = Stream::open(&elsewhere, "1", json!({"taskIds": [task]})).await;
    assert_eq!(honoured, json!({"taskIds": [task]}));
    assert_eq!(stream.status().await.1, "working");
    latch.open();
    assert_eq!(stream.status().await, (task, "completed".into()));
}
