//! Stateless clients in front of a server of their own era that knows nothing of tasks, and refuses whatever does not
//! fit that era to the letter.

mod lists;
mod restart;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::client::EXTENSION;
use crate::support::upstream::{Builder, Recorded, script};
use crate::support::{Client, Gate, Latch, PATIENT, Upstream, eventually, ms, throughout, within};

/// A result with everything that must not change.
const RICH: &str =
    r#"{"resultType":"complete","content":[{"type":"text","text":"42"}],"n":1.50,"_meta":{"x/y":1e400}}"#;

/// A server with a fast tool, and one that ends when the latch opens.
fn tools(latch: &Latch) -> Builder {
    Upstream::builder()
        .native()
        .tool("fast", script::answers(RICH))
        .tool("slow", script::held(latch, "slow end"))
        .tool("endless", script::until_gone())
}

/// A client that declares tasks.
fn tasks(gate: &Gate) -> Client {
    gate.client().stateless_with_tasks(json!({}))
}

/// A client that does not.
fn plain(gate: &Gate) -> Client {
    gate.client().stateless(json!({}))
}

/// What was sent for `tool`.
fn sent(upstream: &Upstream, tool: &str) -> Recorded {
    upstream.calls(tool).pop().expect("it was called")
}

#[tokio::test]
async fn a_fast_call_passes_untouched_and_a_slow_one_becomes_a_task() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nharvest_progress = false\nthreshold = \"400ms\"").await;
    let client = tasks(&gate).header("x-own", "1");
    let body =
        client.body("\"a b\"", "tools/call", json!({"name": "fast", "arguments": {"n": 1.5}, "_meta": {"z": 1}}));
    let fast = client.ask(body.clone()).await;
    assert_eq!((fast.status, fast.raw), (200, format!(r#"{{"jsonrpc":"2.0","id":"a b","result":{RICH}}}"#)));
    let request = sent(&upstream, "fast");
    assert_eq!((request.body.as_str(), request.header("x-own"), request.session()), (body.as_str(), Some("1"), None));
    let handle = client.call("slow", json!({})).await;
    let task = handle.task();
    for absent in ["content", "task", "result", "structuredContent"] {
        assert!(handle.result().get(absent).is_none(), "{}", handle.raw);
    }
    assert_eq!(client.task(&task).await.state(), "working");
    latch.open();
    let end = client.task_end(&task).await;
    assert_eq!((end.result()["resultType"].as_str(), end.state().as_str()), (Some("complete"), "completed"));
    assert_eq!(end.result()["result"]["content"][0]["text"], "slow end");
    assert_eq!(end.result()["result"]["resultType"], "complete");
    // One question what it speaks, one request per call; the polls are ours.
    let methods: Vec<_> = upstream.all().iter().map(|request| request.method().to_owned()).collect();
    assert_eq!(methods, ["server/discover", "tools/call", "tools/call"]);
}

#[tokio::test]
async fn b58_what_one_request_declared_means_nothing_for_the_next() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let (declares, does_not) = (tasks(&gate).bearer("u"), plain(&gate).bearer("u"));
    declares.call("slow", json!({})).await.task();
    let handle = does_not.call("slow", json!({})).await;
    assert_eq!(handle.result()["resultType"], "complete", "{}", handle.raw);
    let job = handle.job();
    let running = does_not.job(&job, 0.0).await;
    assert_eq!((running.state().as_str(), &running.result()["resultType"]), ("running", &json!("complete")));
    latch.open();
    let end = does_not.job_end(&job).await;
    assert_eq!((end.state().as_str(), end.block(1)), ("done", "slow end"));
    assert_eq!(end.result()["resultType"], "complete");
    assert_eq!(end.raw.matches("resultType").count(), 1, "{}", end.raw);
    // Either way reads either record.
    assert_eq!(declares.task(&job).await.state(), "completed");
    assert_eq!(does_not.job("nothing", 0.0).await.result()["resultType"], "complete");
    assert_eq!(does_not.cancel_job(&job).await.result()["resultType"], "complete");
}

#[tokio::test]
async fn b59_tasks_of_who_declares_none_are_not_touched() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"400ms\"").await;
    let (client, other) = (tasks(&gate), plain(&gate));
    let task = client.call("slow", json!({})).await.task();
    for (method, params) in [
        ("tasks/get", json!({"taskId": task})),
        ("tasks/update", json!({"taskId": task, "inputResponses": {}})),
        ("tasks/cancel", json!({"taskId": task})),
    ] {
        let refused = other.request(method, params).await;
        assert_eq!((refused.status, refused.code()), (400, -32021), "{method}");
        let required = &refused.error()["data"]["requiredCapabilities"];
        assert_eq!(required, &json!({"extensions": {EXTENSION: {}}}), "{method}");
    }
    for method in ["tasks/result", "tasks/list"] {
        let unknown = client.request(method, json!({"taskId": task})).await;
        assert_eq!((unknown.status, unknown.code()), (404, -32601), "{method}");
    }
    assert!(upstream.disconnects().is_empty());
    let ignored = other.call_with("fast", json!({"arguments": {}, "task": {"ttl": 1}})).await;
    assert!(ignored.raw.contains(RICH) && !sent(&upstream, "fast").body.contains("\"task\""), "{}", ignored.raw);
    latch.open();
    assert_eq!(client.task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn b60_headers_agree_with_the_body_wherever_taskgate_acts() {
    let latch = Latch::new();
    let upstream = tools(&latch).tool("caf\u{e9}", script::says("au lait")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"400ms\"").await;
    let client = tasks(&gate);
    let task = client.call("slow", json!({})).await.task();
    let calls = upstream.all().len();
    let get = tasks(&gate).body("1", "tasks/get", json!({"taskId": task}));
    for (name, status) in [(Some("5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11"), 400), (None, 200)] {
        let name = name.map(|name| ("mcp-name", name));
        let headers = [VERSION, ("mcp-method", "tasks/get")].into_iter().chain(name);
        let (found, text) = exactly(&gate, headers, &get).await;
        assert_eq!((found, text.contains("-32020")), (status, status == 400), "{text}");
    }
    let call = |name: &'static str| tasks(&gate).body("1", "tools/call", json!({"name": name, "arguments": {}}));
    for (header, value) in [("mcp-name", "slow"), ("mcp-method", "tools/list"), ("mcp-protocol-version", "2027-01-01")]
    {
        let reply = client.send("POST", &[(header, value)], call("fast")).await;
        let (status, text) = (reply.status, reply.text().await);
        assert!(status == 400 && text.contains("-32020"), "{header}: {status} {text}");
    }
    assert_eq!(upstream.all().len(), calls, "the upstream hears of none of it");
    let named = [VERSION, ("Mcp-Name", "=?base64?Y2Fmw6k=?="), ("MCP-METHOD", "tools/call")];
    let (status, text) = exactly(&gate, named, &call("caf\u{e9}")).await;
    assert!(status == 200 && text.contains("au lait"), "{status} {text}");
    // What is missing on what taskgate answers is refused here.
    let job = json!({"name": "get_job_result", "arguments": {"job_id": task}});
    let job = plain(&gate).body("1", "tools/call", job);
    let all = [VERSION, ("mcp-method", "tools/call"), ("mcp-name", "get_job_result")];
    assert_eq!(exactly(&gate, all, &job).await.0, 200);
    for left_out in all {
        let (status, text) = exactly(&gate, all.into_iter().filter(|header| *header != left_out), &job).await;
        assert!(status == 400 && text.contains("-32020"), "{left_out:?}: {status} {text}");
    }
}

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

/// Status and body for a request with these headers and no other that says anything of it.
async fn exactly(gate: &Gate, headers: impl IntoIterator<Item = (&str, &str)>, body: &str) -> (u16, String) {
    let common = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let headers: Vec<_> = common.into_iter().chain(headers).collect();
    let reply = gate.http().send("POST", "/mcp", &headers, body.to_owned()).await;
    (reply.status, reply.text().await)
}

#[tokio::test]
async fn b61_a_strict_server_accepts_all_that_taskgate_sends() {
    let (latch, more) = (
        Latch::new(),
        json!({
            "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
            "annotations": {"idempotentHint": true},
        }),
    );
    let breaks = script::script(|mut call| async move {
        if call.before == 0 {
            return call.cut().await;
        }
        call.say("second time");
    });
    let upstream =
        tools(&latch).tool_with("region", &more, script::held(&latch, "there")).tool_with("breaks", &more, breaks);
    let upstream = upstream.page(1).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nretry = \"idempotent\"\nthreshold = \"400ms\"").await;
    let client = plain(&gate).header("mcp-param-region", "eu");
    // The names of the job tools are learnt in the name of a call.
    assert_eq!(plain(&gate).job("5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11", 0.0).await.state(), "not_found");
    let pages = upstream.of("tools/list");
    assert_eq!(pages.len(), 5, "all pages");
    assert!(
        pages
            .iter()
            .all(|page| page.json["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28")
    );
    let job = client.call("region", json!({"region": "eu"})).await.job();
    assert_eq!(sent(&upstream, "region").header("mcp-param-region"), Some("eu"));
    let again = client.call("breaks", json!({"region": "eu"})).await;
    assert_eq!((again.text(), upstream.calls("breaks").len()), ("second time", 2));
    latch.open();
    assert_eq!(client.job_end(&job).await.block(1), "there");
    let refused: Vec<_> = upstream.all().into_iter().filter(|request| request.session().is_some()).collect();
    assert!(refused.is_empty());
}

#[tokio::test]
async fn b61a_two_hundred_polls_ask_the_upstream_nothing() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = tasks(&gate);
    let task = client.call("slow", json!({})).await.task();
    let before = upstream.all().len();
    for _ in 0..200 {
        assert_eq!(client.task(&task).await.state(), "working");
    }
    assert_eq!(upstream.all().len(), before);
    latch.open();
}

