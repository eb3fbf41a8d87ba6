//! Batches of 2025-03-26: what a client puts into one request is served as if each message had come alone.
//!
//! Answers come in any order, so stories look them up by their id.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ids::IDS;
use crate::support::client::{Answer, Client, text_request};
use crate::support::upstream::{Builder, Recorded, id_of, script};
use crate::support::{Gate, Latch, Upstream, eventually, ms, throughout};

/// Neither a threshold nor a sign of life comes into the way.
const CALM: &str = "[server]\nkeepalive = \"30s\"\n[tasks]\nthreshold = \"30s\"\n";

fn call(id: &str, tool: &str, arguments: &Value) -> String {
    text_request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(", "))
}

async fn opened(gate: &Gate) -> Client {
    gate.client().version("2025-03-26").open().await
}

/// The messages of a JSON array as they are written, by the text of their id.
fn by_id(answer: &Answer) -> BTreeMap<String, Value> {
    assert!(!answer.sse, "an event stream: {}", answer.raw);
    let messages: Vec<Box<serde_json::value::RawValue>> =
        serde_json::from_str(&answer.raw).unwrap_or_else(|error| panic!("{error}: {} {:?}", answer.status, answer.raw));
    let count = messages.len();
    let by_id: BTreeMap<_, _> =
        messages.iter().map(|raw| (id_of(raw.get()), serde_json::from_str(raw.get()).unwrap())).collect();
    assert_eq!(by_id.len(), count, "an id twice: {}", answer.raw);
    by_id
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {message}"))
}

fn note(message: &Value) -> Value {
    serde_json::from_str(text(message)).unwrap_or_else(|error| panic!("{error}: {message}"))
}

fn upstream() -> Builder {
    Upstream::builder().tool("echo", script::echo())
}

#[tokio::test]
async fn fast_answers_are_one_array() {
    let upstream = upstream().header("x-answer", "yes").start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let messages = [
        call("1", "echo", &json!({"text": "a"})),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).to_string(),
        call("\"x\"", "echo", &json!({"text": "b"})),
        text_request("3", "ping", &json!({})),
        call("4", "missing", &json!({})),
    ];
    let answer = client.ask(batch(&messages)).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(answer.header("x-answer"), Some("yes"));
    let answers = by_id(&answer);
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["\"x\"", "1", "3", "4"]);
    assert_eq!((text(&answers["1"]), text(&answers["\"x\""])), ("a", "b"));
    assert_eq!(answers["3"]["result"], json!({}));
    assert!(answers["4"].get("error").is_some(), "{}", answer.raw);
    assert_eq!(upstream.of("notifications/roots/list_changed").len(), 1);
    assert!(upstream.all().iter().all(|request| !request.body.starts_with('[')), "each message on its own");
}

#[tokio::test]
async fn a_client_without_a_session_or_a_version_is_served_too() {
    let upstream = upstream().without_sessions().start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = gate.client().version("");
    let answer = client.ask(format!(" \n{}", batch(&[call("1", "echo", &json!({"text": "a"}))]))).await;
    assert_eq!(text(&by_id(&answer)["1"]), "a");
}

#[tokio::test]
async fn the_version_of_the_session_decides() {
    let upstream = upstream().version("2025-03-26").start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = gate.client().version("2025-06-18").open().await;
    let answer = client.ask(batch(&[call("1", "echo", &json!({"text": "a"}))])).await;
    assert_eq!(text(&by_id(&answer)["1"]), "a");
}

#[tokio::test]
async fn a_slow_call_ends_in_a_handle() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"30s\"").await;
    let client = opened(&gate).await;
    let messages = [call("1", "slow", &json!({})), text_request("2", "tools/list", &json!({}))];
    let answers = by_id(&client.ask(batch(&messages)).await);
    let handle = note(&answers["1"]);
    assert_eq!(handle["status"], "running");
    let tools = answers["2"]["result"]["tools"].as_array().unwrap().clone();
    assert!(tools.iter().any(|tool| tool["name"] == "get_job_result"), "{tools:?}");

    latch.open();
    let read = call("1", "get_job_result", &json!({"job_id": handle["job_id"], "wait_s": 5}));
    let unknown = call("2", "get_job_result", &json!({"job_id": "?"}));
    let answers = by_id(&client.ask(batch(&[read, unknown])).await);
    assert_eq!(answers["1"]["result"]["content"][1]["text"], "late");
    assert_eq!(note(&answers["2"])["status"], "not_found");
}

