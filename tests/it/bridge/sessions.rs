//! The sessions that taskgate has upstream for clients which have none.

use super::*;

#[tokio::test]
async fn b101_one_owner_has_no_more_sessions_than_configured() {
    let upstream = Upstream::builder().tool("count", script::says("counted")).start().await;
    let gate = Gate::start(&upstream, &format!("{PATIENT}{ALWAYS}bridge_max_sessions = 2\n")).await;
    let clients: Vec<Client> = (0..4)
        .map(|kind| gate.client().bearer("a").stateless(json!({"roots": {}, "experimental": {"kind": kind}})))
        .collect();
    let calls = (0..200).map(|n| clients[n % 4].call("count", json!({"n": n})));
    for answer in join_all(calls).await {
        assert_eq!(answer.text(), "counted");
    }
    let mut open = 0;
    for seen in upstream.all() {
        match (seen.method(), &*seen.http) {
            ("initialize", _) => open += 1,
            (_, "DELETE") => open -= 1,
            _ => {}
        }
        assert!(open <= 2, "{open} at a time");
    }
    assert!(upstream.of("initialize").len() >= 4, "each kind of client has a session of its own");
    let one = gate.client().bearer("b").stateless(json!({}));
    let before = upstream.of("initialize").len();
    for answer in join_all((0..50).map(|n| one.call("count", json!({"n": n})))).await {
        assert_eq!(answer.text(), "counted");
    }
    assert_eq!(upstream.of("initialize").len(), before + 1, "one kind of client, one session");
}

#[tokio::test]
async fn b09_two_credentials_never_share_a_session() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    for token in ["a", "b"] {
        let client = tasks(&gate).bearer(token);
        assert_eq!(client.call("who", json!({"ms": 0})).await.text(), format!("Bearer {token}"));
        assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    }
    // Who has no credential has a session of its own for every call, and that is closed after it.
    for _ in 0..2 {
        assert_eq!(tasks(&gate).call("who", json!({"ms": 0})).await.text(), "none");
    }
    let calls: Vec<_> = upstream.all().into_iter().filter(|seen| seen.method() == "tools/call").collect();
    let sessions: HashSet<_> = calls.iter().map(|call| call.session().expect("a session").to_owned()).collect();
    assert_eq!(sessions.len(), 4);
    for call in &calls {
        let mates = calls.iter().filter(|other| other.session() == call.session());
        assert!(mates.clone().all(|other| other.header("authorization") == call.header("authorization")));
    }
    eventually("both are closed", || upstream.http("DELETE").len() == 2).await;
}

#[tokio::test]
async fn sharing_among_callers_without_a_credential_is_written_by_hand() {
    let upstream = Upstream::builder().tool("fast", script::says("fast end")).start().await;
    let gate = Gate::start(&upstream, "[upstream]\nbridge = \"always\"\nbridge_sessions = \"shared\"\n").await;
    for _ in 0..3 {
        assert_eq!(plain(&gate).call("fast", json!({})).await.text(), "fast end");
    }
    assert_eq!(upstream.of("initialize").len(), 1);
}

#[tokio::test]
async fn a_session_that_the_server_has_lost_is_opened_again_and_the_call_runs_once() {
    let upstream = Upstream::builder().tool("fast", script::says("fast end")).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = tasks(&gate).bearer("a");
    assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    upstream.forget_sessions();
    assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    assert_eq!(upstream.of("initialize").len(), 2);
    assert_eq!(upstream.calls("fast").len(), 3, "one was refused for its session");
}

#[tokio::test]
async fn an_upstream_that_opens_no_session_answers_itself() {
    let denied = script::responds(401, &[("www-authenticate", "Bearer realm=\"meshes\"")], b"who are you?");
    let upstream = Upstream::builder().on("initialize", denied).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    let answer = tasks(&gate).call("fast", json!({})).await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"meshes\""));
    let gone = Gate::at("http://127.0.0.1:9/mcp", ALWAYS).await;
    let answer = tasks(&gone).call("fast", json!({})).await;
    assert_eq!((answer.status, answer.reason()), (200, "upstream_unreachable"));
}

#[tokio::test]
async fn a_server_without_session_ids_is_bridged_too() {
    let latch = Latch::new();
    let upstream = tools(&latch).without_sessions().start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate).bearer("a");
    assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    let task = client.call("slow", json!({})).await.task();
    latch.open();
    assert_eq!(client.task_end(&task).await.result()["status"], "completed");
    assert!(upstream.all().iter().all(|seen| seen.session().is_none()));
    assert_eq!(upstream.of("initialize").len(), 1);
}