#[tokio::test]
async fn b33_who_leaves_before_the_handle_withdraws_its_call() {
    let upstream = tools(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = tasks(&gate);
    assert!(timeout(ms(100), client.call("endless", json!({}))).await.is_err());
    within(ms(1000), "the exchange is closed", || upstream.disconnects().len() == 1).await;
    gate.gauge("running_tasks", 0).await;
    assert!(upstream.cancels().is_empty(), "there is no such notification in this era");
}

#[tokio::test]
async fn b33_who_leaves_after_the_handle_leaves_a_task() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let task = tasks(&gate).call("slow", json!({})).await.task();
    throughout(ms(50), "the exchange goes on", || upstream.disconnects().is_empty()).await;
    latch.open();
    assert_eq!(tasks(&gate).task_end(&task).await.state(), "completed");
}

#[tokio::test]
async fn b33_no_call_is_left_running_whose_handle_nobody_got() {
    let upstream = tools(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"20ms\"").await;
    let client = tasks(&gate);
    for wait in 14..34 {
        let _ = timeout(ms(wait), client.call("endless", json!({}))).await;
    }
    gate.gauge("held_calls", 0).await;
    // Of whoever left while the handle was on its way, the call is withdrawn, or a task that can be read.
    let sent = upstream.calls("endless").len();
    tokio::time::sleep(ms(50)).await;
    gate.gauge("running_tasks", sent - upstream.disconnects().len()).await;
}