#[tokio::test]
async fn an_extension_client_gets_a_task_and_reads_it() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"30s\"").await;
    let client = gate.client().version("2025-03-26").extension().open().await;
    let answers = by_id(&client.ask(batch(&[call("7", "slow", &json!({}))])).await);
    let task = answers["7"]["result"]["taskId"].clone();
    let messages = [
        text_request("1", "tasks/get", &json!({"taskId": task})),
        text_request("2", "tasks/get", &json!({"taskId": "?"})),
    ];
    let answers = by_id(&client.ask(batch(&messages)).await);
    assert_eq!(answers["1"]["result"]["status"], "working");
    assert_eq!(answers["2"]["error"]["code"], -32602);
    latch.open();
}

#[tokio::test]
async fn a_slow_call_holds_up_no_other() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"60ms\"\n[tasks]\nthreshold = \"30s\"").await;
    let client = opened(&gate).await;
    let started = Instant::now();
    let messages = [call("1", "slow", &json!({})), call("\"2\"", "echo", &json!({"text": "soon"}))];
    let reply = client.post(batch(&messages)).await;
    assert_eq!((reply.status, reply.header("x-accel-buffering")), (200, Some("no")));
    let mut events = reply.events();
    let first = events.message().await.unwrap();
    assert_eq!((&first["id"], text(&first)), (&json!("2"), "soon"));
    assert!(started.elapsed() >= ms(60), "nothing is sent before keepalive");
    let mut comments = 0;
    while comments < 2 {
        let event = events.next().await.expect("the stream goes on");
        assert!(event.data.is_none(), "{event:?}");
        comments += usize::from(event.comment.is_some());
    }
    latch.open();
    let second = events.message().await.unwrap();
    assert_eq!((&second["id"], text(&second)), (&json!(1), "late"));
    assert!(events.message().await.is_none());
}

#[tokio::test]
async fn a_client_that_reads_only_json_waits_for_all() {
    let upstream = upstream().tool("slow", script::after(ms(80), "late")).start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"20ms\"\n[tasks]\nthreshold = \"30s\"").await;
    for accept in ["application/json", "*/*"] {
        let client = gate.client().version("2025-03-26").accept(accept).open().await;
        let messages = [call("1", "slow", &json!({})), call("2", "echo", &json!({"text": "soon"}))];
        let answers = by_id(&client.ask(batch(&messages)).await);
        assert_eq!((text(&answers["1"]), text(&answers["2"])), ("late", "soon"), "{accept}");
    }
}

#[tokio::test]
async fn progress_is_relayed_ahead_of_the_answers() {
    let latch = Latch::new();
    let door = latch.clone();
    let talker = script::script(move |mut call| {
        let door = door.clone();
        async move {
            call.bytes("id: e1\nretry: 20\ndata: \n\n");
            call.progress(1.0, 2.0, "half");
            door.passed().await;
            call.say("done");
        }
    });
    let upstream = upstream().tool("talker", talker).header("x-answer", "yes").start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let params = json!({"name": "talker", "arguments": {}, "_meta": {"progressToken": "p"}});
    let messages = [text_request("1", "tools/call", &params), call("2", "echo", &json!({"text": "x"}))];
    let reply = client.post(batch(&messages)).await;
    assert_eq!(reply.header("x-answer"), Some("yes"));
    let mut events = reply.events();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let event = events.next().await.unwrap();
        assert!(event.id.is_none() && event.retry.is_none(), "what cannot be resumed has no ids: {event:?}");
        let message = event.json();
        seen.push(if message["method"] == "notifications/progress" {
            "progress".into()
        } else {
            message["id"].to_string()
        });
    }
    seen.sort();
    assert_eq!(seen, ["2", "progress"]);
    latch.open();
    assert_eq!(text(&events.message().await.unwrap()), "done");
    assert!(events.message().await.is_none());
}

