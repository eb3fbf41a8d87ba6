//! Job handles and the tools that read them, as a model sees them.
//!
//! Handles must survive validators, approval prompts, impatient clients and name clashes.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, Upstream, ms, soon};

const STRUCTURED: &str =
    r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":42,"big":9007199254740993}}"#;

fn schema() -> Value {
    json!({"outputSchema": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"],
        "$defs": {"n": {"type": "integer"}}}})
}

async fn listed(client: &Client, tool: &str) -> Value {
    let tools = client.tools().await;
    let tools = tools.result()["tools"].as_array().unwrap();
    tools.iter().find(|known| known["name"] == tool).unwrap_or_else(|| panic!("no {tool}: {tools:?}")).clone()
}

#[tokio::test]
async fn b62_output_schema_never_meets_a_handle() {
    let latch = Latch::new();
    let slow = script::held_then(&latch, |mut call| async move { call.result_text(STRUCTURED) });
    let upstream = Upstream::builder()
        .tool_with("slow", &schema(), slow)
        .tool_with("sync", &schema(), script::answers(STRUCTURED))
        .start()
        .await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"sync\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    let client = gate.client().open().await;
    for _ in 0..2 {
        let slow = listed(&client, "slow").await;
        assert!(slow.get("outputSchema").is_none(), "{slow}");
        let description = slow["description"].as_str().unwrap();
        assert!(description.starts_with("slow.") && description.contains("get_job_result"), "{description}");
        let sync = listed(&client, "sync").await;
        assert_eq!((&sync["outputSchema"], &sync["description"]), (&schema()["outputSchema"], &json!("sync.")));
        assert!(listed(&client, "get_job_result").await.get("outputSchema").is_none());
    }
    let job = client.call("slow", json!({})).await.job();
    latch.open();
    let end = client.job_end(&job).await;
    assert_eq!((end.state().as_str(), end.block(1)), ("done", "42"));
    assert!(end.raw.contains(r#""structuredContent":{"n":42,"big":9007199254740993}"#), "{}", end.raw);
}

#[tokio::test]
async fn b62_output_schema_widened_or_kept() {
    let upstream = Upstream::builder().tool_with("slow", &schema(), script::answers(STRUCTURED)).start().await;
    let gate = Gate::start(&upstream, "[jobs]\noutput_schema = \"widen\"").await;
    let wide = listed(&gate.client().open().await, "slow").await["outputSchema"].clone();
    assert_eq!((&wide["type"], wide["anyOf"].as_array().map(Vec::len)), (&json!("object"), Some(2)), "{wide}");
    assert_eq!(wide["$defs"]["n"], json!({"type": "integer"}), "references still lead somewhere: {wide}");
    let gate = Gate::start(&upstream, "[jobs]\noutput_schema = \"keep\"").await;
    let kept = listed(&gate.client().open().await, "slow").await;
    assert_eq!(kept["outputSchema"], schema()["outputSchema"]);
}

#[tokio::test]
async fn b64_errors_of_taskgate_are_text_only() {
    let cut = script::script(|mut call| async move {
        sleep(ms(150)).await;
        call.reset().await;
    });
    let upstream = Upstream::builder().tool_with("cut", &schema(), cut).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let lost = client.call("cut", json!({})).await.job();
    let lost = client.job_end(&lost).await;
    assert_eq!(lost.state(), "error");
    assert!(lost.text().contains("outcome unknown"), "{}", lost.raw);
    for answer in [lost, client.job("garbage", 0.0).await, client.call("get_job_result", json!({})).await] {
        let result = answer.result();
        assert_eq!((answer.status, &result["isError"]), (200, &json!(true)));
        assert!(result.get("structuredContent").is_none(), "{}", answer.raw);
        assert_eq!(result["content"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn b65_reads_wait_longer_and_longer() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let opener = async {
        sleep(ms(700)).await;
        latch.open();
        Instant::now()
    };
    let reads = async {
        for reads in 1.. {
            let read = client.call("get_job_result", json!({"job_id": job})).await;
            if read.state() == "done" {
                return (reads, read.at);
            }
        }
        unreachable!("the loop has no end of its own")
    };
    let (opened, (reads, read)) = tokio::join!(opener, soon("the job's end", reads));
    assert!((2..=6).contains(&reads), "{reads} reads");
    assert!(read - opened < ms(300), "{:?} after the end", read - opened);
}

#[tokio::test]
async fn b65_a_read_that_may_not_wait_returns_at_once_and_polls_differ() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("slow", json!({})).await.job();
    let started = Instant::now();
    let first = client.job(&job, 0.0).await;
    assert!(started.elapsed() < ms(400), "{:?}", started.elapsed());
    sleep(ms(150)).await;
    let second = client.job(&job, 0.0).await;
    for read in [&first, &second] {
        let note = read.note();
        assert_eq!((&note["status"], &note["job_id"]), (&json!("running"), &json!(job)));
        assert!(note["elapsed_s"].is_number(), "{note}");
        let message = note["message"].as_str().unwrap();
        assert!(message.contains("not finished"), "{message}");
        assert!(message.contains(&format!("get_job_result(job_id=\"{job}\")")), "{message}");
        assert_eq!(read.result()["structuredContent"], note);
        assert_eq!(read.result().get("isError").unwrap_or(&json!(false)), &json!(false));
    }
    assert_ne!(first.text(), second.text());
}

#[tokio::test]
async fn b65_patience_is_learnt() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().bearer("U").open().await;
    let job = client.call("slow", json!({})).await.job();
    for _ in 0..2 {
        assert!(timeout(ms(1100), client.job(&job, 5.0)).await.is_err(), "it waits as long as it was asked to");
    }
    sleep(ms(100)).await;
    let started = Instant::now();
    assert_eq!(client.job(&job, 5.0).await.state(), "running");
    let waited = started.elapsed();
    assert!(waited > ms(500) && waited < ms(1050), "seven tenths of 1.1 s, not {waited:?}");
    latch.open();
    assert_eq!(client.job(&job, 5.0).await.block(1), "late");
}

#[tokio::test]
async fn b66_a_handle_is_not_mistaken_for_an_answer() {
    let (upstream, _latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "").await;
    let handle = gate.client().open().await.call("slow", json!({})).await;
    let job = handle.job();
    let (result, note) = (handle.result(), handle.note());
    assert_eq!(result["content"].as_array().unwrap().len(), 1);
    assert_eq!((&result["isError"], &result["structuredContent"]), (&json!(false), &note));
    let mut keys: Vec<_> = note.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["job_id", "message", "status"]);
    let message = note["message"].as_str().unwrap();
    assert!(message.contains("not finished"), "{message}");
    assert!(message.contains(&format!("Poll with get_job_result(job_id=\"{job}\")")), "{message}");
    assert!(result.get("resultType").is_none() && result.get("taskId").is_none(), "{}", handle.raw);
    assert_eq!(handle.json.as_object().unwrap().len(), 3, "jsonrpc, id, result: {}", handle.raw);
}

#[tokio::test]
async fn b66_a_cancelled_job_says_so() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let job = client.call("endless", json!({})).await.job();
    client.cancel_job(&job).await.result();
    let end = client.job_end(&job).await;
    assert_eq!(end.state(), "cancelled");
    assert_eq!(end.result().get("isError").unwrap_or(&json!(false)), &json!(false));
}

#[tokio::test]
async fn b68_job_tools_need_no_approval() {
    let upstream = Upstream::builder().tool("slow", script::says("x")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let client = gate.client().open().await;
    assert_eq!(client.tool_names().await, ["slow", "get_job_result", "cancel_job", "list_jobs"]);
    for name in ["get_job_result", "list_jobs"] {
        let tool = listed(&client, name).await;
        let hints = &tool["annotations"];
        assert_eq!((&hints["readOnlyHint"], &hints["idempotentHint"]), (&json!(true), &json!(true)), "{tool}");
        assert_eq!((&hints["destructiveHint"], &hints["openWorldHint"]), (&json!(false), &json!(false)), "{tool}");
    }
    let cancel = listed(&client, "cancel_job").await;
    assert_eq!(cancel["annotations"]["destructiveHint"], true);
    for name in ["get_job_result", "cancel_job", "list_jobs"] {
        let tool = listed(&client, name).await;
        assert!(tool.get("outputSchema").is_none(), "{tool}");
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["inputSchema"]["additionalProperties"]),
            (&json!("object"), &json!(false))
        );
    }
    assert_eq!(listed(&client, "get_job_result").await["inputSchema"]["required"], json!(["job_id"]));

    let all_sync = "[upstream]\n[[upstream.rule]]\ntool = \"*\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, all_sync).await;
    assert_eq!(gate.client().open().await.tool_names().await, ["slow"], "nothing can be deferred");
}

