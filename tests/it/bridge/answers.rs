//! Results, errors, tasks and notifications, each in the words of the other era.

use super::*;

#[tokio::test]
async fn a_fast_call_is_a_complete_result() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let answer = client.call("fast", json!({"n": 1})).await;
    assert_eq!((answer.status, answer.text()), (200, "fast end"));
    assert_eq!(answer.result()["resultType"], "complete");
    assert!(answer.result()["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{}", answer.raw);
    assert_eq!(answer.header("mcp-session-id"), None, "the session is taskgate's own business");
    let seen = &upstream.calls("fast")[0];
    for header in ["mcp-method", "mcp-name"] {
        assert_eq!(seen.header(header), None, "{header}");
    }
    assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
    let meta = seen.json["params"]["_meta"].as_object().cloned().unwrap_or_default();
    assert!(meta.keys().all(|key| !key.starts_with("io.modelcontextprotocol/")), "{meta:?}");
    let hello = &upstream.of("initialize")[0].json["params"];
    assert_eq!(hello["clientInfo"]["name"], "story");
    assert_eq!(hello["capabilities"], json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}));
    assert_eq!(upstream.of("notifications/initialized").len(), 1);
}

#[tokio::test]
async fn what_initialize_told_is_discovered() {
    let upstream = Upstream::builder()
        .capabilities(json!({"tools": {"listChanged": true}, "logging": {}}))
        .instructions("mind the mesh")
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let answer = tasks(&gate).request("server/discover", json!({})).await;
    let told = answer.result();
    assert_eq!(told["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(told["instructions"], "mind the mesh");
    let expected = json!({
        "tools": {"listChanged": true}, "logging": {}, "extensions": {"io.modelcontextprotocol/tasks": {}},
    });
    assert_eq!(told["capabilities"], expected);
    assert_eq!((&told["ttlMs"], &told["cacheScope"]), (&json!(0), &json!("private")));
}

#[tokio::test]
async fn a_slow_call_is_a_task_that_its_client_reads_and_cancels() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate).bearer("a");
    let handle = client.call("slow", json!({})).await;
    assert_eq!((handle.status, handle.result()["resultType"].as_str()), (200, Some("task")));
    assert!(handle.result().get("content").is_none(), "{}", handle.raw);
    let second = client.call("slow", json!({})).await;
    latch.open();
    let ended = client.task_end(&handle.task()).await;
    assert_eq!(ended.result()["status"], "completed");
    assert_eq!(ended.result()["result"]["resultType"], "complete");
    assert_eq!(ended.result()["result"]["content"][0]["text"], "slow end");
    let _ = client.task_end(&second.task()).await;
    let acknowledged = client.cancel_task(&handle.task()).await;
    assert_eq!(acknowledged.result(), &json!({"resultType": "complete"}));
}

#[tokio::test]
async fn cancelling_a_task_reaches_the_server_by_the_name_its_call_has_there() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate);
    let handle = client.call("endless", json!({})).await;
    let acknowledged = client.cancel_task(&handle.task()).await;
    assert_eq!(acknowledged.result()["resultType"], "complete");
    eventually("the server hears of it", || !upstream.cancels().is_empty()).await;
    let (call, cancel) = (&upstream.calls("endless")[0], &upstream.cancels()[0]);
    assert_eq!(cancel.json["params"]["requestId"].to_string(), call.id());
    assert_eq!(cancel.session(), call.session());
    // Its session goes with it, once nobody needs it.
    eventually("the session is closed", || !upstream.http("DELETE").is_empty()).await;
}

#[tokio::test]
async fn b33_leaving_before_the_handle_cancels_and_leaving_after_it_does_not() {
    let latch = Latch::new();
    let upstream = tools(&latch).tool("endless", script::until_cancelled()).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = tasks(&gate);
    let body = client.body("1", "tools/call", json!({"name": "endless", "arguments": {}}));
    let call = tokio::spawn(async move { client.ask(body).await });
    eventually("it is called", || !upstream.calls("endless").is_empty()).await;
    call.abort();
    eventually("the server hears of it", || !upstream.cancels().is_empty()).await;
    gate.gauge("running_tasks", 0).await;

    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate);
    let task = client.call("slow", json!({})).await.task();
    drop(client);
    latch.open();
    let other = tasks(&gate);
    assert_eq!(other.task_end(&task).await.result()["status"], "completed");
    assert_eq!(upstream.cancels().len(), 1);
}

