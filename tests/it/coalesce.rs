//! Equal calls that share one piece of work, where that is wanted.
//!
//! An agent that repeats a slow call does not start the work again, and none of its calls suffers from the others.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::Answer;
use crate::support::upstream::script::{self, Script};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms, throughout, within};

const PROGRESS: &str = "notifications/progress";
const ON: &str = "[tasks]\ncoalesce = true\n";
/// The same, and nothing is deferred before its answer.
const HELD: &str = "[tasks]\ncoalesce = true\nthreshold = \"30s\"\n";

/// Waits until so many clients are in the session, then a little for the last to have joined.
async fn joined(upstream: &Upstream, tool: &str) {
    eventually("it is upstream", || !upstream.calls(tool).is_empty()).await;
    sleep(ms(60)).await;
}

async fn twice(client: &Client, tool: &str) -> (Answer, Answer) {
    tokio::join!(client.call(tool, json!({"n": 1})), client.call(tool, json!({"n": 1})))
}

fn session_only(client: &Client, gate: &Gate) -> Client {
    gate.client().in_session(client.session.as_deref())
}

#[tokio::test]
async fn b72_off_each_call_is_made() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, "").await;
    let client = gate.client().open().await;
    let (one, two) = twice(&client, "slow").await;
    assert_eq!(upstream.calls("slow").len(), 2);
    latch.open();
    for job in [one.job(), two.job()] {
        assert_eq!(client.job_end(&job).await.block(1), "done");
    }
}

#[tokio::test]
async fn b72_equal_calls_share_the_work_and_nothing_else() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let ext = session_only(&client, &gate).extension_per_request();
    let (one, two, three) = tokio::join!(
        client.call_as("7", "slow", json!({})),
        client.call_as("\"x\"", "slow", json!({})),
        ext.call("slow", json!({}))
    );
    assert_eq!((&one.json["id"], &two.json["id"]), (&json!(7), &json!("x")));
    let (one, two, three) = (one.job(), two.job(), three.task());
    assert!(one != two && two != three && one != three);
    assert_eq!(upstream.calls("slow").len(), 1);
    latch.open();
    assert_eq!(client.job_end(&one).await.block(1), "done");
    assert_eq!(client.job_end(&two).await.block(1), "done");
    assert_eq!(ext.task_end(&three).await.result()["result"]["content"][0]["text"], "done");

    let again = client.call("slow", json!({})).await;
    assert_eq!((again.text(), upstream.calls("slow").len()), ("done", 2), "what has ended is not joined");
    assert!(upstream.cancels().is_empty() && upstream.disconnects().is_empty());
}

#[tokio::test]
async fn b72_what_differs_is_not_shared() {
    let latch = Latch::new();
    let upstream = Upstream::builder()
        .tool("slow", script::held(&latch, "done"))
        .tool("other", script::held(&latch, ""))
        .start()
        .await;
    let gate = Gate::start(&upstream, ON).await;
    let (one, two) = (gate.client().open().await, gate.client().open().await);
    let credential = session_only(&one, &gate).bearer("t");
    let arguments = json!({"n": 1});
    tokio::join!(
        one.call("slow", arguments.clone()),
        one.call("slow", json!({"n": 2})),
        one.call("slow", json!({"n": "1"})),
        one.call("slow", json!({})),
        one.call("other", arguments.clone()),
        two.call("slow", arguments.clone()),
        credential.call("slow", arguments.clone()),
    );
    assert_eq!((upstream.calls("slow").len(), upstream.calls("other").len()), (6, 1));
    latch.open();

    let upstream = Upstream::builder().without_sessions().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    twice(&gate.client().open().await, "slow").await;
    assert_eq!(upstream.calls("slow").len(), 2, "nobody tells these callers apart");
}