#[tokio::test]
async fn a_question_is_answered_in_a_batch() {
    let asker = script::script(|mut call| async move {
        let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "name?"})).await;
        let said = answer["result"]["content"]["name"].as_str().unwrap_or("declined").to_owned();
        call.say(&said);
    });
    let upstream = upstream().tool("asker", asker).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let messages = [call("1", "asker", &json!({})), call("2", "echo", &json!({"text": "x"}))];
    let mut events = client.post(batch(&messages)).await.events();
    let mut other = None;
    let question = loop {
        let message = events.message().await.unwrap();
        if message["method"] == "elicitation/create" {
            break message;
        }
        other = Some(message);
    };
    let answered =
        json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let delivered = client.ask(batch(&[answered.to_string(), progress.to_string()])).await;
    assert_eq!((delivered.status, delivered.raw.as_str()), (202, ""));
    let mut rest: Vec<_> = other.into_iter().collect();
    while let Some(message) = events.message().await {
        rest.push(message);
    }
    assert!(rest.iter().any(|message| message["id"] == 1 && text(message) == "Ada"), "{rest:?}");
    assert_eq!(rest.len(), 2, "{rest:?}");
}

#[tokio::test]
async fn nobody_is_asked_who_reads_only_json() {
    let asker = script::script(|mut call| async move {
        let answer = call.ask(&json!("q"), "elicitation/create", &json!({"message": "name?"})).await;
        let said = answer["result"]["action"].as_str().unwrap_or_default().to_owned();
        call.say(&said);
    });
    let upstream = upstream().tool("asker", asker).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    for accept in ["application/json", "*/*"] {
        let client = gate.client().version("2025-03-26").accept(accept).open().await;
        let answer =
            client.ask(batch(&[call("1", "asker", &json!({})), call("2", "echo", &json!({"text": "x"}))])).await;
        assert_eq!(text(&by_id(&answer)["1"]), "decline", "{accept}");
        assert_eq!(client.call("asker", json!({})).await.text(), "decline", "{accept}, alone");
    }
}

#[tokio::test]
async fn notifications_and_responses_alone_are_accepted() {
    let upstream = upstream().start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let messages = [
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).to_string(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}).to_string(),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}).to_string(),
    ];
    let answer = client.ask(batch(&messages)).await;
    assert_eq!((answer.status, answer.raw.as_str()), (202, ""));
    let seen: Vec<_> = upstream.all().iter().rev().take(3).map(|request| request.body.clone()).collect();
    assert!(messages.iter().all(|message| seen.contains(message)), "{seen:?}");
    client.delete().await;
    assert_eq!(client.ask(batch(&messages)).await.status, 404, "what befalls all is said");
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_sent() {
    let upstream = upstream().start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let before = upstream.all().len();
    let good = call("1", "echo", &json!({"text": "a"}));
    let many: Vec<_> = (0..101).map(|id| text_request(&id.to_string(), "ping", &json!({}))).collect();
    for (body, code, word) in [
        (
            batch(&[good.clone(), call("\"1\"", "echo", &json!({}))]),
            -32600,
            "messages 1 and 2 of the batch have the same id",
        ),
        (batch(&[good.clone(), text_request("2", "initialize", &json!({}))]), -32600, "initialize"),
        ("[]".to_owned(), -32600, "at least one"),
        (batch(&[good.clone(), "7".to_owned()]), -32600, "message 2"),
        (batch(&[good.clone(), batch(&[call("2", "echo", &json!({}))])]), -32600, "message 2"),
        (batch(&[good.clone(), r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_owned()]), -32600, "message 2"),
        (batch(&[good.clone(), r#"{"jsonrpc":"2.0","id":2}"#.to_owned()]), -32600, "message 2"),
        (format!("[{good},"), -32700, "not valid JSON"),
        (format!("[{good}] x"), -32700, "not valid JSON"),
        (batch(&many), -32600, "at most 100"),
    ] {
        let answer = client.ask(body.clone()).await;
        assert_eq!((answer.status, answer.code()), (400, code), "{body}: {}", answer.raw);
        assert_eq!(answer.json["id"], Value::Null);
        assert!(answer.error()["message"].as_str().unwrap().contains(word), "{body}: {}", answer.raw);
    }
    assert_eq!(upstream.all().len(), before, "nothing of it went upstream");
    let most = client.ask(batch(&many[..100])).await;
    assert_eq!(by_id(&most).len(), 100);
}

#[tokio::test]
async fn other_versions_have_no_batches() {
    let upstream = upstream().without_sessions().start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    for (version, body) in [
        ("2025-06-18", batch(&[text_request("1", "ping", &json!({}))])),
        ("2025-11-25", batch(&[text_request("1", "ping", &json!({}))])),
        ("2026-07-28", batch(&[text_request("1", "ping", &json!({}))])),
        ("", batch(&[text_request("1", "ping", &meta)])),
        ("", batch(&[text_request("1", "server/discover", &json!({}))])),
    ] {
        let refused = gate.client().version(version).ask(body).await;
        assert_eq!((refused.status, refused.code()), (400, -32600), "{version}");
    }
    assert!(upstream.all().is_empty());
}

#[tokio::test]
async fn a_cancelled_call_is_left_out() {
    let upstream = upstream().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let meddling = async {
        eventually("it is upstream", || upstream.calls("endless").len() == 1).await;
        assert_eq!(client.cancelled(&json!(1)).await.status, 202);
    };
    let messages = [call("1", "endless", &json!({})), call("2", "echo", &json!({"text": "x"}))];
    let (answer, ()) = tokio::join!(client.ask(batch(&messages)), meddling);
    assert_eq!(by_id(&answer).into_keys().collect::<Vec<_>>(), ["2"]);
    assert_eq!(upstream.cancels().len(), 1);

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}});
    let answer = client.ask(batch(&[call("3", "endless", &json!({})), cancel.to_string()])).await;
    assert_eq!((answer.status, answer.raw.as_str()), (200, ""), "a silent end");
}

