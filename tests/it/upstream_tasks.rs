//! Upstreams that speak tasks of 2025-11-25 themselves: theirs pass, and a client without tasks gets a job for what
//! runs only as a task.

use serde_json::{Value, json};

use crate::support::upstream::{Builder, Get, script};
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually};

pub(super) const THEIRS: &str = "their-task-1";

fn their_task(status: &str) -> Value {
    json!({"taskId": THEIRS, "status": status, "createdAt": "2025-11-25T00:00:00Z",
        "lastUpdatedAt": "2025-11-25T00:00:00Z", "ttl": 60000, "pollInterval": 50})
}

/// A server with a tool that runs only as a task, whose result comes when the latch opens.
pub(super) fn with_tasks(latch: &Latch) -> Builder {
    Upstream::builder()
        .capabilities(json!({"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}))
        .tool_with(
            "solve",
            &json!({"execution": {"taskSupport": "required"}}),
            script::script(|mut call| async move {
                match call.request.json["params"].get("task") {
                    Some(_) => call.result(&json!({"task": their_task("working")})),
                    None => call.error(-32601, "Tool solve requires task augmentation", &Value::Null),
                }
            }),
        )
        .tool("plain", script::held(latch, "plain end"))
        .on("tasks/get", script::script(|mut call| async move { call.result(&their_task("working")) }))
        .on(
            "tasks/list",
            script::script(|mut call| async move {
                match call.request.json["params"]["cursor"].as_str() {
                    None => call.result(&json!({"tasks": [their_task("working")], "nextCursor": "p2"})),
                    Some(_) => call.result(&json!({"tasks": []})),
                }
            }),
        )
        .on("tasks/cancel", script::script(|mut call| async move { call.result(&their_task("cancelled")) }))
        .on("tasks/result", script::held(latch, "solved"))
}

#[tokio::test]
async fn a_core_client_uses_their_tasks_straight_through() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let mut client = gate.client();
    let hello = client.hello().await;
    assert_eq!(hello.result()["capabilities"]["tasks"]["list"], json!({}), "theirs, unchanged");
    let tools = client.tools().await;
    let support = &tools.result()["tools"][0]["execution"]["taskSupport"];
    assert_eq!(support, "optional", "called without a task it is a job; clients refuse to call what says `required`");
    assert!(tools.result()["tools"][1].get("execution").is_none());

    let task = client.call_task("solve", json!({})).await.core_task();
    assert_eq!(task, THEIRS);
    assert_eq!(client.task(&task).await.result(), &their_task("working"));
    latch.open();
    assert_eq!(client.task_result(&task).await.text(), "solved");
    assert_eq!(upstream.of("tasks/result")[0].json["params"]["taskId"], THEIRS);
    assert_eq!(client.cancel_task(&task).await.state(), "cancelled");
    assert_eq!(upstream.of("tasks/cancel").len(), 1);
}

#[tokio::test]
async fn a_client_without_tasks_gets_a_job_for_what_runs_only_as_a_task() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    for client in [gate.client().version("2025-06-18").open().await, gate.client().extension().open().await] {
        let before = upstream.of("tasks/result").len();
        let handle = client.call("solve", json!({"n": 1})).await;
        let job = handle.job();
        assert!(handle.result().get("resultType").is_none(), "{}", handle.raw);
        assert_ne!(job, THEIRS);
        eventually("their task is waited for", || upstream.of("tasks/result").len() == before + 1).await;
    }
    let client = gate.client().open().await;
    let job = client.call("solve", json!({})).await.job();
    assert_eq!(client.job(&job, 0.0).await.state(), "running");
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "solved");
    for call in upstream.of("tools/call") {
        assert_eq!(call.json["params"]["task"], json!({}), "{}", call.body);
    }
}

#[tokio::test]
async fn what_their_task_brings_before_the_threshold_is_inline() {
    let latch = Latch::new();
    latch.open();
    for upstream in [with_tasks(&latch).start().await, with_tasks(&latch).sse().start().await] {
        let gate = Gate::start(&upstream, PATIENT).await;
        let client = gate.client().open().await;
        assert_eq!(client.call("solve", json!({})).await.text(), "solved");
        assert_eq!(client.call("plain", json!({})).await.text(), "plain end");
    }
}