#[tokio::test]
async fn cancelling_a_task_closes_its_exchange() {
    let upstream = tools(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = tasks(&gate);
    let task = client.call("endless", json!({})).await.task();
    let swallowed = client.cancelled(&json!(1)).await;
    assert_eq!((swallowed.status, swallowed.raw.as_str()), (202, ""));
    throughout(ms(30), "nothing is withdrawn by that", || upstream.disconnects().is_empty()).await;
    assert_eq!(client.cancel_task(&task).await.result(), &json!({"resultType": "complete"}));
    within(ms(1000), "the exchange is closed", || upstream.disconnects().len() == 1).await;
    assert_eq!(client.task(&task).await.state(), "cancelled");
    let methods: Vec<_> = upstream.all().iter().map(|request| request.method().to_owned()).collect();
    assert_eq!(methods, ["server/discover", "tools/call"]);
}

#[tokio::test]
async fn a_call_that_runs_too_long_is_closed_too() {
    let upstream = tools(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nmax_runtime = \"150ms\"").await;
    let client = tasks(&gate);
    let task = client.call("endless", json!({})).await.task();
    let end = client.task_end(&task).await;
    assert_eq!((end.state().as_str(), &end.result()["error"]["data"]["reason"]), ("failed", &json!("max_runtime")));
    eventually("the exchange is closed", || upstream.disconnects().len() == 1).await;
}

#[tokio::test]
async fn progress_is_asked_for_and_kept_back() {
    let latch = Latch::new();
    let meshing = script::script({
        let latch = latch.clone();
        move |mut call| {
            let latch = latch.clone();
            async move {
                call.progress(4.0, 10.0, "meshing");
                latch.passed().await;
                call.say("done");
            }
        }
    });
    let upstream = Upstream::builder().native().tool("mesh", meshing).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = tasks(&gate);
    let handle = client.call("mesh", json!({})).await;
    assert!(handle.before("notifications/progress").is_empty(), "it was asked for by taskgate alone");
    let task = handle.task();
    let told = client.task(&task).await;
    assert_eq!(told.result()["statusMessage"], "40% (4.0 of 10.0): meshing", "{}", told.raw);
    latch.open();
    let token = client.call_with("mesh", json!({"arguments": {}, "_meta": {"progressToken": "mine"}})).await;
    let progress = token.before("notifications/progress");
    assert_eq!((progress.len(), &progress[0]["params"]["progressToken"]), (1, &json!("mine")));
}

#[tokio::test]
async fn clients_without_tasks_are_held_or_refused_where_that_is_asked_for() {
    for (without, told) in [("hold", 200), ("refuse", 400)] {
        let latch = Latch::new();
        let upstream = tools(&latch).start().await;
        let gate = Gate::start(&upstream, &format!("[tasks]\nwithout_tasks = \"{without}\"")).await;
        let client = plain(&gate);
        let (answer, ()) = tokio::join!(client.call("slow", json!({})), async {
            tokio::time::sleep(ms(150)).await;
            latch.open();
        });
        assert_eq!(answer.status, told, "{}", answer.raw);
        if told == 200 {
            assert_eq!(answer.text(), "slow end");
        } else {
            let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
            assert_eq!((answer.code(), &answer.error()["data"]), (-32021, &required));
            assert!(upstream.calls("slow").is_empty());
        }
        assert_eq!(tasks(&gate).call("fast", json!({})).await.status, 200);
    }
}

#[tokio::test]
async fn everything_else_is_the_upstreams() {
    let own = script::responds(
        200,
        &[("content-type", "application/json"), ("x-own", "1")],
        br#"{"jsonrpc":"2.0","id":9,"result":{"n":1.50}}"#,
    );
    let upstream = Upstream::builder().native().on("vendor/own", own).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = plain(&gate);
    let answer = client.ask(client.body("9", "vendor/own", json!({}))).await;
    assert_eq!(
        (answer.raw.as_str(), answer.header("x-own")),
        (r#"{"jsonrpc":"2.0","id":9,"result":{"n":1.50}}"#, Some("1"))
    );
    let unknown = client.request("vendor/other", json!({})).await;
    assert_eq!((unknown.status, unknown.code()), (404, -32601));
    let later = client.send("POST", &[("mcp-protocol-version", "2027-01-01")], text("2027-01-01")).await;
    assert_eq!(later.status, 400, "a version that taskgate does not know is the upstream's to judge");
    assert_eq!(upstream.of("prompts/get").len(), 1);
    for method in ["GET", "DELETE"] {
        assert_eq!(client.send(method, &[], String::new()).await.status, 405, "{method}");
    }
    assert!(upstream.http("GET").is_empty() && upstream.http("DELETE").is_empty());
}

fn text(version: &str) -> String {
    let meta =
        json!({"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "p", "_meta": meta}}).to_string()
}

#[tokio::test]
async fn an_upstream_that_is_down_says_so_under_the_callers_id() {
    let gate = Gate::at("http://127.0.0.1:1/mcp", "").await;
    for (client, method) in
        [(tasks(&gate), "tools/call"), (plain(&gate), "server/discover"), (plain(&gate), "prompts/list")]
    {
        let answer = client.ask(client.body("\"mine\"", method, json!({"name": "x"}))).await;
        assert_eq!(
            (answer.status, answer.reason(), &answer.json["id"]),
            (200, "upstream_unreachable", &json!("mine")),
            "{method}"
        );
    }
}

/// A server with the tasks extension of its own.
fn with_tasks() -> Builder {
    let made = json!({"resultType": "task", "taskId": "theirs", "status": "working"});
    let task = json!({"resultType": "complete", "taskId": "theirs", "status": "completed", "result": {}});
    Upstream::builder()
        .native()
        .capabilities(json!({"tools": {}, "extensions": {EXTENSION: {"own": 1}}}))
        .tool(
            "slow",
            script::script(move |mut call| {
                let made = made.clone();
                async move { call.result(&made) }
            }),
        )
        .on(
            "tasks/get",
            script::script(move |mut call| {
                let task = task.clone();
                async move { call.result(&task) }
            }),
        )
}

#[tokio::test]
async fn a_server_with_tasks_of_its_own_is_left_alone() {
    let upstream = with_tasks().start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = tasks(&gate);
    // Also before anybody has asked what it can do.
    assert_eq!(client.task("theirs").await.state(), "completed");
    let hello = client.request("server/discover", json!({})).await;
    assert_eq!(hello.result()["capabilities"]["extensions"], json!({EXTENSION: {"own": 1}}));
    assert_eq!(client.call("slow", json!({})).await.task(), "theirs");
    assert_eq!(
        client.task("5f0e3a4c-93d5-4f0f-8d3c-1b6c2a0e7d11").await.state(),
        "completed",
        "unknown ids are theirs"
    );
    let tools: Vec<Value> = client.tools().await.result()["tools"].as_array().unwrap().clone();
    assert_eq!(tools.len(), 1);
}

#[tokio::test]
async fn there_are_no_sessions_in_this_era() {
    let later = script::script(|mut call| async move {
        call.open();
        call.say("later");
    });
    let upstream = Upstream::builder().native().header("mcp-session-id", "theirs").tool("streams", later);
    let upstream = upstream.tool("echo", script::echo()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = tasks(&gate).in_session(Some("mine"));
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "x"}})),
        ("tools/call", json!({"name": "streams"})),
        ("prompts/list", json!({})),
    ] {
        let answer = client.request(method, params).await;
        assert_eq!(answer.header("mcp-session-id"), None, "{method}");
    }
    assert!(upstream.all().iter().all(|request| request.session().is_none()));
    assert!(upstream.all().len() > 5);
}
