//! What an upstream says on the way, when several calls share it: progress for all, each question for one.
//!
//! A client must not see a token that is not its own, nor a person be asked twice.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{HELD, ON, held, session_only, twice};
use crate::support::client::{Answer, EXTENSION};
use crate::support::upstream::script::{self, Script};
use crate::support::upstream::{Get, Recorded};
use crate::support::{Client, Gate, Latch, Upstream, eventually, ms, soon};

const PROGRESS: &str = "notifications/progress";

/// Reports three times, once it may, then answers once it may.
fn chatty(begin: &Latch, end: &Latch) -> Script {
    let end = end.clone();
    script::accepted_then(begin, move |mut call| {
        let end = end.clone();
        async move {
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
        held(&gate, 3).await;
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
    let gate = Gate::start(&upstream, "[tasks]\ncoalesce = true\nthreshold = \"500ms\"").await;
    let client = gate.client().open().await;
    let early = client.call("chatty", json!({})).await;
    let started = tokio::time::Instant::now();
    let late = client.call("chatty", json!({})).await;
    assert!(started.elapsed() >= ms(480), "a threshold of its own: {:?}", started.elapsed());
    begin.open();
    for job in [early.job(), late.job()] {
        let told = async {
            while !client.job(&job, 0.0).await.text().contains("75% (3") {
                sleep(ms(10)).await;
            }
        };
        soon("the last progress", told).await;
    }
    let opening = async {
        held(&gate, 1).await;
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
async fn b72_progress_on_the_sessions_own_stream_is_everybodys() {
    let latch = Latch::new();
    let upstream = Upstream::builder().tool("slow", script::held(&latch, "done")).get(Get::Stream).start().await;
    let gate = Gate::start(&upstream, HELD).await;
    let client = gate.client().open().await;
    let mut listening = client.listen().await.events();
    eventually("the stream is open", || upstream.listeners() == 1).await;
    let with = |token: Value| client.call_with("slow", json!({"_meta": {"progressToken": token}}));
    let pushing = async {
        held(&gate, 2).await;
        eventually("it is upstream", || upstream.calls("slow").len() == 1).await;
        let token = &upstream.calls("slow")[0].json["params"]["_meta"]["progressToken"];
        upstream
            .push(&json!({"jsonrpc": "2.0", "method": PROGRESS, "params": {"progressToken": token, "progress": 1}}));
        upstream.push(&json!({"jsonrpc": "2.0", "method": "notifications/last"}));
        assert_eq!(listening.message().await.unwrap()["method"], "notifications/last", "said where it belongs");
        sleep(ms(50)).await;
        latch.open();
    };
    let (one, two, ()) = tokio::join!(with(json!("one")), with(json!(2)), pushing);
    for (answer, token) in [(one, json!("one")), (two, json!(2))] {
        let seen = answer.before(PROGRESS);
        assert_eq!((answer.text(), seen.len()), ("done", 1), "{:?}", answer.events);
        assert_eq!(seen[0]["params"]["progressToken"], token);
    }
}

/// Asks when it may, and says what was answered.
fn curious(begin: &Latch) -> Script {
    let end = Latch::new();
    end.open();
    curious_until(begin, &end)
}

/// The same, and says it when it may.
fn curious_until(begin: &Latch, end: &Latch) -> Script {
    let end = end.clone();
    script::accepted_then(begin, move |mut call| {
        let end = end.clone();
        async move {
            let pong = call.ask(&json!("p"), "ping", &json!({})).await;
            assert_eq!(pong["result"], json!({}));
            let answer = call.ask(&json!(0), "elicitation/create", &json!({"message": "go on?"})).await;
            end.passed().await;
            call.say(answer["result"]["action"].as_str().unwrap_or("no answer"));
        }
    })
}

fn question(answer: &Answer) -> usize {
    answer.before("elicitation/create").len()
}

/// Answers of the session's clients that reached the upstream, save those to pings.
fn answers(upstream: &Upstream) -> Vec<Recorded> {
    upstream.answers_to(&json!(0))
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
        held(&gate, 2).await;
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
        held(&gate, 3).await;
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
        held(&gate, 2).await;
        begin.open();
    };
    let ((one, two), ()) = tokio::join!(twice(&client, "curious"), opening);
    assert_eq!((one.text(), two.text()), ("decline", "decline"));
    assert_eq!((upstream.calls("curious").len(), answers(&upstream).len()), (1, 1));
}

#[tokio::test]
async fn b72_after_the_handle_a_question_is_with_one_task_at_a_time() {
    for is_answered_first in [false, true] {
        let (begin, end) = (Latch::new(), Latch::new());
        let upstream = Upstream::builder().tool("curious", curious_until(&begin, &end)).start().await;
        let gate = Gate::start(&upstream, ON).await;
        let abilities = json!({"elicitation": {}, "extensions": {EXTENSION: {}}});
        let client = gate.client().capabilities(abilities).open().await;
        let one = client.call("curious", json!({})).await.task();
        let two = client.call("curious", json!({})).await.task();
        begin.open();
        let asked = asked_by(&client, &one).await;
        assert_eq!(client.task(&two).await.state(), "working");
        if is_answered_first {
            accept(&client, &one, &asked).await;
            eventually("the upstream is told", || answers(&upstream).len() == 1).await;
        }
        client.cancel_task(&one).await.result();
        if is_answered_first {
            sleep(ms(100)).await;
            assert_eq!(client.task(&two).await.state(), "working", "it has been answered");
        } else {
            let asked = asked_by(&client, &two).await;
            accept(&client, &two, &asked).await;
        }
        end.open();
        let end = client.task_end(&two).await;
        assert_eq!(end.result()["result"]["content"][0]["text"], "accept", "{}", end.raw);
        assert_eq!((answers(&upstream).len(), upstream.cancels().len(), upstream.calls("curious").len()), (1, 0, 1));
    }
}

/// A task, once it waits for an answer.
async fn asked_by(client: &Client, task: &str) -> Answer {
    let asked = async {
        loop {
            let answer = client.task(task).await;
            if answer.state() == "input_required" {
                return answer;
            }
            sleep(ms(5)).await;
        }
    };
    soon("a question", asked).await
}

/// Answers the only question of a task.
async fn accept(client: &Client, task: &str, asked: &Answer) {
    let questions = asked.result()["inputRequests"].as_object().unwrap();
    let answers: serde_json::Map<_, _> =
        questions.keys().map(|key| (key.clone(), json!({"action": "accept", "content": {}}))).collect();
    assert_eq!(answers.len(), 1, "{}", asked.raw);
    client.request("tasks/update", json!({"taskId": task, "inputResponses": answers})).await.result();
}
