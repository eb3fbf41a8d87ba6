//! Clients that open sessions, in front of a server of the stateless era that accepts nothing else.

use serde_json::{Value, json};

use crate::support::client::EXTENSION;
use crate::support::dialect::{STRANGER, reaches};
use crate::support::upstream::{Builder, script};
use crate::support::{Dialect, Gate, Latch, PATIENT, Upstream, eventually};

const DONE: &str = r#"{"content":[{"type":"text","text":"42"}],"structuredContent":{"n":9007199254740993},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"1"}}}"#;
const TOOL_ERROR: &str = r#"{"content":[{"type":"text","text":"no such mesh"}],"isError":true}"#;

/// A server with a fast tool, and one that ends as its argument says when the latch opens.
fn server(latch: &Latch) -> Builder {
    let ending = script::held_then(latch, |call| script::ends(call, DONE, TOOL_ERROR));
    Upstream::builder()
        .modern()
        .capabilities(json!({"tools": {"listChanged": true}, "logging": {}, "extensions": {EXTENSION: {}}}))
        .instructions("be kind")
        .tool("echo", script::echo())
        .tool("ending", ending)
}

#[tokio::test]
async fn a_session_is_opened_for_what_the_server_says_of_itself() {
    let upstream = server(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    for (n, version) in ["2025-11-25", "2025-06-18", "2024-11-05"].iter().enumerate() {
        let mut client = gate.client().version(version).capabilities(json!({"roots": {}}));
        let hello = client.hello().await;
        assert_eq!(hello.status, 200, "{}", hello.raw);
        let result = hello.result();
        assert_eq!((&result["protocolVersion"], &result["instructions"]), (&json!(version), &json!("be kind")));
        assert_eq!(result["serverInfo"], json!({"name": "modern", "version": "1"}));
        let mut capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        if *version == "2025-11-25" {
            capabilities["tasks"] = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        assert_eq!(result["capabilities"], capabilities);
        for stateless in ["resultType", "ttlMs", "cacheScope", "supportedVersions", "_meta"] {
            assert!(result.get(stateless).is_none(), "{}", hello.raw);
        }
        let session = client.session.clone().expect("a session");
        assert!(uuid::Uuid::parse_str(&session).is_ok(), "{session}");
        assert_eq!(client.notify("notifications/initialized", &json!({})).await.status, 202);
        assert_eq!(client.request("ping", json!({})).await.result(), &json!({}));
        // It is found out once; from then on nobody asks for a session.
        assert_eq!(upstream.of("initialize").len(), 1);
        assert_eq!(upstream.of("server/discover").len(), n + 1);
    }
    assert_eq!(upstream.of("ping").len() + upstream.of("notifications/initialized").len(), 0);
}

#[tokio::test]
async fn every_way_of_refusing_a_session_is_understood() {
    let refusals = [
        (400, "application/json", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"x"}}"#),
        (404, "application/json", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}"#),
        (200, "application/json", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x"}}"#),
        (400, "text/plain", "what?"),
        (404, "text/html", ""),
        (405, "text/html", ""),
    ];
    for (status, kind, body) in refusals {
        let refuses = script::script(move |mut call| async move { call.raw(status, &[("content-type", kind)], body) });
        let upstream = server(&Latch::new()).on("initialize", refuses).start().await;
        let gate = Gate::start(&upstream, PATIENT).await;
        let client = gate.client().open().await;
        assert_eq!(client.call("echo", json!({"text": "hi"})).await.text(), "hi", "{status}");
    }
}

#[tokio::test]
async fn who_may_not_ask_hears_so() {
    let upstream = server(&Latch::new())
        .on("initialize", script::responds(401, &[("www-authenticate", "Bearer")], b"who?"))
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let hello = gate.client().hello().await;
    assert_eq!((hello.status, hello.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(upstream.of("server/discover").len(), 0);
    // The same once the server is known.
    let upstream = server(&Latch::new()).on("server/discover", picky()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    gate.client().bearer("good").open().await;
    let hello = gate.client().bearer("bad").hello().await;
    assert_eq!((hello.status, hello.header("www-authenticate")), (401, Some("Bearer")));
    assert!(hello.header("mcp-session-id").is_none());
}

/// Answers `server/discover` for every credential but `bad`.
fn picky() -> script::Script {
    script::script(|mut call| async move {
        if call.request.header("authorization").is_some_and(|credential| credential.ends_with("bad")) {
            return call.raw(401, &[("www-authenticate", "Bearer")], "");
        }
        call.result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}));
    })
}

#[tokio::test]
async fn nothing_is_joined_where_bridges_are_off_or_both_eras_are_spoken() {
    let upstream = server(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, "[upstream]\nbridge = \"off\"\n").await;
    let hello = gate.client().hello().await;
    assert_eq!((hello.status, hello.code()), (400, -32022), "{}", hello.raw);
    assert_eq!(upstream.of("server/discover").len(), 0);
    let both = script::answers(r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{}}"#);
    let upstream = server(&Latch::new()).on("server/discover", both).start().await;
    let gate = Gate::start(&upstream, "").await;
    let hello = gate.client().hello().await;
    assert_eq!((hello.status, hello.code()), (400, -32022), "{}", hello.raw);
}

#[tokio::test]
async fn a_server_that_learns_the_other_era_is_believed() {
    for keeps_both in [false, true] {
        let hello =
            script::script(
                |mut call| async move { if call.before == 0 { call.raw(404, &[], "") } else { call.hello() } },
            );
        let discover = script::script(move |mut call| async move {
            match (call.before, keeps_both) {
                (0, _) => call.result(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {}})),
                (_, true) => call.result(&json!({"supportedVersions": ["2026-07-28", "2025-11-25"]})),
                (_, false) => call.raw(404, &[], ""),
            }
        });
        let server = server(&Latch::new()).on("initialize", hello).on("server/discover", discover);
        let upstream = server.start().await;
        let gate = Gate::start(&upstream, "").await;
        let hello = gate.client().hello().await;
        assert!(hello.result().get("capabilities").is_some() && hello.header("mcp-session-id").is_some());
        let hello = gate.client().hello().await;
        assert_eq!(hello.result()["serverInfo"]["name"], "scripted", "{}", hello.raw);
    }
}