#[tokio::test]
async fn cancelling_such_a_job_cancels_their_task() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("solve", json!({})).await.job();
    assert_eq!(client.cancel_job(&job).await.state(), "cancelled");
    eventually("they hear of it", || upstream.of("tasks/cancel").len() == 1).await;
    assert_eq!(upstream.of("tasks/cancel")[0].json["params"]["taskId"], THEIRS);
    assert!(upstream.cancels().is_empty());
    let plain = client.call("plain", json!({})).await.job();
    client.cancel_job(&plain).await;
    eventually("as any call", || upstream.cancels().len() == 1).await;
}

#[tokio::test]
async fn a_wait_for_their_task_that_breaks_is_taken_up_again() {
    let latch = Latch::new();
    let again = script::script(|mut call| async move {
        if call.before == 0 { call.reset().await } else { call.say("solved late") }
    });
    let upstream = with_tasks(&latch).on("tasks/result", again).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("solve", json!({})).await.job();
    assert_eq!(client.job_end(&job).await.block(1), "solved late");
    assert_eq!(upstream.calls("solve").len(), 1);
    assert_eq!(upstream.of("tasks/result").len(), 2);
}

#[tokio::test]
async fn ids_of_both_live_side_by_side_and_lists_follow_each_other() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"60ms\"\nowner = \"session\"").await;
    let client = gate.client().open().await;
    let list = |cursor: Option<String>| {
        let client = &client;
        async move {
            let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
            client.request("tasks/list", params).await.result().clone()
        }
    };
    assert!(list(Some("p2".into())).await.get("nextCursor").is_none(), "there are none of ours");
    let job = client.call("plain", json!({})).await.job();
    assert_eq!(client.task(&job).await.result()["taskId"], job, "ours");
    assert_eq!(client.task("anything else").await.result()["taskId"], THEIRS, "all others are theirs");

    let (mut seen, mut cursor) = (Vec::new(), None);
    for _ in 0..5 {
        let page = list(cursor.clone()).await;
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
        cursor = page.get("nextCursor").map(|next| next.as_str().unwrap().to_owned());
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [THEIRS.to_owned(), job.clone()]);
    latch.open();
    assert_eq!(client.task_result(&job).await.text(), "plain end");
    assert_eq!(upstream.of("tasks/result").len(), 0);
}

#[tokio::test]
async fn a_question_of_their_task_reaches_who_polls_the_job() {
    let latch = Latch::new();
    let asks = script::held_then(&latch, |mut call| async move {
        let answer = call.ask(&json!(0), "elicitation/create", &json!({"message": "Go?"})).await;
        let said = answer["result"]["action"].as_str().unwrap_or("nothing").to_owned();
        call.say(&said);
    });
    let upstream = with_tasks(&latch).on("tasks/result", asks).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let job = client.call("solve", json!({})).await.job();
    latch.open();
    let body =
        client.body("9", "tools/call", json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 5}}));
    let reply = client.post(body).await;
    let mut stream = reply.events();
    let question = loop {
        let message = stream.message().await.expect("the question");
        if message.get("method").is_some() {
            break message;
        }
    };
    assert_eq!(question["params"]["message"], "Go?");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}});
    assert_eq!(client.ask(answer.to_string()).await.status, 202);
    let end = stream.message().await.expect("the result");
    assert_eq!(end["result"]["content"][1]["text"], "accept", "{end}");
}

#[tokio::test]
async fn b72_their_tasks_are_not_shared() {
    let latch = Latch::new();
    let upstream = with_tasks(&latch).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true").await;
    let client = gate.client().open().await;
    client.tools().await.result();
    let (one, two) = tokio::join!(client.call("solve", json!({})), client.call("solve", json!({})));
    client.cancel_job(&one.job()).await.result();
    assert_eq!(upstream.calls("solve").len(), 2);
    latch.open();
    assert_eq!(client.job_end(&two.job()).await.block(1), "solved");
}
