//! Event streams and encodings as upstreams write them in the wild.
//!
//! Whatever the framing, the answer is the same as from a plain JSON server.

use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::support::client::Answer;
use crate::support::upstream::script::{self, Script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

async fn encoded(encoding: &str, text: &str) -> Vec<u8> {
    macro_rules! through {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(text.as_bytes()).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match encoding {
        "gzip" => through!(GzipEncoder),
        "br" => through!(BrotliEncoder),
        "zstd" => through!(ZstdEncoder),
        "deflate" => through!(ZlibEncoder),
        _ => text.as_bytes().to_vec(),
    }
}

/// Answers with this result in an encoding, as JSON or as a stream in small pieces, once the latch is open.
fn packed(encoding: &'static str, sse: bool, result: &'static str, latch: &Latch) -> Script {
    script::held_then(latch, move |mut call| async move {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, call.request.id());
        let (kind, text) = if sse {
            ("text/event-stream", format!(": hi\n\ndata: {message}\n\n"))
        } else {
            ("application/json", message)
        };
        let bytes = encoded(encoding, &text).await;
        let head = [("content-type", kind), ("content-encoding", encoding)];
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        call.begin(200, &head, first.to_vec());
        sleep(ms(2)).await;
        call.more(rest.to_vec());
    })
}

const HELLO: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"z","version":"1"}}"#;
const LIST: &str = r#"{"tools":[{"name":"fast","inputSchema":{"type":"object"}}]}"#;
const SAID: &str = r#"{"content":[{"type":"text","text":"unpacked: é日"}]}"#;

#[tokio::test]
async fn b74_compressed_answers() {
    for encoding in ["gzip", "br", "zstd", "deflate", "identity"] {
        for sse in [false, true] {
            let (open, shut) = (Latch::new(), Latch::new());
            open.open();
            let upstream = Upstream::builder()
                .without_sessions()
                .on("initialize", packed(encoding, sse, HELLO, &open))
                .on("tools/list", packed(encoding, sse, LIST, &open))
                .tool("fast", packed(encoding, sse, SAID, &open))
                .tool("slow", packed(encoding, sse, SAID, &shut))
                .start()
                .await;
            let rule =
                "[tasks]\nthreshold = \"30s\"\n[upstream]\n[[upstream.rule]]\ntool = \"slow\"\nthreshold = \"60ms\"";
            let gate = Gate::start(&upstream, rule).await;
            let client = gate.client().open().await;
            let list = client.tools().await;
            assert_eq!(list.result()["tools"][0]["name"], "fast", "{encoding} {sse}");
            let fast = client.call("fast", json!({})).await;
            assert_eq!(fast.text(), "unpacked: é日", "{encoding} {sse}");
            assert!([None, Some("identity")].contains(&fast.header("content-encoding")), "{:?}", fast.headers);
            let job = client.call("slow", json!({})).await.job();
            shut.open();
            assert_eq!(client.job_end(&job).await.block(1), "unpacked: é日", "{encoding} {sse}");
        }
    }
}

#[tokio::test]
async fn b74_an_unknown_encoding_is_an_error_with_the_callers_id() {
    for sse in [false, true] {
        let open = Latch::new();
        open.open();
        let upstream = Upstream::builder().tool("fast", packed("x-foo", sse, SAID, &open)).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let answer = gate.client().open().await.call_as("\"e\"", "fast", json!({})).await;
        assert_eq!((answer.code(), answer.reason()), (-32603, "upstream_protocol"));
        assert_eq!((answer.status, &answer.json["id"]), (200, &json!("e")));
    }
}

/// A stream in many spellings: each entry is what goes out in one piece, `@` standing for the answer.
fn spellings() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("lf", vec!["event: message\ndata: @\n\n"]),
        ("crlf", vec!["event: message\r\ndata: @\r\n\r\n"]),
        ("cr", vec!["event: message\rdata: @\r\r"]),
        ("crlf over chunks", vec!["data: @\r", "\n\r", "\n"]),
        ("no space", vec!["data:@\n\n"]),
        ("bom", vec!["\u{feff}data: @\n\n"]),
        ("comments", vec![":\n: x\n\n:y\ndata: @\n: z\n\n"]),
        ("id only and retry only", vec!["id: 7\n\nretry: 10\n\ndata: @\n\n"]),
        ("an id with empty data", vec!["id: 7\ndata: \n\ndata: @\n\n"]),
        ("other events", vec!["event: heartbeat\ndata: {\"jsonrpc\":\"2.0\"\n\ndata: @\n\n"]),
        ("unknown fields", vec!["foo: bar\nbaz\ndata: @\n\n"]),
        ("no blank line at the end", vec!["data: @\n"]),
    ]
}

const ODD: &str = "{\"content\":[{\"type\":\"text\",\"text\":\"é日\u{2028}\u{2029}\u{85}😀 data: x\"}]}";

#[derive(Clone, Copy)]
enum Pieces {
    AsWritten,
    Bytes,
}