#[tokio::test]
async fn requests_say_what_the_session_said() {
    let upstream = server(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let capabilities = json!({"roots": {"listChanged": true}, "extensions": {EXTENSION: {}, "x/y": {"a": 1}}});
    let client = gate.client().capabilities(capabilities).open().await;
    let params = json!({"arguments": {"text": "hi"}, "_meta": {"own": 7}});
    let answer = client.call_with("echo", params).await;
    assert_eq!(answer.result(), &json!({"content": [{"type": "text", "text": "hi"}]}));
    let call = &upstream.calls("echo")[0];
    let meta = &call.json["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"], json!({"name": "story", "version": "1"}));
    let told = json!({"roots": {"listChanged": true}, "extensions": {"x/y": {"a": 1}}});
    assert_eq!((&meta["io.modelcontextprotocol/clientCapabilities"], &meta["own"]), (&told, &json!(7)));
    assert!(meta.get("io.modelcontextprotocol/logLevel").is_none());
    assert_eq!(client.request("logging/setLevel", json!({"level": "warning"})).await.result(), &json!({}));
    assert_eq!(client.request("logging/setLevel", json!({"level": "loud"})).await.code(), -32602);
    client.call("echo", json!({"text": "hi"})).await.result();
    assert_eq!(upstream.calls("echo")[1].json["params"]["_meta"]["io.modelcontextprotocol/logLevel"], "warning");
    assert_eq!(client.notify("notifications/roots/list_changed", &json!({})).await.status, 202);
    assert_eq!(upstream.of("logging/setLevel").len() + upstream.of("notifications/roots/list_changed").len(), 0);
}

