//! Questions of a server that can only ask by its answers, put to a client that is asked by requests.

use serde_json::{Value, json};

use crate::support::upstream::{Script, script};
use crate::support::{Dialect, Gate, Latch, PATIENT, Upstream, ms};

const ABLE: &str = "go on?";

/// Asks in its first answer, once the latch opens, and says in the next what it was answered.
fn asks(latch: &Latch) -> Script {
    script::held_then(latch, |mut call| async move {
        let params = &call.request.json["params"];
        if params["requestState"] == "s\"1" {
            let said = params["inputResponses"].to_string();
            return call.say(&said);
        }
        call.result(&json!({
            "resultType": "input_required",
            "requestState": "s\"1",
            "inputRequests": {
                "a": {"method": "elicitation/create", "params": {"message": ABLE}},
                "b": {"method": "roots/list"},
            },
        }));
    })
}

fn answers() -> Value {
    json!({"a": {"action": "accept", "content": {"n": 1}}, "b": {"roots": []}})
}

#[tokio::test]
async fn before_the_handle_they_are_requests_on_the_calls_stream() {
    let latch = Latch::new();
    latch.open();
    let upstream = Upstream::builder().modern().tool("curious", asks(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    for capabilities in [json!({"elicitation": {}, "roots": {}}), json!({"elicitation": {}})] {
        let before = upstream.calls("curious").len();
        let client = gate.client().capabilities(capabilities.clone()).open().await;
        let mut stream = client.post(client.body("7", "tools/call", json!({"name": "curious"}))).await.events();
        let question = stream.message().await.unwrap();
        assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!(ABLE)));
        client.answer(&question, answers()["a"].clone()).await;
        if capabilities.get("roots").is_some() {
            let question = stream.message().await.unwrap();
            assert_eq!(question["method"], "roots/list");
            client.answer(&question, answers()["b"].clone()).await;
        }
        // What the client cannot be asked is answered for it.
        let answer = stream.message().await.unwrap();
        assert_eq!(answer["id"], 7);
        let said: Value = serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(said, answers());
        assert!(answer["result"].get("resultType").is_none());
        let calls = upstream.calls("curious");
        assert_eq!(calls.len(), before + 2);
        assert_ne!(calls[before].id(), calls[before + 1].id(), "another request, another id");
        let meta = "io.modelcontextprotocol/clientCapabilities";
        assert_eq!(calls[before + 1].json["params"]["_meta"][meta], capabilities);
    }
    assert_eq!(upstream.answers().len(), 0);
}

#[tokio::test]
async fn an_address_to_visit_has_a_name() {
    let asks = script::script(|mut call| async move {
        if call.before > 0 {
            return call.say("visited");
        }
        let params = json!({"mode": "url", "url": "https://example.com/", "message": "visit"});
        call.result(&json!({
            "resultType": "input_required",
            "inputRequests": {"a": {"method": "elicitation/create", "params": params}},
        }));
    });
    let upstream = Upstream::builder().modern().tool("visits", asks).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().capabilities(json!({"elicitation": {"url": {}}})).open().await;
    let mut stream = client.post(client.body("7", "tools/call", json!({"name": "visits"}))).await.events();
    let question = stream.message().await.unwrap();
    assert!(question["params"]["elicitationId"].as_str().is_some_and(|name| !name.is_empty()), "{question}");
    assert_eq!(question["params"]["url"], "https://example.com/");
    client.answer(&question, json!({"action": "accept"})).await;
    assert_eq!(stream.message().await.unwrap()["result"]["content"][0]["text"], "visited");
}

#[tokio::test]
async fn while_a_question_is_with_the_client_no_threshold_passes() {
    let latch = Latch::new();
    latch.open();
    let upstream = Upstream::builder().modern().tool("curious", asks(&latch)).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut stream = client.post(client.body("7", "tools/call", json!({"name": "curious"}))).await.events();
    let question = stream.message().await.unwrap();
    tokio::time::sleep(ms(150)).await;
    client.answer(&question, answers()["a"].clone()).await;
    let answer = stream.message().await.unwrap();
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("accept"), "{answer}");
}

