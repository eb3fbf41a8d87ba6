//! Tasks of 2025-11-25 as its clients ask for them: capabilities, the call, its handle, and what is refused.
//!
//! A task goes to calls that ask for one, at once, and to no others.

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::upstream::script;
use crate::support::{Gate, Latch, PATIENT, Upstream, eventually, ms};

const IMMEDIATE: &str = "io.modelcontextprotocol/model-immediate-response";

#[tokio::test]
async fn an_editor_checks_the_capability_polls_and_fetches() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let mut client = gate.client().capabilities(json!({"elicitation": {}, "sampling": {}, "tasks": {"list": {}}}));
    let hello = client.hello().await;
    let capabilities = &hello.result()["capabilities"];
    assert!(capabilities["tasks"]["requests"]["tools"]["call"].is_object(), "{}", hello.raw);
    assert!(capabilities["tasks"]["cancel"].is_object(), "{}", hello.raw);
    assert!(capabilities.get("extensions").is_none(), "{}", hello.raw);
    let tools = client.tools().await;
    assert_eq!(tools.result()["tools"][0]["execution"]["taskSupport"], "optional", "{}", tools.raw);

    let handle = client.call_with("slow", json!({"arguments": {}, "task": {"ttl": 60_000}})).await;
    let task = handle.core_task();
    let told = &handle.result()["task"];
    assert!(told["ttl"].as_u64().unwrap() >= 60_000, "{}", handle.raw);
    assert!(told["createdAt"].is_string() && told["lastUpdatedAt"].is_string(), "{}", handle.raw);
    assert!((200..=1_000).contains(&told["pollInterval"].as_u64().unwrap()), "{}", handle.raw);
    for _ in 0..3 {
        let working = client.task(&task).await;
        assert_eq!((working.state().as_str(), &working.result()["taskId"]), ("working", &json!(task)));
        assert!(working.result().get("task").is_none() && working.result().get("ttlMs").is_none());
    }
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!(end.state(), "completed");
    assert!(end.result().get("result").is_none(), "the task alone: {}", end.raw);
    assert_eq!(client.task_result(&task).await.text(), "late");
    assert_eq!(upstream.calls("slow").len(), 1);
    assert!(upstream.calls("slow")[0].json["params"].get("task").is_none(), "servers fail on it");
}

#[tokio::test]
async fn a_streaming_sdk_repeats_its_task_parameter_everywhere() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"tasks": {"cancel": {}, "list": {}}})).open().await;
    let stray = json!({"ttl": 30_000});
    let task = client.call_with("slow", json!({"arguments": {}, "task": stray})).await.core_task();
    let ask = |method: &'static str| client.request(method, json!({"taskId": task, "task": stray}));
    assert_eq!(ask("tasks/get").await.state(), "working");
    latch.open();
    client.task_end(&task).await;
    assert_eq!(ask("tasks/get").await.state(), "completed");
    assert_eq!(ask("tasks/result").await.text(), "late");
    assert_eq!(ask("tasks/cancel").await.code(), -32602);
}

#[tokio::test]
async fn b52_a_plain_call_is_never_answered_with_a_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "late"))
        .tool("fast", script::says("quick"))
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().capabilities(json!({"tasks": {"cancel": {}, "list": {}}})).open().await;
    assert_eq!(client.call_task("fast", json!({})).await.core_task().len(), 36);
    for params in [json!({}), json!({"task": null}), json!({"task": []}), json!({"task": "now"})] {
        assert_eq!(client.call_with("fast", params.clone()).await.text(), "quick", "{params}");
        let handle = client.call_with("slow", params.clone()).await;
        handle.job();
        for absent in ["task", "taskId", "resultType"] {
            assert!(handle.result().get(absent).is_none(), "{params}: {}", handle.raw);
        }
    }
    assert!(upstream.of("tools/call").iter().all(|call| call.json["params"].get("task").is_none()));
}