#[tokio::test]
async fn b72_a_rule_decides_for_its_tools_and_held_calls_are_made() {
    let latch = Latch::new();
    let upstream = ["on", "off", "sync"]
        .iter()
        .fold(Upstream::builder(), |upstream, tool| upstream.tool(tool, script::held(&latch, "done")))
        .start()
        .await;
    let rules = "[upstream]\n[[upstream.rule]]\ntool = \"on\"\ncoalesce = true\n\
                 [[upstream.rule]]\ntool = \"sync\"\nmode = \"sync\"\ncoalesce = true";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().open().await;
    let opening = async {
        eventually("all are upstream", || upstream.calls("sync").len() == 2).await;
        latch.open();
    };
    tokio::join!(twice(&client, "on"), twice(&client, "off"), twice(&client, "sync"), opening);
    assert_eq!((upstream.calls("on").len(), upstream.calls("off").len()), (1, 2));
}

#[tokio::test]
async fn b72_the_same_arguments_written_differently_are_the_same() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let call = |id: u32, params: &str| {
        client.ask(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#))
    };
    let answers = join_all([
        call(101, r#"{"name":"slow","arguments":{"a":[1,{"x":1.50,"y":"é"}],"b":null}}"#),
        call(102, r#"{"arguments": { "b" : null,"a":[ 1,{"\u0079":"\u00e9","x":1.50}]}, "name":"slow"}"#),
        call(103, r#"{"name":"sl\u006fw","arguments":{"b":null,"a":[1,{"x":1.50,"y":"é"}]},"_meta":{"k":1}}"#),
    ])
    .await;
    assert!(answers.iter().all(|answer| answer.job().len() == 36));
    assert_eq!(upstream.calls("slow").len(), 1);
    tokio::join!(call(104, r#"{"name":"slow"}"#), call(105, r#"{"name":"slow","arguments":{}}"#));
    assert_eq!(upstream.calls("slow").len(), 2);
    call(106, r#"{"name":"slow","arguments":{"a":[1,{"x":1.5,"y":"é"}],"b":null}}"#).await;
    assert_eq!(upstream.calls("slow").len(), 3, "a number is what it is written as");
}

#[tokio::test]
async fn b72_who_cancels_leaves_the_others_alone() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let (one, two) = twice(&client, "slow").await;
    client.cancel_job(&one.job()).await.result();
    assert_eq!(client.job(&one.job(), 0.0).await.state(), "cancelled");
    throughout(ms(100), "the other goes on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty())
        .await;
    assert_eq!(client.job(&two.job(), 0.0).await.state(), "running");
    let three = client.call("slow", json!({"n": 1})).await;
    latch.open();
    for job in [two.job(), three.job()] {
        assert_eq!(client.job_end(&job).await.block(1), "done");
    }
    assert_eq!(client.job(&one.job(), 0.0).await.state(), "cancelled");
    assert_eq!((upstream.calls("slow").len(), upstream.cancels().len()), (1, 0));
}

#[tokio::test]
async fn b72_a_held_call_is_withdrawn_under_its_own_id() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().open().await;
    let meddling = async {
        joined(&upstream, "slow").await;
        // The first, whose id the call has upstream.
        assert_eq!(client.cancelled(&json!(101)).await.status, 202);
        throughout(ms(100), "the other goes on", || upstream.cancels().is_empty()).await;
        latch.open();
    };
    let first = client.call_as("101", "slow", json!({}));
    let second = async {
        joined(&upstream, "slow").await;
        client.call_as("102", "slow", json!({})).await
    };
    let (first, second, ()) = tokio::join!(first, second, async {
        sleep(ms(150)).await;
        meddling.await;
    });
    assert_eq!((first.json, first.raw.as_str()), (Value::Null, ""), "its stream ends without a message");
    assert_eq!((second.text(), &second.json["id"]), ("done", &json!(102)));
    assert_eq!(upstream.calls("slow").len(), 1);
}

#[tokio::test]
async fn b72_the_last_to_cancel_cancels_the_work() {
    let deaf = script::script(|mut call| async move { call.gone().await });
    let upstream = Upstream::builder().tool("deaf", deaf).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let ext = session_only(&client, &gate).extension_per_request();
    let (one, two) = tokio::join!(client.call("deaf", json!({})), ext.call("deaf", json!({})));
    client.cancel_job(&one.job()).await.result();
    ext.cancel_task(&two.task()).await.result();
    within(ms(1000), "the upstream is told", || upstream.cancels().len() == 1).await;
    within(ms(1000), "the exchange is closed", || upstream.disconnects().len() == 1).await;
    throughout(ms(100), "once", || upstream.cancels().len() == 1).await;
    let cancel = &upstream.cancels()[0];
    assert_eq!(cancel.json["params"]["requestId"].to_string(), upstream.calls("deaf")[0].id());
    assert_eq!(cancel.session(), client.session.as_deref());

    let three = client.call("deaf", json!({})).await;
    assert_eq!((three.job().len(), upstream.calls("deaf").len()), (36, 2), "cancelled work is not joined");
}

#[tokio::test]
async fn b72_a_client_that_drops_is_still_there() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"200ms\"").await;
    let client = gate.client().open().await;
    tokio::select! {
        _ = client.call("slow", json!({"n": 1})) => panic!("it is held"),
        () = joined(&upstream, "slow") => {}
    }
    let job = client.call("slow", json!({"n": 1})).await.job();
    client.cancel_job(&job).await.result();
    throughout(ms(100), "the work goes on", || upstream.cancels().is_empty() && upstream.disconnects().is_empty())
        .await;
    assert_eq!(upstream.calls("slow").len(), 1);
}

#[tokio::test]
async fn b72_each_runs_no_longer_than_it_may() {
    let upstream = Upstream::builder().tool("endless", script::until_cancelled()).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nmax_runtime = \"300ms\"").await;
    let client = gate.client().open().await;
    let one = client.call("endless", json!({})).await.job();
    sleep(ms(100)).await;
    let two = client.call("endless", json!({})).await.job();
    let end = client.job_end(&one).await;
    assert!(end.text().contains("max runtime"), "{}", end.raw);
    assert!(upstream.cancels().is_empty(), "the other may run on");
    let end = client.job_end(&two).await;
    assert!(end.text().contains("max runtime"), "{}", end.raw);
    within(ms(1000), "the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.calls("endless").len(), 1);
}

/// Reports three times, once it may, then answers once it may.
fn chatty(begin: &Latch, end: &Latch) -> Script {
    let (begin, end) = (begin.clone(), end.clone());
    script::script(move |mut call| {
        let (begin, end) = (begin.clone(), end.clone());
        async move {
            call.open();
            begin.passed().await;
            for step in 1..=3 {
                call.progress(f64::from(step), 4.0, "meshed");
                call.notify("notifications/message", &json!({"level": "info", "data": step}));
            }
            end.passed().await;
            call.say("done");
        }
    })
}

#[tokio::test]
async fn b72_each_sees_progress_under_its_own_token() {
    let (begin, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("chatty", chatty(&begin, &end)).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().open().await;
    let with = |token: Value| client.call_with("chatty", json!({"arguments": {}, "_meta": {"progressToken": token}}));
    let opening = async {
        joined(&upstream, "chatty").await;
        begin.open();
        end.open();
    };
    let (number, word, none, ()) =
        tokio::join!(with(json!(7)), with(json!("a\"b")), client.call("chatty", json!({})), opening);
    for (answer, token) in [(&number, json!(7)), (&word, json!("a\"b"))] {
        let seen = answer.before(PROGRESS);
        assert_eq!(seen.len(), 3, "{:?}", answer.events);
        assert!(seen.iter().all(|message| message["params"]["progressToken"] == token), "{token}: {seen:?}");
        assert_eq!(seen[2]["params"]["progress"].as_f64(), Some(3.0));
    }
    assert!(none.before(PROGRESS).is_empty(), "{:?}", none.events);
    for answer in [number, word, none] {
        assert_eq!((answer.text(), answer.before("notifications/message").len()), ("done", 3));
    }
    assert_eq!(upstream.calls("chatty").len(), 1);
}

#[tokio::test]
async fn b72_who_comes_late_has_a_clock_and_a_status_of_its_own() {
    let (begin, end) = (Latch::new(), Latch::new());
    let upstream = Upstream::builder().tool("chatty", chatty(&begin, &end)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"150ms\"").await;
    let client = gate.client().open().await;
    let early = client.call("chatty", json!({})).await;
    let started = tokio::time::Instant::now();
    let late = client.call("chatty", json!({})).await;
    assert!(started.elapsed() >= ms(140), "a threshold of its own: {:?}", started.elapsed());
    begin.open();
    for job in [early.job(), late.job()] {
        let told = async {
            while !client.job(&job, 0.0).await.text().contains("75% (3") {
                sleep(ms(10)).await;
            }
        };
        crate::support::soon("the last progress", told).await;
    }
    let opening = async {
        sleep(ms(50)).await;
        end.open();
    };
    let (inline, ()) = tokio::join!(client.call("chatty", json!({})), opening);
    assert_eq!(inline.text(), "done", "inline, though the others have a handle");
    for job in [early.job(), late.job()] {
        assert_eq!(client.job_end(&job).await.block(1), "done");
    }
    assert_eq!(upstream.calls("chatty").len(), 1);
}

#[tokio::test]
async fn b72_fast_calls_are_answered_inline() {
    for sse in [false, true] {
        let latch = Latch::new();
        let builder = Upstream::builder().header("x-own", "1").tool("fast", script::held(&latch, "quick"));
        let upstream = if sse { builder.sse() } else { builder }.start().await;
        let gate = Gate::start(&upstream, HELD).await;
        let client = gate.client().open().await;
        let opening = async {
            joined(&upstream, "fast").await;
            latch.open();
        };
        let ((one, two), ()) = tokio::join!(twice(&client, "fast"), opening);
        for answer in [one, two] {
            assert_eq!((answer.text(), answer.status, answer.header("x-own")), ("quick", 200, Some("1")), "{sse}");
            assert_eq!(answer.sse, sse);
        }
        assert_eq!(upstream.calls("fast").len(), 1, "{sse}");
    }
}

/// Asks, and says what was answered.
fn curious(begin: &Latch) -> Script {
    let begin = begin.clone();
    script::script(move |mut call| {
        let begin = begin.clone();
        async move {
            call.open();
            begin.passed().await;
            let pong = call.ask(&json!("p"), "ping", &json!({})).await;
            assert_eq!(pong["result"], json!({}));
            let answer = call.ask(&json!(0), "elicitation/create", &json!({"message": "go on?"})).await;
            call.say(answer["result"]["action"].as_str().unwrap_or("no answer"));
        }
    })
}

fn question(answer: &Answer) -> usize {
    answer.before("elicitation/create").len()
}

/// Answers of the session's clients that reached the upstream, save those to pings.
fn answers(upstream: &Upstream) -> Vec<Value> {
    let posts = upstream.http("POST").into_iter().filter(|post| post.method().is_empty());
    posts.map(|post| post.json).filter(|message| message["id"] == 0).collect()
}

#[tokio::test]
async fn b72_a_question_is_asked_once() {
    let begin = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(&begin)).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let first = client.post(client.body("1001", "tools/call", json!({"name": "curious"})));
    let mut first = first.await.events();
    let asked = async {
        sleep(ms(60)).await;
        begin.open();
        let question = first.message().await.unwrap();
        assert_eq!((&question["method"], &question["id"]), (&json!("elicitation/create"), &json!(0)));
        sleep(ms(50)).await;
        let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"action": "accept", "content": {}}});
        assert_eq!(client.ask(answer.to_string()).await.status, 202);
        first.message().await.unwrap()
    };
    let (second, first) = tokio::join!(client.call("curious", json!({})), asked);
    assert_eq!(first["result"]["content"][0]["text"], "accept");
    assert_eq!((second.text(), question(&second)), ("accept", 0));
    assert_eq!((upstream.calls("curious").len(), answers(&upstream).len()), (1, 1));
}

