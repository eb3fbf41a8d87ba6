//! A stateless server that asks by its answer: before the handle its client reads that answer, after it the task asks.

use serde_json::{Value, json};

use crate::support::dialect::{asked, reaches};
use crate::support::upstream::{Builder, Call, script};
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually};

const ABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

/// What a server asks in its first two rounds.
fn round(n: usize) -> Value {
    let elicit = |message: &str| json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": {"type": "object", "properties": {}}}});
    let requests = match n {
        0 => json!({"size": elicit("which size?"), "where": {"method": "roots/list"}}),
        _ => json!({"sure": elicit("sure?")}),
    };
    json!({"resultType": "input_required", "inputRequests": requests, "requestState": format!("state {n}")})
}

/// Asks twice when the latch opens, then says all that it was answered with.
async fn ask_twice(mut call: Call) {
    let params = &call.request.json["params"];
    match params["requestState"].as_str() {
        None => call.result(&round(0)),
        Some("state 0") if params["inputResponses"]["size"]["content"]["size"] == "L" => call.result(&round(1)),
        Some("state 1") => {
            let said = params["inputResponses"].to_string();
            call.say(&said);
        }
        Some(_) => call.error(-32602, "what?", &Value::Null),
    }
}

fn server(latch: &Latch) -> Builder {
    let schema = json!({"inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}});
    Upstream::builder().native().tool_with("order", &schema, script::held_then(latch, ask_twice))
}

fn client(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(serde_json::from_str(ABLE).unwrap()).header("mcp-param-region", "eu")
}

fn arguments() -> Value {
    json!({"region": "eu"})
}

#[tokio::test]
async fn before_the_handle_the_answer_passes_untouched_and_its_retry_is_a_new_call() {
    let latch = Latch::new();
    latch.open();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    for client in [client(&gate), gate.client().stateless(json!({"elicitation": {}})).header("mcp-param-region", "eu")]
    {
        let call = json!({"name": "order", "arguments": arguments()});
        let first = client.request("tools/call", call.clone()).await;
        assert_eq!(first.result(), &round(0), "keys, questions and state are the server's own");
        let size = json!({"size": {"action": "accept", "content": {"size": "L"}}});
        let second = client.retry("tools/call", call.clone(), &first, size).await;
        assert_eq!(second.result(), &round(1));
        let sure = json!({"sure": {"action": "accept"}});
        let end = client.retry("tools/call", call, &second, sure).await;
        assert_eq!(end.text(), r#"{"sure":{"action":"accept"}}"#);
    }
}

#[tokio::test]
async fn after_the_handle_the_task_asks_in_as_many_rounds_as_the_server_wants() {
    let latch = Latch::new();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_runtime = \"1s\"").await;
    let client = client(&gate);
    let task = client.call("order", arguments()).await.task();
    latch.open();
    let mut open = asked(&client, &task).await;
    open.sort_by_key(|(_, request)| request["method"].to_string());
    let methods: Vec<_> = open.iter().map(|(_, request)| request["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["elicitation/create", "roots/list"]);
    assert_eq!(open[0].1["params"]["message"], "which size?");
    assert!(open.iter().all(|(key, _)| key.starts_with("ask-")), "keys of ours, none is used twice: {open:?}");
    // One answer is not enough; waiting for a person takes none of the call's time.
    client.update_task(&task, json!({&open[1].0: {"roots": []}, "unknown": {}})).await.result();
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(asked(&client, &task).await.len(), 1);
    assert_eq!(upstream.calls("order").len(), 1);
    let answer = json!({"action": "accept", "content": {"size": "L"}});
    client.update_task(&task, json!({&open[0].0: answer})).await.result();
    eventually("it is asked again", || upstream.calls("order").len() == 2).await;
    let second = asked(&client, &task).await;
    assert_eq!(second[0].1["params"]["message"], "sure?");
    client.update_task(&task, json!({&second[0].0: {"action": "decline"}})).await.result();
    let end = client.task_end(&task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], r#"{"sure":{"action":"decline"}}"#, "{}", end.raw);

    let calls = upstream.calls("order");
    let ids: std::collections::BTreeSet<_> = calls.iter().map(crate::support::upstream::Recorded::id).collect();
    assert_eq!((calls.len(), ids.len()), (3, 3), "each is a request of its own");
    let first = &calls[1].json["params"];
    assert_eq!(first["inputResponses"], json!({"size": answer, "where": {"roots": []}}));
    assert_eq!((&first["requestState"], &first["arguments"]), (&json!("state 0"), &arguments()));
    assert_eq!(first["_meta"], calls[0].json["params"]["_meta"]);
    assert_eq!(calls[2].header("mcp-param-region"), Some("eu"));
}

#[tokio::test]
async fn what_nobody_answers_is_declined_in_the_words_of_the_era() {
    let latch = Latch::new();
    let asks = |question: Value| {
        script::held_then(&latch, move |mut call| {
            let question = question.clone();
            async move {
                match call.request.json["params"].get("inputResponses").cloned() {
                    None => call.result(&json!({"resultType": "input_required", "inputRequests": {"k": question}})),
                    Some(said) => call.say(&said.to_string()),
                }
            }
        })
    };
    let elicit = json!({"method": "elicitation/create", "params": {"message": "?"}});
    let sample = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
    let upstream = Upstream::builder()
        .native()
        .tool("elicits", asks(elicit))
        .tool("samples", asks(sample))
        .tool("lists", asks(json!({"method": "roots/list"})))
        .start()
        .await;
    let gate = Gate::start(&upstream, "[tasks]\ninput_timeout = \"150ms\"").await;
    let able = gate.client().stateless_with_tasks(serde_json::from_str(ABLE).unwrap());
    let unable = gate.client().stateless_with_tasks(json!({}));
    let mut tasks = Vec::new();
    for client in [&able, &unable] {
        for (tool, said) in [
            ("elicits", Some(r#"{"k":{"action":"decline"}}"#)),
            ("lists", Some(r#"{"k":{"roots":[]}}"#)),
            ("samples", None),
        ] {
            tasks.push((client, tool, said, client.call(tool, json!({})).await.task()));
        }
    }
    latch.open();
    for (client, tool, said, task) in tasks {
        let end = client.task_end(&task).await;
        match said {
            Some(said) => assert_eq!(end.result()["result"]["content"][0]["text"], said, "{tool}: {}", end.raw),
            None => assert_eq!(end.result()["error"]["data"]["reason"], "input_timeout", "{tool}: {}", end.raw),
        }
    }
}

#[tokio::test]
async fn a_server_that_only_wants_to_be_asked_again_is_asked_again() {
    let latch = Latch::new();
    let later = script::held_then(&latch, |mut call| async move {
        match call.request.json["params"]["requestState"].as_str() {
            None => call.result(&json!({"resultType": "input_required", "requestState": "later"})),
            Some(state) => {
                let state = state.to_owned();
                call.say(&state);
            }
        }
    });
    let upstream = Upstream::builder().native().sse().tool("busy", later).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().stateless_with_tasks(json!({}));
    let task = client.call("busy", json!({})).await.task();
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!(end.result()["result"]["content"][0]["text"], "later", "{}", end.raw);
    assert_eq!(upstream.calls("busy").len(), 2);
}

#[tokio::test]
async fn a_task_that_asks_can_be_cancelled() {
    let latch = Latch::new();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = client(&gate);
    let task = client.call("order", arguments()).await.task();
    latch.open();
    reaches(&client, &task, "input_required").await;
    client.cancel_task(&task).await.result();
    assert_eq!(client.task(&task).await.state(), "cancelled");
    gate.gauge("running_tasks", 0).await;
    assert_eq!(upstream.calls("order").len(), 1, "the questions are not answered for its client");
}

#[tokio::test]
async fn a_job_asks_whoever_reads_it() {
    let latch = Latch::new();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().stateless(json!({"elicitation": {}})).header("mcp-param-region", "eu");
    let job = client.call("order", arguments()).await.job();
    latch.open();
    let reader = gate.client().stateless(json!({"elicitation": {}}));
    let read = json!({"name": "get_job_result", "arguments": {"job_id": job}});
    let asks = reader.request("tools/call", read.clone()).await;
    let requests = asks.result()["inputRequests"].as_object().unwrap_or_else(|| panic!("{}", asks.raw)).clone();
    assert_eq!(requests.len(), 1, "it was not asked for its roots: {}", asks.raw);
    let key = requests.keys().next().unwrap();
    let answer = json!({"action": "accept", "content": {"size": "L"}});
    let asks = reader.retry("tools/call", read.clone(), &asks, json!({key: answer})).await;
    let requests = asks.result()["inputRequests"].as_object().unwrap_or_else(|| panic!("{}", asks.raw)).clone();
    let key = requests.keys().next().unwrap();
    let end = reader.retry("tools/call", read, &asks, json!({key: {"action": "accept"}})).await;
    assert_eq!((end.state().as_str(), end.block(1)), ("done", r#"{"sure":{"action":"accept"}}"#), "{}", end.raw);
}