#[tokio::test]
async fn the_handle_is_nested_also_when_the_result_is_ready() {
    let upstream = Upstream::builder()
        .tool("fast", script::says("quick"))
        .tool("told", script::answers(r#"{"content":[],"_meta":{"x/y":1}}"#))
        .start()
        .await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    for tool in ["fast", "told"] {
        let handle = client.call_task(tool, json!({})).await;
        let task = handle.core_task();
        let result = handle.result();
        let mut keys: Vec<_> = result.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["_meta", "task"], "{}", handle.raw);
        let sentence = result["_meta"][IMMEDIATE].as_str().unwrap();
        assert!(sentence.contains(tool) && sentence.ends_with('.'), "{sentence}");
        assert_eq!(result["_meta"].as_object().unwrap().len(), 1, "{}", handle.raw);
        client.task_result(&task).await.result();
    }
}

#[tokio::test]
async fn what_is_refused_before_acceptance_is_passed_on_and_makes_no_task() {
    for (status, header) in [(401, "www-authenticate"), (404, "x-why"), (429, "retry-after"), (500, "x-why")] {
        let refuse = script::script(move |mut call| async move {
            let headers = [(header, "7"), ("content-type", "text/plain")];
            call.raw(status, &headers, "no");
        });
        let upstream = Upstream::builder().tool("shut", refuse).start().await;
        let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
        let client = gate.client().open().await;
        let refused = client.call_task("shut", json!({})).await;
        if status != 500 {
            assert_eq!((refused.status, refused.header(header)), (status, Some("7")), "{}", refused.raw);
        }
        assert!(!refused.raw.contains("taskId"), "{}", refused.raw);
        assert_eq!(client.list_tasks(None).await.result(), &json!({"tasks": []}), "{status}");
        assert_eq!(upstream.calls("shut").len(), 1);
    }
    let gate = Gate::at("http://127.0.0.1:1/mcp", "").await;
    let unreachable = gate.client().in_session(Some("gone")).call_task("slow", json!({})).await;
    assert_eq!((unreachable.code(), unreachable.reason()), (-32603, "upstream_unreachable"));
}

#[tokio::test]
async fn what_is_refused_after_the_handle_fails_the_task() {
    let late = script::script(|mut call| async move {
        sleep(ms(400)).await;
        call.raw(429, &[("retry-after", "7")], "slow down");
    });
    let upstream = Upstream::builder().tool("late", late).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let task = client.call_task("late", json!({})).await.core_task();
    let end = client.task_result(&task).await;
    assert_eq!(end.code(), -32603);
    assert!(end.raw.contains("429"), "{}", end.raw);
    assert_eq!(client.task(&task).await.state(), "failed");
}

/// The shortest time that calls take to be answered with a task.
async fn quickest(tool: &str, gate: &Gate) -> std::time::Duration {
    let client = gate.client().open().await;
    let mut best = ms(60_000);
    for _ in 0..3 {
        let started = Instant::now();
        client.call_task(tool, json!({})).await.core_task();
        best = best.min(started.elapsed());
    }
    best
}

#[tokio::test]
async fn at_once_is_when_it_is_accepted_or_after_a_quarter_of_a_second() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("mute", script::held(&latch, "late"))
        .tool("slow", script::accepted(&latch, "late"))
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let (mute, accepted) = (quickest("mute", &gate).await, quickest("slow", &gate).await);
    assert!(accepted < ms(200), "the head was there: {accepted:?}");
    assert!(mute > ms(200) && mute < ms(500), "no head: {mute:?}");
    assert_eq!((upstream.calls("mute").len(), upstream.calls("slow").len()), (3, 3));
}

#[tokio::test]
async fn b52_a_tool_that_is_held_refuses_task() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool_with("sync", &json!({"execution": {"taskSupport": "forbidden"}}), script::held(&latch, "late"))
        .start()
        .await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"sync\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    let client = gate.client().open().await;
    let refused = client.call_task("sync", json!({})).await;
    assert_eq!((refused.status, refused.code()), (200, -32601));
    assert!(refused.error()["message"].as_str().unwrap().contains("does not run as a task"), "{}", refused.raw);
    assert!(upstream.calls("sync").is_empty());
    assert_eq!(client.tools().await.result()["tools"][0]["execution"]["taskSupport"], "forbidden");
}

#[tokio::test]
async fn sessions_of_older_revisions_know_nothing_of_tasks() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let mut client = gate.client().version(version);
        let hello = client.hello().await;
        assert!(hello.result()["capabilities"].get("tasks").is_none(), "{}", hello.raw);
        let tools = client.tools().await;
        assert!(tools.result()["tools"][0].get("execution").is_none(), "{}", tools.raw);
        let handle = client.call_task("slow", json!({})).await;
        let job = handle.job();
        assert!(handle.result().get("task").is_none(), "{}", handle.raw);
        assert_eq!(client.task_result(&job).await.code(), -32601, "{version}");
        assert_eq!(client.list_tasks(None).await.code(), -32601, "{version}");
    }
    latch.open();
}

