//! What taskgate keeps and repeats for a client in front of a server without sessions has an end.

use serde_json::{Value, json};

use crate::support::upstream::script;
use crate::support::{Dialect, Gate, PATIENT, Upstream, eventually, ms, throughout};

#[tokio::test]
async fn a_client_that_says_too_much_of_itself_gets_no_session() {
    let upstream = Upstream::builder().modern().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    // Before and after it is known what the server speaks.
    for _ in 0..2 {
        let hello = gate.client().capabilities(json!({"experimental": {"x": "x".repeat(70_000)}})).hello().await;
        assert_eq!((hello.status, hello.code()), (200, -32602), "{}", hello.raw);
        assert!(hello.error()["message"].as_str().unwrap().contains("64 KiB"), "{}", hello.raw);
        assert_eq!(hello.header("mcp-session-id"), None);
    }
    let client = gate.client().capabilities(json!({"experimental": {"x": "x".repeat(60_000)}})).open().await;
    assert_eq!(client.call("echo", json!({"text": "hi"})).await.text(), "hi");
}

#[tokio::test]
async fn a_session_follows_so_many_resources() {
    let upstream = Upstream::builder().modern().tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let long = |n: usize| format!("file:///{n:08}/{}", "x".repeat(8_000));
    let follow = async |uri: String| client.request("resources/subscribe", json!({"uri": uri})).await;
    let refused = follow("x".repeat(9_000)).await;
    assert_eq!(refused.code(), -32602, "{}", refused.raw);
    for n in 0..125 {
        follow(long(n)).await.result();
    }
    let mut n = 125;
    while follow(long(n)).await.json.get("result").is_some() {
        n += 1;
        assert!(n < 140, "more than 1 MiB is kept");
    }
    // One that is followed already is, and one less leaves room for another.
    follow(long(0)).await.result();
    client.request("resources/unsubscribe", json!({"uri": long(0)})).await.result();
    follow(long(n)).await.result();
    assert_eq!(follow(long(0)).await.code(), -32602);
}

#[tokio::test]
async fn a_subscription_that_never_lasts_is_opened_ever_less_often() {
    let ends = script::script(|mut call| async move {
        let params = json!({"notifications": {}});
        call.notify("notifications/subscriptions/acknowledged", &params);
        call.end();
    });
    let upstream = Upstream::builder()
        .modern()
        .capabilities(json!({"tools": {"listChanged": true}}))
        .on("subscriptions/listen", ends)
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let _stream = client.listen().await.events();
    eventually("it is opened again", || upstream.of("subscriptions/listen").len() == 2).await;
    throughout(ms(800), "but not ten times a second", || upstream.of("subscriptions/listen").len() <= 4).await;
}

#[tokio::test]
async fn equal_calls_run_each_for_itself() {
    let asks = script::script(|mut call| async move {
        if call.request.json["params"].get("inputResponses").is_some() {
            let said = call.request.json["params"]["inputResponses"]["a"]["content"]["n"].to_string();
            return call.say(&said);
        }
        let question = json!({"method": "elicitation/create", "params": {"message": "which?"}});
        call.result(&json!({"resultType": "input_required", "inputRequests": {"a": question}}));
    });
    let upstream = Upstream::builder().modern().tool("curious", asks).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30s\"\ncoalesce = true\n").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let call = async |id: &str, n: u8| {
        let mut stream = client.post(client.body(id, "tools/call", json!({"name": "curious"}))).await.events();
        let question = stream.message().await.unwrap();
        client.answer(&question, json!({"action": "accept", "content": {"n": n}})).await;
        stream.message().await.unwrap()["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let (one, two) = tokio::join!(call("1", 1), call("2", 2));
    assert_eq!((one.as_str(), two.as_str(), upstream.calls("curious").len()), ("1", "2", 4));
}

/// Asks for ever what this client cannot be asked.
fn insists() -> script::Script {
    script::script(|mut call| async move {
        let question = json!({"method": "elicitation/create", "params": {"message": "please?"}});
        call.result(&json!({"resultType": "input_required", "inputRequests": {"a": question}}));
    })
}

#[tokio::test]
async fn a_server_that_insists_is_answered_so_often_and_not_at_once() {
    let upstream = Upstream::builder().modern().tool("insists", insists()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let asking = client.call("insists", json!({}));
    let (end, ()) = tokio::join!(asking, async {
        eventually("it was declined", || upstream.calls("insists").len() >= 2).await;
        throughout(ms(400), "there are pauses", || upstream.calls("insists").len() <= 5).await;
    });
    assert_eq!((end.code(), end.reason()), (-32603, "upstream_protocol"), "{}", end.raw);
    assert!(upstream.calls("insists").len() <= 21, "{}", upstream.calls("insists").len());
}

#[tokio::test]
async fn a_task_ends_too_whose_server_insists() {
    let upstream = Upstream::builder().modern().tool("insists", insists()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let ends = async |dialect: Dialect| {
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "insists", json!({})).await;
        let end = dialect.wait(&client, &id).await;
        assert!(end.raw.contains("upstream_protocol"), "{dialect:?}: {}", end.raw);
    };
    let [one, two, three] = Dialect::ALL;
    tokio::join!(ends(one), ends(two), ends(three));
    assert!(upstream.calls("insists").len() <= 3 * 21);
}

#[tokio::test]
async fn rounds_that_are_answered_may_be_many_and_come_at_once() {
    const ROUNDS: usize = 25;
    let wizard = script::script(|mut call| async move {
        if call.before == ROUNDS {
            return call.say("done");
        }
        let question = json!({"method": "elicitation/create", "params": {"message": "next?"}});
        call.result(&json!({"resultType": "input_required", "inputRequests": {"a": question}}));
    });
    let upstream = Upstream::builder().modern().tool("wizard", wizard).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let mut stream = client.post(client.body("7", "tools/call", json!({"name": "wizard"}))).await.events();
    let began = std::time::Instant::now();
    for _ in 0..ROUNDS {
        let question = stream.message().await.unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        client.answer(&question, json!({"action": "accept"})).await;
    }
    let answer: Value = stream.message().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    assert!(began.elapsed() < ms(5_000), "no pause between them");
}
