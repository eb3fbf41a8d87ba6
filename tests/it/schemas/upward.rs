//! What taskgate says to the upstream on its own: cancellations, and answers for a client that is not asked.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::schema::{self, REVISIONS, assert_error_message, assert_valid};
use crate::support::upstream::{Call, script};
use crate::support::{Gate, Upstream, eventually, ms, soon};

#[tokio::test]
async fn cancellations() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"endless\"\nmax_runtime = \"200ms\"";
    let gate = Gate::start(&upstream, rule).await;
    for (count, revision) in (1..).zip(REVISIONS) {
        let client = gate.client().version(revision).extension().open().await;
        let task = client.call("endless", json!({})).await.task();
        client.cancel_task(&task).await.result();
        client.call("endless", json!({})).await.task(); // runs too long
        eventually("the upstream is told of both", || upstream.cancels().len() == 2 * count).await;
        for cancel in upstream.cancels() {
            assert_valid(revision, "CancelledNotification", &cancel.json);
        }
    }
}

/// Asks everything that can be asked, well after the handle.
async fn ask_everything(mut call: Call) {
    sleep(ms(150)).await;
    let text = json!({"role": "user", "content": {"type": "text", "text": "x"}});
    for (id, method, params) in [
        ("p", "ping", json!({})),
        ("e", "elicitation/create", json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}})),
        ("s", "sampling/createMessage", json!({"messages": [text], "maxTokens": 1})),
        ("r", "roots/list", json!({})),
    ] {
        call.ask(&json!(id), method, &params).await;
    }
    call.say("asked");
}

/// Judges what the upstream was answered.
#[track_caller]
fn assert_answers(revision: &str, upstream: &Upstream) {
    let answers: Vec<Value> = upstream.answers().into_iter().map(|answer| answer.json).collect();
    assert_eq!(answers.len(), 4, "{answers:?}");
    for answer in &answers {
        if answer.get("error").is_some() {
            assert_error_message(revision, answer);
            continue;
        }
        let response = if revision < "2025-11-25" { "JSONRPCResponse" } else { "JSONRPCResultResponse" };
        assert_valid(revision, response, answer);
        if answer["id"] == "e" && revision > "2025-03-26" {
            assert_valid(revision, "ElicitResult", &answer["result"]);
        }
    }
}

#[tokio::test]
async fn answers_for_a_client_that_cannot_be_asked_and_for_one_that_does_not_answer() {
    if !schema::available() {
        return;
    }
    for revision in REVISIONS {
        for abilities in [json!({}), json!({"elicitation": {}, "sampling": {}, "roots": {}})] {
            let upstream = Upstream::builder().tool("curious", script::script(ask_everything)).start().await;
            let gate = Gate::start(&upstream, "[tasks]\ninput_timeout = \"50ms\"").await;
            let client = gate.client().version(revision).capabilities(abilities).open().await;
            let job = client.call("curious", json!({})).await.job();
            let end = soon("the end", client.job_end(&job)).await;
            assert_eq!(end.block(1), "asked");
            assert_answers(revision, &upstream);
        }
    }
}