#[tokio::test]
async fn b72_a_question_goes_on_to_the_next_who_is_there() {
    let begin = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(&begin)).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().capabilities(json!({"elicitation": {}})).open().await;
    let open = async |id: &str| client.post(client.body(id, "tools/call", json!({"name": "curious"}))).await.events();
    let (mut withdrawn, mut dropped) = (open("1001").await, open("1002").await);
    let deaf = session_only(&client, &gate).accept("application/json");
    let json_only = async { deaf.call("curious", json!({})).await };
    let story = async {
        sleep(ms(60)).await;
        let mut last = open("1004").await;
        begin.open();
        assert_eq!(withdrawn.message().await.unwrap()["method"], "elicitation/create");
        client.cancelled(&json!(1001)).await;
        assert_eq!(dropped.message().await.unwrap()["method"], "elicitation/create");
        drop(dropped);
        assert_eq!(last.message().await.unwrap()["method"], "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"action": "accept", "content": {}}});
        assert_eq!(client.ask(answer.to_string()).await.status, 202);
        last.message().await.unwrap()
    };
    let (deaf, last) = tokio::join!(json_only, story);
    assert_eq!(last["result"]["content"][0]["text"], "accept");
    assert_eq!(deaf.text(), "accept");
    assert_eq!((upstream.calls("curious").len(), answers(&upstream).len()), (1, 1));
    assert!(upstream.cancels().is_empty());
}