#[tokio::test]
async fn tasks_belong_to_the_credential_that_made_them() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let task = tasks(&gate).bearer("a").call("slow", json!({})).await.task();
    for stranger in [tasks(&gate).bearer("b"), tasks(&gate)] {
        for method in ["tasks/get", "tasks/cancel"] {
            let answer = stranger.request(method, json!({"taskId": task})).await;
            assert_eq!((answer.status, answer.code()), (200, -32602), "{method}");
            assert_eq!(answer.error()["message"], "Task is not available in this session");
        }
    }
    latch.open();
    assert_eq!(tasks(&gate).bearer("a").task_end(&task).await.result()["status"], "completed");
}

#[tokio::test]
async fn a_session_that_nobody_uses_is_closed() {
    let upstream = Upstream::builder().tool("fast", script::says("fast end")).start().await;
    let gate = Gate::start(&upstream, &format!("[server]\nsession_idle = \"100ms\"\n{ALWAYS}")).await;
    let client = tasks(&gate).bearer("a");
    assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    eventually("it is closed", || upstream.http("DELETE").len() == 1).await;
    assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    assert_eq!(upstream.of("initialize").len(), 2);
}

#[tokio::test]
async fn while_the_process_goes_down_calls_are_refused_and_tasks_are_read() {
    let latch = Latch::new();
    let upstream = tools(&latch).start().await;
    let gate = bridged(&upstream, 30, "").await;
    let client = tasks(&gate).bearer("a");
    let task = client.call("slow", json!({})).await.task();
    gate.drain();
    let refused = client.call("fast", json!({})).await;
    assert_eq!((refused.status, refused.reason()), (200, "shutting_down"));
    assert_eq!(client.task(&task).await.result()["status"], "working");
    latch.open();
    assert_eq!(client.task_end(&task).await.result()["status"], "completed");
}

#[tokio::test]
async fn b95_a_task_of_a_bridged_call_goes_on_after_a_restart() {
    let latch = Latch::new();
    let upstream = Upstream::solver(&latch).start().await;
    let home = Home::new();
    let overrides = format!("[tasks]\nthreshold = \"30ms\"\n{ALWAYS}");
    let gate = home.start(&upstream, &overrides).await;
    let client = tasks(&gate);
    let task = client.call("solve", json!({"text": "solved"})).await.task();
    let asked = client.call("plain", json!({})).await.task();
    gate.leave().await;
    let gate = home.start(&upstream, &overrides).await;
    latch.open();
    let client = tasks(&gate);
    let ended = client.task_end(&task).await;
    assert_eq!(ended.result()["result"]["content"][0]["text"], "solved");
    assert_eq!(client.task_end(&asked).await.result()["error"]["data"]["reason"], "outcome_unknown");
}

