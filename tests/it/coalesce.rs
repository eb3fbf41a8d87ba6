//! Equal calls that share one piece of work, where that is wanted.
//!
//! An agent that repeats a slow call does not start the work again, and none of its calls suffers from the others.

mod ends;
mod tasks;
mod told;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::client::Answer;
use crate::support::upstream::script;
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms, throughout, within};

const ON: &str = "[tasks]\ncoalesce = true\n";
/// The same, and nothing is deferred before its answer.
const HELD: &str = "[tasks]\ncoalesce = true\nthreshold = \"30s\"\n";

/// Waits until the clients of so many calls wait for their answers.
async fn held(gate: &Gate, calls: usize) {
    gate.gauge("held_calls", calls).await;
}

async fn twice(client: &Client, tool: &str) -> (Answer, Answer) {
    tokio::join!(client.call(tool, json!({"n": 1})), client.call(tool, json!({"n": 1})))
}

fn session_only(client: &Client, gate: &Gate) -> Client {
    gate.client().in_session(client.session.as_deref())
}

#[tokio::test]
async fn b72_off_each_call_is_made() {
    let (upstream, latch) = Upstream::holding("done").await;
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
    let (upstream, latch) = Upstream::holding("done").await;
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

    assert_eq!(client.outcome("slow", json!({})).await, "done");
    assert_eq!(upstream.calls("slow").len(), 2, "what has ended is not joined");
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
    let (upstream, _latch) = Upstream::holding("done").await;
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
    let (upstream, latch) = Upstream::holding("done").await;
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
    let (upstream, latch) = Upstream::holding("done").await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().open().await;
    let meddling = async {
        held(&gate, 2).await;
        // The first, whose id the call has upstream.
        assert_eq!(client.cancelled(&json!(101)).await.status, 202);
        throughout(ms(100), "the other goes on", || upstream.cancels().is_empty()).await;
        latch.open();
    };
    let second = async {
        held(&gate, 1).await;
        client.call_as("102", "slow", json!({})).await
    };
    let (first, second, ()) = tokio::join!(client.call_as("101", "slow", json!({})), second, meddling);
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
    let (upstream, _latch) = Upstream::holding("done").await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"200ms\"").await;
    let client = gate.client().open().await;
    tokio::select! {
        _ = client.call("slow", json!({"n": 1})) => panic!("it is held"),
        () = held(&gate, 1) => {}
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
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nmax_runtime = \"500ms\"").await;
    let client = gate.client().open().await;
    let one = client.call("endless", json!({})).await.job();
    sleep(ms(200)).await;
    let two = client.call("endless", json!({})).await.job();
    let end = client.job_end(&one).await;
    assert!(end.text().contains("max runtime"), "{}", end.raw);
    assert!(upstream.cancels().is_empty(), "the other may run on");
    let end = client.job_end(&two).await;
    assert!(end.text().contains("max runtime"), "{}", end.raw);
    within(ms(1000), "the upstream is told", || upstream.cancels().len() == 1).await;
    assert_eq!(upstream.calls("endless").len(), 1);
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
            held(&gate, 2).await;
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

#[tokio::test]
async fn b72_calls_deferred_at_once_are_shared_too() {
    let (upstream, latch) = Upstream::accepting("done").await;
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nmode = \"async\"").await;
    let client = gate.client().open().await;
    let (one, two) = twice(&client, "slow").await;
    let late = client.call("slow", json!({"n": 1})).await;
    latch.open();
    for job in [one.job(), two.job(), late.job()] {
        assert_eq!(client.job_end(&job).await.block(1), "done");
    }
    assert_eq!(upstream.calls("slow").len(), 1);
}

#[tokio::test]
async fn b72_fifty_at_once_are_one() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("echo", script::echo_held(&latch)).start().await;
    let gate = Gate::start(&upstream, ON).await;
    let client = gate.client().open().await;
    let answers = join_all((0..50).map(|_| client.call("echo", json!({"text": "same"})))).await;
    let jobs: BTreeSet<String> = answers.iter().map(Answer::job).collect();
    assert_eq!((jobs.len(), upstream.calls("echo").len()), (50, 1));
    latch.open();
    for job in jobs {
        assert_eq!(client.job_end(&job).await.block(1), "same");
    }
    assert_eq!(
        (client.outcome("echo", json!({"text": "same"})).await.as_str(), upstream.calls("echo").len()),
        ("same", 2)
    );
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
