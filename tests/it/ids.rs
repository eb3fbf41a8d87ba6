//! JSON-RPC ids: whatever a client thinks of comes back as it was, to the one who asked.
//!
//! Correlation is by exchange; ids are only text on the way.

use serde_json::{Value, json};

use crate::support::upstream::{Recorded, id_of, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms, throughout};

#[tokio::test]
async fn b13_same_id_twice_in_flight() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("slow", script::echo_held(&latch)).tool("fast", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let second = async {
        eventually("the first is there", || upstream.calls("slow").len() == 1).await;
        let answers = (
            client.call_as("1", "fast", json!({"text": "B"})).await,
            client.call_as("\"1\"", "fast", json!({"text": "C"})).await,
        );
        latch.open();
        answers
    };
    let (slow, (fast, quoted)) = tokio::join!(client.call_as("1", "slow", json!({"text": "A"})), second);
    assert_eq!((slow.text(), fast.text(), quoted.text()), ("A", "B", "C"));
    assert_eq!(
        (slow.json["id"].clone(), fast.json["id"].clone(), quoted.json["id"].clone()),
        (json!(1), json!(1), json!("1"))
    );
    assert_eq!(upstream.calls("slow")[0].id(), "1", "an id that is free is kept");
    for call in upstream.calls("fast") {
        assert_ne!(call.id().trim_matches('"'), "1", "an id in flight is not used twice");
    }
}

#[tokio::test]
async fn b13_same_id_twice_in_the_background() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let call = |text: &'static str| client.call_as("1", "slow", json!({"text": text}));
    let (first, second) = tokio::join!(call("A"), call("B"));
    let (first, second) = (first.job(), second.job());
    assert_ne!(first, second);
    let ids: Vec<_> = upstream.calls("slow").iter().map(Recorded::id).collect();
    assert_ne!(ids[0].trim_matches('"'), ids[1].trim_matches('"'));
    latch.open();
    assert_eq!(client.job_end(&first).await.block(1), "A");
    assert_eq!(client.job_end(&second).await.block(1), "B");
}

#[tokio::test]
async fn b13_cancelling_one_of_two_held_calls_is_ambiguous() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let call = |text: &'static str| client.call_as("1", "slow", json!({"text": text}));
    let meddling = async {
        eventually("both run", || upstream.calls("slow").len() == 2).await;
        assert_eq!(client.cancelled(&json!(1)).await.status, 202);
        throughout(ms(100), "nothing is cancelled", || upstream.cancels().is_empty()).await;
        latch.open();
    };
    let (first, second, ()) = tokio::join!(call("A"), call("B"), meddling);
    assert_eq!((first.text(), second.text()), ("A", "B"));
    assert!(upstream.disconnects().is_empty());
}

#[tokio::test]
async fn b14_same_id_from_different_clients() {
    let upstream = Upstream::builder().without_sessions().tool("who", script::who()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (u, v) = (gate.client().bearer("U"), gate.client().bearer("V"));
    for wait in 0..40 {
        let arguments = json!({"ms": wait % 4});
        let (one, two) =
            tokio::join!(u.call_as("1", "who", arguments.clone()), v.call_as("1", "who", arguments.clone()));
        assert_eq!((one.text(), two.text()), ("Bearer U", "Bearer V"));
    }
    assert_eq!(upstream.calls("who").len(), 80);
}

/// Ids of every kind, as they are written.
pub const IDS: [&str; 9] = [
    "1",
    "\"1\"",
    "0",
    "-1",
    "\"\"",
    "\"日本\"",
    "\"0123456789012345678901234567890123456789\"",
    "9007199254740993",
    "\"a\\u0000\\/b\"",
];

#[tokio::test]
async fn b15_ids_come_back_digit_for_digit() {
    let latch = Latch::new();
    let upstream =
        Upstream::builder().tool("fast", script::says("x")).tool("slow", script::held(&latch, "y")).start().await;
    let rule = "[tasks]\nthreshold = \"30s\"\n[upstream]\n[[upstream.rule]]\ntool = \"slow\"\nthreshold = \"20ms\"";
    let gate = Gate::start(&upstream, rule).await;
    let plain = gate.client().open().await;
    let ext = gate.client().extension().open().await;
    let quiet = gate.client().open().await;
    for id in IDS {
        let handle = plain.call_as(id, "slow", json!({})).await;
        let task = ext.call_as(id, "slow", json!({})).await;
        let answers = [
            quiet.call_as(id, "fast", json!({})).await,
            plain.call_as(id, "fast", json!({})).await,
            plain.call_as(id, "missing", json!({})).await,
            plain.call_as(id, "get_job_result", json!({"job_id": "?"})).await,
            plain.call_as(id, "cancel_job", json!({"job_id": handle.job()})).await,
            ext.ask(ext.body(id, "tasks/get", json!({"taskId": task.task()}))).await,
            ext.ask(ext.body(id, "tasks/get", json!({"taskId": "?"}))).await,
            ext.ask(ext.body(id, "tasks/cancel", json!({"taskId": task.task()}))).await,
            handle,
            task,
        ];
        for answer in answers {
            assert_eq!(id_of(&answer.raw), id, "{}", answer.raw);
        }
        assert!(upstream.calls("fast").iter().any(|call| call.id() == id), "{id} was changed on the way");
    }
}

#[tokio::test]
async fn b15_ids_that_are_none_are_refused() {
    let upstream = Upstream::builder().tool("fast", script::says("x")).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let before = upstream.all().len();
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"fast"}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"fast"}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, -32700),
        ("7", -32600),
    ] {
        let answer = client.ask(body.to_owned()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!([code, -32600, -32700].contains(&answer.code()), "{body}: {}", answer.raw);
        assert_eq!(answer.json["jsonrpc"], "2.0");
        assert_ne!(answer.json.get("result"), Some(&Value::Null), "{}", answer.raw);
    }
    assert_eq!(upstream.all().len(), before, "nothing of it went upstream");
}