#[tokio::test]
async fn b69_a_tool_of_the_same_name_stays() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "late"))
        .tool("other", script::says("o"))
        .tool("get_job_result", script::says("theirs"))
        .page(2)
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let names = client.tool_names().await;
    assert!(names.contains(&"taskgate_get_job_result".to_owned()), "{names:?}");
    assert!(!names.contains(&"get_job_result".to_owned()), "{names:?}");
    assert_eq!(client.call("get_job_result", json!({})).await.text(), "theirs");
    assert_eq!(client.call("get_job_result", json!({"job_id": "theirs"})).await.text(), "theirs");
    let handle = client.call("slow", json!({})).await;
    let job = handle.job();
    let next = format!("taskgate_get_job_result(job_id=\"{job}\")");
    assert!(handle.note()["message"].as_str().unwrap().contains(&next), "{}", handle.raw);
    latch.open();
    let read = client.call("taskgate_get_job_result", json!({"job_id": job, "wait_s": 5})).await;
    assert_eq!(read.block(1), "late");
    assert_eq!(client.job(&job, 5.0).await.block(1), "late", "a job of ours is ours by either name");
}

#[tokio::test]
async fn b69_names_are_configurable() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[jobs]\nresult_tool = \"poll\"").await;
    let client = gate.client().open().await;
    let handle = client.call("slow", json!({})).await;
    assert!(handle.text().contains("poll(job_id="), "{}", handle.raw);
    latch.open();
    assert_eq!(client.call("poll", json!({"job_id": handle.job(), "wait_s": 5})).await.block(1), "late");
}