fn spelled(spelling: Vec<&'static str>, pieces: Pieces) -> Script {
    script::script(move |mut call| {
        let spelling = spelling.clone();
        async move {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{ODD}}}"#, call.request.id());
            for piece in spelling {
                let piece = piece.replace('@', &message).into_bytes();
                let size = if matches!(pieces, Pieces::Bytes) { 1 } else { piece.len() };
                for chunk in piece.chunks(size) {
                    call.bytes(chunk.to_vec());
                    tokio::task::yield_now().await;
                }
                sleep(ms(2)).await;
            }
            call.end();
        }
    })
}

#[tokio::test]
async fn b75_every_spelling_of_an_event_stream() {
    let expected: Value = serde_json::from_str(ODD).unwrap();
    for (name, spelling) in spellings() {
        for pieces in [Pieces::AsWritten, Pieces::Bytes] {
            let upstream = Upstream::builder().tool("odd", spelled(spelling.clone(), pieces)).start().await;
            let gate = Gate::start(&upstream, PATIENT).await;
            let answer = gate.client().open().await.call("odd", json!({})).await;
            assert_eq!(answer.result(), &expected, "{name}");
        }
    }
}

#[tokio::test]
async fn b75_several_data_lines_are_one_message() {
    let lines = script::script(|mut call| async move {
        let id = call.request.id();
        call.bytes(format!(
            "data: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":{id},\ndata:\"result\":{{\"content\":[]}}}}\n\n"
        ));
    });
    let upstream = Upstream::builder().tool("lines", lines).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let answer = gate.client().open().await.call("lines", json!({})).await; // its reader refuses two data lines
    assert_eq!(answer.result(), &json!({"content": []}));
}

#[tokio::test]
async fn b75_events_are_relayed_as_they_come() {
    let latch = Latch::new();
    let door = latch.clone();
    let talker = script::script(move |mut call| {
        let door = door.clone();
        async move {
            call.notify("notifications/message", &json!({"level": "info", "data": "early"}));
            door.passed().await;
            call.say("late");
        }
    });
    let upstream = Upstream::builder().tool("talker", talker).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let mut events = client.post(client.body("1", "tools/call", json!({"name": "talker"}))).await.events();
    assert_eq!(events.message().await.unwrap()["params"]["data"], "early");
    latch.open();
    assert_eq!(events.message().await.unwrap()["result"]["content"][0]["text"], "late");
    assert!(events.next().await.is_none());
}

/// Opens with an event id, then closes; the answer comes on the second resume.
fn resumed() -> (Script, Script) {
    let start = script::script(|mut call| async move {
        call.bytes("id: e1\nretry: 20\ndata: \n\n");
        sleep(ms(20)).await;
        call.end();
    });
    let resume = script::script(|mut call| async move {
        call.open();
        if call.before > 0 {
            sleep(ms(20)).await;
            call.bytes("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"at last\"}]}}\n\n");
        }
        call.end();
    });
    (start, resume)
}

#[tokio::test]
async fn b77_a_stream_that_ends_early_is_resumed() {
    for config in [PATIENT, "[tasks]\nthreshold = \"1ms\""] {
        let (start, resume) = resumed();
        let upstream = Upstream::builder().tool("resumed", start).resume(resume).start().await;
        let gate = Gate::start(&upstream, config).await;
        let client = gate.client().open().await;
        let answer = client.call_as("1", "resumed", json!({})).await;
        let is_ours = |id: &str| !["e1", "e2"].contains(&id);
        assert!(answer.events.iter().filter_map(|event| event.id.as_deref()).all(is_ours), "{:?}", answer.events);
        let text = if config == PATIENT {
            answer.text().to_owned()
        } else {
            client.job_end(&answer.job()).await.block(1).to_owned()
        };
        assert_eq!(text, "at last");
        // The session's own stream is asked for once, when a call goes to the background.
        let gets = upstream.resumes();
        let cursors: Vec<_> = gets.iter().map(|get| get.header("last-event-id")).collect();
        assert_eq!(cursors, [Some("e1"), Some("e1")]);
        assert!(gets[1].at - gets[0].at >= ms(20), "`retry` is honoured");
        assert!(gets.iter().all(|get| get.session() == client.session.as_deref()));
        assert_eq!(upstream.calls("resumed").len(), 1);
    }
}

#[tokio::test]
async fn b77_resuming_is_bounded_and_needs_an_id() {
    let mute = script::script(|mut call| async move {
        call.bytes(": nothing to resume from\n\n");
        call.end();
    });
    let upstream = Upstream::builder().tool("mute", mute).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let answer = gate.client().open().await.call("mute", json!({})).await;
    assert_eq!(answer.reason(), "outcome_unknown");
    assert!(upstream.http("GET").is_empty());

    let empty = script::script(|mut call| async move {
        call.open();
        call.end();
    });
    let upstream = Upstream::builder().tool("resumed", resumed().0).resume(empty).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let answer = Answer::read(client.post(client.body("1", "tools/call", json!({"name": "resumed"}))).await).await;
    assert_eq!(answer.reason(), "outcome_unknown", "{}", answer.raw);
    assert!((1..50).contains(&upstream.http("GET").len()), "{} resumes", upstream.http("GET").len());
    eventually("no call was made twice", || upstream.calls("resumed").len() == 1).await;
}