#[tokio::test]
async fn leaving_a_batch_leaves_its_calls_to_go_on() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"\nthreshold = \"200ms\"").await;
    let client = opened(&gate).await;
    let messages = [call("1", "slow", &json!({"text": "a"})), call("2", "slow", &json!({"text": "b"}))];
    tokio::select! {
        _ = client.ask(batch(&messages)) => panic!("it is held"),
        () = eventually("both are upstream", || upstream.calls("slow").len() == 2) => {}
    }
    throughout(ms(300), "the calls go on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty()).await;
    let listed = client.call("list_jobs", json!({})).await.raw;
    assert_eq!(listed.matches("job_id\\\"").count(), 2, "each is a job of its owner now: {listed}");
    latch.open();
}

#[tokio::test]
async fn an_error_that_all_share_is_the_status() {
    let locked = script::responds(401, &[("www-authenticate", "Bearer realm=\"x\"")], b"who are you");
    let upstream = upstream().without_sessions().tool("locked", locked).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = gate.client().version("2025-03-26");
    let all = client.ask(batch(&[call("1", "locked", &json!({})), call("2", "locked", &json!({}))])).await;
    assert_eq!((all.status, all.header("www-authenticate")), (401, Some("Bearer realm=\"x\"")));
    let answers = by_id(&all);
    assert_eq!(answers["1"]["error"]["data"]["status"], 401, "{}", all.raw);
    assert_eq!(answers.len(), 2);
    let some = client.ask(batch(&[call("1", "locked", &json!({})), call("2", "echo", &json!({"text": "x"}))])).await;
    assert_eq!(some.status, 200);
    let answers = by_id(&some);
    assert_eq!((text(&answers["2"]), &answers["1"]["error"]["code"]), ("x", &json!(-32603)));
}