#[tokio::test]
async fn b70_every_tool_once_over_all_pages() {
    let mut builder = Upstream::builder().page(2).empty_cursor();
    for name in ["a", "b", "c", "d", "e"] {
        builder = builder.tool(name, script::says("x"));
    }
    let upstream = builder.start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let (mut names, mut cursor) = (Vec::new(), None);
    for page in 0..3 {
        let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
        let answer = client.request("tools/list", params).await;
        let tools = answer.result()["tools"].as_array().unwrap();
        names.push(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        cursor = answer.result().get("nextCursor").cloned();
        assert_eq!(cursor.is_some(), page < 2, "{}", answer.raw);
    }
    assert_eq!(names, [vec!["a", "b", "get_job_result", "cancel_job"], vec!["c", "d"], vec!["e"]]);
}

#[tokio::test]
async fn b71_unknown_and_foreign_jobs_read_the_same() {
    let (upstream, latch) = Upstream::holding("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nttl = \"150ms\"").await;
    let owner = gate.client().bearer("A").open().await;
    let other = gate.client().bearer("B").open().await;
    let job = owner.call("slow", json!({})).await.job();
    let read = |id: Value| other.call_as("4", "get_job_result", json!({"job_id": id}));
    let (foreign, unknown) = (read(json!(job)).await, read(json!("11111111-2222-4333-8444-555555555555")).await);
    assert_eq!(foreign.raw.replace(&job, "ID"), unknown.raw.replace("11111111-2222-4333-8444-555555555555", "ID"));
    latch.open();
    assert_eq!(owner.job_end(&job).await.block(1), "late");
    sleep(ms(400)).await;
    let expired = owner.job(&job, 0.0).await;
    let bad = [read(json!("")).await, read(json!(7)).await, read(Value::Null).await];
    for answer in [foreign, unknown, expired].into_iter().chain(bad) {
        assert_eq!((answer.status, &answer.result()["isError"]), (200, &json!(true)), "{}", answer.raw);
        assert_eq!(answer.note()["status"], "not_found", "{}", answer.raw);
    }
}