#[tokio::test]
async fn b52_task_support_is_told_on_every_page() {
    let mut builder = Upstream::builder().page(1);
    for (name, execution) in [
        ("none", Value::Null),
        ("forbidden", json!({"taskSupport": "forbidden"})),
        ("required", json!({"taskSupport": "required", "x": 1})),
        ("sync", json!({"taskSupport": "forbidden", "y": 2})),
        ("bare_sync", Value::Null),
    ] {
        let more = if execution.is_null() { json!({}) } else { json!({"execution": execution}) };
        builder = builder.tool_with(name, &more, script::says("x"));
    }
    let upstream = builder.start().await;
    let rule = "[upstream]\n[[upstream.rule]]\ntool = \"*sync\"\nmode = \"sync\"";
    let gate = Gate::start(&upstream, rule).await;
    let client = gate.client().open().await;
    for round in 0..2 {
        let (mut seen, mut cursor) = (Vec::new(), None::<Value>);
        loop {
            let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let page = client.request("tools/list", params).await;
            let theirs = &page.result()["tools"][0];
            seen.push((theirs["name"].as_str().unwrap().to_owned(), theirs.get("execution").cloned()));
            let ours = page.result()["tools"].as_array().unwrap()[1..].to_vec();
            assert!(ours.iter().all(|tool| tool.get("execution").is_none()), "{}", page.raw);
            cursor = page.result().get("nextCursor").cloned();
            if cursor.is_none() {
                break;
            }
        }
        let optional = json!({"taskSupport": "optional"});
        let expected = [
            ("none".to_owned(), Some(optional.clone())),
            ("forbidden".to_owned(), Some(optional)),
            ("required".to_owned(), Some(json!({"taskSupport": "optional", "x": 1}))),
            ("sync".to_owned(), Some(json!({"taskSupport": "forbidden", "y": 2}))),
            ("bare_sync".to_owned(), None),
        ];
        assert_eq!(seen, expected, "round {round}");
    }
}

#[tokio::test]
async fn b31_a_dead_upstream_session_is_passed_on_and_makes_no_task() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nowner = \"session\"").await;
    let client = gate.client().open().await;
    let task = client.call_task("slow", json!({})).await.core_task();
    latch.open();
    assert_eq!(client.task_end(&task).await.state(), "completed");
    upstream.forget_sessions();
    let gone = client.call_task("slow", json!({})).await;
    assert_eq!((gone.status, gone.code()), (404, -32001));
    assert_eq!(client.list_tasks(None).await.result()["tasks"].as_array().unwrap().len(), 1, "no task was made");
    assert_eq!(client.task_result(&task).await.text(), "late", "finished work stays readable");
}

#[tokio::test]
async fn b97_over_a_cap_a_task_is_refused_unsent_and_a_job_is_held() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_running_per_owner = 1").await;
    let client = gate.client().open().await;
    let first = client.call_task("slow", json!({})).await.core_task();
    let refused = client.call_task("slow", json!({})).await;
    assert_eq!((refused.status, refused.code(), refused.reason()), (200, -32603, "too_many_tasks"));
    assert_eq!(upstream.calls("slow").len(), 1, "it is refused before it is sent");
    let meddling = async {
        eventually("the job is sent", || upstream.calls("slow").len() == 2).await;
        sleep(ms(150)).await; // past the threshold
        latch.open();
    };
    let (held, ()) = tokio::join!(client.call("slow", json!({})), meddling);
    assert_eq!(held.text(), "late");
    assert_eq!(client.task_result(&first).await.text(), "late");
    client.call_task("slow", json!({})).await.core_task();
}

#[tokio::test]
async fn b55_b56_a_ttl_is_honoured_within_bounds_and_ends() {
    let (upstream, latch) = Upstream::accepting("late").await;
    let gate = Gate::start(&upstream, "[tasks]\nttl = \"10s\"\nmax_ttl = \"20s\"").await;
    let client = gate.client().open().await;
    let mut brief = String::new();
    for (ttl, least) in [(json!(12_000), 12_000), (json!(86_400_000), 20_000), (Value::Null, 10_000), (json!(0), 1_000)]
    {
        let handle = client.call_with("slow", json!({"task": {"ttl": ttl}})).await;
        let told = handle.result()["task"]["ttl"].as_u64().unwrap();
        assert!((least..least + 900).contains(&told), "{ttl}: {told}, elapsed and retention");
        brief = handle.core_task();
    }
    sleep(ms(1_200)).await;
    assert_eq!(client.task(&brief).await.state(), "working", "while it works it cannot expire");
    latch.open();
    assert_eq!(client.task_result(&brief).await.text(), "late");
    sleep(ms(1_050)).await;
    for expired in [client.task(&brief).await, client.task_result(&brief).await, client.cancel_task(&brief).await] {
        assert_eq!((expired.status, expired.code()), (200, -32602));
        assert_eq!(expired.error()["message"], "Task has expired");
    }
}