#[tokio::test]
async fn b31_servers_that_say_400_for_a_session_they_do_not_know_get_another() {
    let lost =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    let upstream = Upstream::builder()
        .tool(
            "fast",
            script::script(move |mut call| async move {
                match call.before {
                    1 => call.raw(400, &[("content-type", "application/json")], lost),
                    _ => call.say("fast end"),
                }
            }),
        )
        .on("ping", script::responds(400, &[("content-type", "application/json")], lost.as_bytes()))
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = tasks(&gate).bearer("a");
    for _ in 0..2 {
        assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    }
    assert_eq!(upstream.of("initialize").len(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_while_a_session_is_opened_leaves_it_to_the_next() {
    let door = Latch::new();
    let waits = door.clone();
    let upstream = Upstream::builder()
        .tool("fast", script::says("fast end"))
        .on(
            "initialize",
            script::script(move |mut call| {
                let waits = waits.clone();
                async move {
                    waits.passed().await;
                    call.header("mcp-session-id", "only");
                    call.result(&json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}));
                }
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let client = tasks(&gate).bearer("a");
    let left = tokio::spawn(async move { client.call("fast", json!({})).await });
    eventually("it is opened", || upstream.of("initialize").len() == 1).await;
    left.abort();
    let client = tasks(&gate).bearer("a");
    let next = tokio::spawn(async move { client.call("fast", json!({})).await });
    tokio::time::sleep(ms(30)).await;
    assert_eq!(upstream.of("initialize").len(), 1, "who comes next waits for the same session");
    door.open();
    next.await.expect("it is answered");
    let sessions: HashSet<_> = upstream.calls("fast").iter().map(|call| call.session().map(str::to_owned)).collect();
    assert!(sessions.contains(&Some("only".to_owned())), "{sessions:?}");
}

#[tokio::test]
async fn each_request_is_counted_once_whatever_it_took_upstream() {
    let upstream = Upstream::builder().tool("fast", script::says("fast end")).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    for client in [tasks(&gate), tasks(&gate).bearer("a")] {
        client.request("server/discover", json!({})).await.result();
        assert_eq!(client.call("fast", json!({})).await.text(), "fast end");
    }
    let (_, told) = gate.admin("/metrics").await;
    let counted = |method: &str| -> u64 {
        let lines = told.lines().filter(|line| line.contains("requests_total{") && line.contains(method));
        lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)).sum()
    };
    assert_eq!((counted("server/discover"), counted("tools/call"), counted("initialize")), (2, 2, 0), "{told}");
}

#[tokio::test]
async fn a_process_that_goes_down_leaves_no_session_behind() {
    let upstream = Upstream::builder().tool("fast", script::says("fast end")).start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    for token in ["a", "b"] {
        assert_eq!(tasks(&gate).bearer(token).call("fast", json!({})).await.text(), "fast end");
    }
    gate.leave().await;
    assert_eq!((upstream.of("initialize").len(), upstream.http("DELETE").len()), (2, 2));
}

#[tokio::test]
async fn an_error_that_names_the_session_does_not_tell_its_client() {
    let upstream = Upstream::builder()
        .tool(
            "sour",
            script::script(|mut call| async move {
                let session = call.request.session().unwrap_or_default().to_owned();
                call.raw(500, &[("content-type", "text/plain")], format!("session {session} is broken"));
            }),
        )
        .start()
        .await;
    let gate = bridged(&upstream, 30_000, "").await;
    let answer = tasks(&gate).call("sour", json!({})).await;
    let session = upstream.calls("sour")[0].session().expect("one was opened").to_owned();
    assert!(answer.error()["message"].as_str().is_some_and(|text| text.contains("is broken")), "{}", answer.raw);
    assert!(!answer.raw.contains(&session), "{}", answer.raw);
}

#[tokio::test]
async fn b95_a_clean_stop_leaves_a_session_whose_work_goes_on_and_closes_all_others() {
    for credential in [None, Some("a")] {
        let latch = Latch::new();
        let upstream = Upstream::solver(&latch).start().await;
        let home = Home::new();
        let overrides = format!("[tasks]\nthreshold = \"30ms\"\n{ALWAYS}");
        let gate = home.start(&upstream, &overrides).await;
        let client = |gate: &Gate| match credential {
            Some(token) => tasks(gate).bearer(token),
            None => tasks(gate),
        };
        let goes_on = client(&gate).call("solve", json!({"text": "solved"})).await.task();
        let lost = plain(&gate).bearer("other").call("plain", json!({})).await.job();
        gate.drain();
        gate.finished().await;
        drop(gate);
        let of = |tool: &str| upstream.calls(tool)[0].session().map(str::to_owned);
        let closed: Vec<_> = upstream.http("DELETE").iter().map(|seen| seen.session().map(str::to_owned)).collect();
        assert_eq!(closed, [of("plain")], "{credential:?}");
        let gate = home.start(&upstream, &overrides).await;
        let client = client(&gate);
        let _ = client.task(&goes_on).await;
        latch.open();
        assert_eq!(client.task_end(&goes_on).await.result()["status"], "completed", "{credential:?}");
        let _ = lost;
    }
}

#[tokio::test]
async fn a_question_that_nobody_answers_holds_up_no_stop() {
    let upstream = Upstream::builder().tool("ask", script::curious(&Latch::opened())).start().await;
    let gate = bridged(&upstream, 30_000, "[server]\ndrain_timeout = \"30s\"").await;
    let client = plain(&gate).bearer("a");
    let _ = asked(&client.call("ask", json!({})).await);
    gate.drain();
    tokio::time::timeout(ms(5_000), gate.finished()).await.expect("nothing is waited for");
    eventually("the server hears of it", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.http("DELETE").len(), 1);
}

#[tokio::test]
async fn what_goes_no_further_is_counted_too() {
    let upstream = Upstream::builder().start().await;
    let gate = bridged(&upstream, 30_000, "").await;
    for method in ["notifications/cancelled", "notifications/progress"] {
        assert_eq!(plain(&gate).notify(method, &json!({})).await.status, 202);
    }
    assert_eq!(plain(&gate).send("GET", &[], String::new()).await.status, 405);
    let (_, told) = gate.admin("/metrics").await;
    let lines = told.lines().filter(|line| line.contains("requests_total{"));
    let counted: u64 = lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)).sum();
    assert_eq!(counted, 3, "{told}");
}