#[tokio::test]
async fn large_answers_are_collected_up_to_the_limit() {
    let large = script::script(|mut call| async move {
        let letters = usize::try_from(call.arg("letters").as_u64().unwrap()).unwrap();
        call.say(&"x".repeat(letters));
    });
    let upstream = upstream().tool("large", large).start().await;
    let gate = Gate::start(&upstream, &format!("{CALM}max_result = \"1MiB\"")).await;
    let client = opened(&gate).await;
    let sized = |id: &str, letters: u64| call(id, "large", &json!({"letters": letters}));
    let answer = client.ask(batch(&[sized("1", 10), sized("2", 900_000), sized("3", 2_000_000)])).await;
    let answers = by_id(&answer);
    assert_eq!((text(&answers["1"]).len(), text(&answers["2"]).len()), (10, 900_000));
    assert_eq!(answers["3"]["error"]["data"]["reason"], "too_large", "{:?}", answers["3"]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_spoils_no_other() {
    let broken = script::script(|mut call| async move {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"x":""#, call.request.id());
        call.begin(200, &[("content-type", "application/json")], head + &"x".repeat(400_000));
        call.cut().await;
    });
    let upstream = upstream().tool("broken", broken).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let answer = client.ask(batch(&[call("1", "broken", &json!({})), call("2", "echo", &json!({"text": "x"}))])).await;
    let answers = by_id(&answer);
    assert_eq!(answers["1"]["error"]["data"]["reason"], "outcome_unknown", "{}", answer.raw);
    assert_eq!(text(&answers["2"]), "x");
}

#[tokio::test]
async fn calls_are_refused_one_by_one_while_draining() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, "[server]\nkeepalive = \"30s\"\ndrain_timeout = \"8s\"").await;
    let client = opened(&gate).await;
    let job = client.call("slow", json!({})).await.job();
    gate.drain();
    let read = call("1", "get_job_result", &json!({"job_id": job, "wait_s": 0}));
    let answers = by_id(&client.ask(batch(&[read, call("2", "echo", &json!({"text": "x"}))])).await);
    assert_eq!(note(&answers["1"])["status"], "running");
    assert_eq!(answers["2"]["error"]["data"]["reason"], "shutting_down");
    assert!(upstream.calls("echo").is_empty());
    latch.open();
}

#[tokio::test]
async fn b13_an_id_in_flight_is_not_used_twice() {
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = opened(&gate).await;
    let second = async {
        eventually("the first is there", || upstream.calls("slow").len() == 1).await;
        let answer = client.ask(batch(&[call("1", "echo", &json!({"text": "x"}))])).await;
        latch.open();
        answer
    };
    let (slow, fast) = tokio::join!(client.ask(batch(&[call("1", "slow", &json!({}))])), second);
    assert_eq!((text(&by_id(&slow)["1"]), text(&by_id(&fast)["1"])), ("late", "x"));
    assert_ne!(upstream.calls("echo")[0].id(), "1");
}

#[tokio::test]
async fn b14_same_ids_from_different_clients() {
    let upstream = Upstream::builder().without_sessions().tool("who", script::who()).start().await;
    let gate = Gate::start(&upstream, CALM).await;
    let client = |token| gate.client().version("2025-03-26").bearer(token);
    let (u, v) = (client("U"), client("V"));
    for wait in 0..20 {
        let messages = [call("1", "who", &json!({"ms": wait % 4})), call("2", "who", &json!({"ms": 3 - wait % 4}))];
        let (one, two) = tokio::join!(u.ask(batch(&messages)), v.ask(batch(&messages)));
        for (answer, expected) in [(one, "Bearer U"), (two, "Bearer V")] {
            let answers = by_id(&answer);
            assert_eq!((text(&answers["1"]), text(&answers["2"])), (expected, expected));
        }
    }
    assert_eq!(upstream.calls("who").len(), 80);
}

#[tokio::test]
async fn b15_ids_come_back_digit_for_digit() {
    let ids = &IDS[1..]; // `1` is changed on the way while `"1"` is in flight
    let latch = Latch::new();
    let upstream = upstream().tool("slow", script::held(&latch, "late")).start().await;
    let rule = "[server]\nkeepalive = \"30s\"\n[tasks]\nthreshold = \"30s\"\n[upstream]\n[[upstream.rule]]\ntool = \"slow\"\nthreshold = \"20ms\"";
    let gate = Gate::start(&upstream, rule).await;
    let client = opened(&gate).await;
    for (tool, arguments) in [
        ("echo", json!({"text": "x"})),
        ("slow", json!({})),
        ("missing", json!({})),
        ("get_job_result", json!({"job_id": "?"})),
        ("cancel_job", json!({"job_id": "?"})),
    ] {
        let messages: Vec<_> = ids.iter().map(|id| call(id, tool, &arguments)).collect();
        let answer = client.ask(batch(&messages)).await;
        let answers = by_id(&answer);
        for id in ids {
            assert!(answers.contains_key(*id), "{tool}: no {id} in {}", answer.raw);
        }
        assert_eq!(answers.len(), ids.len());
    }
    let seen: Vec<_> = upstream.calls("echo").iter().map(Recorded::id).collect();
    assert!(ids.iter().all(|id| seen.iter().any(|seen| seen == id)), "changed on the way: {seen:?}");
    latch.open();
}