#[tokio::test]
async fn after_the_handle_they_wait_in_the_task() {
    for dialect in Dialect::ALL {
        let latch = Latch::new();
        let upstream = Upstream::builder().modern().tool("curious", asks(&latch)).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = dialect.client(&gate, json!({"elicitation": {}})).open().await;
        let id = dialect.start(&client, "curious", json!({})).await;
        latch.open();
        let question = dialect.answer_next(&client, &id, |_| answers()["a"].clone()).await;
        assert_eq!(question["params"]["message"], ABLE, "{dialect:?}");
        let said: Value = serde_json::from_str(&dialect.text(&client, &id).await).unwrap();
        assert_eq!(said, answers(), "{dialect:?}");
        assert_eq!((upstream.calls("curious").len(), upstream.answers().len()), (2, 0));
    }
}

#[tokio::test]
async fn prompts_and_resources_may_ask_too() {
    let latch = Latch::new();
    latch.open();
    let upstream = Upstream::builder().modern().on("prompts/get", asks(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut stream = client.post(client.body("7", "prompts/get", json!({"name": "p"}))).await.events();
    let question = stream.message().await.unwrap();
    client.refuse(&question, json!({"code": -1, "message": "no"})).await;
    let answer = stream.message().await.unwrap();
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("decline"), "{answer}");
    assert_eq!(upstream.of("prompts/get").len(), 2);
}

#[tokio::test]
async fn a_strangers_answer_changes_nothing() {
    let latch = Latch::new();
    latch.open();
    let upstream = Upstream::builder().modern().tool("curious", asks(&latch)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let other = gate.client().open().await;
    let mut stream = client.post(client.body("7", "tools/call", json!({"name": "curious"}))).await.events();
    let question = stream.message().await.unwrap();
    other.answer(&question, json!({"action": "accept", "content": {"evil": true}})).await;
    client.answer(&json!({"id": "nobody asked this"}), json!({})).await;
    client.answer(&question, answers()["a"].clone()).await;
    let answer = stream.message().await.unwrap();
    assert!(!answer.to_string().contains("evil"), "{answer}");
    assert_eq!(upstream.answers().len(), 0, "the upstream hears of no answer that it cannot read");
}

#[tokio::test]
async fn what_is_sent_again_has_the_headers_of_now_and_the_credential_of_the_call() {
    let asks = script::script(|mut call| async move {
        if call.request.json["params"].get("inputResponses").is_some() {
            return call.say("done");
        }
        let question = json!({"method": "elicitation/create", "params": {"message": ABLE}});
        call.result(&json!({"resultType": "input_required", "inputRequests": {"a": question}}));
    });
    let schema = json!({"inputSchema": {"type": "object", "properties": {"r": {"x-mcp-header": "Region"}}}});
    let upstream = Upstream::builder().modern().tool_with("routed", &schema, asks).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().bearer("own").capabilities(json!({"elicitation": {}})).open().await;
    let call = json!({"name": "routed", "arguments": {"r": "us"}});
    let mut stream = client.post(client.body("7", "tools/call", call)).await.events();
    let question = stream.message().await.unwrap();
    client.tools().await.result();
    let other = gate.client().bearer("other").in_session(client.session.as_deref());
    assert_eq!(other.tools().await.status, 404);
    client.answer(&question, json!({"action": "accept"})).await;
    assert_eq!(stream.message().await.unwrap()["result"]["content"][0]["text"], "done");
    let calls = upstream.calls("routed");
    assert_eq!(
        calls.iter().map(|call| call.header("mcp-param-region")).collect::<Vec<_>>(),
        [None, Some("us"), Some("us")]
    );
    assert_eq!(calls[2].header("authorization"), Some("Bearer own"));
}