#[tokio::test]
async fn b72_a_question_that_nobody_can_take_is_declined_once() {
    let begin = Latch::new();
    let upstream = Upstream::builder().tool("curious", curious(&begin)).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().accept("application/json").open().await;
    let opening = async {
        joined(&upstream, "curious").await;
        begin.open();
    };
    let ((one, two), ()) = tokio::join!(twice(&client, "curious"), opening);
    assert_eq!((one.text(), two.text()), ("decline", "decline"));
    assert_eq!((upstream.calls("curious").len(), answers(&upstream).len()), (1, 1));
}

#[tokio::test]
async fn b72_an_error_reaches_everybody() {
    let latch = Latch::new();
    let (wait, refuse) = (latch.clone(), latch.clone());
    let fails = script::script(move |mut call| {
        let latch = wait.clone();
        async move {
            latch.passed().await;
            call.error(-32050, "no such mesh", &json!({"k": 1}));
        }
    });
    let refuses = script::script(move |mut call| {
        let latch = refuse.clone();
        async move {
            latch.passed().await;
            call.raw(429, &[("retry-after", "7")], "slow down");
        }
    });
    let upstream = Upstream::builder().tool("fails", fails).tool("refuses", refuses).start().await;
    let rules = "[tasks]\ncoalesce = true\n[upstream]\n[[upstream.rule]]\ntool = \"refuses\"\nthreshold = \"30s\"";
    let gate = Gate::start(&upstream, rules).await;
    let client = gate.client().open().await;
    let (one, two) = twice(&client, "fails").await;
    let opening = async {
        joined(&upstream, "refuses").await;
        latch.open();
    };
    let (refused, ()) = tokio::join!(twice(&client, "refuses"), opening);
    for job in [one.job(), two.job()] {
        let end = client.job_end(&job).await;
        assert_eq!(end.note()["error"], json!({"code": -32050, "message": "no such mesh", "data": {"k": 1}}));
    }
    for answer in [refused.0, refused.1] {
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")), "{}", answer.raw);
    }
    assert_eq!((upstream.calls("fails").len(), upstream.calls("refuses").len()), (1, 1));
}

