//! Questions of a server: before the handle by an answer that asks and a retry, after it by the task.

use super::*;
use crate::support::upstream::{Get, Script};

const GO_ON: &str = r#"{"message":"go on?","requestedSchema":{"type":"object","properties":{}},"elicitationId":"e1"}"#;

fn question() -> Value {
    serde_json::from_str(GO_ON).expect("JSON")
}

/// Asks at once, works until the latch opens, says what was answered.
fn asks_first(latch: &Latch) -> Script {
    let latch = latch.clone();
    script::script(move |mut call| {
        let latch = latch.clone();
        async move {
            let answer = call.ask(&json!("q"), "elicitation/create", &question()).await;
            latch.passed().await;
            call.say(&answer["result"].to_string());
        }
    })
}

async fn asking(latch: &Latch, threshold_ms: u64) -> (Upstream, Gate) {
    let upstream = Upstream::builder().tool("ask", asks_first(latch)).start().await;
    let gate = bridged(&upstream, threshold_ms, "").await;
    (upstream, gate)
}

fn call(arguments: Value) -> Value {
    let mut params = json!({"name": "ask"});
    params["arguments"] = arguments;
    params
}

#[tokio::test]
async fn a_question_ends_the_request_and_its_retry_goes_on_with_the_call() {
    let latch = Latch::new();
    let (upstream, gate) = asking(&latch, 30_000).await;
    latch.open();
    for client in [plain(&gate), tasks(&gate)] {
        let first = client.call("ask", json!({"n": 1})).await;
        let (key, request) = asked(&first).remove(0);
        assert_eq!(request["method"], "elicitation/create");
        assert_eq!(request["params"]["message"], "go on?");
        assert!(request["params"].get("elicitationId").is_none());
        let answers = json!({key: {"action": "accept", "content": {"cells": 12}}});
        let done = client.retry("tools/call", call(json!({"n": 1})), &first, answers).await;
        assert_eq!(done.result()["resultType"], "complete");
        assert_eq!(done.text(), r#"{"action":"accept","content":{"cells":12}}"#);
    }
    assert_eq!(upstream.calls("ask").len(), 2, "a retry is no second call");
}

#[tokio::test]
async fn never_a_task_because_of_a_question_but_a_retry_may_become_one() {
    let latch = Latch::new();
    let (_upstream, gate) = asking(&latch, 60).await;
    let client = tasks(&gate);
    let first = client.call("ask", json!({})).await;
    let (key, _) = asked(&first).remove(0);
    tokio::time::sleep(ms(150)).await;
    gate.gauge("running_tasks", 0).await;
    let handle = client.retry("tools/call", call(json!({})), &first, json!({key: {"action": "decline"}})).await;
    assert_eq!(handle.result()["resultType"], "task", "{}", handle.raw);
    latch.open();
    let ended = client.task_end(&handle.task()).await;
    assert_eq!(ended.result()["result"]["content"][0]["text"], r#"{"action":"decline"}"#);
}

#[tokio::test]
async fn only_its_own_request_and_owner_come_back_to_a_call() {
    let latch = Latch::new();
    let (upstream, gate) = asking(&latch, 30_000).await;
    let client = tasks(&gate).bearer("a");
    let first = client.call("ask", json!({"n": 1})).await;
    let (key, _) = asked(&first).remove(0);
    let answers = json!({key: {"action": "accept", "content": {}}});
    let state = first.result()["requestState"].as_str().expect("a state").to_owned();
    let with = |state: &str, n: u64| {
        let mut params = call(json!({"n": n}));
        params["inputResponses"] = answers.clone();
        params["requestState"] = json!(state);
        params
    };
    let other = tasks(&gate).bearer("b");
    let nobody = tasks(&gate);
    for (client, params) in [
        (&client, with(&format!("{state}-TAMPERED"), 1)),
        (&client, with("", 1)),
        (&client, with(&state, 2)),
        (&other, with(&state, 1)),
        (&nobody, with(&state, 1)),
    ] {
        let refused = client.request("tools/call", params).await;
        assert_eq!((refused.status, refused.code()), (200, -32602), "{}", refused.raw);
    }
    assert!(upstream.answers().is_empty(), "the server was told nothing");
    latch.open();
    let done = client.retry("tools/call", call(json!({"n": 1})), &first, answers.clone()).await;
    assert_eq!(done.result()["resultType"], "complete");
    let late = client.retry("tools/call", call(json!({"n": 1})), &first, answers.clone()).await;
    assert_eq!(late.reason(), "outcome_unknown", "{}", late.raw);
}

#[tokio::test]
async fn a_state_that_is_no_text_starts_nothing() {
    let latch = Latch::new();
    let (upstream, gate) = asking(&latch, 30_000).await;
    let client = plain(&gate);
    for state in [json!(5), json!(null), json!({})] {
        let mut params = call(json!({}));
        params["requestState"] = state;
        assert_eq!(client.request("tools/call", params).await.code(), -32602);
    }
    assert!(upstream.calls("ask").is_empty());
}

#[tokio::test]
async fn of_two_retries_one_wins() {
    let latch = Latch::new();
    let (upstream, gate) = asking(&latch, 30_000).await;
    let client = plain(&gate);
    let first = client.call("ask", json!({})).await;
    let (key, _) = asked(&first).remove(0);
    let answers = json!({key: {"action": "accept", "content": {}}});
    let retry = || client.retry("tools/call", call(json!({})), &first, answers.clone());
    let both = async {
        let (one, two) = tokio::join!(retry(), async {
            eventually("the first is through", || !upstream.answers().is_empty()).await;
            let two = retry().await;
            latch.open();
            two
        });
        (one, two)
    };
    let (one, two) = both.await;
    assert_eq!(one.result()["resultType"], "complete");
    assert_eq!(two.code(), -32602, "{}", two.raw);
    assert_eq!(upstream.answers().len(), 1);
}

#[tokio::test]
async fn questions_in_flight_go_out_together_and_what_is_missing_is_asked_again() {
    let upstream = Upstream::builder()
        .tool(
            "ask",
            script::script(|mut call| async move {
                let one = call.pose(&json!(1), "elicitation/create", &question());
                let two = call.pose(&json!(2), "roots/list", &json!({}));
                let (one, two) = (one.await.unwrap_or_default(), two.await.unwrap_or_default());
                call.say(&json!([one["result"], two["result"]]).to_string());
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let first = client.call("ask", json!({})).await;
    let questions = asked(&first);
    assert_eq!(questions.len(), 2);
    let of = |method: &str| questions.iter().find(|(_, asked)| asked["method"] == method).expect("asked").0.clone();
    let (confirm, roots) = (of("elicitation/create"), of("roots/list"));
    let partial = json!({confirm.clone(): {"action": "cancel"}, "unknown": {"x": 1}});
    let second = client.retry("tools/call", call(json!({})), &first, partial).await;
    let left: Vec<String> = asked(&second).into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, std::slice::from_ref(&roots));
    assert_ne!(second.result()["requestState"], first.result()["requestState"]);
    let done = client.retry("tools/call", call(json!({})), &second, json!({roots: {"roots": []}})).await;
    assert_eq!(done.text(), r#"[{"action":"cancel"},{"roots":[]}]"#);
}

#[tokio::test]
async fn what_was_not_declared_is_never_asked() {
    let latch = Latch::new();
    let (upstream, gate) = asking(&latch, 30_000).await;
    latch.open();
    let client = gate.client().stateless(json!({"roots": {}}));
    assert_eq!(client.call("ask", json!({})).await.text(), r#"{"action":"decline"}"#);
    assert_eq!(upstream.answers().len(), 1);
}

#[tokio::test]
async fn nobody_comes_back_and_the_server_is_told_so() {
    let upstream = Upstream::builder().tool("ask", script::curious(&Latch::opened())).start().await;
    let gate = bridged(&upstream, 30_000, "input_timeout = \"150ms\"").await;
    let client = plain(&gate);
    let first = client.call("ask", json!({})).await;
    let (key, _) = asked(&first).remove(0);
    eventually("it is declined", || !upstream.answers().is_empty()).await;
    // Its outcome waits for who comes late.
    let late = client.retry("tools/call", call(json!({})), &first, json!({key: {"action": "accept"}})).await;
    assert_eq!(late.text(), r#"{"action":"decline"}"#);
}

#[tokio::test]
async fn after_the_handle_the_task_asks() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("ask", script::curious(&latch)).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate);
    let task = client.call("ask", json!({})).await.task();
    latch.open();
    let waits = crate::support::dialect::reaches(&client, &task, "input_required").await;
    let requests = waits.result()["inputRequests"].as_object().expect("questions").clone();
    let (key, request) = requests.into_iter().next().expect("one");
    assert_eq!(request["method"], "elicitation/create");
    let ignored = client.update_task(&task, json!({"unknown": {"x": 1}})).await;
    assert_eq!(ignored.result(), &json!({"resultType": "complete"}));
    let answered = client.update_task(&task, json!({key: {"action": "accept", "content": {"a": 1}}})).await;
    assert_eq!(answered.result(), &json!({"resultType": "complete"}));
    let ended = client.task_end(&task).await;
    assert_eq!(ended.result()["result"]["content"][0]["text"], r#"{"action":"accept","content":{"a":1}}"#);
}

#[tokio::test]
async fn prompts_ask_too() {
    let upstream = Upstream::builder()
        .on(
            "prompts/get",
            script::script(|mut call| async move {
                let answer =
                    call.ask(&json!(5), "sampling/createMessage", &json!({"messages": [], "maxTokens": 1})).await;
                call.result(&json!({"messages": [{"role": "user", "content": answer["result"]["content"]}]}));
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let params = json!({"name": "p", "arguments": {"a": "b"}});
    let first = client.request("prompts/get", params.clone()).await;
    let (key, _) = asked(&first).remove(0);
    let said = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "said"}});
    let done = client.retry("prompts/get", params, &first, json!({key: said})).await;
    assert_eq!(done.result()["messages"][0]["content"]["text"], "said");
}

#[tokio::test]
async fn a_job_asks_by_an_answer_and_its_retry_waits_on() {
    let (latch, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder()
        .tool(
            "ask",
            script::accepted_then(&latch, move |mut call| {
                let end = end.clone();
                async move {
                    let answer = call.ask(&json!("q"), "elicitation/create", &question()).await;
                    end.open();
                    call.say(&answer["result"].to_string());
                }
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30, "").await;
    let client = plain(&gate).bearer("a");
    let job = client.call("ask", json!({})).await.job();
    let opened = upstream.of("initialize").len();
    let running = client.job(&job, 0.0).await;
    assert_eq!(running.state(), "running", "{}", running.raw);
    latch.open();
    let asks = client.job(&job, 20.0).await;
    let (key, request) = asked(&asks).remove(0);
    assert_eq!(request["params"]["message"], "go on?");
    let params = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 20.0}});
    let other = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 1.0}});
    let answers = json!({key: {"action": "accept", "content": {"a": 1}}});
    let refused = client.retry("tools/call", other, &asks, answers.clone()).await;
    assert_eq!(refused.code(), -32602);
    let done = client.retry("tools/call", params, &asks, answers).await;
    assert_eq!(done.state(), "done", "{}", done.raw);
    assert_eq!(done.block(1), r#"{"action":"accept","content":{"a":1}}"#);
    assert_eq!(upstream.of("initialize").len(), opened, "reading needs no session");
}

#[tokio::test]
async fn a_question_on_the_sessions_own_stream_is_the_calls() {
    let latch = Latch::opened();
    let upstream = Upstream::builder()
        .get(Get::Stream)
        .tool(
            "ask",
            script::accepted_then(&latch, |mut call| async move {
                let answer = call.hear(&json!("q")).await.unwrap_or_default();
                call.say(&answer["result"].to_string());
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let body = client.body("1", "tools/call", call(json!({})));
    let asking = async {
        eventually("taskgate listens", || upstream.listeners() == 1).await;
        upstream.push(&json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question()}));
    };
    let (first, ()) = tokio::join!(client.ask(body), asking);
    let (key, _) = asked(&first).remove(0);
    let answers = json!({key: {"action": "accept"}});
    let done = client.retry("tools/call", call(json!({})), &first, answers).await;
    assert_eq!(done.text(), r#"{"action":"accept"}"#);
}

#[tokio::test]
async fn addresses_to_visit_are_asked_in_the_words_of_the_era() {
    let upstream = Upstream::builder()
        .tool(
            "pay",
            script::script(|mut call| async move {
                let visit =
                    json!({"mode": "url", "url": "https://pay.example/1", "message": "pay", "elicitationId": "e"});
                if call.before == 0 {
                    call.error(-32042, "visit first", &json!({"elicitations": [visit]}));
                } else {
                    call.say("paid");
                }
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let first = client.call("pay", json!({})).await;
    let (key, request) = asked(&first).remove(0);
    let visit = json!({"mode": "url", "url": "https://pay.example/1", "message": "pay"});
    assert_eq!(request, json!({"method": "elicitation/create", "params": visit}));
    assert!(first.result().get("requestState").is_none(), "nothing waits for it");
    let mut again = json!({"name": "pay", "arguments": {}});
    again["inputResponses"] = json!({key: {"action": "accept"}});
    assert_eq!(client.request("tools/call", again).await.text(), "paid");
}

#[tokio::test]
async fn a_second_retry_of_a_call_that_became_a_task_is_answered() {
    let latch = Latch::new();
    let (_upstream, gate) = asking(&latch, 60).await;
    let client = tasks(&gate);
    let first = client.call("ask", json!({})).await;
    let (key, _) = asked(&first).remove(0);
    let answers = json!({key: {"action": "accept", "content": {}}});
    let retry = || client.retry("tools/call", call(json!({})), &first, answers.clone());
    let handle = retry().await;
    assert_eq!(handle.result()["resultType"], "task", "{}", handle.raw);
    let late = crate::support::soon("the second", retry()).await;
    assert_eq!(late.reason(), "outcome_unknown", "{}", late.raw);
    latch.open();
    let _ = client.task_end(&handle.task()).await;
}

#[tokio::test]
async fn a_large_answer_is_told_in_the_words_of_the_era_and_keeps_its_session_to_the_end() {
    let upstream = Upstream::builder()
        .tool(
            "large",
            script::script(|mut call| async move {
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":""#,
                    call.request.id()
                );
                call.begin(200, &[("content-type", "application/json")], text);
                for _ in 0..8 {
                    call.more("x".repeat(100_000));
                    tokio::time::sleep(ms(5)).await;
                }
                call.more(r#""}]}}"#);
                call.end();
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let answer = plain(&gate).call("large", json!({})).await;
    assert_eq!((answer.text().len(), &answer.result()["resultType"]), (800_000, &json!("complete")));
    assert!(answer.result()["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
}

#[tokio::test]
async fn progress_goes_on_after_a_retry_under_the_token_of_the_retry() {
    let upstream = Upstream::builder()
        .tool(
            "ask",
            script::script(|mut call| async move {
                let _ = call.ask(&json!("q"), "elicitation/create", &question()).await;
                call.progress(1.0, 2.0, "half");
                call.say("end");
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let with = |token: &str| {
        let mut params = call(json!({}));
        params["_meta"] = json!({"progressToken": token});
        params
    };
    let first = client.request("tools/call", with("one")).await;
    let (key, _) = asked(&first).remove(0);
    let done = client.retry("tools/call", with("two"), &first, json!({key: {"action": "accept"}})).await;
    assert_eq!(done.before("notifications/progress")[0]["params"]["progressToken"], "two");
}
