//! Questions of the upstream that are put to a client after its handle, in each dialect.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::Reply;
use crate::support::schema::{self, EXT, REVISIONS, assert_result, assert_valid};
use crate::support::upstream::{Call, Get, Script, script};
use crate::support::{Client, Gate, Upstream, ms, soon};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Method, parameters, the definition of the request, and an answer.
fn questions() -> [(&'static str, Value, &'static str, Value); 3] {
    let said = json!({"role": "user", "content": {"type": "text", "text": "x"}});
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}});
    let reply = json!({"role": "assistant", "content": {"type": "text", "text": "y"}, "model": "m"});
    [
        ("elicitation/create", form, "ElicitRequest", json!({"action": "accept", "content": {"n": 1}})),
        ("sampling/createMessage", json!({"messages": [said], "maxTokens": 1}), "CreateMessageRequest", reply),
        ("roots/list", json!({}), "ListRootsRequest", json!({"roots": []})),
    ]
}

/// Asks one question after the other, well after the handle; says what it was answered.
fn curious() -> Script {
    script::script(|mut call: Call| async move {
        sleep(ms(150)).await;
        let mut answers = Vec::new();
        for (id, (method, params, ..)) in questions().into_iter().enumerate() {
            answers.push(call.ask(&json!(id), method, &params).await["result"].clone());
        }
        call.say(&json!(answers).to_string());
    })
}

fn answers() -> Vec<Value> {
    questions().map(|(.., answer)| answer).to_vec()
}

fn abilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// Reads a stream to its end and answers each question on the way; gives back the questions and the last message.
async fn answered(client: &Client, body: String) -> (Vec<Value>, Value) {
    let mut stream = client.post(body).await.events();
    let mut asked = Vec::new();
    while let Some(message) = stream.message().await {
        let Some((.., answer)) = questions().into_iter().find(|(method, ..)| message["method"] == *method) else {
            if message.get("method").is_none() {
                return (asked, message);
            }
            continue;
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer});
        assert_eq!(client.ask(answer.to_string()).await.status, 202);
        asked.push(message);
    }
    panic!("the stream ends without an answer, after {asked:?}");
}

#[track_caller]
fn assert_asked(revision: &str, asked: &[Value], related: Option<&str>) {
    assert_eq!(asked.len(), 3, "{asked:?}");
    for (question, (method, _, definition, _)) in asked.iter().zip(questions()) {
        assert_eq!(question["method"], method);
        // 2025-03-26 has no elicitation; what asks for it there is no message of that revision.
        if revision > "2025-03-26" || definition != "ElicitRequest" {
            assert_valid(revision, definition, question);
        }
        let meta = &question["params"]["_meta"][RELATED];
        match related {
            Some(task) => {
                assert_valid(revision, "RelatedTaskMetadata", meta);
                assert_eq!(meta["taskId"], task);
            }
            None => assert!(meta.is_null(), "{question}"),
        }
    }
}

#[tokio::test]
async fn of_a_core_task() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("curious", curious()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(abilities()).open().await;
    let created = client.call_with("curious", json!({"task": {}})).await;
    let task = created.result()["task"]["taskId"].as_str().expect("a task").to_owned();
    let body = client.body("\"waiting\"", "tasks/result", json!({"taskId": task}));
    let (asked, last) = soon("the end", answered(&client, body)).await;
    assert_asked("2025-11-25", &asked, Some(&task));
    assert_valid("2025-11-25", "JSONRPCResultResponse", &last);
    assert_valid("2025-11-25", "CallToolResult", &last["result"]);
    assert_eq!(last["result"]["content"][0]["text"], json!(answers()).to_string());
}

#[tokio::test]
async fn of_a_job() {
    if !schema::available() {
        return;
    }
    for revision in REVISIONS {
        let upstream = Upstream::builder().tool("curious", curious()).start().await;
        let gate = Gate::start(&upstream, "").await;
        let client = gate.client().version(revision).capabilities(abilities()).open().await;
        let job = client.call("curious", json!({})).await.job();
        let arguments = json!({"name": "get_job_result", "arguments": {"job_id": job, "wait_s": 8}});
        let body = client.body("\"waiting\"", "tools/call", arguments);
        let (asked, last) = soon("the end", answered(&client, body)).await;
        assert_asked(revision, &asked, None);
        assert_valid(revision, "CallToolResult", &last["result"]);
        assert_eq!(last["result"]["content"][1]["text"], json!(answers()).to_string());
    }
}

/// The next question that a task waits with and that has not been seen before, by its key.
async fn next_question(client: &Client, task: &str, seen: &[String]) -> (String, Value) {
    loop {
        let read = client.task(task).await;
        assert_valid(EXT, "GetTaskResult", read.result());
        let asked = read.result()["inputRequests"].as_object().into_iter().flatten();
        if let Some((key, question)) = asked.into_iter().find(|(key, _)| !seen.contains(key)) {
            assert_eq!(read.state(), "input_required", "{}", read.raw);
            return (key.clone(), question.clone());
        }
        sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn of_a_task_of_the_extension() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("curious", curious()).start().await;
    let gate = Gate::start(&upstream, "").await;
    for revision in REVISIONS {
        let mut declared = abilities();
        declared["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        let client = gate.client().version(revision).capabilities(declared).open().await;
        let task = client.call("curious", json!({})).await.task();
        let mut seen = Vec::new();
        for (method, _, _, answer) in questions() {
            let (key, question) = soon(method, next_question(&client, &task, &seen)).await;
            assert_eq!(question["method"], method);
            assert!(question["params"]["_meta"][RELATED].is_null(), "{question}");
            let update = json!({"taskId": task, "inputResponses": {key.clone(): answer}});
            let updated = client.request("tasks/update", update).await;
            assert_valid(EXT, "UpdateTaskResult", updated.result());
            seen.push(key);
        }
        let end = client.job_end(&task).await;
        assert_eq!(end.block(1), json!(answers()).to_string(), "{}", end.raw);
        assert_valid(EXT, "GetTaskResult", client.task(&task).await.result());
    }
}

/// Answers what comes on a session's stream until everything was asked.
async fn answered_there(client: &Client, stream: Reply) -> Vec<Value> {
    let mut stream = stream.events();
    let mut asked = Vec::new();
    while asked.len() < 3 {
        let message = stream.message().await.expect("the stream stays open");
        let Some((.., answer)) = questions().into_iter().find(|(method, ..)| message["method"] == *method) else {
            continue;
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer});
        assert_eq!(client.ask(answer.to_string()).await.status, 202);
        asked.push(message);
    }
    asked
}

#[tokio::test]
async fn on_the_stream_of_the_session() {
    if !schema::available() {
        return;
    }
    let upstream = Upstream::builder().tool("curious", curious()).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(abilities()).open().await;
    let stream = client.listen().await;
    let created = client.call_with("curious", json!({"task": {}})).await;
    let task = created.result()["task"]["taskId"].as_str().expect("a task").to_owned();
    let asked = soon("the questions", answered_there(&client, stream)).await;
    assert_asked("2025-11-25", &asked, Some(&task));
    let outcome = client.request("tasks/result", json!({"taskId": task})).await;
    assert_result("2025-11-25", "CallToolResult", &outcome);
    assert_eq!(outcome.text(), json!(answers()).to_string());
}