#[tokio::test]
async fn errors_have_the_codes_and_statuses_of_the_stateless_era() {
    let upstream = Upstream::builder()
        .tool(
            "sour",
            script::script(|mut call| async move { call.error(-32002, "no such mesh", &json!({"uri": "x"})) }),
        )
        .on("resources/read", script::script(|mut call| async move { call.error(-32002, "none", &Value::Null) }))
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    let answer = client.call("sour", json!({})).await;
    assert_eq!((answer.status, answer.code()), (200, -32602));
    assert_eq!(client.request("resources/read", json!({"uri": "mesh://1"})).await.code(), -32602);
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "x/y"] {
        let body = client.body("1", "x", json!({})).replace("\"x\"", &format!("{method:?}"));
        let answer = client.ask(body).await;
        assert_eq!((answer.status, answer.code()), (404, -32601), "{method}");
    }
    for method in ["tasks/list", "tasks/result"] {
        let answer = tasks(&gate).request(method, json!({"taskId": "x"})).await;
        assert_eq!((answer.status, answer.code()), (404, -32601), "{method}");
    }
    let unknown = tasks(&gate).task("7f2b8a34-8d3a-4a51-9b76-0a1f6f1e7c10").await;
    assert_eq!((unknown.status, unknown.code()), (200, -32602));
}

#[tokio::test]
async fn b59_tasks_are_for_requests_that_declare_them() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let task = tasks(&gate).call("slow", json!({})).await.task();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let answer = plain(&gate).request(method, json!({"taskId": task, "inputResponses": {}})).await;
        assert_eq!((answer.status, answer.code()), (400, -32021), "{method}");
        let required = &answer.error()["data"]["requiredCapabilities"];
        assert_eq!(required, &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    }
    // A declaration of another request is none of this one's: it gets a job handle, and no task.
    let handle = plain(&gate).call("slow", json!({})).await;
    assert_eq!(handle.result()["resultType"], "complete");
    let _ = handle.job();
    let patient = bridged(&upstream, 30_000, "").await;
    let fast = tasks(&patient).call_with("fast", json!({"arguments": {}, "task": {"ttl": 1}})).await;
    assert_eq!(fast.text(), "fast end");
    latch.open();
}

#[tokio::test]
async fn a_tool_that_is_only_for_clients_with_tasks_is_refused_before_anything_is_sent() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "without_tasks = \"refuse\"").await;
    let answer = plain(&gate).call("slow", json!({})).await;
    assert_eq!((answer.status, answer.code()), (400, -32021));
    assert!(upstream.of("initialize").is_empty(), "no session was opened for it");
    assert_eq!(tasks(&gate).call("slow", json!({})).await.result()["resultType"], "task");
    latch.open();
}

#[tokio::test]
async fn b60_headers_that_do_not_repeat_the_body_are_refused() {
    let latch = Latch::new();
    let upstream = tools(&latch).tool("größe", script::says("umlaut")).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = tasks(&gate);
    let body = |tool: &str| client.body("7", "tools/call", json!({"name": tool, "arguments": {}}));
    for (headers, tool, code) in [
        (vec![("mcp-name", "slow")], "fast", Some(-32020)),
        (vec![("mcp-method", "tools/list")], "fast", Some(-32020)),
        (vec![("mcp-protocol-version", "2027-01-01")], "fast", Some(-32020)),
        (vec![("mcp-name", "=?base64?Z3LDtsOfZQ==?=")], "größe", None),
        (vec![("Mcp-Name", "fast")], "fast", None),
    ] {
        let answer = Answer::read(client.send("POST", &headers, body(tool)).await).await;
        match code {
            Some(code) => assert_eq!((answer.status, answer.code()), (400, code), "{headers:?}"),
            None => assert!(!answer.text().is_empty(), "{headers:?}"),
        }
        assert_eq!(answer.json["id"], 7, "{headers:?}");
    }
    let lacking = client.send("POST", &[], crate::support::client::text_request("8", "tools/list", &json!({}))).await;
    let lacking = Answer::read(lacking).await;
    assert_eq!((lacking.status, lacking.code()), (400, -32602), "no _meta");
    assert_eq!(upstream.calls("fast").len(), 1);
}