#[tokio::test]
async fn b72_an_exchange_that_breaks_is_an_unknown_outcome_for_all() {
    let latch = Latch::new();
    let wait = latch.clone();
    let cut = script::script(move |mut call| {
        let latch = wait.clone();
        async move {
            latch.passed().await;
            call.reset().await;
        }
    });
    let upstream = Upstream::builder().tool("cut", cut).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"400ms\"").await;
    let client = gate.client().open().await;
    let job = client.call("cut", json!({"n": 1})).await.job();
    let opening = async {
        sleep(ms(60)).await;
        latch.open();
    };
    let (held, ()) = tokio::join!(client.call("cut", json!({"n": 1})), opening);
    assert_eq!(held.reason(), "outcome_unknown");
    assert!(client.job_end(&job).await.text().contains("outcome unknown"));
    assert_eq!(upstream.calls("cut").len(), 1);
}

#[tokio::test]
async fn b72_a_repeatable_call_is_repeated_once_for_all() {
    let latch = Latch::new();
    let wait = latch.clone();
    let flaky = script::script(move |mut call| {
        let latch = wait.clone();
        async move {
            latch.passed().await;
            if call.before == 0 {
                call.reset().await;
            } else {
                call.say("second");
            }
        }
    });
    let upstream =
        Upstream::builder().tool_with("count", &json!({"annotations": {"readOnlyHint": true}}), flaky).start().await;
    let gate = Gate::start(&upstream, &format!("{HELD}retry = \"idempotent\"")).await;
    let client = gate.client().open().await;
    client.tools().await.result();
    let opening = async {
        joined(&upstream, "count").await;
        latch.open();
    };
    let ((one, two), ()) = tokio::join!(twice(&client, "count"), opening);
    assert_eq!((one.text(), two.text(), upstream.calls("count").len()), ("second", "second", 2));
}

