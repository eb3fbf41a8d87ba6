//! What passes through unchanged: numbers, unknown fields, large bodies, headers; and what must not pass.
//!
//! taskgate edits the fields that it owns, and nothing else.

use serde_json::{Value, json};

use crate::support::client::{H2, text_request};
use crate::support::upstream::script::{self, Script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

const NUMBERS: &str =
    "[9007199254740993,1915883588174806058,-8504475857937456387,1.0,1e400,-0,0.1000000000000000055511,1E5]";

/// Answers with the numbers, at once or when the latch opens.
fn numbers(latch: &Latch) -> Script {
    script::held_then(latch, |mut call| async move {
        let text = format!(
            r#"{{"content":[{{"type":"text","text":"n"}}],"structuredContent":{{"n":{NUMBERS}}},"x-new":{NUMBERS},"_meta":{{"v/n":1.50}}}}"#
        );
        call.result_text(&text);
    })
}

#[tokio::test]
async fn b83_numbers_keep_their_spelling_inline() {
    let latch = Latch::new();
    latch.open();
    for sse in [false, true] {
        let builder = Upstream::builder().tool("n", numbers(&latch));
        let upstream = if sse { builder.sse() } else { builder }.start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let client = gate.client().open().await;
        let params = format!(r#"{{"name":"n", "x-new":{NUMBERS},  "arguments":{{"n":{NUMBERS}}}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let answer = client.ask(body).await;
        let expected = format!(r#""structuredContent":{{"n":{NUMBERS}}},"x-new":{NUMBERS},"_meta":{{"v/n":1.50}}"#);
        assert!(answer.raw.contains(&expected), "{}", answer.raw);
        let seen = &upstream.of("tools/call")[0].body;
        assert!(seen.contains(&format!(r#""x-new":{NUMBERS},  "arguments":{{"n":{NUMBERS}}}"#)), "{seen}");
    }
}

#[tokio::test]
async fn b83_numbers_keep_their_spelling_in_the_store() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("n", numbers(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let (plain, ext) = (gate.client().open().await, gate.client().extension().open().await);
    let job = plain.call("n", json!({})).await.job();
    let task = ext.call("n", json!({})).await.task();
    latch.open();
    let end = plain.job_end(&job).await;
    assert!(end.raw.contains(&format!(r#""structuredContent":{{"n":{NUMBERS}}}"#)), "{}", end.raw);
    assert!(end.raw.contains(r#""v/n":1.50"#), "{}", end.raw);
    ext.job_end(&task).await;
    let end = ext.ask(text_request("1", "tasks/get", &json!({"taskId": task}))).await;
    let whole = format!(
        r#""result":{{"content":[{{"type":"text","text":"n"}}],"structuredContent":{{"n":{NUMBERS}}},"x-new":{NUMBERS},"_meta":{{"v/n":1.50}}}}"#
    );
    assert!(end.raw.contains(&whole), "{}", end.raw);
}

#[tokio::test]
async fn b83_what_is_not_acted_on_is_byte_identical() {
    let odd = r#"{ "contents" : [ {"uri":"x://1","text":"é \/"} ],"n":1e400 }"#;
    let upstream = Upstream::builder().on("resources/read", script::answers(odd)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let body = "{ \"method\":\"resources/read\", \"params\": {\"uri\":\"x:\\/\\/1\", \"n\":-0 },\n\"id\" : 5,\"jsonrpc\":\"2.0\" }";
    let answer = client.ask(body.to_owned()).await;
    assert_eq!(answer.raw, format!(r#"{{"jsonrpc":"2.0","id":5,"result":{odd}}}"#));
    assert_eq!(upstream.of("resources/read")[0].body, body);
}

#[tokio::test]
async fn b84_unknown_fields_stay() {
    let more = json!({"title": "T", "annotations": {"x": 1}, "icons": [{"src": "data:,"}], "execution": {"x": true},
        "_meta": {"a/b": [1]}, "x-vendor": {"deep": [null]}});
    let result = r#"{"content":[{"type":"hologram","depth":3},{"type":"text","text":"t","annotations":{"q":1}}],"_meta":{"m":{}},"x":[]}"#;
    let upstream = Upstream::builder()
        .tool_with("odd", &more, script::answers(result))
        .capabilities(json!({"tools": {"listChanged": true, "x": 1}, "logging": {}, "experimental": {"y": {}}}))
        .instructions("Be brief.")
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let mut client = gate.client();
    let hello = client.hello().await;
    assert_eq!(hello.result()["capabilities"]["tools"], json!({"listChanged": true, "x": 1}));
    assert_eq!(hello.result()["capabilities"]["experimental"], json!({"y": {}}));
    assert_eq!(hello.result()["instructions"], "Be brief.");
    let list = client.tools().await;
    let odd = &list.result()["tools"][0];
    for (key, value) in more.as_object().unwrap().iter().filter(|(key, _)| *key != "execution") {
        assert_eq!(&odd[key], value, "{key}");
    }
    assert_eq!(odd["execution"], json!({"taskSupport": "optional", "x": true}), "edited, the rest stays");
    let answer = client.call("odd", json!({})).await;
    assert_eq!(answer.result(), &serde_json::from_str::<Value>(result).unwrap());
}

/// Answers with as many letters as its argument says, once the latch is open.
fn large(latch: &Latch) -> Script {
    script::held_then(latch, |mut call| async move {
        let letters = usize::try_from(call.arg("letters").as_u64().unwrap()).unwrap();
        let text = format!("{}-{}", call.arg("blob").as_str().map_or(0, str::len), "A".repeat(letters));
        call.say(&text);
    })
}

#[tokio::test]
async fn b85_large_bodies_pass_both_ways() {
    for sse in [false, true] {
        let latch = Latch::new();
        let builder = Upstream::builder().tool("large", large(&latch));
        let upstream = if sse { builder.sse() } else { builder }.start().await;
        let gate = Gate::start(&upstream, "").await;
        let (plain, ext) = (gate.client().open().await, gate.client().extension().open().await);
        let size = 3 << 20;
        let arguments = json!({"letters": size, "blob": "B".repeat(size)});
        let job = plain.call("large", arguments.clone()).await.job();
        let task = ext.call("large", arguments.clone()).await.task();
        latch.open();
        let texts = [
            plain.job_end(&job).await.block(1).to_owned(),
            ext.task_end(&task).await.result()["result"]["content"][0]["text"].as_str().unwrap().to_owned(),
            plain.outcome("large", arguments).await,
        ];
        for text in texts {
            assert!(text.starts_with(&format!("{size}-AAA")), "{}", &text[..20]);
            assert_eq!(text.len(), size + format!("{size}-").len());
        }
    }
}

#[tokio::test]
async fn b85_over_the_limits() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("large", large(&latch)).start().await;
    let gate = Gate::start(&upstream, "[server]\nmax_body = \"64KiB\"\n[tasks]\nmax_result = \"64KiB\"").await;
    let client = gate.client().extension().open().await;
    let refused = client.call("large", json!({"letters": 1, "blob": "B".repeat(100_000)})).await;
    assert_eq!(refused.status, 413);
    assert!(upstream.calls("large").is_empty());
    let task = client.call("large", json!({"letters": 100_000})).await.task();
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!(end.state(), "failed");
    assert_eq!(end.result()["error"]["data"]["reason"], "too_large", "{}", end.raw);
    assert!(end.result()["error"]["message"].as_str().unwrap().contains("too large"), "{}", end.raw);

    let streams = format!("{PATIENT}max_result = \"64KiB\"");
    let gate = Gate::start(&upstream, &streams).await;
    let inline = gate.client().open().await.call("large", json!({"letters": 2_000_000})).await;
    assert_eq!(inline.text().len(), 2_000_002, "what streams through has no limit");
}

#[tokio::test]
async fn b87_headers_that_pass_and_headers_that_do_not() {
    let baker = script::script(|mut call| async move {
        call.header("set-cookie", &format!("who={}; Path=/", call.arg("who").as_str().unwrap()));
        call.header("x-answer", "yes");
        call.say("baked");
    });
    let upstream = Upstream::builder().tool("bake", baker).tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (a, b) = (gate.client().open().await, gate.client().open().await);
    for (client, who) in [(&a, "a"), (&b, "b")] {
        let answer = client.call("bake", json!({"who": who})).await;
        assert_eq!((answer.header("set-cookie"), answer.header("x-answer")), (None, Some("yes")));
    }
    let odd = a.header("x-custom", "7").header("cookie", "mine=1").header("connection", "x-hop").header("x-hop", "1");
    let odd = odd.header("forwarded", "for=evil").header("x-forwarded-for", "6.6.6.6").header("te", "trailers");
    assert_eq!(odd.call("echo", json!({"text": "x"})).await.text(), "x");
    let seen = upstream.calls("echo").remove(0);
    assert_eq!(seen.header("x-custom"), Some("7"));
    assert_eq!(seen.header("host"), Some(upstream.addr().to_string().as_str()));
    for gone in ["x-hop", "forwarded", "te"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("cookie"), Some("who=a"), "the session's own cookie, never the client's or another's");
    assert!(!seen.header("x-forwarded-for").unwrap_or_default().contains("6.6.6.6"), "{:?}", seen.headers);
}

#[tokio::test]
async fn b87_authorization_passes_and_a_cancel_carries_the_latest() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let first = gate.client().bearer("old").extension().open().await;
    let task = first.call("endless", json!({})).await.task();
    assert_eq!(upstream.calls("endless")[0].header("authorization"), Some("Bearer old"));
    let rotated = gate.client().bearer("new").in_session(first.session.as_deref());
    assert_eq!(rotated.task(&task).await.state(), "working", "the upstream accepted it on that session");
    assert_eq!(rotated.cancel_task(&task).await.result(), &json!({"resultType": "complete"}));
    eventually("the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.cancels()[0].header("authorization"), Some("Bearer new"));

    let gate = Gate::start(&upstream, "[upstream]\nforward_authorization = false").await;
    gate.client().bearer("kept").open().await;
    let hello = upstream.of("initialize").pop().unwrap();
    assert_eq!(hello.header("authorization"), None);
}

#[tokio::test]
async fn b87_configured_headers_are_added() {
    let upstream = Upstream::builder().start().await;
    let gate = Gate::start(&upstream, "[upstream]\nheaders = { \"X-Api-Key\" = \"k\" }").await;
    gate.client().header("x-api-key", "theirs").open().await;
    assert_eq!(upstream.of("initialize")[0].header("x-api-key"), Some("k"));
}

#[tokio::test]
async fn b91_a_slow_call_blocks_nobody() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let others = async {
        eventually("it is held", || upstream.calls("slow").len() == 1).await;
        for number in 0..20 {
            let started = tokio::time::Instant::now();
            let text = number.to_string();
            assert_eq!(client.call("echo", json!({"text": text})).await.text(), text);
            client.request("ping", json!({})).await.result();
            client.tools().await.result();
            assert!(started.elapsed() < ms(1000), "{:?}", started.elapsed());
        }
        latch.open();
    };
    let (slow, ()) = tokio::join!(client.call("slow", json!({})), others);
    assert_eq!(slow.text(), "late");
}

#[tokio::test]
async fn b91_one_http2_connection_carries_everything_side_by_side() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::held(&latch, "late")).tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let session = gate.client().open().await.session.unwrap();
    let connection = H2::connect(gate.addr).await;
    let call = async |id: u64, tool: &str| {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session.as_str()),
        ];
        let params = json!({"name": tool, "arguments": {"text": id.to_string()}});
        connection.send("POST", &headers, text_request(&id.to_string(), "tools/call", &params)).await
    };
    let others = async {
        eventually("it is held", || upstream.calls("slow").len() == 1).await;
        for id in 1..=20 {
            let (status, body) = call(id, "echo").await;
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, &answer["id"]), (200, &json!(id)));
            assert_eq!(answer["result"]["content"][0]["text"], id.to_string());
        }
        latch.open();
    };
    let ((status, slow), ()) = tokio::join!(call(100, "slow"), others);
    assert!(status == 200 && slow.contains("late"), "{status} {slow}");
}