#[tokio::test]
async fn progress_and_log_messages_come_as_asked_for() {
    let upstream = Upstream::builder()
        .capabilities(json!({"tools": {}, "logging": {}}))
        .tool(
            "talk",
            script::script(|mut call| async move {
                call.progress(1.0, 2.0, "half");
                for level in ["debug", "warning"] {
                    call.notify("notifications/message", &json!({"level": level, "data": level}));
                }
                call.notify("notifications/tools/list_changed", &json!({}));
                call.say("talked");
            }),
        )
        .on("logging/setLevel", script::script(|mut call| async move { call.result(&json!({})) }))
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate).bearer("a");
    let silent = client.call("talk", json!({})).await;
    assert!(silent.events.iter().all(|event| event.data.is_none()), "{:?}", silent.events);
    let meta = json!({"progressToken": "mine", "io.modelcontextprotocol/logLevel": "info"});
    let told = client.call_with("talk", json!({"arguments": {}, "_meta": meta})).await;
    assert_eq!(told.before("notifications/progress")[0]["params"]["progressToken"], "mine");
    let logs: Vec<Value> =
        told.before("notifications/message").iter().map(|log| log["params"]["level"].clone()).collect();
    assert_eq!(logs, ["warning"]);
    assert_eq!(told.events.iter().filter(|event| event.data.is_some()).count(), 2, "{:?}", told.events);
    assert_eq!(upstream.of("logging/setLevel").len(), 1);
    let token = upstream.calls("talk")[1].json["params"]["_meta"]["progressToken"].clone();
    assert!(token != "mine" && token.is_string(), "it is ours upstream: {token}");
}

#[tokio::test]
async fn pages_of_tools_are_edited_for_who_reads_them() {
    let latch = Latch::new();
    let upstream = tools(&latch).page(2).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let first = plain(&gate).request("tools/list", json!({})).await;
    let names = |answer: &Answer| -> Vec<String> {
        let tools = answer.result()["tools"].as_array().expect("tools").clone();
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&first), ["fast", "slow", "get_job_result", "cancel_job"]);
    assert_eq!((&first.result()["ttlMs"], &first.result()["cacheScope"]), (&json!(0), &json!("private")));
    let cursor = first.result()["nextCursor"].clone();
    assert_eq!(names(&plain(&gate).request("tools/list", json!({"cursor": cursor})).await), ["who"]);
    let declared = tasks(&gate).request("tools/list", json!({})).await;
    assert_eq!(names(&declared), ["fast", "slow"], "who has tasks needs no job tools");
}

#[tokio::test]
async fn b89_auto_leaves_clients_without_tasks_to_the_upstreams_own_answer() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let probe = plain(&gate).request("server/discover", json!({})).await;
    assert_eq!((probe.status, probe.code()), (400, -32001), "{}", probe.raw);
    assert!(probe.error()["data"]["source"].is_null(), "it is the upstream's own");
    let declared = tasks(&gate).request("server/discover", json!({})).await;
    assert_eq!(declared.result()["supportedVersions"], json!(["2026-07-28"]));
    let off = Gate::start(&upstream, "[upstream]\nbridge = \"off\"\n").await;
    assert_eq!(tasks(&off).request("server/discover", json!({})).await.code(), -32001);
}

#[tokio::test]
async fn b61_headers_that_repeat_arguments_are_judged_here() {
    let region =
        json!({"inputSchema": {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}}});
    let upstream = Upstream::builder().tool_with("place", &region, script::says("placed")).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = plain(&gate);
    client.request("tools/list", json!({})).await.result();
    let call = |header: Option<&'static str>, region: &str| {
        let body = client.body("1", "tools/call", json!({"name": "place", "arguments": {"r": region}}));
        let headers: Vec<_> = header.map(|value| ("mcp-param-region", value)).into_iter().collect();
        let client = &client;
        async move { Answer::read(client.send("POST", &headers, body).await).await }
    };
    for (header, region) in [(Some("us"), "us"), (Some("=?base64?w6k=?="), "é"), (Some("=?base64?dXM"), "=?base64?dXM")]
    {
        assert_eq!(call(header, region).await.text(), "placed", "{header:?}");
    }
    for (header, region) in
        [(None, "us"), (Some("eu"), "us"), (Some("=?base64?w6k?="), "é"), (Some("=?base64?w*k=?="), "é")]
    {
        let refused = call(header, region).await;
        assert_eq!((refused.status, refused.code()), (400, -32020), "{header:?}");
    }
    assert_eq!(upstream.calls("place").len(), 3);
    assert!(upstream.calls("place").iter().all(|seen| seen.header("mcp-param-region").is_none()));
}