#[tokio::test]
async fn lists_lose_what_older_clients_cannot_read() {
    let upstream = server(&Latch::new())
        .tool_with(
            "open",
            &json!({"outputSchema": {"type": "array"}}),
            script::answers(r#"{"content":[],"structuredContent":[1,2.0]}"#),
        )
        .page(2)
        .start()
        .await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30s\"\n[jobs]\noutput_schema = \"keep\"\n").await;
    let client = gate.client().open().await;
    let page = client.tools().await;
    assert_eq!(page.result()["nextCursor"], "2");
    assert!(page.result().get("resultType").is_none(), "{}", page.raw);
    let names: Vec<_> = page.result()["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["echo", "ending", "get_job_result", "cancel_job"]);
    let page = client.request("tools/list", json!({"cursor": "2"})).await;
    let open = &page.result()["tools"][0];
    assert_eq!((&open["name"], open.get("outputSchema")), (&json!("open"), None));
    assert_eq!(
        client.call("open", json!({})).await.result(),
        &json!({"content": [{"type": "text", "text": "[1,2.0]"}]})
    );
}

#[tokio::test]
async fn slow_calls_are_tasks_in_every_dialect() {
    for dialect in Dialect::ALL {
        for how in ["result", "tool", "protocol"] {
            let latch = Latch::new();
            let upstream = server(&latch).start().await;
            let gate = Gate::start(&upstream, "").await;
            let client = dialect.client(&gate, json!({})).open().await;
            let id = dialect.start(&client, "ending", json!({"how": how})).await;
            assert_eq!(client.task(&id).await.state(), "working", "{dialect:?}");
            latch.open();
            let end = dialect.wait(&client, &id).await;
            assert!(!end.raw.contains("serverInfo"), "{dialect:?}: {}", end.raw);
            let result = match dialect {
                Dialect::Ext => end.result().get("result"),
                Dialect::Core => end.json.get("result"),
                Dialect::Job => Some(end.result()),
            };
            let is_typed = result.is_some_and(|result| result.get("resultType").is_some());
            assert!(!is_typed, "{dialect:?}: {}", end.raw);
            match how {
                "result" => assert!(end.raw.contains(r#""structuredContent":{"n":9007199254740993}"#), "{}", end.raw),
                "tool" => assert!(end.raw.contains("no such mesh"), "{}", end.raw),
                _ => assert!(end.raw.contains("out of tokens"), "{}", end.raw),
            }
            assert_eq!(upstream.calls("ending").len(), 1);
        }
    }
}

#[tokio::test]
async fn errors_keep_a_session_alive() {
    let upstream = server(&Latch::new())
        .tool("bad", script::responds(400, &[("content-type", "application/json")],
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"declare it","data":{"requiredCapabilities":{}}}}"#))
        .tool("task", script::answers(r#"{"resultType":"task","taskId":"t","status":"working"}"#))
        .start()
        .await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().extension().open().await;
    let unknown = client.request("prompts/list", json!({})).await;
    assert_eq!((unknown.status, unknown.code()), (200, -32601), "{}", unknown.raw);
    let refused = client.call("bad", json!({})).await;
    assert_eq!((refused.status, refused.code()), (200, -32603), "{}", refused.raw);
    assert_eq!(refused.error()["message"], "declare it");
    let task = client.call("task", json!({})).await;
    assert_eq!((task.code(), task.reason()), (-32603, "upstream_protocol"), "{}", task.raw);
    assert_eq!(client.task(STRANGER).await.code(), -32602);
    // The same when a task was made of it before.
    let latch = Latch::new();
    let late =
        script::held_then(&latch, |mut call| async move { call.result(&json!({"resultType": "task", "taskId": "t"})) });
    let upstream = server(&latch).tool("late", late).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().extension().open().await;
    let id = client.call("late", json!({})).await.task();
    latch.open();
    let end = reaches(&client, &id, "failed").await;
    assert_eq!(end.result()["error"]["data"]["reason"], "upstream_protocol", "{}", end.raw);
}

#[tokio::test]
async fn an_argument_that_a_header_repeats_is_found_by_listing() {
    let schema =
        json!({"inputSchema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}});
    for (dialect, settings) in [(Dialect::Job, PATIENT), (Dialect::Core, ""), (Dialect::Ext, "")] {
        let upstream = server(&Latch::new()).tool_with("routed", &schema, script::echo()).start().await;
        let gate = Gate::start(&upstream, settings).await;
        let client = dialect.client(&gate, json!({})).open().await;
        let call = || async {
            match dialect {
                Dialect::Core => {
                    let id = dialect.start(&client, "routed", json!({"text": "hi"})).await;
                    dialect.text(&client, &id).await
                }
                Dialect::Job | Dialect::Ext => client.call("routed", json!({"text": "hi"})).await.text().to_owned(),
            }
        };
        assert_eq!(call().await, "hi", "{dialect:?}");
        let sent = upstream.calls("routed");
        assert_eq!(sent.iter().map(|call| call.header("mcp-param-text")).collect::<Vec<_>>(), [None, Some("hi")]);
        assert_eq!(upstream.of("tools/list").len(), 1);
        // It is known from then on, to other sessions too.
        assert_eq!(call().await, "hi");
        assert_eq!(upstream.calls("routed").len(), 3);
    }
    // A server that is never content is not asked for ever.
    let stubborn = script::script(|mut call| async move { call.error(-32020, "Header mismatch", &Value::Null) });
    let upstream = server(&Latch::new()).tool("stubborn", stubborn).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let refused = gate.client().open().await.call("stubborn", json!({})).await;
    assert_eq!((refused.code(), upstream.calls("stubborn").len()), (-32603, 2), "{}", refused.raw);
}

#[tokio::test]
async fn progress_and_log_messages_pass() {
    let talks = script::script(|mut call| async move {
        call.progress(1.0, 2.0, "half");
        call.notify("notifications/message", &json!({"level": "info", "data": "hm"}));
        call.say("done");
    });
    let upstream = server(&Latch::new()).tool("talks", talks).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let answer = client.call_with("talks", json!({"arguments": {}, "_meta": {"progressToken": 7}})).await;
    let progress = answer.before("notifications/progress");
    assert_eq!((progress.len(), &progress[0]["params"]["progressToken"]), (1, &json!(7)));
    assert_eq!(answer.before("notifications/message").len(), 1);
    assert_eq!(answer.text(), "done");
    let silent = client.call("talks", json!({})).await;
    assert_eq!(silent.before("notifications/progress").len(), 0);
}

#[tokio::test]
async fn a_cancellation_closes_the_exchange() {
    let upstream = Upstream::builder().modern().tool("slow", script::until_gone()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let call = client.post(client.body("\"c\"", "tools/call", json!({"name": "slow", "arguments": {}})));
    let cancelling = async {
        eventually("the call is there", || upstream.calls("slow").len() == 1).await;
        assert_eq!(client.cancelled(&json!("c")).await.status, 202);
    };
    let (reply, ()) = tokio::join!(call, cancelling);
    assert_eq!(reply.text().await, "");
    eventually("the exchange is closed", || upstream.disconnects().len() == 1).await;
    // And of a task, in every dialect.
    let gate = Gate::start(&upstream, "").await;
    for (n, dialect) in Dialect::ALL.into_iter().enumerate() {
        let client = dialect.client(&gate, json!({})).open().await;
        let id = dialect.start(&client, "slow", json!({})).await;
        dialect.cancel(&client, &id).await.result();
        eventually("the exchange is closed", || upstream.disconnects().len() == n + 2).await;
    }
    assert_eq!(upstream.cancels().len(), 0);
}

#[tokio::test]
async fn a_session_ends_here() {
    let latch = Latch::new();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    assert_eq!(client.delete().await.status, 204);
    assert_eq!(client.request("ping", json!({})).await.status, 404);
    // With a task that nobody could read any more, and with one of a credential.
    for (bearer, ends) in [(None, true), (Some("U"), false)] {
        let other = |client: crate::support::Client| match bearer {
            Some(token) => client.bearer(token),
            None => client,
        };
        let client = other(gate.client().extension()).open().await;
        let id = client.call("ending", json!({})).await.task();
        let closed = upstream.disconnects().len();
        assert_eq!(client.delete().await.status, 204);
        if ends {
            eventually("it is cancelled", || upstream.disconnects().len() == closed + 1).await;
        } else {
            let reader = other(gate.client().extension()).open().await;
            assert_eq!(reader.task(&id).await.state(), "working");
        }
    }
    assert_eq!(upstream.http("DELETE").len(), 0);
}

#[tokio::test]
async fn large_results_are_put_in_other_words_too() {
    let text: &'static str = Box::leak("x".repeat(400_000).into_boxed_str());
    let upstream = server(&Latch::new()).tool("large", script::says(text)).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let answer = gate.client().open().await.call("large", json!({})).await;
    assert_eq!((answer.text().len(), answer.result().get("resultType")), (400_000, None));
}

#[tokio::test]
async fn a_client_that_lost_its_stream_finds_the_answer_in_its_words() {
    let latch = Latch::new();
    let upstream = server(&latch).tool("slow", script::accepted(&latch, "found")).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().open().await;
    let mut stream = client.post(client.body("7", "tools/call", json!({"name": "slow"}))).await.events();
    let cursor = stream.next().await.and_then(|event| event.id).expect("an id to come back with");
    drop(stream);
    latch.open();
    let headers = [("accept", "text/event-stream"), ("last-event-id", &cursor)];
    let mut rest = client.send("GET", &headers, String::new()).await.events();
    let answer = rest.message().await.unwrap();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(7), &json!("found")));
    assert!(answer["result"].get("resultType").is_none(), "{answer}");
}

#[tokio::test]
async fn messages_of_a_batch_go_their_ways() {
    let upstream = server(&Latch::new()).start().await;
    let gate = Gate::start(&upstream, PATIENT).await;
    let client = gate.client().version("2025-03-26").open().await;
    let call = |id: u8| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}});
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let answers = client.ask(json!([call(1), call(2), ping]).to_string()).await;
    let text = json!({"content": [{"type": "text", "text": "hi"}]});
    let results: Vec<_> = answers.json.as_array().unwrap().iter().map(|answer| answer["result"].clone()).collect();
    assert_eq!(results, [text.clone(), text, json!({})]);
}

#[tokio::test]
async fn equal_calls_share_no_exchange() {
    let latch = Latch::new();
    let upstream = server(&latch).start().await;
    let gate = Gate::start(&upstream, "[tasks]\nthreshold = \"30s\"\ncoalesce = true\n").await;
    let client = gate.client().open().await;
    let call = || client.call("ending", json!({}));
    let opening = async {
        eventually("both are there", || upstream.calls("ending").len() == 2).await;
        latch.open();
    };
    let (one, two, ()) = tokio::join!(call(), call(), opening);
    assert_eq!((one.text(), two.text(), upstream.calls("ending").len()), ("42", "42", 2));
    assert!(one.result().get("resultType").is_none() && two.result().get("resultType").is_none());
}