#[tokio::test]
async fn b72_a_large_answer_is_everybodys() {
    let begin = Latch::new();
    let wait = begin.clone();
    let large = script::script(move |mut call| {
        let begin = wait.clone();
        async move {
            begin.passed().await;
            call.say(&"A".repeat(2 << 20));
        }
    });
    let upstream = Upstream::builder().tool("large", large).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"1s\"").await;
    let client = gate.client().open().await;
    let job = client.call("large", json!({"n": 1})).await.job();
    let opening = async {
        sleep(ms(60)).await;
        begin.open();
    };
    let ((one, two), ()) = tokio::join!(twice(&client, "large"), opening);
    assert_eq!((one.text().len(), two.text().len()), (2 << 20, 2 << 20));
    assert_eq!(client.job_end(&job).await.block(1).len(), 2 << 20);
    assert_eq!(upstream.calls("large").len(), 1);
}

#[tokio::test]
async fn b72_fifty_at_once_are_one() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("echo", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"300ms\"").await;
    let client = gate.client().open().await;
    let calls = (0..50).map(|_| client.outcome("echo", json!({"text": "same"})));
    let opening = async {
        eventually("it is upstream", || !upstream.calls("echo").is_empty()).await;
        sleep(ms(300)).await;
        latch.open();
    };
    let (texts, ()) = tokio::join!(join_all(calls), opening);
    assert!(texts.iter().all(|text| text == "same"), "{texts:?}");
    assert_eq!((texts.len(), upstream.calls("echo").len()), (50, 1));
}

#[tokio::test]
async fn b72_a_call_that_joins_at_the_end_is_answered() {
    let upstream = Upstream::builder().tool("brief", script::after(ms(10), "done")).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().open().await;
    let run = async |number: u64| {
        for turn in 0..20 {
            sleep(ms((number * 3 + turn) % 11)).await;
            assert_eq!(client.call("brief", json!({})).await.text(), "done");
        }
    };
    join_all((0..8).map(run)).await;
    let made = upstream.calls("brief").len();
    assert!(made > 8 && made < 160, "{made} of 160 calls were made");
}
